//! An image that a test damages: finds items, changes bytes in all copies, and seals checksums again.

use std::collections::HashSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use creamery_base::{Generation, Logical, TreeId, Wait};
use creamery_check::{CheckOptions, NoProgress, Report, check};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_format::{
    BlockRef, Expected, Key, KeyType, RawRootItem, RawSuperblock, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS,
    Superblock, seal,
};
use creamery_volume::{Chunk, Mode, Volume};

/// An open image.
pub(crate) struct Image {
    path: PathBuf,
    pub(crate) volume: Volume,
}

/// The place and content of an item.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) block: Logical,
    pub(crate) slot: usize,
    pub(crate) key: Key,
    pub(crate) data: Vec<u8>,
}

fn volume(path: &Path) -> Result<Volume> {
    let device = FileDevice::open(path, Access::ReadOnly)?;
    Ok(Volume::open(vec![Arc::new(device)], Mode::ReadOnly)?)
}

/// Opens and checks an image as the program does.
pub(crate) fn checked(path: &Path, check_data_csum: bool) -> Result<Report, creamery_base::Error> {
    checked_all(&[path.to_owned()], check_data_csum)
}

/// Opens and checks an image of several devices.
pub(crate) fn checked_all(paths: &[PathBuf], check_data_csum: bool) -> Result<Report, creamery_base::Error> {
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for path in paths {
        devices.push(Arc::new(FileDevice::open(path, Access::ReadOnly)?));
    }
    let volume = Volume::open(devices, Mode::ReadOnly)?;
    check(&volume, &CheckOptions { check_data_csum, threads: 2, ..CheckOptions::default() }, &NoProgress)
}

impl Image {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let image = Self { path: path.to_owned(), volume: volume(path)? };
        for item in image.items(TreeId::CHUNK)? {
            if item.key.kind == KeyType::CHUNK_ITEM {
                let sector = image.volume.sector_size();
                let chunk = Chunk::from_item(Logical::new(item.key.offset), &item.data, sector)?;
                image.volume.push_chunk(chunk)?;
            }
        }
        Ok(image)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn check(&self) -> Result<Report> {
        Ok(checked(&self.path, true)?)
    }

    fn root(&self, tree: TreeId) -> Result<Logical> {
        let superblock = self.volume.superblock();
        match tree {
            TreeId::ROOT => Ok(superblock.root().0),
            TreeId::CHUNK => Ok(superblock.chunk_root().0),
            // The first of the log trees.
            TreeId::TREE_LOG => {
                let bytes = self.block(superblock.log_root().context("no log")?.0)?;
                Ok(RawRootItem::from_item(BlockRef::new(&bytes).data(0))?.root())
            }
            _ => {
                let items = self.items(TreeId::ROOT)?;
                let found = items
                    .iter()
                    .find(|it| it.key.kind == KeyType::ROOT_ITEM && it.key.objectid == tree.objectid());
                let item = found.with_context(|| format!("no tree {tree}"))?;
                Ok(RawRootItem::from_item(&item.data)?.root())
            }
        }
    }

    pub(crate) fn block(&self, logical: Logical) -> Result<Vec<u8>> {
        let want = Expected {
            logical,
            level: None,
            generation: None,
            owner: None,
            first_key: None,
            fsid: self.volume.metadata_uuid(),
            checksum: self.volume.checksum_type(),
        };
        Ok(self.volume.read_tree_block(logical, &want, Wait::Yes)?.to_vec())
    }

    /// Addresses of all blocks of a tree, the root first.
    pub(crate) fn blocks(&self, tree: TreeId) -> Result<Vec<Logical>> {
        let mut found = vec![self.root(tree)?];
        let mut seen = HashSet::new();
        let mut next = 0;
        while let Some(logical) = found.get(next).copied() {
            next += 1;
            let bytes = self.block(logical)?;
            let block = BlockRef::new(&bytes);
            if !block.is_leaf() {
                let children = (0..block.count()).map(|slot| block.child(slot).0);
                found.extend(children.filter(|child| seen.insert(*child)));
            }
        }
        Ok(found)
    }

    pub(crate) fn items(&self, tree: TreeId) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        for logical in self.blocks(tree)? {
            let bytes = self.block(logical)?;
            let block = BlockRef::new(&bytes);
            if block.is_leaf() {
                items.extend((0..block.count()).map(|slot| Item {
                    block: logical,
                    slot,
                    key: block.key(slot),
                    data: block.data(slot).to_vec(),
                }));
            }
        }
        items.sort_by_key(|item| item.key);
        Ok(items)
    }

    /// Reads data from its first copy.
    pub(crate) fn data(&self, logical: Logical, len: usize) -> Result<Vec<u8>> {
        let mirrors = self.volume.map(logical, len as u64)?;
        let [piece] = &mirrors.mirrors()[0][..] else { bail!("a striped image") };
        let mut bytes = vec![0; len];
        File::open(&self.path)?.read_exact_at(&mut bytes, piece.at.offset)?;
        Ok(bytes)
    }

    /// Writes a block to all its copies, unchanged.
    pub(crate) fn write(&self, logical: Logical, bytes: &[u8]) -> Result<()> {
        let file = File::options().write(true).open(&self.path)?;
        self.places(logical, bytes.len())?.into_iter().try_for_each(|at| Ok(file.write_all_at(bytes, at)?))
    }

    /// The device offsets of all copies of `len` bytes.
    pub(crate) fn places(&self, logical: Logical, len: usize) -> Result<Vec<u64>> {
        let mut places = Vec::new();
        for mirror in self.volume.map(logical, len as u64)?.mirrors() {
            let [piece] = &mirror[..] else { bail!("a striped image") };
            places.push(piece.at.offset);
        }
        Ok(places)
    }

    /// Changes a block and seals its checksum again.
    pub(crate) fn change(&self, logical: Logical, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = self.block(logical)?;
        edit(&mut bytes);
        seal(&mut bytes, self.volume.checksum_type());
        self.write(logical, &bytes)
    }

    /// Changes all superblock copies.
    pub(crate) fn change_superblocks(&self, edit: impl Fn(&mut RawSuperblock)) -> Result<()> {
        let file = File::options().read(true).write(true).open(&self.path)?;
        let len = file.metadata()?.len();
        for at in SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + SUPERBLOCK_LEN as u64 <= len) {
            let mut bytes = vec![0; SUPERBLOCK_LEN];
            file.read_exact_at(&mut bytes, at)?;
            let mut superblock = Superblock::from_bytes(&bytes, at)?;
            edit(superblock.raw_mut());
            file.write_all_at(&superblock.to_bytes(at), at)?;
        }
        Ok(())
    }

    /// Changes bytes at a device offset.
    pub(crate) fn poke(&self, at: u64, bytes: &[u8]) -> Result<()> {
        Ok(File::options().write(true).open(&self.path)?.write_all_at(bytes, at)?)
    }
}

/// The generation in a block, for edits.
pub(crate) fn generation(bytes: &[u8]) -> Generation {
    BlockRef::new(bytes).generation()
}
