//! Cuts a finished filesystem to the end of its last chunk.
//!
//! The size of the device stands in its item in the chunk tree and in every superblock. This runs after the last commit and before any
//! superblock has reached the device ([`crate::held`]): no reader can see the old state, so the one block of the chunk tree is changed in
//! place instead of being copied.

use creamery_base::{Error, ErrorKind, ObjectId, Result, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_format::{
    BlockMut, BlockRef, Expected, Key, KeyType, RawDevItem, Superblock, seal, verify_block,
};
use creamery_fs::Filesystem;
use creamery_volume::Volume;
use zerocopy::FromBytes;

use crate::held::HeldSuperblocks;
use crate::trees::DEVID;

/// Sets the size of the filesystem to the end of its chunks; returns it. The caller truncates the file.
pub(crate) fn shrink(fs: &Filesystem, held: &HeldSuperblocks) -> Result<u64> {
    let volume = fs.engine().volume();
    let ends = volume.chunks().into_iter().flat_map(|chunk| {
        let len = chunk.stripe_bytes();
        chunk.stripes.iter().map(move |stripe| stripe.offset + len).collect::<Vec<_>>()
    });
    let total = ends.max().ok_or_else(|| Error::new(ErrorKind::Corrupt, "a filesystem without chunks"))?;
    let superblock = volume.superblock();
    set_device_size(volume, held, &superblock, total)?;
    held.edit_superblocks(total, |superblock| {
        let raw = superblock.raw_mut();
        raw.total_bytes = total.into();
        raw.dev_item.total_bytes = total.into();
    })?;
    Ok(total)
}

fn corrupt(what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, what)
}

/// Changes the device's item, in the leftmost leaf of the chunk tree.
fn set_device_size(
    volume: &Volume,
    device: &dyn BlockDevice,
    superblock: &Superblock,
    total: u64,
) -> Result<()> {
    let (mut at, mut level, mut generation) = superblock.chunk_root();
    let mut first_key = None;
    loop {
        let want = Expected {
            logical: at,
            level: Some(level),
            generation: Some(generation),
            owner: Some(TreeId::CHUNK),
            first_key,
            fsid: superblock.metadata_uuid(),
            checksum: superblock.checksum_type(),
        };
        let mut block = volume.read_tree_block(at, &want, Wait::Yes)?;
        if level > 0 {
            let node = BlockRef::new(&block);
            first_key = node.first_key();
            (at, generation) = node.child(0);
            level -= 1;
            continue;
        }
        let key = Key::new(ObjectId::DEV_ITEMS, KeyType::DEV_ITEM, DEVID);
        let slot =
            BlockRef::new(&block).search(&key, 0).map_err(|_| corrupt("no device item in the chunk tree"))?;
        let mut leaf = BlockMut::new(&mut block);
        let (item, _) = RawDevItem::mut_from_prefix(leaf.data_mut(slot))
            .map_err(|_| corrupt("device item is too short"))?;
        item.total_bytes = total.into();
        seal(&mut block, superblock.checksum_type());
        verify_block(&block, &want).expect("a block that was good is good with another size in it");
        for mirror in volume.map(at, block.len() as u64)?.mirrors() {
            let mut rest = &block[..];
            for piece in mirror {
                let (bytes, after) = rest.split_at(usize::try_from(piece.len).expect("a piece of a block"));
                device.write_at(piece.at.offset, bytes)?;
                rest = after;
            }
        }
        return Ok(());
    }
}
