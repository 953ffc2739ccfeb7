//! Sets of several devices that Linux made, stored as the non-zero parts of their members (`examples/pack_set.rs`).

use std::sync::{Arc, OnceLock};

use creamery_base::{DevId, Generation, Logical, TreeId, Wait};
use creamery_codec::unpack_zstd;
use creamery_device::BlockDevice;
use creamery_format::{BlockRef, Expected, KeyType, RawRootItem};
use creamery_sim::{Image, PAGE, SimDevice};
use creamery_volume::{Chunk, DeviceSet, Mode, Volume};

/// Bytes of a member.
const MEMBER_LEN: u64 = 128 << 20;
/// Maximum unpacked bytes of a pack.
const PACK_MAX: usize = 24 << 20;

/// A tree block of a set: the places of its copies, by number of the member, and its bytes.
pub(crate) struct SetBlock {
    pub(crate) copies: Vec<(usize, u64)>,
    pub(crate) bytes: Vec<u8>,
}

/// A set and its tree blocks.
pub(crate) struct SetBase {
    pub(crate) members: Vec<Image>,
    /// The blocks; those of the chunk tree come first.
    pub(crate) blocks: Vec<SetBlock>,
    pub(crate) chunk_blocks: usize,
    /// Pages that are not zero.
    pub(crate) pages: Vec<(usize, u64)>,
}

/// A set of two mirrors, or RAID6 on four members.
pub(crate) fn set_base(number: usize) -> &'static SetBase {
    static BASES: [OnceLock<SetBase>; 2] = [OnceLock::new(), OnceLock::new()];
    const PACKS: [&[u8]; 2] = [include_bytes!("../sets/raid1.zst"), include_bytes!("../sets/raid6.zst")];
    let number = number % PACKS.len();
    BASES[number].get_or_init(|| SetBase::unpack(PACKS[number]))
}

pub(crate) fn devices(members: &[Image]) -> Vec<Arc<SimDevice>> {
    members.iter().map(|image| Arc::new(SimDevice::new(image.clone()))).collect()
}

impl SetBase {
    fn unpack(pack: &[u8]) -> Self {
        let mut bytes = vec![0; PACK_MAX];
        let len = unpack_zstd(pack, &mut bytes).expect("a pack of our own");
        let (mut members, mut pages) = (Vec::new(), Vec::new());
        for entry in bytes[..len].chunks_exact(1 + 4 + PAGE) {
            let member = usize::from(entry[0]);
            let number = u32::from_le_bytes([entry[1], entry[2], entry[3], entry[4]]);
            if members.len() <= member {
                members.resize_with(member + 1, || Image::new(MEMBER_LEN));
            }
            let offset = u64::from(number) * PAGE as u64;
            members[member].write(offset, &entry[5..]);
            pages.push((member, offset));
        }
        members.iter_mut().for_each(Image::freeze);
        let (blocks, chunk_blocks) = blocks_of(&members).expect("Linux' trees can be walked");
        Self { members, blocks, chunk_blocks, pages }
    }
}

/// All tree blocks, and the number of those of the chunk tree.
fn blocks_of(members: &[Image]) -> creamery_base::Result<(Vec<SetBlock>, usize)> {
    let devices = devices(members).into_iter().map(|device| device as Arc<dyn BlockDevice>);
    let volume = Volume::open(devices.collect::<DeviceSet>(), Mode::ReadOnly)?;
    let superblock = volume.superblock();
    let mut found = Vec::new();
    let mut roots = Vec::new();
    walk(&volume, TreeId::CHUNK, superblock.chunk_root(), &mut found, &mut roots)?;
    let chunk_blocks = found.len();
    let (root, level) = superblock.root();
    walk(&volume, TreeId::ROOT, (root, level, superblock.generation()), &mut found, &mut roots)?;
    while let Some((tree, root)) = roots.pop() {
        walk(&volume, tree, root, &mut found, &mut roots)?;
    }
    Ok((found, chunk_blocks))
}

type Root = (Logical, u8, Generation);

fn walk(
    volume: &Volume,
    tree: TreeId,
    root: Root,
    found: &mut Vec<SetBlock>,
    roots: &mut Vec<(TreeId, Root)>,
) -> creamery_base::Result<()> {
    let mut waiting = vec![root];
    while let Some((logical, level, generation)) = waiting.pop() {
        let want = Expected {
            level: Some(level),
            generation: Some(generation),
            owner: None,
            ..Expected::anything(logical, &volume.superblock())
        };
        let bytes = volume.read_tree_block(logical, &want, Wait::Yes)?.to_vec();
        let block = BlockRef::new(&bytes);
        for slot in 0..block.count() {
            match block.is_leaf() {
                false => {
                    let (child, generation) = block.child(slot);
                    waiting.push((child, level - 1, generation));
                }
                true => item(volume, tree, &block, slot, roots)?,
            }
        }
        let places = volume.map(logical, bytes.len() as u64)?;
        let member = |dev: DevId| usize::try_from(dev.get() - 1).expect("few members");
        let copies = places.mirrors().iter().map(|mirror| (member(mirror[0].at.dev), mirror[0].at.offset));
        let copies = copies.collect();
        found.push(SetBlock { copies, bytes });
    }
    Ok(())
}

fn item(
    volume: &Volume,
    tree: TreeId,
    block: &BlockRef<'_>,
    slot: usize,
    roots: &mut Vec<(TreeId, Root)>,
) -> creamery_base::Result<()> {
    let (key, data) = (block.key(slot), block.data(slot));
    if tree == TreeId::CHUNK && key.kind == KeyType::CHUNK_ITEM {
        let chunk = Chunk::from_item(Logical::new(key.offset), data, volume.sector_size())?;
        if volume.chunk_at(chunk.start).is_none() {
            volume.push_chunk(chunk)?;
        }
    } else if tree == TreeId::ROOT && key.kind == KeyType::ROOT_ITEM {
        let item = RawRootItem::from_item(data).expect("root items of Linux");
        roots.push((TreeId::from(key.objectid), (item.root(), item.level, item.root_generation())));
    }
    Ok(())
}
