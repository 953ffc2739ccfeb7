//! Entries that a damaged directory has lost, found again by what else tells of them.
//!
//! An entry lies in leaves of the subvolume's tree by the number of its directory. What it leads to lies mostly in another one, and
//! there each inode says in which directory it has which name, and the number of that entry; of a subvolume the root tree says so.
//! So a listing notes which numbers it could not read, and what has one of those is found when all leaves that can be
//! read are gone through once.
//!
//! What of a directory is lost with the name that leads to it is found by those who say that they are in it. It is listed in the
//! root of its subvolume, as [`ORPHAN`] with its number behind.
//!
//! A path that somebody names is found in the same way, one directory at a time ([`find`]).
//!
//! # Invariants
//! - LOST-1: a hostile tree costs no more than [`SEARCHES_MAX`] times going through one, and memory for [`FOUND_MAX`] names at once.
//! - LOST-2: what is found leads into each directory once, as everything that is copied past damage (`salvage`).

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
use crate::read_dir::{DirEntry, Found, ReadDir};

/// What a directory is called that nothing leads to, before its number.
const ORPHAN: &str = "lost+found-";

/// How often trees are gone through for one copy, or one path.
const SEARCHES_MAX: u32 = 128;

/// Names that one search finds at most: many times what a leaf has.
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

    /// Whether `dir`, whose listing has come to its end, goes on with what was found elsewhere. `entered` are the directories that somebody
    /// went into.
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

    /// LOST-1.
    fn may_search(&mut self) -> bool {
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

impl Filesystem {
    /// The inode that `path` names, also where names on the way are lost, and what it is.
    pub(crate) fn resolve_past_damage(&self, path: &Path, last: Last) -> Result<(InodeId, fs::FileType)> {
        // Links may lead to long paths, and each name on them may be lost (LOST-1).
        let searches = RefCell::new(Searches::new());
        let find_lost = |dir, name: &[u8]| {
            let may_search = searches.borrow_mut().may_search();
            may_search.then(|| find(&self.fs, dir, name)).flatten()
        };
        resolve_past_damage(&self.fs, self.root, path, last, &find_lost)
    }
}

/// What `name` leads to in the directory `dir`, where it cannot be looked up: one of the entries that can be listed, that were lost and are found
/// elsewhere, or that nothing leads to. What stands for a subvolume that is not there is none of them.
fn find(fs: &Arc<fs::Filesystem>, dir: InodeId, name: &[u8]) -> Option<(InodeId, fs::FileType)> {
    fs.engine().read_only()?;
    if fs.stat(dir, Wait::Yes).is_err_and(|error| error.kind().is_damage()) {
        // Its name says so.
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
fn entries(fs: &fs::Filesystem, dir: InodeId, lost: &[Range<u64>]) -> Vec<Found> {
    let mut found: Vec<(Vec<u8>, InodeId)> = Vec::new();
    let mut put = |parent: u64, index: u64, name: &[u8], id: InodeId| {
        // They rise, as the listing did.
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
        // Of what cannot be read the copy says why.
        let unread = if id.ino == ObjectId::FIRST_FREE { FileType::Directory } else { FileType::File };
        let kind = fs.stat(id, Wait::Yes).map_or(unread, |attributes| attributes.kind);
        Found { name, id, kind }
    };
    found.into_iter().map(entry).collect()
}

/// Directories of a subvolume that others are in, but whose own inode cannot be read, and that nobody came to.
fn orphans(fs: &fs::Filesystem, subvolume: TreeId, entered: &HashSet<InodeId>) -> Vec<Found> {
    let (mut last, mut seen, mut lost, mut found) = (None, HashSet::new(), HashSet::new(), Vec::new());
    for_each_name(fs, subvolume, |_, parent, _, _| {
        let dir = InodeId::new(subvolume, ObjectId::new(parent));
        // Neighbours are mostly in one directory.
        if last.replace(dir) == Some(dir) || entered.contains(&dir) || found.len() == FOUND_MAX {
            return;
        }
        if seen.len() == FOUND_MAX {
            seen.clear(); // what was seen is but looked at once more
        }
        let is_lost = |error: creamery_base::Error| error.kind().is_damage();
        if seen.insert(dir) && fs.stat(dir, Wait::Yes).is_err_and(is_lost) && lost.insert(dir) {
            let name = format!("{ORPHAN}{parent}").into_bytes();
            found.push(Found { name, id: dir, kind: FileType::Directory });
        }
    });
    found
}

/// Shows every name that an inode of a subvolume says it has: the inode, its directory, and the number and the name there.
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

/// Shows every item of a tree in a leaf that can be read, as the last commit left it.
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
    // What cannot be read is what the search is for.
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
        // Entries have numbers from 2 on.
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
