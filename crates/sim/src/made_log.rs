//! Artificial logs: those that an fsync might have left on a device, made from the items of existing files.
//!
//! Directories lose entries at random; files are cut, or lose attributes and data; for others the log only says that they exist; and a new
//! file appears. That is more than an fsync logs at once, and follows from a seed. The conformance tests cover Linux' own logs and their
//! replay.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use creamery_base::{Generation, Logical, ObjectId, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_format::{
    BlockGroupFlags, BlockMut, DirEntries, FILE_EXTENT_REGULAR, FileType, ITEM_LEN, InodeFlags, Key, KeyType,
    NewBlock, RawDirItem, RawFileExtent, RawInodeRef, RawRootItem, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, seal,
};
use creamery_fs::InodeItem;
use creamery_testkit::Random;
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};
use zerocopy::IntoBytes;

use crate::device::SimDevice;
use crate::image::Image;

type Items = BTreeMap<Key, Vec<u8>>;

/// Bytes of the new file.
const NEW_LEN: u64 = 8192;
/// The offset of the root of the logs in a superblock.
const LOG_ROOT_AT: usize = 96;
/// The last index that a log covers.
const LAST_INDEX: u64 = u64::MAX - 1;

/// An image of ours with a log of its top level.
///
/// # Errors
/// The image cannot be read.
pub fn with_log(image: &Image, seed: u64) -> Result<Image> {
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(image.clone()));
    let volume = Volume::open(vec![device], Mode::ReadOnly)?;
    let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
    let mut maker = Maker {
        engine: &engine,
        random: Random::new(seed),
        image: image.clone(),
        blocks: 0,
        has_subvolumes: false,
    };
    let log = maker.log()?;
    let root = maker.leaf(&log)?;
    let mut item = RawRootItem::default();
    item.set_root(root, 0, maker.generation());
    let key = Key::new(TreeId::TREE_LOG.objectid(), KeyType::ROOT_ITEM, TreeId::FS.get());
    let roots = maker.leaf(&[(key, item.as_bytes().to_vec())].into())?;
    maker.tell(roots);
    let mut image = maker.image;
    image.freeze();
    Ok(image)
}

struct Maker<'e> {
    engine: &'e Engine,
    random: Random,
    image: Image,
    blocks: u64,
    has_subvolumes: bool,
}

impl Maker<'_> {
    fn generation(&self) -> Generation {
        self.engine.volume().superblock().generation().next()
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.random.below(bound) == 0
    }

    /// As many items as fit into a leaf.
    fn log(&mut self) -> Result<Items> {
        let mut inodes: BTreeMap<ObjectId, Items> = BTreeMap::new();
        let tree = self.engine.tree(TreeId::FS)?;
        let mut cursor = tree.cursor(&Key::MIN, Wait::Yes)?;
        while let Some((key, data)) = cursor.item() {
            inodes.entry(key.objectid).or_default().insert(key, data.to_vec());
            cursor.advance()?;
        }
        drop(cursor);
        let mut entries = inodes.values().flatten().filter(|(key, _)| key.kind == KeyType::DIR_INDEX);
        self.has_subvolumes = !entries.all(|(_, data)| is_of(data, KeyType::INODE_ITEM));
        let last = inodes.keys().rfind(|ino| **ino <= ObjectId::LAST_FREE).context("an inode")?.get();
        let mut of_inodes = vec![self.new_file(ObjectId::new(last + 1))?];
        for (ino, items) in inodes.iter().filter(|(ino, _)| **ino <= ObjectId::LAST_FREE) {
            let root = *ino == ObjectId::FIRST_FREE;
            if root || self.one_in(3) {
                of_inodes.push(self.inode(*ino, items, root.then_some(last + 1))?);
            }
        }
        self.random.shuffle(&mut of_inodes[2..]);
        let (mut log, mut room) = (Items::new(), self.engine.node_size() as usize - 200);
        for items in of_inodes {
            let bytes: usize = items.values().map(|data| ITEM_LEN + data.len()).sum();
            if bytes <= room {
                room -= bytes;
                log.extend(items);
            }
        }
        Ok(log)
    }

    /// The items of a file with data, without checksums.
    fn new_file(&mut self, ino: ObjectId) -> Result<Items> {
        let at = self.top_of(BlockGroupFlags::DATA, NEW_LEN)?;
        let content = self.random.bytes(usize::try_from(NEW_LEN)?);
        self.write(at, &content)?;
        let generation = self.generation();
        let flags = InodeFlags::NODATASUM | InodeFlags::NODATACOW;
        let item = InodeItem {
            generation,
            transid: generation,
            size: NEW_LEN - 100,
            flags,
            mode: 0o100_600,
            ..InodeItem::default()
        };
        let extent = RawFileExtent {
            generation: generation.get().into(),
            ram_bytes: NEW_LEN.into(),
            kind: FILE_EXTENT_REGULAR,
            disk_bytenr: at.get().into(),
            disk_num_bytes: NEW_LEN.into(),
            num_bytes: NEW_LEN.into(),
            ..RawFileExtent::default()
        };
        let reference = RawInodeRef { index: NEW_INDEX.into(), name_len: (NEW_NAME.len() as u16).into() };
        let root = ObjectId::FIRST_FREE.get();
        Ok([
            (Key::new(ino, KeyType::INODE_ITEM, 0), item.encode().to_vec()),
            (Key::new(ino, KeyType::INODE_REF, root), [reference.as_bytes(), NEW_NAME].concat()),
            (Key::new(ino, KeyType::EXTENT_DATA, 0), extent.as_bytes().to_vec()),
        ]
        .into())
    }

    /// The log's items of an existing inode; the root directory gets a new entry.
    fn inode(&mut self, ino: ObjectId, items: &Items, new: Option<u64>) -> Result<Items> {
        let key = Key::new(ino, KeyType::INODE_ITEM, 0);
        let mut item = InodeItem::decode(items.get(&key).context("an inode item")?)?;
        item.transid = self.generation();
        let is_dir = item.is_dir();
        if self.one_in(5) && new.is_none() {
            (item.generation, item.size) = (Generation::new(0), 0);
            let known = items.iter().filter(|(key, _)| {
                matches!(key.kind, KeyType::INODE_REF | KeyType::INODE_EXTREF | KeyType::XATTR_ITEM)
            });
            let mut log: Items = known.map(|(key, data)| (*key, data.clone())).collect();
            log.insert(key, item.encode().to_vec());
            return Ok(log);
        }
        if item.kind() == FileType::File && self.one_in(2) {
            item.size /= 2;
        }
        let mut log = Items::new();
        let end = item.size.next_multiple_of(self.engine.sector_size().into());
        for (key, data) in items {
            let stays = match key.kind {
                KeyType::INODE_REF | KeyType::INODE_EXTREF => true,
                KeyType::XATTR_ITEM => !self.one_in(2),
                KeyType::DIR_INDEX if !is_of(data, KeyType::INODE_ITEM) => false,
                // Before a directory with a subvolume in it is removed, the subvolume is removed, with a commit.
                KeyType::DIR_INDEX if self.has_subvolumes && is_directory(data) => true,
                KeyType::DIR_INDEX => !self.one_in(4),
                KeyType::EXTENT_DATA => {
                    end_of(key, data) <= end && !self.one_in(4) || !matches!(item.kind(), FileType::File)
                }
                _ => false,
            };
            if stays {
                log.insert(*key, data.clone());
            }
        }
        log.insert(key, item.encode().to_vec());
        if is_dir {
            log.insert(Key::new(ino, KeyType::DIR_LOG_INDEX, 0), LAST_INDEX.to_le_bytes().to_vec());
        }
        if let Some(new) = new {
            let entry = RawDirItem {
                location: Key::new(ObjectId::new(new), KeyType::INODE_ITEM, 0).into(),
                transid: self.generation().get().into(),
                name_len: (NEW_NAME.len() as u16).into(),
                kind: FileType::File.to_disk(),
                ..RawDirItem::default()
            };
            log.insert(Key::new(ino, KeyType::DIR_INDEX, NEW_INDEX), [entry.as_bytes(), NEW_NAME].concat());
        }
        Ok(log)
    }

    /// The end of a block group, which is free in an image that is far from full.
    fn top_of(&self, kind: BlockGroupFlags, len: u64) -> Result<Logical> {
        let chunks = self.engine.volume().chunks();
        let chunk = chunks.iter().rfind(|chunk| chunk.flags.contains(kind)).context("a chunk")?;
        Ok(chunk.start + (chunk.len - len))
    }

    fn leaf(&mut self, items: &Items) -> Result<Logical> {
        let node_size = self.engine.node_size();
        self.blocks += 1;
        let logical = self.top_of(BlockGroupFlags::METADATA, self.blocks * u64::from(node_size))?;
        let volume = self.engine.volume();
        let (chunk_root, ..) = volume.superblock().chunk_root();
        let mut header = vec![0; node_size as usize];
        self.image.read(volume.map(chunk_root, node_size.into())?.mirrors()[0][0].at.offset, &mut header);
        let chunk_tree_uuid = creamery_format::BlockRef::new(&header).chunk_tree_uuid();
        let new = NewBlock {
            logical,
            generation: self.generation(),
            owner: TreeId::TREE_LOG,
            level: 0,
            fsid: volume.metadata_uuid(),
            chunk_tree_uuid,
        };
        let mut bytes = vec![0; node_size as usize];
        let mut block = BlockMut::init(&mut bytes, &new);
        let sizes: Vec<(Key, usize)> = items.iter().map(|(key, data)| (*key, data.len())).collect();
        block.insert_items(0, &sizes);
        for (slot, data) in items.values().enumerate() {
            block.data_mut(slot).copy_from_slice(data);
        }
        block.mark_written();
        seal(&mut bytes, volume.checksum_type());
        self.write(logical, &bytes)?;
        Ok(logical)
    }

    fn write(&mut self, at: Logical, bytes: &[u8]) -> Result<()> {
        for mirror in self.engine.volume().map(at, bytes.len() as u64)?.mirrors() {
            self.image.write(mirror[0].at.offset, bytes);
        }
        Ok(())
    }

    /// Writes the address of the logs to every superblock.
    fn tell(&mut self, roots: Logical) {
        let len = self.image.len();
        for at in SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + SUPERBLOCK_LEN as u64 <= len) {
            let mut bytes = vec![0; SUPERBLOCK_LEN];
            self.image.read(at, &mut bytes);
            bytes[LOG_ROOT_AT..LOG_ROOT_AT + 8].copy_from_slice(&roots.get().to_le_bytes());
            seal(&mut bytes, self.engine.checksum_type());
            self.image.write(at, &bytes);
        }
    }
}

const NEW_NAME: &[u8] = b"in the log";
/// An index behind all indexes of directories in tests.
const NEW_INDEX: u64 = 1 << 40;

/// Whether an entry names an item of this type.
fn is_of(data: &[u8], kind: KeyType) -> bool {
    DirEntries::new(data).all(|entry| entry.is_ok_and(|entry| entry.location.kind == kind))
}

fn is_directory(data: &[u8]) -> bool {
    DirEntries::new(data).all(|entry| entry.is_ok_and(|entry| entry.file_type() == Some(FileType::Directory)))
}

/// The end of a file extent item; inline data ends with its sector.
fn end_of(key: &Key, data: &[u8]) -> u64 {
    let long = |at: usize| {
        data.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    if data.len() == RawFileExtent::LEN && data[20] == FILE_EXTENT_REGULAR {
        key.offset + long(45)
    } else {
        key.offset + long(8)
    }
}
