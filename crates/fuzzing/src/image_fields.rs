//! Damage under valid checksums: changes fields of tree blocks and superblocks, and seals everything again, so that the damage reaches the
//! code behind the checksum test.

use std::collections::BTreeMap;
use std::sync::Arc;

use creamery_codec::ChecksumType;
use creamery_format::{
    BlockMut, BlockRef, Expected, HEADER_LEN, ITEM_LEN, Key, KeyType, RawDirItem, RawInodeExtref,
    RawInodeRef, SUPERBLOCK_LEN, seal, verify_block,
};
use creamery_sim::{Image, SimDevice};

use crate::base::{Base, base};
use crate::input::Input;
use crate::readers::{read_everything, write_something};

const CHANGES_MAX: usize = 16;
/// The offset of a superblock's own address.
const SUPERBLOCK_ADDRESS: usize = 48;
/// Bytes of the checksum, which comes first in blocks and superblocks.
const SUM_LEN: usize = 32;

/// Changes fields of a small filesystem as the input says, reads all of it, and writes to it.
///
/// ```
/// creamery_fuzzing::image_fields(b"\x00");
/// ```
pub fn image_fields(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let mut damage = Damage::new(base(usize::from(how & 1)));
    if how & 24 == 16 {
        damage.rename(&mut input);
    }
    for _ in 0..CHANGES_MAX {
        if input.is_empty() {
            break;
        }
        damage.change(&mut input);
    }
    let device = Arc::new(SimDevice::new(damage.image(how & 2 == 0)));
    if how & 8 == 0 {
        read_everything(&device);
    }
    if how & 4 != 0 {
        write_something(&device);
        read_everything(&device);
    }
}

/// A base image and its pending changes.
pub(crate) struct Damage {
    base: &'static Base,
    blocks: BTreeMap<usize, Vec<u8>>,
    pub(crate) superblock: Vec<u8>,
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    let len = bytes.len().saturating_sub(at).min(8);
    long[..len].copy_from_slice(&bytes[at..at + len]);
    u64::from_le_bytes(long)
}

/// Writes a number of 1, 2, 4 or 8 bytes from the input.
pub(crate) fn overwrite(bytes: &mut [u8], at: usize, input: &mut Input<'_>) {
    let at = at.min(bytes.len());
    let len = 1 << (input.byte() % 4);
    let value = input.number(len, long(bytes, at)).to_le_bytes();
    let end = (at + len).min(bytes.len());
    bytes[at..end].copy_from_slice(&value[..end - at]);
}

/// Whether items can be edited: the structure of the block is intact, only its content is damaged.
pub(crate) fn is_built_well(bytes: &[u8]) -> bool {
    let block = BlockRef::new(bytes);
    let want = Expected {
        logical: block.logical(),
        level: Some(block.level()),
        generation: None,
        owner: None,
        first_key: None,
        fsid: block.fsid(),
        checksum: ChecksumType::Crc32c,
    };
    let mut sealed = bytes.to_vec();
    seal(&mut sealed, ChecksumType::Crc32c);
    block.count() > 0 && verify_block(&sealed, &want).is_ok()
}

impl Damage {
    pub(crate) fn new(base: &'static Base) -> Self {
        Self { base, blocks: BTreeMap::new(), superblock: base.superblock.clone() }
    }

    pub(crate) fn block(&mut self, number: usize) -> &mut Vec<u8> {
        self.blocks.entry(number).or_insert_with(|| self.base.blocks[number].bytes.clone())
    }

    pub(crate) fn change(&mut self, input: &mut Input<'_>) {
        let what = input.byte() % 12;
        if what == 0 {
            let at = SUM_LEN + input.below(SUPERBLOCK_LEN - SUM_LEN);
            return overwrite(&mut self.superblock, at, input);
        }
        let number = usize::from(input.byte()) % self.base.blocks.len();
        let base = self.base;
        let block = self.block(number);
        match what {
            1 => {
                let at = SUM_LEN + input.below(block.len() - SUM_LEN);
                overwrite(block, at, input);
            }
            2 => {
                let at = SUM_LEN + input.below(HEADER_LEN - SUM_LEN);
                overwrite(block, at, input);
            }
            _ if !is_built_well(block) => {}
            3 => {
                let at = HEADER_LEN + input.below(BlockRef::new(block).count() * ITEM_LEN);
                overwrite(block, at, input);
            }
            4..=6 => overwrite_data(block, input),
            7 => remove(block, input),
            8 => insert(block, input),
            9 => set_key(block, input),
            10 => point_elsewhere(block, base, input),
            _ => {
                let other = base.blocks[usize::from(input.byte()) % base.blocks.len()].bytes.clone();
                copy_over(block, &other, input);
            }
        }
    }

    /// Gives a file a name that leads elsewhere, in one of the items that hold its name.
    fn rename(&mut self, input: &mut Input<'_>) {
        const NAMES: [&[u8]; 8] = [b"/", b"..", b".", b"\0", b"../x", b"/etc/x", b"x/", b"a\0b"];
        const KINDS: [KeyType; 6] = [
            KeyType::DIR_INDEX,
            KeyType::INODE_REF,
            KeyType::INODE_EXTREF,
            KeyType::ROOT_REF,
            KeyType::ROOT_BACKREF,
            KeyType::XATTR_ITEM,
        ];
        let new = NAMES[usize::from(input.byte() % 8)];
        let kind = KINDS[usize::from(input.byte() % 6)];
        let mut skip = usize::from(input.byte());
        for number in 0..self.base.blocks.len() {
            let block = BlockRef::new(&self.base.blocks[number].bytes);
            for slot in if block.is_leaf() { 0..block.count() } else { 0..0 } {
                if block.key(slot).kind == kind && skip > 0 {
                    skip -= 1;
                } else if block.key(slot).kind == kind {
                    return rename_item(self.block(number), slot, new);
                }
            }
        }
    }

    /// The image with all changes, sealed, on all copies. With `follow`, parents get the new first keys.
    pub(crate) fn image(mut self, follow: bool) -> Image {
        let numbers: Vec<usize> =
            if follow { (0..self.base.blocks.len()).rev().collect() } else { Vec::new() };
        for number in numbers {
            if let Some(parent) = self.base.blocks[number].parent
                && let Some(bytes) = self.blocks.get(&number)
                && is_built_well(bytes)
                && let Some(key) = BlockRef::new(bytes).first_key()
            {
                self.tell(parent, number, key);
            }
        }
        let mut image = self.base.image.clone();
        for (number, mut bytes) in self.blocks {
            seal(&mut bytes, ChecksumType::Crc32c);
            for &at in &self.base.blocks[number].copies {
                image.write(at, &bytes);
            }
        }
        for &at in &self.base.superblocks {
            self.superblock[SUPERBLOCK_ADDRESS..SUPERBLOCK_ADDRESS + 8].copy_from_slice(&at.to_le_bytes());
            seal(&mut self.superblock, ChecksumType::Crc32c);
            image.write(at, &self.superblock);
        }
        image
    }

    fn tell(&mut self, parent: usize, child: usize, key: Key) {
        let logical = self.base.blocks[child].logical;
        let bytes = self.block(parent);
        let block = BlockRef::new(bytes);
        if block.is_leaf() || !is_built_well(bytes) {
            return;
        }
        let slot = (0..block.count()).find(|&slot| block.child(slot).0 == logical);
        if let Some(slot) = slot.filter(|&slot| block.key(slot) != key) {
            BlockMut::new(bytes).set_key(slot, &key);
        }
    }
}

fn overwrite_data(bytes: &mut [u8], input: &mut Input<'_>) {
    let block = BlockRef::new(bytes);
    let slot = usize::from(input.byte()) % block.count();
    if !block.is_leaf() {
        let at = HEADER_LEN + input.below(block.count() * 33);
        return overwrite(bytes, at, input);
    }
    let len = block.item_size(slot);
    if len > 0 {
        let at = input.below(len);
        overwrite(BlockMut::new(bytes).data_mut(slot), at, input);
    }
}

/// Gives the first entry or reference of an item a name as long as `new`. Items of these types begin with a head that ends in the name's
/// length (followed by the type, for an entry), and the name comes next.
fn rename_item(bytes: &mut [u8], slot: usize, new: &[u8]) {
    let key = BlockRef::new(bytes).key(slot);
    let (head, len_at) = match key.kind {
        KeyType::INODE_REF => (RawInodeRef::LEN, RawInodeRef::LEN - 2),
        KeyType::DIR_INDEX | KeyType::XATTR_ITEM => (RawDirItem::LEN, RawDirItem::LEN - 3),
        _ => (RawInodeExtref::LEN, RawInodeExtref::LEN - 2),
    };
    let mut data = BlockRef::new(bytes).data(slot)[..head].to_vec();
    data[len_at..len_at + 2].copy_from_slice(&(new.len() as u16).to_le_bytes());
    if key.kind == KeyType::XATTR_ITEM {
        data[len_at - 2..len_at].fill(0);
    }
    data.extend_from_slice(new);
    let mut block = BlockMut::new(bytes);
    block.remove_items(slot, 1);
    if block.as_ref().free_space() >= data.len() + ITEM_LEN {
        block.insert_items(slot, &[(key, data.len())]);
        block.data_mut(slot).copy_from_slice(&data);
    }
}

fn remove(bytes: &mut [u8], input: &mut Input<'_>) {
    let (leaf, count) = (BlockRef::new(bytes).is_leaf(), BlockRef::new(bytes).count());
    let slot = usize::from(input.byte()) % count;
    let some = 1 + usize::from(input.byte()) % (count - slot);
    let mut block = BlockMut::new(bytes);
    if leaf { block.remove_items(slot, some) } else { block.remove_ptrs(slot, some) }
}

fn key(near: Key, input: &mut Input<'_>) -> Key {
    let kind = match input.byte() % 4 {
        0 => near.kind,
        _ => KeyType::new(input.byte()),
    };
    let objectid = input.number(8, near.objectid.get());
    Key::new(objectid.into(), kind, input.number(8, near.offset))
}

/// Inserts an item, at the place where its key belongs, or at any.
fn insert(bytes: &mut [u8], input: &mut Input<'_>) {
    let block = BlockRef::new(bytes);
    let slot = usize::from(input.byte()) % block.count();
    let key = key(block.key(slot), input);
    let at = block.search(&key, 0).unwrap_or_else(|at| at);
    let len = usize::from(input.byte());
    if !block.is_leaf() || block.free_space() < len + ITEM_LEN {
        return;
    }
    // Its bytes are those of the item that is there, changed by the input.
    let like = block.data(slot).to_vec();
    let mut block = BlockMut::new(bytes);
    block.insert_items(at, &[(key, len)]);
    let data = block.data_mut(at);
    let copied = len.min(like.len());
    data[..copied].copy_from_slice(&like[..copied]);
    let own = usize::from(input.byte()) % 32;
    let own = input.take(own);
    let own = &own[..own.len().min(len)];
    data[..own.len()].copy_from_slice(own);
}

fn set_key(bytes: &mut [u8], input: &mut Input<'_>) {
    let block = BlockRef::new(bytes);
    let slot = usize::from(input.byte()) % block.count();
    let key = key(block.key(slot), input);
    let leaf = block.is_leaf();
    let mut block = BlockMut::new(bytes);
    if leaf { block.set_item_key(slot, &key) } else { block.set_key(slot, &key) }
}

/// Points to a block that others point to: shared blocks, cycles, wrong trees.
fn point_elsewhere(bytes: &mut [u8], base: &Base, input: &mut Input<'_>) {
    let block = BlockRef::new(bytes);
    if block.is_leaf() {
        return;
    }
    let slot = usize::from(input.byte()) % block.count();
    let other = &base.blocks[usize::from(input.byte()) % base.blocks.len()];
    let target = BlockRef::new(&other.bytes);
    let mut block = BlockMut::new(bytes);
    block.set_child(slot, other.logical, target.generation());
    if let Some(key) = target.first_key().filter(|_| input.byte() & 1 == 0) {
        block.set_key(slot, &key);
    }
}

/// Copies the content of another block under the identity of this one.
fn copy_over(bytes: &mut [u8], other: &[u8], input: &mut Input<'_>) {
    let block = BlockRef::new(bytes);
    let (logical, generation, owner) = (block.logical(), block.generation(), block.owner());
    bytes.copy_from_slice(other);
    let how = input.byte();
    let mut block = BlockMut::new(bytes);
    block.set_logical(logical);
    if how & 1 == 0 {
        block.set_generation(generation);
    }
    if how & 2 == 0 {
        block.set_owner(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_seen_by_nobody() {
        // Each kind of item with each such name; readers of the image look at every name.
        for kind in 0..6 {
            for name in 0..8 {
                image_fields(&[16, name, kind, 3]);
            }
        }
    }
}
