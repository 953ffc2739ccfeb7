//! Checks that a superblock leads to a filesystem before it is written over another one.
//!
//! A superblock with a valid checksum may lead nowhere: its root tree is damaged, or its commit never became durable. Written over
//! copies that lead elsewhere, it would destroy the last way to the files. So the commands that write superblocks without a transaction
//! first read, through the superblock that is to stand in every copy:
//!
//! - the trees that a mount opens ([`check_openable`]), for the newest superblock and for the first one;
//! - every block of every tree ([`check_whole`]), for an older one: the space of an older commit is used again, and its
//!   roots may be all that is left of it.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Logical, Result, TreeId};
use creamery_device::BlockDevice;
use creamery_format::{BlockRef, KeyType, RawRootItem};
use creamery_txn::{Engine, Options};
use creamery_volume::{Rescue, Volume};

use crate::fs::{self, FsOptions};
use crate::inspect::{leaves, push_chunks};

/// Opens for reading everything that a mount opens, and closes it.
///
/// # Errors
/// The first unreadable block, and its place.
pub(crate) fn check_openable(volume: Volume) -> Result<()> {
    let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
    let fs = fs::Filesystem::open(engine, FsOptions::default())?;
    fs.root(TreeId::FS).map(drop)
}

/// Checks the superblock that opens `device` like [`check_openable`]. An error of opening itself is left to the writer.
///
/// # Errors
/// The first unreadable block, and its place.
pub(crate) fn check_first(device: &Arc<dyn BlockDevice>) -> Result<()> {
    let rescue = Rescue { ignore_super_flags: true, ..Rescue::default() };
    let Ok(volume) = Volume::open_for_rescue(vec![Arc::clone(device)], rescue) else { return Ok(()) };
    // One of several devices is never written alone, so nothing needs a check.
    if volume.superblock().device_count() > 1 {
        return Ok(());
    }
    check_openable(volume).map_err(|error| {
        let what = "no superblock is written: the first one has no usable trees; `creamery rescue super-recover` takes another \
                    copy";
        error.context(format!("{}: {what}", device.describe()))
    })
}

/// Reads every block of every tree that the superblock leads to.
///
/// # Errors
/// The first unreadable block, and its place.
pub(crate) fn check_whole(volume: &Volume) -> Result<()> {
    let superblock = volume.superblock();
    let mut devices = Vec::new();
    push_chunks(volume, &superblock, &mut devices).map_or(Ok(()), Err)?;
    volume.judge_devices(&devices)?;
    let mut trees = Vec::new();
    let (logical, level) = superblock.root();
    let root = (logical, level, superblock.generation());
    leaves(volume, &superblock, TreeId::ROOT, root, &mut |leaf| roots_of(leaf, &mut trees))
        .map_or(Ok(()), Err)?;
    for (tree, root) in trees {
        let unread = leaves(volume, &superblock, tree, root, &mut |_| Ok(()));
        unread.map_or(Ok(()), |error| Err(error.context(format!("tree {tree}"))))?;
    }
    Ok(())
}

/// A tree, and its root: the address, the level and the generation.
type Root = (TreeId, (Logical, u8, Generation));

fn roots_of(leaf: BlockRef<'_>, trees: &mut Vec<Root>) -> Result<()> {
    for slot in (0..leaf.count()).filter(|slot| leaf.key(*slot).kind == KeyType::ROOT_ITEM) {
        let key = leaf.key(slot);
        let damaged = |kind| Error::with_source(ErrorKind::Corrupt, format!("root item {key}"), kind);
        let item = RawRootItem::from_item(leaf.data(slot)).map_err(damaged)?;
        trees.push((key.objectid.into(), (item.root(), item.level, item.root_generation())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use creamery_base::Wait;
    use creamery_device::{Access, FileDevice};
    use creamery_format::Expected;

    use super::*;
    use crate::Image;

    fn device(image: &Path) -> Arc<dyn BlockDevice> {
        Arc::new(FileDevice::open(image, Access::ReadWrite).unwrap())
    }

    fn volume(device: &Arc<dyn BlockDevice>) -> Volume {
        Volume::open_for_rescue(vec![Arc::clone(device)], Rescue::default()).unwrap()
    }

    /// An image whose tree of files has leaves below its root, the device, and the addresses of the root and the last leaf.
    fn made(dir: &Path) -> (Arc<dyn BlockDevice>, Logical, Logical) {
        let image = dir.join("disk.img");
        Image::make(&image).size(256 << 20).run().unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        (0..400).for_each(|number| fs.write(format!("/file-{number}"), "some").unwrap());
        fs.close().unwrap();
        let device = device(&image);
        let volume = volume(&device);
        let superblock = volume.superblock();
        assert!(push_chunks(&volume, &superblock, &mut Vec::new()).is_none());
        let (mut trees, mut last) = (Vec::new(), None);
        let (logical, level) = superblock.root();
        let root = (logical, level, superblock.generation());
        assert!(
            leaves(&volume, &superblock, TreeId::ROOT, root, &mut |leaf| roots_of(leaf, &mut trees))
                .is_none()
        );
        let (tree, root) = trees.into_iter().find(|(tree, _)| *tree == TreeId::FS).unwrap();
        let note = &mut |leaf: BlockRef<'_>| {
            last = Some(leaf.logical());
            Ok(())
        };
        assert!(leaves(&volume, &superblock, tree, root, note).is_none());
        (device, root.0, last.unwrap())
    }

    /// Flips a byte in every copy of a block.
    fn damage(device: &Arc<dyn BlockDevice>, at: Logical) {
        let volume = volume(device);
        push_chunks(&volume, &volume.superblock(), &mut Vec::new());
        let copies = volume.map(at, u64::from(volume.node_size())).unwrap();
        for copy in copies.mirrors() {
            let place = copy[0].at.offset + 2000;
            let mut byte = [0];
            device.read_at(place, &mut byte).unwrap();
            device.write_at(place, &[!byte[0]]).unwrap();
        }
        let want = Expected::anything(at, &volume.superblock());
        assert!(volume.read_tree_block(at, &want, Wait::Yes).is_err(), "no copy of it is good");
    }

    #[test]
    fn a_whole_filesystem_passes_both() {
        let dir = tempfile::tempdir().unwrap();
        let (device, ..) = made(dir.path());
        check_openable(volume(&device)).unwrap();
        check_first(&device).unwrap();
        check_whole(&volume(&device)).unwrap();
    }

    #[test]
    fn one_whose_tree_of_files_has_no_root_is_not_openable() {
        let dir = tempfile::tempdir().unwrap();
        let (device, root, _) = made(dir.path());
        damage(&device, root);
        assert!(check_openable(volume(&device)).is_err());
        assert!(check_whole(&volume(&device)).is_err());
        let error = check_first(&device).unwrap_err().to_string();
        assert!(error.contains("disk.img") && error.contains("super-recover"), "{error}");
    }

    #[test]
    fn one_that_lacks_a_leaf_is_openable_and_not_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (device, _, leaf) = made(dir.path());
        damage(&device, leaf);
        check_openable(volume(&device)).unwrap();
        let error = check_whole(&volume(&device)).unwrap_err().to_string();
        assert!(error.contains("tree FS_TREE") || error.contains("tree 5"), "{error}");
    }
}
