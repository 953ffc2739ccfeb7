//! Changing the filesystem UUID in every tree block.
//!
//! Tree blocks are overwritten in place, against Creamery's first rule, and that is right here. Copies would not help: references
//! to a block name its address, so a filesystem whose blocks are half old and half new cannot be read, wherever the
//! new halves lie; and there may be no room for all of them. The protection is that only three fields change (checksum, UUID
//! and the UUID of the chunk tree), all at the start of a block, and that a block is good with either UUID:
//!
//! - Before the first block changes, every copy of all of them is read: damage is reported while nothing is changed, and no older
//!   block of the same address, which a write has missed, is taken for the one that the extent tree lists.
//! - The fields lie in the first sector, and a write is torn between sectors (`docs/internals/media-assumptions.md`), so a block is old or new. Only
//!   its first page is written, of each copy.
//! - The leaf of the chunk tree with the device's item has the UUID at its other end, too, and is written as a whole, a copy at a time. If the
//!   write is torn between both, the checksum fits the UUID in the first sector: reading gives the item that UUID.
//! - The superblock records that a change has begun (`creamery_volume::FsidChange`), nothing else opens the filesystem meanwhile, and a later call writes the
//!   blocks that are not new yet. By then a block may have been lost: it stays unchanged, and the others do not wait for it. One copy
//!   that cannot be written counts as lost, too, where another one was written.
//!
//! The extent tree gives the blocks, each once, in the order of their addresses; where a tree has a block that is not listed
//! there, nothing begins (`unlisted`). Its own blocks are among them: data read from them
//! stays true, for keys and addresses do not change.

mod unlisted;

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Generation, Logical, ObjectId, Result, TreeId, Uuid, Wait};
use creamery_device::{AlignedBuffer, BlockDevice};
use creamery_format::{
    BlockMut, BlockRef, Expected, ExtentFlags, ExtentItem, Key, KeyType, RawDevItem, RawRootItem, seal,
    verify_block,
};
use creamery_tree::RootPointer;
use creamery_volume::{Chunk, FsidChange, Mirror, Volume};
use zerocopy::FromBytes;

use unlisted::{Listed, WalkedTree};

/// Bytes written of a block: a device mostly reads a page before it writes less than a page.
const PAGE: usize = 4096;

/// A callback with the number of tree blocks done and their total, which is 0 while they are counted; its error ends the change.
pub type FsidProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// Gives every tree block the new UUID, and `random` as that of the chunk tree; durable when it returns. An interruption leaves a
/// filesystem that cannot be opened before this is called again. Returns the number of unreadable tree blocks that stay unchanged: 0,
/// unless it continues an earlier change.
///
/// ```no_run
/// # fn example(device: std::sync::Arc<dyn creamery_device::BlockDevice>) -> creamery_base::Result<()> {
/// use creamery_base::{Env, SystemEnv};
/// let change = creamery_volume::FsidChange::new(device, None, &SystemEnv)?;
/// creamery_txn::change_fsid(change, SystemEnv.uuid(), &mut |_, _| Ok(()))?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Device errors; errors of `progress`; before any write: a copy of a block is damaged, or on a missing device, or a tree has a block that the extent tree lacks.
pub fn change_fsid(change: FsidChange, random: Uuid, progress: FsidProgress<'_>) -> Result<u64> {
    let blocks = ChangedBlocks::open(&change, random)?;
    if let Some(chunk) = blocks.volume.chunks().iter().find(|chunk| chunk.has_parity()) {
        let what =
            format!("changing tree blocks in place beside parity: chunk {} is {}", chunk.start, chunk.flags);
        return Err(Error::unsupported(what));
    }
    let (mut total, mut all) = (0, Listed::default());
    blocks.each(&mut |listed| {
        if !change.is_begun() {
            blocks.check_copies(listed)?;
            all.add(listed.want.logical);
        }
        total += 1;
        progress(0, 0)
    })?;
    if !change.is_begun() {
        blocks.check_listed(all).map_err(|error| error.context(blocks.volume.describe()))?;
    }
    change.begin()?;
    let (mut done, mut lost) = (0, 0);
    blocks.each(&mut |listed| {
        match blocks.change(listed) {
            Err(error) if change.is_begun() && error.kind() == ErrorKind::Unreadable => lost += 1,
            outcome => outcome?,
        }
        done += 1;
        progress(done, total)
    })?;
    change.finish()?;
    Ok(lost)
}

/// A tree block that the extent tree lists.
struct ListedBlock {
    /// The expected header, without a generation.
    want: Expected,
    /// The generation in its extent item. A block may be newer, after `btrfs check --repair` for example: its parent has the right
    /// generation. An older one is left from a lost write.
    item: Generation,
}

impl ListedBlock {
    fn check_generation(&self, block: BlockRef<'_>, newest: Generation) -> Result<()> {
        let (found, at) = (block.generation(), self.want.logical);
        if (self.item..=newest).contains(&found) {
            return Ok(());
        }
        let what = format!(
            "the tree block at logical {at}: wrong generation, expected [{}, {newest}], found {found}",
            self.item
        );
        Err(Error::new(ErrorKind::Unreadable, what))
    }
}

/// The tree blocks of a filesystem, each of which has the old or the new UUID.
struct ChangedBlocks {
    volume: Volume,
    old: Uuid,
    new: Uuid,
    /// The new UUID of the chunk tree.
    chunk_tree: Uuid,
    extent_root: RootPointer,
}

impl ChangedBlocks {
    fn open(change: &FsidChange, random: Uuid) -> Result<Self> {
        let volume = change.volume()?;
        let superblock = volume.superblock();
        let nowhere = RootPointer { logical: Logical::new(0), generation: Generation::new(0), level: 0 };
        let (old, new) = (change.old(), change.new_uuid());
        let mut blocks = Self { volume, old, new, chunk_tree: random, extent_root: nowhere };
        let (logical, level, generation) = superblock.chunk_root();
        let chunk_root = RootPointer { logical, generation, level };
        // A continued change uses the UUID of the first call, if it can be read.
        let first = blocks.read(&blocks.expect_root(TreeId::CHUNK, chunk_root))?;
        if change.is_begun() && BlockRef::new(&first).fsid() == new {
            blocks.chunk_tree = BlockRef::new(&first).chunk_tree_uuid();
        }
        blocks.push_chunks(chunk_root)?;
        let (logical, level) = superblock.root();
        blocks.extent_root =
            blocks.find_extent_root(RootPointer { logical, generation: superblock.generation(), level })?;
        Ok(blocks)
    }

    fn expect_root(&self, tree: TreeId, root: RootPointer) -> Expected {
        Expected {
            level: Some(root.level),
            generation: Some(root.generation),
            owner: Some(tree),
            ..Expected::anything(root.logical, &self.volume.superblock())
        }
    }

    fn push_chunks(&self, root: RootPointer) -> Result<()> {
        let mut chunks = Vec::new();
        self.leaves(&self.expect_root(TreeId::CHUNK, root), &mut |leaf| {
            for slot in 0..leaf.count() {
                let key = leaf.key(slot);
                if key.kind == KeyType::DEV_ITEM
                    && key.offset != self.volume.superblock().dev_item().devid.get()
                {
                    return Err(Error::unsupported("a filesystem on several devices"));
                }
                if key.kind == KeyType::CHUNK_ITEM && self.volume.chunk_at(key.offset.into()).is_none() {
                    chunks.push(Chunk::from_item(
                        key.offset.into(),
                        leaf.data(slot),
                        self.volume.sector_size(),
                    )?);
                }
            }
            Ok(())
        })?;
        self.volume.push_chunks(chunks)
    }

    fn find_extent_root(&self, root: RootPointer) -> Result<RootPointer> {
        let mut found = None;
        self.leaves(&self.expect_root(TreeId::ROOT, root), &mut |leaf| {
            for slot in 0..leaf.count() {
                let key = leaf.key(slot);
                if key.objectid == TreeId::EXTENT.objectid() && key.kind == KeyType::ROOT_ITEM {
                    let item = RawRootItem::from_item(leaf.data(slot)).map_err(|kind| damaged(&key, kind))?;
                    found = Some(crate::roots::root_pointer(&item));
                }
            }
            Ok(())
        })?;
        found.ok_or_else(|| Error::new(ErrorKind::Corrupt, "the extent tree has no root item"))
    }

    /// Walks every tree.
    /// Errors: a block is not listed; device errors; damage.
    fn check_listed(&self, mut listed: Listed) -> Result<()> {
        let superblock = self.volume.superblock();
        let (logical, level, generation) = superblock.chunk_root();
        let chunk_root = self.expect_root(TreeId::CHUNK, RootPointer { logical, generation, level });
        let (logical, level) = superblock.root();
        let root = RootPointer { logical, generation: superblock.generation(), level };
        let root = self.expect_root(TreeId::ROOT, root);
        let fixed = |id, root| WalkedTree { id, root, is_dropped: false };
        let mut trees = vec![fixed(TreeId::CHUNK, chunk_root), fixed(TreeId::ROOT, root)];
        self.leaves(&root, &mut |leaf| {
            for slot in (0..leaf.count()).filter(|slot| leaf.key(*slot).kind == KeyType::ROOT_ITEM) {
                let key = leaf.key(slot);
                let item = RawRootItem::from_item(leaf.data(slot)).map_err(|kind| damaged(&key, kind))?;
                let id = TreeId::from(key.objectid);
                let root = self.expect_root(id, crate::roots::root_pointer(&item));
                let is_dropped = item.refs.get() == 0 || id == TreeId::TREE_RELOC;
                trees.push(WalkedTree { id, root, is_dropped });
            }
            Ok(())
        })?;
        // A walk stops at blocks where an earlier one was. So dropped trees, of which blocks may be gone, come after the trees that share their blocks.
        trees.sort_by_key(|tree| tree.is_dropped);
        trees.iter().try_for_each(|tree| listed.check(tree, &|want| self.read(want)))
    }

    /// Calls `block` for every tree block, until it fails.
    fn each(&self, block: &mut dyn FnMut(&ListedBlock) -> Result<()>) -> Result<()> {
        let superblock = self.volume.superblock();
        self.leaves(&self.expect_root(TreeId::EXTENT, self.extent_root), &mut |leaf| {
            for slot in 0..leaf.count() {
                let key = leaf.key(slot);
                if key.kind != KeyType::METADATA_ITEM && key.kind != KeyType::EXTENT_ITEM {
                    continue;
                }
                let item =
                    ExtentItem::parse(key.kind, leaf.data(slot)).map_err(|kind| damaged(&key, kind))?;
                if item.head.flags().contains(ExtentFlags::TREE_BLOCK) {
                    let level = match item.tree_block {
                        Some(info) => info.level,
                        None => u8::try_from(key.offset).unwrap_or(u8::MAX),
                    };
                    let at = Logical::new(key.objectid.get());
                    let want = Expected { level: Some(level), ..Expected::anything(at, &superblock) };
                    block(&ListedBlock { want, item: Generation::new(item.head.generation.get()) })?;
                }
            }
            Ok(())
        })
    }

    /// Calls `leaf` for every leaf below a block. Each leaf's keys come after those of the one before, so the walk ends.
    fn leaves(&self, want: &Expected, leaf: &mut dyn FnMut(BlockRef<'_>) -> Result<()>) -> Result<()> {
        let mut last: Option<Key> = None;
        self.leaves_below(want, &mut |block| {
            let Some(end) = block.count().checked_sub(1) else { return leaf(block) };
            if last.is_some_and(|last| block.key(0) <= last) {
                let what =
                    format!("the tree block at logical {} is not after the previous leaf", block.logical());
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
            last = Some(block.key(end));
            leaf(block)
        })
    }

    fn leaves_below(&self, want: &Expected, leaf: &mut dyn FnMut(BlockRef<'_>) -> Result<()>) -> Result<()> {
        let bytes = self.read(want)?;
        let block = BlockRef::new(&bytes);
        if block.is_leaf() {
            return leaf(block);
        }
        (0..block.count()).try_for_each(|slot| {
            let (logical, generation) = block.child(slot);
            let child = Expected {
                logical,
                level: Some(block.level() - 1),
                generation: Some(generation),
                first_key: Some(block.key(slot)),
                ..*want
            };
            self.leaves_below(&child, leaf)
        })
    }

    /// Checks that every copy is as expected, with the old UUID, and that all have one generation.
    fn check_copies(&self, listed: &ListedBlock) -> Result<()> {
        let mut want = Expected { fsid: self.old, ..listed.want };
        let newest = self.volume.generation();
        let mut bytes = AlignedBuffer::zeroed(self.node_size());
        for (copy, mirror) in self.volume.map(want.logical, bytes.len() as u64)?.mirrors().iter().enumerate()
        {
            self.transfer(mirror, bytes.len(), |device, at, part| device.read_at(at, &mut bytes[part]))?;
            verify_block(&bytes, &want).map_err(|kind| {
                let place = format!("copy {copy} of the tree block at logical {}", want.logical);
                Error::with_source(ErrorKind::Unreadable, place, kind)
            })?;
            let block = BlockRef::new(&bytes);
            listed.check_generation(block, newest)?;
            want.generation = Some(block.generation());
        }
        Ok(())
    }

    fn read(&self, want: &Expected) -> Result<AlignedBuffer> {
        self.read_whole_or_torn(want).map(|(bytes, _)| bytes)
    }

    /// A block that has the old or the new UUID, and whether it is whole. A copy with the old UUID has precedence.
    fn read_whole_or_torn(&self, want: &Expected) -> Result<(AlignedBuffer, bool)> {
        let read = |fsid| self.volume.read_tree_block(want.logical, &Expected { fsid, ..*want }, Wait::Yes);
        let old = match read(self.old) {
            Err(error) if self.old != self.new && error.kind() == ErrorKind::Unreadable => error,
            read => return read.map(|bytes| (bytes, true)),
        };
        match read(self.new) {
            Err(new) if new.kind() == ErrorKind::Unreadable => {
                self.read_torn(want)?.map(|bytes| (bytes, false)).ok_or(old)
            }
            read => read.map(|bytes| (bytes, true)),
        }
    }

    /// The leaf of the chunk tree whose first sector has another UUID than the device's item at its end, with the UUID of its first sector in both.
    fn read_torn(&self, want: &Expected) -> Result<Option<AlignedBuffer>> {
        let mut bytes = AlignedBuffer::zeroed(self.node_size());
        let fsid_len = self.new.as_bytes().len();
        for mirror in self.volume.map(want.logical, bytes.len() as u64)?.mirrors() {
            self.transfer(mirror, bytes.len(), |device, at, part| device.read_at(at, &mut bytes[part]))?;
            let fsid = BlockRef::new(&bytes).fsid();
            let end = bytes.len() - fsid_len;
            bytes[end..].copy_from_slice(fsid.as_bytes());
            let is_either = fsid == self.old || fsid == self.new;
            if is_either && verify_block(&bytes, &Expected { fsid, ..*want }).is_ok() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    /// Writes a block with the new UUID, unless it has it already.
    fn change(&self, listed: &ListedBlock) -> Result<()> {
        let want = &listed.want;
        // Of two copies the one with the listed generation is right; if neither has it, both have a newer one.
        let of_item = Expected { generation: Some(listed.item), ..*want };
        let (mut bytes, is_whole) = match self.read_whole_or_torn(&of_item) {
            Err(error) if error.kind() == ErrorKind::Unreadable => self.read_whole_or_torn(want)?,
            read => read?,
        };
        listed.check_generation(BlockRef::new(&bytes), self.volume.generation())?;
        let found = bytes.to_vec();
        let mut block = BlockMut::new(&mut bytes);
        block.set_fsid(self.new);
        block.set_chunk_tree_uuid(self.chunk_tree);
        let has_device = set_device_fsid(&mut block, self.new)?;
        // btrfstune changes a block's UUID first, and the UUIDs of its device items at the end.
        if is_whole && bytes[..] == found[..] {
            return Ok(());
        }
        seal(&mut bytes, self.volume.checksum_type());
        verify_block(&bytes, &Expected { fsid: self.new, ..*want })
            .expect("a block that was good is good with another UUID");
        let len = if has_device { bytes.len() } else { PAGE };
        let (mut is_written, mut failed) = (false, None);
        for mirror in self.volume.map(want.logical, bytes.len() as u64)?.mirrors() {
            let written = self.transfer(mirror, len, |device, at, part| {
                device.write_at(at, &bytes[part])?;
                if has_device { device.flush() } else { Ok(()) }
            });
            match written {
                Ok(()) => is_written = true,
                Err(error) => failed = Some(error),
            }
        }
        failed.filter(|_| !is_written).map_or(Ok(()), Err)
    }

    fn node_size(&self) -> usize {
        usize::try_from(self.volume.node_size()).expect("a node fits in memory")
    }

    /// Calls `each` for the parts of the first `len` bytes of a copy: device, offset there, range of the block.
    fn transfer(
        &self,
        mirror: &Mirror,
        len: usize,
        mut each: impl FnMut(&dyn BlockDevice, u64, Range<usize>) -> Result<()>,
    ) -> Result<()> {
        let mut from = 0;
        for piece in mirror {
            let to = usize::try_from(piece.len).map_or(len, |piece| len.min(from + piece));
            let device = self.volume.device(piece.at.dev);
            let device = device.ok_or_else(|| Error::new(ErrorKind::DeviceMissing, piece.at.to_string()))?;
            if from < to {
                each(&*device, piece.at.offset, from..to)?;
            }
            from = to;
        }
        Ok(())
    }
}

/// Sets the UUID in the device items of a leaf of the chunk tree. Returns whether there are any.
fn set_device_fsid(block: &mut BlockMut<'_>, fsid: Uuid) -> Result<bool> {
    let leaf = block.as_ref();
    if !leaf.is_leaf() || leaf.owner() != TreeId::CHUNK {
        return Ok(false);
    }
    let is_device = |key: &Key| key.objectid == ObjectId::DEV_ITEMS && key.kind == KeyType::DEV_ITEM;
    let slots: Vec<usize> = (0..leaf.count()).filter(|slot| is_device(&leaf.key(*slot))).collect();
    for &slot in &slots {
        let (item, _) = RawDevItem::mut_from_prefix(block.data_mut(slot))
            .map_err(|_| Error::new(ErrorKind::Corrupt, "device item is too short"))?;
        item.fsid = fsid.into_bytes();
    }
    Ok(!slots.is_empty())
}

fn damaged(key: &Key, kind: creamery_format::CorruptKind) -> Error {
    Error::with_source(ErrorKind::Corrupt, format!("item {key}"), kind)
}
