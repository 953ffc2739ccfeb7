//! Finds the files that earlier commits have and the last one does not have.
//!
//! A file keeps its identity as long as its subvolume, its inode number and the transaction that made it are the same: a renamed file is
//! not gone. The search reads all leaves of all subvolumes of all commits, but none twice, and none that the last commit has. It remembers
//! each block by a number of 64 bits; beyond [`SEEN_MAX`] blocks it no longer remembers them and may read them again. A file whose path a
//! commit has lost waits for an older commit that still has it.
//!
//! If the last commit is damaged, a file that it does not show counts as gone.

use std::collections::{BTreeSet, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use creamery_base::{Error, Generation, InodeId, Logical, ObjectId, Result, Timespec, TreeId, Wait};
use creamery_format::{BlockRef, Expected, KeyType, RawInodeItem, Superblock};
use creamery_volume::{NamedSet, Volume};
use zerocopy::FromBytes;

use super::commits::{Commits, Fate};
use super::judge::{FoundRootTree, TreeOfCommit};
use super::progress::{NoSearchProgress, SearchProgress};
use crate::fs::{Attributes, FileType as Kind};
use crate::metadata::file_type;
use crate::selection::is_unverified;
use crate::subvolume::TOP_LEVEL;
use crate::{FileType, Filesystem};

/// Blocks that the search remembers at most.
const SEEN_MAX: usize = 16 << 20;
/// Blocks between two progress reports.
const BETWEEN: u64 = 256;

/// A file that an earlier commit has and the last one does not have.
///
/// ```
/// fn line(file: &creamery::history::GoneFile) -> String {
///     format!("{} {} {}", file.generation, file.len, file.path.display())
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct GoneFile {
    /// The newest commit with the file.
    pub generation: Generation,
    /// The path in that commit, in the form for commands: from the default subvolume, or from `<FS_TREE>`.
    pub path: PathBuf,
    /// The file type: regular file, directory or symbolic link.
    pub file_type: FileType,
    /// Length, bytes.
    pub len: u64,
    /// Last change of the data.
    pub mtime: Timespec,
    /// The subvolume of the file.
    pub subvolume: TreeId,
    /// The inode number in the subvolume.
    pub ino: ObjectId,
    /// Whether the data has no checksums (NODATASUM): then nothing shows whether another file uses its space by now.
    pub is_unverified: bool,
}

/// The scope of a [`gone_files`] search.
///
/// ```
/// assert_eq!(creamery::history::GoneFiles::default().commits, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct GoneFiles {
    /// Number of earlier commits that were searched.
    pub commits: u64,
    /// Commits that could not be read completely, the newest first: there may be more files.
    pub partial: Vec<Generation>,
    /// Whether the last commit is damaged, and files are listed although it may have them.
    pub is_last_damaged: bool,
    /// Notes about the filesystem, one sentence each.
    pub notes: Vec<String>,
}

/// Calls `each` once for every file, directory and symbolic link that an earlier commit has and the last one does not have, in the state of
/// the newest commit with it. Files of one commit come in the order of their paths. The data of the files is not read.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::Image;
/// use creamery::history::{NoSearchProgress, gone_files};
/// for work in [true, false] {
///     let fs = Image::options().write().open(&image)?;
///     if work { fs.write("/note", "by mistake")? } else { fs.remove_file("/note")? }
///     fs.close()?;
/// }
/// let mut gone = Vec::new();
/// gone_files(&image, &NoSearchProgress, &mut |file| {
///     gone.push(file.path);
///     Ok(())
/// })?;
/// assert_eq!(gone, [std::path::Path::new("/note")]);
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// The last commit cannot be read, or the image is open for writing; the errors of `each`.
pub fn gone_files(
    image: impl Into<NamedSet>,
    progress: &dyn SearchProgress,
    each: &mut dyn FnMut(GoneFile) -> Result<()>,
) -> Result<GoneFiles> {
    list(&Commits::open(&image.into(), None, progress)?, progress, each)
}

/// Searches a device that is open already. For tests of this project; not part of the stability promise.
///
/// # Errors
/// Those of [`gone_files`].
#[doc(hidden)]
pub fn gone_files_of_device(
    device: std::sync::Arc<dyn creamery_device::BlockDevice>,
    each: &mut dyn FnMut(GoneFile) -> Result<()>,
) -> Result<GoneFiles> {
    let quiet = NoSearchProgress;
    list(&Commits::on(Commits::volume_on(device.into())?, None, &quiet)?, &quiet, each)
}

fn list(
    commits: &Commits,
    progress: &dyn SearchProgress,
    each: &mut dyn FnMut(GoneFile) -> Result<()>,
) -> Result<GoneFiles> {
    let mut search = GoneSearch::new(commits, progress);
    let mut told = GoneFiles { notes: commits.volume().notes(), ..GoneFiles::default() };
    for commit in &commits.earlier {
        told.commits += 1;
        let (mut files, is_all) = search.commit(commit)?;
        if !is_all {
            told.partial.push(commit.candidate.generation);
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.into_iter().try_for_each(&mut *each)?;
    }
    told.is_last_damaged = search.is_last_damaged;
    Ok(told)
}

/// An inode, and the transaction that made it.
type InodeIdentity = (InodeId, Generation);

struct GoneSearch<'c> {
    commits: &'c Commits,
    volume: &'c Volume,
    superblock: Superblock,
    /// Subvolumes of the last commit whose blocks count as seen.
    known: HashSet<TreeId>,
    seen: HashSet<u64>,
    hashes: RandomState,
    /// Seen blocks with an unreadable part below them.
    partial: HashSet<u64>,
    listed: HashSet<InodeIdentity>,
    /// Files that no commit has a path for yet.
    unnamed: BTreeSet<InodeIdentity>,
    is_last_damaged: bool,
    progress: &'c dyn SearchProgress,
    done: u64,
}

impl<'c> GoneSearch<'c> {
    fn new(commits: &'c Commits, progress: &'c dyn SearchProgress) -> Self {
        Self {
            commits,
            volume: commits.volume(),
            superblock: commits.volume().superblock(),
            known: HashSet::new(),
            seen: HashSet::new(),
            hashes: RandomState::new(),
            partial: HashSet::new(),
            listed: HashSet::new(),
            unnamed: BTreeSet::new(),
            is_last_damaged: !commits.current.is_open(),
            progress,
            done: 0,
        }
    }

    /// The files that are gone and that one commit has, and whether all of it could be read.
    fn commit(&mut self, commit: &FoundRootTree) -> Result<(Vec<GoneFile>, bool)> {
        let fs = match self.commits.show(commit) {
            Err(error) if error.kind().is_damage() || error.kind() == creamery_base::ErrorKind::NotFound => {
                return Ok((Vec::new(), false));
            }
            opened => opened?,
        };
        let (mut files, mut is_all) = (Vec::new(), true);
        for tree in commit.tree.trees.iter().filter(|tree| tree.id.is_subvolume()) {
            is_all &= self.subvolume(commit.candidate.generation, &fs, tree, &mut files)?;
        }
        Ok((files, is_all && commit.tree.is_whole()))
    }

    fn subvolume(
        &mut self,
        generation: Generation,
        fs: &Filesystem,
        tree: &TreeOfCommit,
        files: &mut Vec<GoneFile>,
    ) -> Result<bool> {
        let present = &self.commits.current;
        let is_there = present.has_subvolume(tree);
        if let Some(now) = present.trees.get(&tree.id).filter(|_| is_there) {
            if now.root == tree.root && present.is_open() {
                return Ok(true);
            }
            if self.known.insert(tree.id) && present.is_open() {
                self.pass_over(tree.id, now.root);
            }
        }
        let beginning = Beginning::of(fs, tree.id);
        let (logical, level, of) = tree.root;
        let want = self.expected(tree.id, logical, level, of);
        let mut found = Vec::new();
        let is_all = self.new_leaves(tree.id, &want, &mut |leaf| inodes(leaf, &mut found))?;
        let mut is_named = true;
        // This commit may have the path of an inode without a path in a newer commit.
        let waiting = self.unnamed.range((InodeId::new(tree.id, ObjectId::new(0)), Generation::new(0))..);
        let waiting = waiting.take_while(|(id, _)| id.subvolume == tree.id).copied();
        let waiting: Vec<InodeIdentity> = waiting.collect();
        let found = found.into_iter().map(|(ino, item)| {
            let made = Generation::new(item.generation.get());
            (InodeId::new(tree.id, ino), made)
        });
        for (id, made) in found.chain(waiting).collect::<BTreeSet<_>>() {
            if self.listed.contains(&(id, made)) {
                continue;
            }
            match if is_there { present.fate(id, made)? } else { Fate::Gone } {
                Fate::There => continue,
                Fate::Gone => {}
                Fate::Lost => self.is_last_damaged = true,
            }
            let path = beginning.path(fs, id);
            let attributes = fs.fs.stat(id, Wait::Yes).ok().filter(|found| found.generation == made);
            let (Some(path), Some(attributes)) = (path, attributes) else {
                is_named = false;
                self.unnamed.insert((id, made));
                continue;
            };
            self.unnamed.remove(&(id, made));
            self.listed.insert((id, made));
            files.push(gone(generation, path, id, &attributes));
        }
        Ok(is_all && is_named)
    }

    fn expected(&self, owner: TreeId, logical: Logical, level: u8, generation: Generation) -> Expected {
        Expected {
            level: Some(level),
            generation: Some(generation),
            owner: Some(owner),
            ..Expected::anything(logical, &self.superblock)
        }
    }

    fn key(&self, tree: TreeId, logical: Logical, generation: Option<Generation>) -> u64 {
        self.hashes.hash_one((tree, logical, generation))
    }

    /// Records a block. False when it was recorded before.
    fn notes(&mut self, tree: TreeId, want: &Expected) -> bool {
        let key = self.key(tree, want.logical, want.generation);
        if self.seen.len() < SEEN_MAX { self.seen.insert(key) } else { !self.seen.contains(&key) }
    }

    fn read(&mut self, want: &Expected) -> Result<creamery_device::AlignedBuffer> {
        if self.done.is_multiple_of(BETWEEN) {
            self.progress.at(self.done, None);
        }
        self.done += 1;
        self.volume.read_tree_block(want.logical, want, Wait::Yes)
    }

    /// Records all blocks of a tree of the last commit. Its leaves are not read for that.
    fn pass_over(&mut self, tree: TreeId, (logical, level, generation): (Logical, u8, Generation)) {
        let mut todo = vec![self.expected(tree, logical, level, generation)];
        while let Some(want) = todo.pop() {
            if !self.notes(tree, &want) || want.level == Some(0) {
                continue;
            }
            let Ok(bytes) = self.read(&want) else { continue };
            let block = BlockRef::new(&bytes);
            for slot in 0..block.count() {
                let (child, of) = block.child(slot);
                todo.push(self.expected(tree, child, block.level() - 1, of));
            }
        }
    }

    /// Calls `each` for each leaf of a tree that was not seen in it. Returns whether the whole tree could be read, now or before.
    fn new_leaves(
        &mut self,
        tree: TreeId,
        want: &Expected,
        each: &mut dyn FnMut(BlockRef<'_>) -> Result<()>,
    ) -> Result<bool> {
        let key = self.key(tree, want.logical, want.generation);
        if !self.notes(tree, want) {
            return Ok(!self.partial.contains(&key));
        }
        let mut is_all = true;
        match self.read(want) {
            Err(_) => is_all = false,
            Ok(bytes) => {
                let block = BlockRef::new(&bytes);
                if block.is_leaf() {
                    each(block)?;
                }
                // A child is one level below, and there are eight levels.
                for slot in 0..if block.is_leaf() { 0 } else { block.count() } {
                    let (child, of) = block.child(slot);
                    let below = self.expected(tree, child, block.level() - 1, of);
                    let below = Expected { first_key: Some(block.key(slot)), ..below };
                    is_all &= self.new_leaves(tree, &below, each)?;
                }
            }
        }
        if !is_all {
            self.partial.insert(key);
        }
        Ok(is_all)
    }
}

/// The inodes of files, directories and symbolic links in a leaf.
fn inodes(leaf: BlockRef<'_>, found: &mut Vec<(ObjectId, RawInodeItem)>) -> Result<()> {
    for slot in (0..leaf.count()).filter(|slot| leaf.key(*slot).kind == KeyType::INODE_ITEM) {
        let Ok(item) = RawInodeItem::ref_from_bytes(leaf.data(slot)) else { continue };
        let ino = leaf.key(slot).objectid;
        if item.nlink.get() > 0
            && kind(item).is_some()
            && InodeId::new(TreeId::FS, ino).ino >= ObjectId::FIRST_FREE
        {
            found.push((ino, *item));
        }
    }
    Ok(())
}

fn kind(item: &RawInodeItem) -> Option<FileType> {
    Some(match item.mode.get() & 0o170_000 {
        0o100_000 => FileType::File,
        0o040_000 => FileType::Directory,
        0o120_000 => FileType::Symlink,
        _ => return None,
    })
}

fn gone(generation: Generation, path: PathBuf, id: InodeId, found: &Attributes) -> GoneFile {
    GoneFile {
        generation,
        path,
        file_type: file_type(found.kind),
        len: found.size,
        mtime: found.times.modification,
        subvolume: id.subvolume,
        ino: id.ino,
        is_unverified: found.kind == Kind::File && is_unverified(found),
    }
}

/// The prefix of the paths of a subvolume, in the form for commands.
struct Beginning(Option<PathBuf>);

impl Beginning {
    fn of(fs: &Filesystem, subvolume: TreeId) -> Self {
        Self(beginning(fs, subvolume).ok())
    }

    /// The first path of an inode; `None` if no item names it any more.
    fn path(&self, fs: &Filesystem, id: InodeId) -> Option<PathBuf> {
        let below = fs.subvolumes().inode_paths(id.subvolume, id.ino).ok()?.into_iter().next()?;
        let top = self.0.as_ref()?;
        Some(if below.as_os_str().is_empty() { top.clone() } else { top.join(below) })
    }
}

fn beginning(fs: &Filesystem, subvolume: TreeId) -> Result<PathBuf, Error> {
    let (path, shown) = (fs.subvolumes().path(subvolume)?, fs.subvolumes().path(fs.root.subvolume)?);
    Ok(match path.strip_prefix(&shown) {
        Ok(below) => Path::new("/").join(below),
        Err(_) => Path::new(TOP_LEVEL).join(path),
    })
}
