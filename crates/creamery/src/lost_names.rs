//! Finds lost entries of a damaged directory from other items that refer to them.
//!
//! An entry lies in leaves of the subvolume's tree, under the number of its directory. The inode of the entry lies mostly in another leaf.
//! There each inode records its directory, its name and the number of the entry; for a subvolume the root tree records them. So a listing
//! notes the entry numbers that it could not read. One pass over all readable leaves finds the inodes with these numbers.
//!
//! When the name that leads to a directory is lost and its inode, too, the inodes in it still refer to it. Such a directory is listed in
//! the root of its subvolume, as [`ORPHAN`] with its number behind.
//!
//! A path is found in the same way, one directory at a time ([`find`]).
//!
//! # Invariants
//! - LOSTNAME-1: a hostile tree costs no more than [`SEARCHES_MAX`] times going through one, and memory for [`FOUND_MAX`] names at once.
//! - LOSTNAME-2: the found names lead into each directory once, like every copy past damage (`salvage`).

use std::cell::RefCell;
use std::collections::HashSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{InodeId, ObjectId, Result, TreeId, Wait};
use creamery_format::{BlockRef, InodeExtrefs, InodeRefs, Key, KeyType, RootRef};

use crate::Filesystem;
use crate::fs::{self, FileType};
use crate::inspect::leaves;
use crate::path::{Last, resolve_past_damage};
use crate::read_dir::{DirEntry, FoundEntry, ReadDir};

/// Prefix of the name of a directory that no name leads to; its number follows.
const ORPHAN: &str = "lost+found-";

/// Passes over trees for one copy, or one path, at most.
const SEARCHES_MAX: u32 = 128;

/// Names that one search finds at most: many times as many as a leaf has.
const FOUND_MAX: usize = 1 << 18;

/// The searches of one copy.
pub(crate) struct Searches {
    left: u32,
    /// Subvolumes with directories that have lost entries.
    damaged: HashSet<TreeId>,
}

impl Searches {
    pub(crate) fn new() -> Self {
        Self { left: SEARCHES_MAX, damaged: HashSet::new() }
    }

    /// Appends the entries found elsewhere to `dir`, whose listing is at its end. True if there are some. `entered` are the directories
    /// that the walk has entered.
    pub(crate) fn go_on(&mut self, dir: &mut ReadDir, entered: &HashSet<InodeId>) -> bool {
        let (id, lost) = (dir.id(), dir.take_lost());
        if dir.fs().engine().read_only().is_none() {
            // Leaves may change meanwhile.
            return false;
        }
        if !lost.is_empty() {
            self.damaged.insert(id.subvolume);
            if self.may_search() && dir.go_on_with(entries(dir.fs(), id, &lost)) {
                return true;
            }
        }
        let is_root = id.ino == ObjectId::FIRST_FREE;
        is_root
            && self.damaged.remove(&id.subvolume)
            && self.may_search()
            && dir.go_on_with(orphans(dir.fs(), id.subvolume, entered))
    }

    /// LOSTNAME-1.
    fn may_search(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl Filesystem {
    /// Resolves `path` to an inode and its type, even if names on the way are lost.
    pub(crate) fn resolve_past_damage(&self, path: &Path, last: Last) -> Result<(InodeId, fs::FileType)> {
        // Links may lead to long paths, and each name on them may be lost (LOSTNAME-1).
        let searches = RefCell::new(Searches::new());
        let find_lost = |dir, name: &[u8]| {
            let may_search = searches.borrow_mut().may_search();
            may_search.then(|| find(&self.fs, dir, name)).flatten()
        };
        resolve_past_damage(&self.fs, self.root, path, last, &find_lost)
    }
}

/// Finds `name` in the directory `dir`, where the lookup fails: among the entries that can be listed, those that are lost and found
/// elsewhere, and the directories that no name leads to. The empty directory in place of an absent subvolume does not count.
fn find(fs: &Arc<fs::Filesystem>, dir: InodeId, name: &[u8]) -> Option<(InodeId, fs::FileType)> {
    fs.engine().read_only()?;
    if fs.stat(dir, Wait::Yes).is_err_and(|error| error.kind().is_damage()) {
        // The name contains the inode number.
        fs.take_for_directory(dir).ok()?;
    }
    let mut listed = ReadDir::new(Arc::clone(fs), dir, PathBuf::new()).ok()?.past_damage();
    let is_it = |entry: &DirEntry| entry.file_name().as_encoded_bytes() == name;
    if let Some(entry) = listed.by_ref().filter_map(Result::ok).find(is_it) {
        let unread = if entry.file_type().is_dir() { FileType::Directory } else { FileType::File };
        let kind = fs.stat(entry.id(), Wait::Yes).map_or(unread, |attributes| attributes.kind);
        return (entry.id().ino != ObjectId::EMPTY_SUBVOLUME_DIR).then_some((entry.id(), kind));
    }
    let lost = listed.take_lost();
    let found = match dir.ino == ObjectId::FIRST_FREE && name.starts_with(ORPHAN.as_bytes()) {
        true => orphans(fs, dir.subvolume, &HashSet::new()),
        false if lost.is_empty() => return None,
        false => entries(fs, dir, &lost),
    };
    found.into_iter().find(|found| found.name == name).map(|found| (found.id, found.kind))
}

/// The entries of `dir` whose numbers are `lost`.
fn entries(fs: &fs::Filesystem, dir: InodeId, lost: &[Range<u64>]) -> Vec<FoundEntry> {
    let mut found: Vec<(Vec<u8>, InodeId)> = Vec::new();
    let mut put = |parent: u64, index: u64, name: &[u8], id: InodeId| {
        // The numbers rise, like those of the listing.
        let at = lost.partition_point(|lost| lost.end <= index);
        let is_lost = lost.get(at).is_some_and(|lost| lost.contains(&index));
        let is_wanted = parent == dir.ino.get() && id != dir && is_lost;
        if is_wanted && found.len() < FOUND_MAX {
            found.push((name.to_vec(), id));
        }
    };
    for_each_name(fs, dir.subvolume, |ino, parent, index, name| {
        put(parent, index, name, InodeId::new(dir.subvolume, ino));
    });
    for_each_item(fs, TreeId::ROOT, |key, data| {
        if key.kind == KeyType::ROOT_REF
            && key.objectid == dir.subvolume.objectid()
            && let Ok(found) = RootRef::parse(data)
        {
            let root = InodeId::new(TreeId::new(key.offset), ObjectId::FIRST_FREE);
            put(found.dirid, found.sequence, found.name, root);
        }
    });
    let entry = |(name, id): (Vec<u8>, InodeId)| {
        // The copy reports the error of an unreadable inode.
        let unread = if id.ino == ObjectId::FIRST_FREE { FileType::Directory } else { FileType::File };
        let kind = fs.stat(id, Wait::Yes).map_or(unread, |attributes| attributes.kind);
        FoundEntry { name, id, kind }
    };
    found.into_iter().map(entry).collect()
}

/// Directories of a subvolume that have entries, but whose own inode cannot be read, and that the walk did not enter.
fn orphans(fs: &fs::Filesystem, subvolume: TreeId, entered: &HashSet<InodeId>) -> Vec<FoundEntry> {
    let (mut last, mut seen, mut lost, mut found) = (None, HashSet::new(), HashSet::new(), Vec::new());
    for_each_name(fs, subvolume, |_, parent, _, _| {
        let dir = InodeId::new(subvolume, ObjectId::new(parent));
        // Neighbouring inodes are mostly in one directory.
        if last.replace(dir) == Some(dir) || entered.contains(&dir) || found.len() == FOUND_MAX {
            return;
        }
        if seen.len() == FOUND_MAX {
            seen.clear(); // what was seen is but looked at once more
        }
        let is_lost = |error: creamery_base::Error| error.kind().is_damage();
        if seen.insert(dir) && fs.stat(dir, Wait::Yes).is_err_and(is_lost) && lost.insert(dir) {
            let name = format!("{ORPHAN}{parent}").into_bytes();
            found.push(FoundEntry { name, id: dir, kind: FileType::Directory });
        }
    });
    found
}

/// Calls `each` for every name that an inode of a subvolume records, with the inode, its directory, and the number and the name there.
fn for_each_name(fs: &fs::Filesystem, subvolume: TreeId, mut each: impl FnMut(ObjectId, u64, u64, &[u8])) {
    for_each_item(fs, subvolume, |key, data| match key.kind {
        KeyType::INODE_REF => InodeRefs::new(data)
            .map_while(std::result::Result::ok)
            .for_each(|found| each(key.objectid, key.offset, found.index, found.name)),
        KeyType::INODE_EXTREF => InodeExtrefs::new(data)
            .map_while(std::result::Result::ok)
            .for_each(|found| each(key.objectid, found.parent, found.index, found.name)),
        _ => {}
    });
}

/// Calls `each` for every item of a tree in a readable leaf, as of the last commit.
fn for_each_item(fs: &fs::Filesystem, tree: TreeId, mut each: impl FnMut(Key, &[u8])) {
    let volume = fs.engine().volume();
    let superblock = volume.superblock();
    let root = if tree == TreeId::ROOT {
        let (logical, level) = superblock.root();
        (logical, level, superblock.generation())
    } else {
        let Ok(item) = fs.engine().root_item(tree) else { return };
        (item.root(), item.level, item.root_generation())
    };
    let mut show = |leaf: BlockRef<'_>| -> Result<()> {
        (0..leaf.count()).for_each(|slot| each(leaf.key(slot), leaf.data(slot)));
        Ok(())
    };
    // Unreadable leaves are the reason for the search.
    let _unread = leaves(volume, &superblock, tree, root, &mut show);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Image;

    #[test]
    fn what_is_whole_or_may_be_written_is_taken_for_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk.img");
        Image::make(&image).size(128 << 20).run().unwrap();
        let fs = Image::options().write().open(&image).unwrap();
        fs.write("/file", "text").unwrap();
        fs.hard_link("/file", "/again").unwrap();
        let file = |fs: &crate::Filesystem| fs.resolve("/file".as_ref(), crate::path::Last::Keep).unwrap();
        assert!(fs.fs.take_for_directory(file(&fs)).is_err());
        assert!(find(&fs.fs, fs.root, b"file").is_none());
        fs.close().unwrap();
        let fs = Image::open(&image).unwrap();
        let id = file(&fs);
        fs.fs.take_for_directory(id).unwrap();
        assert_eq!(fs.fs.stat(id, Wait::Yes).unwrap().kind, FileType::File);
        // Entry numbers begin at 2.
        let names = |lost: &[Range<u64>]| -> Vec<Vec<u8>> {
            entries(&fs.fs, fs.root, lost).into_iter().map(|found| found.name).collect()
        };
        assert_eq!(names(&[0..2, 3..u64::MAX]), [b"again"]);
        assert_eq!(names(&[0..1, 2..3]), [b"file"]);
        assert_eq!(find(&fs.fs, fs.root, b"file"), Some((id, FileType::File)));
        for nothing in [&b"nothing"[..], b"lost+found-257", b"lost+found-256"] {
            assert!(find(&fs.fs, fs.root, nothing).is_none());
        }
        assert!(orphans(&fs.fs, TreeId::FS, &HashSet::new()).is_empty());
        let mut searches = Searches::new();
        let may = (0..=SEARCHES_MAX).filter(|_| searches.may_search()).count();
        assert_eq!(may, SEARCHES_MAX as usize);
    }
}
