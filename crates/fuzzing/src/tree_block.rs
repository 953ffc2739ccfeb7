//! A single block or superblock with a right checksum: its check, and the readers behind the check.

use std::fmt;

use creamery_codec::ChecksumType;
use creamery_format::dump::{self, DumpContext};
use creamery_format::{
    BlockRef, Chunk, DirEntries, Expected, ExtentItem, FileExtent, HEADER_LEN, ITEM_LEN, InodeExtrefs,
    InodeRefs, RawRootItem, RawSuperblock, SUPERBLOCK_LEN, Superblock, check_item, seal, verify_block,
};
use zerocopy::FromBytes;

use crate::base::base;
use crate::input::Input;

const SUM_LEN: usize = 32;
/// Maximum characters in the output about one block.
const PRINTED_MAX: usize = 4 << 20;

/// Seals a block made from the input, verifies it, uses it if it passes, and prints it in any case.
///
/// ```
/// creamery_fuzzing::tree_block(b"\x00\x10\x00");
/// ```
pub fn tree_block(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    if how & 1 != 0 {
        let mut bytes = base(0).superblock.clone();
        patch(&mut bytes, how, &mut input);
        return superblock(&mut bytes);
    }
    let blocks = &base(usize::from(how >> 1 & 1)).blocks;
    let mut bytes = blocks[usize::from(input.byte()) % blocks.len()].bytes.clone();
    patch(&mut bytes, how, &mut input);
    seal(&mut bytes, ChecksumType::Crc32c);
    if verify_block(&bytes, &believing(&bytes)).is_ok() {
        use_block(BlockRef::new(&bytes));
    }
    let mut text = Counted(0);
    let simple_quota = how & 4 != 0;
    dump::block(&mut text, BlockRef::new(&bytes), &DumpContext { simple_quota, ..DumpContext::default() })
        .expect("one block prints little");
}

/// Overwrites places, or everything behind the header.
fn patch(bytes: &mut [u8], how: u8, input: &mut Input<'_>) {
    if how & 8 != 0 {
        let rest = input.rest();
        let len = rest.len().min(bytes.len() - SUM_LEN);
        bytes[SUM_LEN..SUM_LEN + len].copy_from_slice(&rest[..len]);
        return;
    }
    while !input.is_empty() {
        // More often near the front, where lengths and counts are.
        let near = [HEADER_LEN, HEADER_LEN + ITEM_LEN, 600, bytes.len()][usize::from(input.byte() % 4)];
        let at = SUM_LEN + input.below(near - SUM_LEN);
        let len = input.byte();
        let new = input.take([1, 1, 2, 4, 8, 17, 25, 48][usize::from(len % 8)]);
        let end = (at + new.len()).min(bytes.len());
        bytes[at..end].copy_from_slice(&new[..end - at]);
    }
}

/// The block's own identity as the expected one, so that only its content is judged.
///
/// Takes a whole block; panics on one shorter than a header.
pub fn believing(bytes: &[u8]) -> Expected {
    let block = BlockRef::new(bytes);
    Expected {
        logical: block.logical(),
        level: None,
        generation: None,
        owner: None,
        first_key: None,
        fsid: block.fsid(),
        checksum: ChecksumType::Crc32c,
    }
}

/// Uses a block that passed its check as a reader does; panics if a promise of the check does not hold.
pub fn use_block(block: BlockRef<'_>) {
    for slot in 0..block.count() {
        assert_eq!(block.search(&block.key(slot), 0), Ok(slot), "keys are in order");
        if !block.is_leaf() {
            assert_ne!(block.child(slot).0.get(), 0, "children have addresses");
            continue;
        }
        assert_eq!(check_item(block, slot), Ok(()), "items were checked");
        let data = block.data(slot);
        let entries =
            DirEntries::new(data).count() + InodeRefs::new(data).count() + InodeExtrefs::new(data).count();
        assert!(entries <= 3 * data.len(), "packed entries end");
        if let Ok(item) = ExtentItem::parse(block.key(slot).kind, data) {
            assert!(item.refs().count() <= data.len(), "packed references end");
        }
        let _ = (FileExtent::parse(data), Chunk::parse(data), RawRootItem::from_item(data));
    }
    if block.is_leaf() {
        assert!(block.free_space() < block.node_size(), "items lie inside the leaf");
    }
}

fn superblock(bytes: &mut [u8]) {
    const AT: u64 = 64 << 10;
    seal(bytes, ChecksumType::Crc32c);
    assert_eq!(bytes.len(), SUPERBLOCK_LEN, "a superblock's length");
    if let Ok(superblock) = Superblock::from_bytes(bytes, AT) {
        assert!(superblock.sys_chunks().all(|entry| entry.is_ok()), "system chunks were checked");
        assert_eq!(superblock.to_bytes(AT), bytes, "written as it was read");
    }
    let raw = RawSuperblock::ref_from_bytes(bytes).expect("a superblock's length");
    dump::superblock(&mut Counted(0), raw, AT, "image", true).expect("one superblock prints little");
}

/// Counts the printed characters.
struct Counted(usize);

impl fmt::Write for Counted {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len();
        if self.0 <= PRINTED_MAX { Ok(()) } else { Err(fmt::Error) }
    }
}
