//! Compares two trees: names that were added, removed and modified from an old one to a new one.
//!
//! The trees are two paths of one filesystem, or of two. Two directories are listed, sorted and merged at a time, those on the way to the
//! current name stay in memory, and contents are compared in two buffers of fixed size: memory follows the largest directory and the
//! depth, not the number of files.
//!
//! # What is compared
//! | kind | compared |
//! |---|---|
//! | [`Content`](DiffKind::Content) | bytes of a file (a hole equals zeros, compressed equals not compressed), target of a symbolic link, number of a device |
//! | [`Mode`](DiffKind::Mode) | permission bits, set-user-id, set-group-id, sticky bit |
//! | [`Owner`](DiffKind::Owner) | user and group |
//! | [`Xattr`](DiffKind::Xattr) | extended attributes, ACLs among them |
//! | [`Time`](DiffKind::Time) | modification time; no other time |
//! | [`Flags`](DiffKind::Flags) | the flags of chattr(1) |
//! | [`Type`](DiffKind::Type) | a file beside a directory and the like; then nothing else is compared |
//!
//! Sizes of directories, inode numbers and link counts are not compared. Each hard link is a name of its own, and a renamed file counts as
//! one removed and one added.
//!
//! # Order
//! The beginnings themselves come first, then all other names in the byte order of the paths. The content of `a` sorts as `a/...`, and so
//! behind `a.b`, because a dot sorts before a slash. So a directory's content waits until the names between are done. All waiting
//! directories are prefixes of each other, and the last one comes first.
//!
//! # Subvolumes
//! A subvolume on one side only is one difference, and its content adds none. If both sides have a subvolume of one name, the two are
//! compared like directories. A snapshot has an empty directory where its source has a subvolume; beside that subvolume the directory does
//! not count as a name.
//!
//! # What is not read
//! Within one filesystem two names of one inode are equal, with everything below, and so are parts of files in the same extents.
//! The comparison reads neither the data nor the trees below then, so it does not notice damage there: it verifies nothing.
//!
//! # Trouble
//! An unreadable file or directory is reported with its side, and the rest is compared. If some entries of a directory cannot be read, a
//! name that only the other side has may be one of them, and is not reported as a difference.

mod level;
mod pair;
mod report;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, InodeId, ObjectId, Result, Wait};

use crate::fs;
use crate::metadata::file_type;
use crate::path::{Last, at};
use crate::progress::Progress;
use crate::read_dir::{DirEntry, ReadDir};
use crate::{FileType, Filesystem};
use level::{Below, DiffLevel, Later, MergeStep};
use report::SIDES;
pub use report::{DiffChange, DiffKind, DiffSide, DiffSummary, DiffTrouble, Difference};

/// The differences of two trees, in the byte order of their paths. The iterator goes on after an error.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::diff::DiffChange;
/// use creamery::progress::NoProgress;
/// fs.create_dir_all("/old/sub")?;
/// fs.create_dir_all("/new")?;
/// let mut diff = fs.diff("/old", &fs, "/new", &NoProgress)?;
/// // The directories themselves have two times.
/// let removed = diff.find_map(|found| found.ok().filter(|it| it.change == DiffChange::Removed));
/// assert_eq!(removed.unwrap().path, std::path::Path::new("sub"));
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct Diff<'p> {
    trees: [Tree; 2],
    progress: &'p dyn Progress,
    levels: Vec<DiffLevel>,
    ready: VecDeque<DiffItem>,
    buffers: [Vec<u8>; 2],
}

type DiffItem = std::result::Result<Difference, DiffTrouble>;

/// One of the two trees.
struct Tree {
    fs: Arc<fs::Filesystem>,
    /// The path of its beginning.
    path: PathBuf,
}

impl Tree {
    /// The full path of a name below the beginning.
    fn path_of(&self, below: &Path) -> PathBuf {
        let is_beginning = below.as_os_str().is_empty();
        if is_beginning { self.path.clone() } else { self.path.join(below) }
    }
}

/// The inode of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DiffNode {
    id: InodeId,
    kind: FileType,
    rank: Rank,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rank {
    Plain,
    /// The root directory of a subvolume other than that of the name.
    Subvolume,
    /// The empty directory in a snapshot in place of a subvolume.
    Stub,
}

impl DiffNode {
    fn of(entry: &DirEntry) -> Self {
        let (id, kind) = (entry.id(), entry.file_type());
        let rank = match id.ino {
            ObjectId::EMPTY_SUBVOLUME_DIR => Rank::Stub,
            _ if id.subvolume != entry.dir_id().subvolume => Rank::Subvolume,
            _ => Rank::Plain,
        };
        Self { id, kind, rank }
    }

    /// Whether its content is listed.
    fn is_listed(self) -> bool {
        self.kind.is_dir() && self.rank != Rank::Stub
    }
}

impl Filesystem {
    /// Compares `path` in this filesystem, the old tree, with `other_path` in `other`, the new one, like `diff -r`. Symbolic links at the
    /// ends of these paths are followed, and no others. `progress` gets each name and may cancel.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::progress::NoProgress;
    /// fs.create_dir("/old")?;
    /// fs.create_dir("/new")?;
    /// fs.write("/new/file", "text")?;
    /// let differences = fs.diff("/old", &fs, "/new", &NoProgress).map_err(|trouble| trouble.error)?;
    /// let paths: Vec<_> = differences.flatten().map(|difference| difference.path).collect();
    /// assert!(paths.contains(&"file".into()), "{paths:?}");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// One of the paths does not exist.
    pub fn diff<'p>(
        &self,
        path: impl AsRef<Path>,
        other: &Self,
        other_path: impl AsRef<Path>,
        progress: &'p dyn Progress,
    ) -> std::result::Result<Diff<'p>, DiffTrouble> {
        let (path, other_path) = (path.as_ref(), other_path.as_ref());
        let nodes = [
            self.node_at(path).map_err(|error| DiffTrouble { side: Some(DiffSide::Old), error })?,
            other.node_at(other_path).map_err(|error| DiffTrouble { side: Some(DiffSide::New), error })?,
        ];
        let tree = |fs: &Self, path: &Path| Tree { fs: Arc::clone(&fs.fs), path: path.to_owned() };
        let mut diff = Diff {
            trees: [tree(self, path), tree(other, other_path)],
            progress,
            levels: Vec::new(),
            ready: VecDeque::new(),
            buffers: [Vec::new(), Vec::new()],
        };
        diff.begin(nodes);
        Ok(diff)
    }

    fn node_at(&self, path: &Path) -> Result<DiffNode> {
        let id = self.resolve(path, Last::Follow)?;
        let kind = file_type(self.fs.stat(id, Wait::Yes).map_err(at(path))?.kind);
        Ok(DiffNode { id, kind, rank: Rank::Plain })
    }
}

impl Diff<'_> {
    /// Compares the beginnings, which may be the root of a subvolume and a directory.
    fn begin(&mut self, nodes: [DiffNode; 2]) {
        if self.is_one(nodes) {
            return;
        }
        let names = nodes.iter().any(|node| node.kind.is_dir());
        let name = self.trees[0].path.file_name().filter(|_| !names);
        let shown = name.map_or_else(|| PathBuf::from("."), PathBuf::from);
        let below = Path::new("");
        if !self.compare(below, &shown, nodes) {
            return;
        }
        let dirs = nodes.map(|node| node.kind.is_dir());
        let open = |index: usize| {
            let Tree { fs, path } = &self.trees[index];
            dirs[index].then(|| ReadDir::new(Arc::clone(fs), nodes[index].id, path.clone()))
        };
        let opened = [open(0), open(1)];
        self.enter(PathBuf::new(), opened);
    }

    /// Whether both are the same inode, and so equal with everything below.
    fn is_one(&self, nodes: [DiffNode; 2]) -> bool {
        nodes[0].id == nodes[1].id && Arc::ptr_eq(&self.trees[0].fs, &self.trees[1].fs)
    }

    fn trouble(&mut self, side: DiffSide, error: Error) {
        self.ready.push_back(Err(DiffTrouble { side: Some(side), error }));
    }

    /// Enters directories; one side may have none.
    fn enter(&mut self, path: PathBuf, dirs: [Option<Result<ReadDir>>; 2]) {
        let mut opened = [None, None];
        let mut is_lost = false;
        for ((dir, opened), side) in dirs.into_iter().zip(&mut opened).zip(SIDES) {
            match dir.transpose() {
                Ok(dir) => *opened = dir,
                Err(error) => {
                    is_lost = true;
                    self.trouble(side, error);
                }
            }
        }
        // Every entry of the other side might be on the lost side, too.
        if is_lost || opened.iter().all(Option::is_none) {
            return;
        }
        let level = DiffLevel::list(path, opened, |side, error| self.trouble(side, error));
        self.levels.push(level);
    }

    fn step(&mut self, step: MergeStep) {
        match step {
            MergeStep::Names([Some(old), Some(new)]) => self.both(&old, &new),
            MergeStep::Names([Some(old), None]) if self.here().is_whole[1] => self.alone(DiffSide::Old, &old),
            MergeStep::Names([None, Some(new)]) if self.here().is_whole[0] => self.alone(DiffSide::New, &new),
            MergeStep::Names(_) => {}
            MergeStep::Later(Later { what: Below::Difference(difference), .. }) => {
                self.ready.push_back(Ok(difference));
            }
            MergeStep::Later(Later { name, what: Below::Directories(entries) }) => {
                let path = self.here().path.join(name);
                let dirs = entries.map(|entry| entry.map(|entry| entry.read_dir()));
                self.enter(path, dirs);
            }
        }
    }

    fn here(&mut self) -> &mut DiffLevel {
        self.levels.last_mut().expect("a step is one of the last level")
    }

    /// Reports a name that only one side has.
    fn alone(&mut self, side: DiffSide, entry: &DirEntry) {
        let node = DiffNode::of(entry);
        let mut path = self.here().path.join(entry.file_name());
        let is_subvolume = node.rank != Rank::Plain;
        let change = if side == DiffSide::Old { DiffChange::Removed } else { DiffChange::Added };
        let len = match node.kind {
            FileType::File => self.len_of(side, entry),
            _ => 0,
        };
        self.progress.entry(path.as_os_str().as_encoded_bytes(), 0);
        if is_subvolume {
            path.push("");
            let difference = Difference { path, change, kinds: Vec::new(), is_subvolume, len };
            return self.here().wait(entry, Below::Difference(difference));
        }
        self.ready.push_back(Ok(Difference { path, change, kinds: Vec::new(), is_subvolume, len }));
        if node.is_listed() {
            let (old, new) = if side == DiffSide::Old { (Some(entry), None) } else { (None, Some(entry)) };
            self.here().wait(entry, Below::Directories([old.cloned(), new.cloned()]));
        }
    }

    fn len_of(&mut self, side: DiffSide, entry: &DirEntry) -> u64 {
        entry.metadata().map_or_else(
            |error| {
                self.trouble(side, error);
                0
            },
            |meta| meta.len(),
        )
    }

    /// Compares a name that both sides have.
    fn both(&mut self, old: &DirEntry, new: &DirEntry) {
        let nodes = [DiffNode::of(old), DiffNode::of(new)];
        match nodes.map(|node| node.rank) {
            _ if self.is_one(nodes) => {}
            [Rank::Stub, Rank::Stub] => {}
            [Rank::Stub, Rank::Subvolume] => return self.alone(DiffSide::New, new),
            [Rank::Subvolume, Rank::Stub] => return self.alone(DiffSide::Old, old),
            _ => {
                let path = self.here().path.join(old.file_name());
                if !self.compare(&path, &path, nodes) {
                    return;
                }
                let are_listed = nodes.map(DiffNode::is_listed);
                // The content of a subvolume is compared with that of its counterpart, or not at all.
                let is_below = |this: usize| {
                    are_listed[this] && (are_listed[1 - this] || nodes[this].rank == Rank::Plain)
                };
                let dirs = [is_below(0).then(|| old.clone()), is_below(1).then(|| new.clone())];
                if dirs.iter().any(Option::is_some) {
                    self.here().wait(old, Below::Directories(dirs));
                }
                return;
            }
        }
        let path = self.here().path.join(old.file_name());
        self.progress.entry(path.as_os_str().as_encoded_bytes(), 0);
    }
}

impl Iterator for Diff<'_> {
    type Item = DiffItem;

    fn next(&mut self) -> Option<DiffItem> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            if self.levels.is_empty() {
                return None;
            }
            if let Err(error) = self.progress.go_on() {
                self.end(error);
                continue;
            }
            match self.levels.last_mut()?.next() {
                Some(step) => self.step(step),
                None => drop(self.levels.pop()),
            }
        }
    }
}
