//! The content of a filesystem, address by address, from an image that the library made on one device.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::device::{BlockDevice, MemoryDevice};
use creamery_base::{TreeId, Wait};
use creamery_codec::ChecksumType;
use creamery_format::{
    BlockGroupFlags, BlockRef, ExtentFlags, ExtentItem, Key, KeyType, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS,
    Superblock,
};
use creamery_mkfs::{MkfsOptions, Profile};
use creamery_testkit::{Random, seed_of};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use crate::disk::SECTOR;

/// Bytes of the device.
pub(crate) const LEN: u64 = 256 << 20;
/// The file whose data has no checksums.
pub(crate) const NOCOW: &str = "/nocow";

/// The kind of content at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ContentKind {
    Tree,
    Data,
}

/// A filesystem without devices.
#[derive(Clone)]
pub(crate) struct Content {
    pub(crate) superblock: Superblock,
    /// The start, length and kind of each block group.
    pub(crate) groups: Vec<(u64, u64, BlockGroupFlags)>,
    /// Extents.
    pub(crate) extents: BTreeMap<u64, (ContentKind, Vec<u8>)>,
    /// Sectors of data that have checksums.
    pub(crate) summed: BTreeSet<u64>,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
}

/// A new filesystem on a device.
pub(crate) fn made(
    len: u64,
    options: impl FnOnce(&mut MkfsOptions),
    fill: impl FnOnce(&creamery::Filesystem) -> Result<()>,
) -> Result<Arc<MemoryDevice>> {
    let memory = Arc::new(MemoryDevice::new(len));
    Image::make_on(Arc::clone(&memory) as _).with(options).run()?;
    let fs = Image::options().write().open_device(Arc::clone(&memory) as _)?;
    fill(&fs)?;
    fs.close()?;
    Ok(memory)
}

/// Makes content of each kind, with gaps between.
pub(crate) fn fill(fs: &creamery::Filesystem) -> Result<()> {
    let mut random = Random::new(seed_of("what is scrubbed"));
    let sizes = [300_000, 9_000, 70_000, 20_000, 200_000, 5_000, 130_000, 66_000, 40_000, 90_000];
    for (number, size) in sizes.into_iter().enumerate() {
        fs.write(format!("/file{number}"), random.bytes(size))?;
        fs.sync()?;
    }
    fs.create_dir("/many")?;
    for number in 0..40 {
        fs.write(format!("/many/small{number}"), random.bytes(200 + number * 11))?;
    }
    // Rows and batches that are partly in use.
    for number in [1, 3, 6] {
        fs.remove_file(format!("/file{number}"))?;
    }
    fs.sync().map_err(Into::into)
}

impl Content {
    /// The content of a small filesystem.
    pub(crate) fn small(node_size: u32) -> Result<Self> {
        Self::made((ChecksumType::Crc32c, node_size), fill)
    }

    /// The content of a filesystem whose extent and checksum trees have several leaves.
    pub(crate) fn of_many_leaves() -> Result<Self> {
        let many = |fs: &creamery::Filesystem| {
            let mut random = Random::new(seed_of("many extents"));
            for number in 0..220 {
                fs.write(format!("/file{number}"), random.bytes(4_500 + number * 17))?;
            }
            Ok(())
        };
        Self::made((ChecksumType::Sha256, 4096), many)
    }

    /// The content of a filesystem with data far apart: many stripes between are not in use.
    pub(crate) fn sparse() -> Result<Self> {
        let apart = |fs: &creamery::Filesystem| {
            let mut random = Random::new(seed_of("far apart"));
            for number in 0..4 {
                fs.write(format!("/between{number}"), vec![1; 5 << 20])?;
                fs.sync()?;
                fs.write(format!("/file{number}"), random.bytes(9_000))?;
                fs.sync()?;
            }
            (0..4).try_for_each(|number| fs.remove_file(format!("/between{number}")))?;
            fs.sync().map_err(Into::into)
        };
        Self::made((ChecksumType::Crc32c, 16 << 10), apart)
    }

    /// The content of a filesystem with many batches of data.
    pub(crate) fn large() -> Result<Self> {
        let large = |fs: &creamery::Filesystem| {
            fs.write("/large", Random::new(seed_of("large")).bytes(12 << 20)).map_err(Into::into)
        };
        Self::made((ChecksumType::Crc32c, 16 << 10), large)
    }

    /// The content of a filesystem in whose data every other unit of 64 KiB is not in use.
    pub(crate) fn of_every_other_unit() -> Result<Self> {
        let every_other = |fs: &creamery::Filesystem| {
            let mut random = Random::new(seed_of("every other unit"));
            for number in 0..24 {
                fs.write(format!("/file{number}"), random.bytes(64 << 10))?;
                fs.sync()?;
            }
            (0..24).step_by(2).try_for_each(|number| fs.remove_file(format!("/file{number}")))?;
            fs.sync().map_err(Into::into)
        };
        Self::made((ChecksumType::Crc32c, 16 << 10), every_other)
    }

    fn made(
        (checksum, node_size): (ChecksumType, u32),
        fill: impl FnOnce(&creamery::Filesystem) -> Result<()>,
    ) -> Result<Self> {
        let options = |options: &mut MkfsOptions| {
            options.data = Some(Profile::Single);
            options.metadata = Some(Profile::Single);
            options.node_size = Some(node_size);
            options.checksum = checksum;
        };
        let memory = made(LEN, options, fill)?;
        let fs = Image::options().write().nodatacow().open_device(Arc::clone(&memory) as _)?;
        fs.write(NOCOW, Random::new(seed_of("without checksums")).bytes(100_000))?;
        fs.close()?;
        Self::of(memory)
    }

    /// The content of an image with one copy.
    pub(crate) fn of(device: Arc<dyn BlockDevice>) -> Result<Self> {
        let files = files_of(&Image::options().open_device(Arc::clone(&device))?)?;
        let files = files.into_iter().map(|(path, read)| Ok((path, read.context("it is read")?)));
        let files = files.collect::<Result<_>>()?;
        let at = SUPERBLOCK_OFFSETS[0];
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        device.read_at(at, &mut bytes)?;
        let superblock = Superblock::from_bytes(&bytes, at)?;
        let volume = Volume::open(device, Mode::ReadOnly)?;
        let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
        let groups = engine.volume().chunks();
        let groups = groups.iter().map(|chunk| (chunk.start.get(), chunk.len, chunk.flags)).collect();
        let mut content =
            Self { superblock, groups, extents: BTreeMap::new(), summed: BTreeSet::new(), files };
        content.read(&engine)?;
        Ok(content)
    }

    fn read(&mut self, engine: &Engine) -> Result<()> {
        let node_size = u64::from(self.superblock.node_size());
        let (volume, durable) = (engine.volume(), engine.durable_trees()?);
        each_item(&durable, TreeId::EXTENT, &mut |key, data| {
            if !matches!(key.kind, KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM) {
                return Ok(());
            }
            let item = ExtentItem::parse(key.kind, data).map_err(|kind| anyhow::anyhow!("{kind}"))?;
            let is_tree = item.head.flags().contains(ExtentFlags::TREE_BLOCK);
            let len = if key.kind == KeyType::METADATA_ITEM { node_size } else { key.offset };
            let copies = volume.map(key.objectid.get().into(), len)?;
            let mut bytes = vec![0; usize::try_from(len)?];
            volume.read_physical(copies.mirrors()[0][0].at, &mut bytes)?;
            let kind = if is_tree { ContentKind::Tree } else { ContentKind::Data };
            self.extents.insert(key.objectid.get(), (kind, bytes));
            Ok(())
        })?;
        let size = self.superblock.checksum_type().size();
        each_item(&durable, TreeId::CSUM, &mut |key, data| {
            if key.kind == KeyType::EXTENT_CSUM {
                let sectors = (0..(data.len() / size) as u64).map(|number| key.offset + number * SECTOR);
                self.summed.extend(sectors);
            }
            Ok(())
        })?;
        ensure!(!self.summed.is_empty(), "data has checksums");
        Ok(())
    }

    /// The blocks of a tree with items, in order.
    pub(crate) fn leaves(&self, tree: TreeId) -> Vec<u64> {
        let is_one = |(_, (kind, bytes)): &(&u64, &(ContentKind, Vec<u8>))| {
            *kind == ContentKind::Tree
                && BlockRef::new(bytes).owner() == tree
                && BlockRef::new(bytes).is_leaf()
        };
        let first_key = |at: &u64| BlockRef::new(&self.extents[at].1).first_key();
        let mut leaves: Vec<u64> = self.extents.iter().filter(is_one).map(|(at, _)| *at).collect();
        leaves.sort_by_key(first_key);
        leaves
    }
}

fn each_item(
    durable: &creamery_txn::DurableTrees<'_>,
    tree: TreeId,
    each: &mut dyn FnMut(Key, &[u8]) -> Result<()>,
) -> Result<()> {
    let tree = durable.tree(tree)?;
    let mut cursor = durable.cursor(&tree, &Key::MIN, Wait::Yes)?;
    while let Some((key, data)) = cursor.item() {
        each(key, data)?;
        cursor.advance()?;
    }
    Ok(())
}

/// All files, with their bytes if they can be read.
pub(crate) fn files_of(fs: &creamery::Filesystem) -> Result<BTreeMap<PathBuf, Option<Vec<u8>>>> {
    let mut files = BTreeMap::new();
    for entry in fs.walk("/")?.flatten() {
        let Ok(stat) = entry.metadata() else { continue };
        if stat.file_type().letter() == '-' {
            files.insert(entry.path().to_owned(), fs.read(entry.path()).ok());
        }
    }
    Ok(files)
}
