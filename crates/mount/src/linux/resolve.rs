//! Finds names from numbers with the trees: the back references of an inode (`INODE_REF`, `INODE_EXTREF`) and of a subvolume
//! (`ROOT_BACKREF`), and the path of a directory from `BTRFS_IOC_INO_LOOKUP`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, TreeId};
use creamery_fs::ExtentPart;
use rustix::io::Errno;

use super::LiveBtrfs;
use super::controls::{INO_LOOKUP, PAGE_WORDS, bytes_of};
use super::search::Item;
use crate::messages::LOOKUP_PATH;
use crate::table::point_of;

const INODE_REF: u32 = 12;
const INODE_EXTREF: u32 = 13;
const ROOT_BACKREF: u32 = 144;

impl LiveBtrfs {
    /// Returns the subvolume that contains it.
    /// Errors: the mount does not answer.
    pub fn subvolume(&self) -> Result<TreeId> {
        self.lookup(0, ObjectId::FIRST_FREE.get()).map(|(tree, _)| tree)
    }

    /// Returns all paths of the inode `ino` of its subvolume, from the root of that subvolume, without a leading slash.
    /// Errors: permission denied, for all but root (and the mounter, on our mounts); there is no such inode.
    pub fn inode_paths(&self, ino: u64) -> Result<Vec<PathBuf>> {
        self.inode_paths_in(self.subvolume()?, ino)
    }

    /// Returns all paths of the inode `ino` of the subvolume `subvolume`, like [`LiveBtrfs::inode_paths`].
    /// Errors: those of [`LiveBtrfs::inode_paths`]; there is no such subvolume.
    pub fn inode_paths_in(&self, subvolume: TreeId, ino: u64) -> Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for item in self.items(subvolume, ino..=ino, INODE_REF..=INODE_EXTREF)? {
            for (dir, name) in names_in(&item)? {
                let (_, mut path) = self.lookup(subvolume.get(), dir)?;
                path.extend(name);
                paths.push(OsString::from_vec(path).into());
            }
        }
        if paths.is_empty() {
            return Err(self.not_found(format_args!("inode {ino} of subvolume {subvolume}")));
        }
        Ok(paths)
    }

    /// Returns the path of a subvolume from the top level, without a leading slash; empty for the top level.
    /// Errors: permission denied, for all but root (and the mounter, on our mounts); there is no such subvolume.
    pub fn subvolume_path(&self, id: TreeId) -> Result<PathBuf> {
        let path = self.path_between(TreeId::FS, id)?;
        path.ok_or_else(|| self.not_found(format_args!("subvolume {id}")))
    }

    /// Returns the path of a subvolume on this mount; `None` if it lies outside of the mounted directory.
    /// Errors: those of [`LiveBtrfs::subvolume_path`].
    pub fn place_of_subvolume(&self, id: TreeId) -> Result<Option<PathBuf>> {
        let Some((point, mounted)) = point_of(&self.path)? else { return Ok(None) };
        let Some(root) = Self::at(&point)? else { return Ok(None) };
        let top = root.subvolume()?;
        // For the kernel's Btrfs the table shows the mounted directory: other subvolumes are visible only from the root of a subvolume.
        let is_whole = !self.is_linux() || Path::new("/").join(self.subvolume_path(top)?) == mounted;
        let below = if is_whole { self.path_between(top, id)? } else { None };
        Ok(below.map(|below| if below.as_os_str().is_empty() { point } else { point.join(below) }))
    }

    /// Returns the files that refer to the data at the logical address `at`: inodes, and offsets in bytes.
    /// Errors: permission denied, for all but root (and the mounter, on our mounts); there is no data.
    pub fn resolve_logical(&self, at: u64, part: ExtentPart) -> Result<Vec<(InodeId, u64)>> {
        if !self.is_linux() {
            return self.ours()?.resolve_logical(at, part);
        }
        let found = self.answering.logical_ino(at, part == ExtentPart::Whole);
        let found = found.map_err(|errno| match errno {
            Errno::NOENT => self.not_found(format_args!("data at {at}")),
            errno => self.failed(errno),
        })?;
        let of =
            |[ino, offset, tree]: [u64; 3]| (InodeId::new(TreeId::new(tree), ObjectId::new(ino)), offset);
        Ok(found.into_iter().map(of).collect())
    }

    /// The path of the subvolume `id` from the root of `top`; `None` if it is not below that, or does not exist.
    fn path_between(&self, top: TreeId, id: TreeId) -> Result<Option<PathBuf>> {
        let (mut path, mut at, mut seen) = (Vec::new(), id, BTreeSet::new());
        while at != top {
            let parents = self.items(TreeId::ROOT, at.get()..=at.get(), ROOT_BACKREF..=ROOT_BACKREF)?;
            let Some(parent) = parents.first().filter(|_| seen.insert(at)) else { return Ok(None) };
            let (name, _) = parent.name_at(16)?;
            let (_, mut whole) = self.lookup(parent.offset, parent.u64_at(0)?)?;
            whole.extend(name);
            if !path.is_empty() {
                whole.push(b'/');
            }
            whole.append(&mut path);
            (path, at) = (whole, TreeId::new(parent.offset));
        }
        Ok(Some(OsString::from_vec(path).into()))
    }

    /// Returns the subvolume `tree`, or for 0 the subvolume of this file, and the path of the directory `ino` in it, which ends with a slash.
    fn lookup(&self, tree: u64, ino: u64) -> Result<(TreeId, Vec<u8>)> {
        let mut page = [0; PAGE_WORDS];
        (page[0], page[1]) = (tree, ino);
        self.answering.send::<INO_LOOKUP, PAGE_WORDS>(&mut page).map_err(|errno| self.failed(errno))?;
        let mut path = bytes_of(&page).split_off(LOOKUP_PATH);
        path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
        Ok((TreeId::new(page[0]), path))
    }

    fn not_found(&self, what: std::fmt::Arguments<'_>) -> Error {
        Error::new(ErrorKind::NotFound, format!("{}: {what}", self.path.display()))
    }
}

/// The directories of an inode, and its names there.
fn names_in(item: &Item) -> Result<Vec<(u64, Vec<u8>)>> {
    let (mut at, mut names) = (0, Vec::new());
    while at < item.data.len() {
        let (dir, head) = match item.kind {
            INODE_REF => (item.offset, 8),
            _ => (item.u64_at(at)?, 16),
        };
        let (name, end) = item.name_at(at + head)?;
        names.push((dir, name.to_vec()));
        at = end;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_has_several_names_of_one_directory_or_of_several() {
        let name = |head: &[u64], name: &[u8]| {
            let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
            [&head[..], &u16::try_from(name.len()).expect("short").to_le_bytes(), name].concat()
        };
        let data = [name(&[2], b"one"), name(&[3], b"other")].concat();
        let item = |kind, data: &[u8]| Item { objectid: 257, kind, offset: 256, data: data.to_vec() };
        let names = names_in(&item(INODE_REF, &data)).expect("whole");
        assert_eq!(names, [(256, b"one".to_vec()), (256, b"other".to_vec())]);
        let data = [name(&[300, 2], b"one"), name(&[301, 3], b"other")].concat();
        let names = names_in(&item(INODE_EXTREF, &data)).expect("whole");
        assert_eq!(names, [(300, b"one".to_vec()), (301, b"other".to_vec())]);
        assert!(names_in(&item(INODE_EXTREF, &data[..data.len() - 1])).is_err());
    }
}
