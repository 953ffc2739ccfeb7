//! Listing a directory.

use std::ffi::OsStr;
use std::ops::{ControlFlow, Range};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, Wait};

use crate::fs;
use crate::metadata::file_type;
use crate::path::at;
use crate::{FileType, Metadata};

/// Entries fetched at a time: many, because the filesystem copies a few more than are taken.
const BATCH: usize = 1024;

/// The entries of a directory, without "." and "..".
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.create_dir("/milk")?;
/// let names: Result<Vec<_>, _> = fs.read_dir("/")?.map(|entry| entry.map(|e| e.file_name().to_owned())).collect();
/// assert_eq!(names?, ["milk"]);
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct ReadDir {
    dir: Arc<Dir>,
    offset: u64,
    /// The position behind the last entry at the start of the listing: names that are created meanwhile do not make it longer.
    end: u64,
    batch: Arc<Batch>,
    /// Entries of the batch that the iterator has returned.
    told: usize,
    done: bool,
    /// The error that the iterator returns behind the batch.
    failed: Option<Error>,
    passes_damage: bool,
    /// Numbers of unreadable entries.
    lost: Vec<Range<u64>>,
}

/// The directory of a listing.
struct Dir {
    fs: Arc<fs::Filesystem>,
    id: InodeId,
    path: PathBuf,
}

impl Dir {
    fn no_entries(dir: &Arc<Self>) -> Arc<Batch> {
        Arc::new(Batch { dir: Arc::clone(dir), names: Vec::new(), entries: Vec::new() })
    }
}

/// A batch of entries with their names one behind the other. A returned entry shares the batch, so that listing allocates
/// nothing for each entry.
struct Batch {
    dir: Arc<Dir>,
    names: Vec<u8>,
    entries: Vec<Record>,
}

impl Batch {
    fn push(&mut self, name: &[u8], id: InodeId, kind: fs::FileType) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.entries.push(Record { name: start..self.names.len(), id, kind: file_type(kind) });
    }
}

#[derive(Clone)]
struct Record {
    name: Range<usize>,
    id: InodeId,
    kind: FileType,
}

/// A lost entry that was found elsewhere.
pub(crate) struct FoundEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) id: InodeId,
    pub(crate) kind: fs::FileType,
}

/// An entry of a directory, as [`std::fs::DirEntry`].
///
/// ```no_run
/// # fn example(fs: &creamery::Filesystem) -> creamery::Result<()> {
/// for entry in fs.read_dir("/")? {
///     let entry = entry?;
///     println!("{} {}", entry.metadata()?.len(), entry.path().display());
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct DirEntry {
    batch: Arc<Batch>,
    record: Record,
}

impl DirEntry {
    /// The name of the entry, without the directory.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.batch.names[self.record.name.clone()])
    }

    /// The path of the directory as the caller gave it, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.batch.dir.path.join(self.file_name())
    }

    /// The type of the entry; symbolic links are not followed.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        self.record.kind
    }

    pub(crate) const fn id(&self) -> InodeId {
        self.record.id
    }

    /// The directory of the entry.
    pub(crate) fn dir_id(&self) -> InodeId {
        self.batch.dir.id
    }

    /// Lists the entry, if it is a directory and still has its name. The lookup keeps a walk of a damaged filesystem from going in
    /// circles.
    pub(crate) fn read_dir(&self) -> Result<ReadDir> {
        let (dir, path) = (&self.batch.dir, self.path());
        let found = dir.fs.lookup(dir.id, self.file_name().as_bytes(), Wait::Yes).map_err(at(&path))?;
        if found != self.id() {
            return Err(at(&path)(ErrorKind::NotFound.into()));
        }
        ReadDir::new(Arc::clone(&dir.fs), found, path)
    }

    /// Lists the entry without a lookup: the items that lead from names to directories may be damaged, too. The caller prevents
    /// circles. An empty directory in a subvolume's place is still looked up: that loses nothing, and no directory has the top level in it.
    pub(crate) fn read_dir_past_damage(&self) -> Result<ReadDir> {
        if self.id().ino == ObjectId::EMPTY_SUBVOLUME_DIR {
            return self.read_dir();
        }
        ReadDir::new(Arc::clone(&self.batch.dir.fs), self.id(), self.path()).map(ReadDir::past_damage)
    }

    /// The metadata of the entry; symbolic links are not followed.
    ///
    /// # Errors
    /// When the entry no longer exists.
    pub fn metadata(&self) -> Result<Metadata> {
        self.batch.dir.fs.stat(self.id(), Wait::Yes).map(Metadata::new).map_err(at(&self.path()))
    }
}

impl ReadDir {
    pub(crate) fn new(fs: Arc<fs::Filesystem>, id: InodeId, path: PathBuf) -> Result<Self> {
        let kind = fs.stat(id, Wait::Yes).map_err(at(&path))?.kind;
        if kind != fs::FileType::Directory {
            return Err(at(&path)(ErrorKind::NotADirectory.into()));
        }
        let dir = Arc::new(Dir { fs, id, path });
        let batch = Dir::no_entries(&dir);
        Ok(Self {
            dir,
            offset: 0,
            end: u64::MAX,
            batch,
            told: 0,
            done: false,
            failed: None,
            passes_damage: false,
            lost: Vec::new(),
        })
    }

    /// Makes an error not end the listing: the entries behind an unreadable leaf come after the error.
    pub(crate) fn past_damage(self) -> Self {
        Self { passes_damage: true, ..self }
    }

    /// Numbers of unreadable entries; the next call does not return them again.
    pub(crate) fn take_lost(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.lost)
    }

    /// Appends entries that were found elsewhere to the listing, which is at its end. True if there are some.
    pub(crate) fn go_on_with(&mut self, found: Vec<FoundEntry>) -> bool {
        let mut batch = Batch { dir: Arc::clone(&self.dir), names: Vec::new(), entries: Vec::new() };
        for FoundEntry { name, id, kind } in found {
            batch.push(&name, id, kind);
        }
        let is_more = !batch.entries.is_empty();
        (self.batch, self.told, self.done) = (Arc::new(batch), 0, true);
        is_more
    }

    pub(crate) fn id(&self) -> InodeId {
        self.dir.id
    }

    pub(crate) fn fs(&self) -> &fs::Filesystem {
        &self.dir.fs
    }

    /// The path of the directory, as the caller gave it.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// Finds the end of the directory, once: at the first batch, which holds all of most directories.
    fn find_end(&mut self) {
        if self.end == u64::MAX && !self.passes_damage {
            // The listing itself meets an error that occurs here.
            self.end = self.dir.fs.end_of_dir(self.dir.id, Wait::Yes).unwrap_or(u64::MAX);
        }
    }

    /// Fills the batch. An error on the way is returned behind the entries before it.
    fn fetch(&mut self) {
        let dir = &self.dir;
        let mut batch = Batch {
            dir: Arc::clone(dir),
            names: Vec::with_capacity(self.batch.names.len()),
            entries: Vec::with_capacity(self.batch.entries.len()),
        };
        let (mut taken, offset) = (0, &mut self.offset);
        let outcome = dir.fs.read_dir_range(dir.id, *offset..self.end, Wait::Yes, &mut |entry| {
            if taken == BATCH {
                return ControlFlow::Break(());
            }
            taken += 1;
            *offset = entry.next_offset;
            if entry.name != b"." && entry.name != b".." {
                batch.push(entry.name, entry.id, entry.kind);
            }
            ControlFlow::Continue(())
        });
        self.done = taken < BATCH;
        if !self.done {
            self.find_end();
        }
        (self.batch, self.told) = (Arc::new(batch), 0);
        if let Err(error) = outcome {
            self.failed = Some(at(&self.dir.path)(error));
            self.done = !(self.passes_damage && self.pass_damage());
        }
    }

    /// Goes to the first entry behind the unreadable ones; false if there can be none. A leaf has a few hundred entries, so ever longer
    /// steps from its first one soon lead out of it, and no further than the end of the next leaf.
    fn pass_damage(&mut self) -> bool {
        let dir = &self.dir;
        let can_be_read = |offset| {
            let first = &mut |_: fs::DirEntry<'_>| ControlFlow::Break(());
            dir.fs.read_dir(dir.id, offset, Wait::Yes, first).is_ok()
        };
        let steps = (0..u64::BITS).filter_map(|bit| self.offset.checked_add(1 << bit));
        let Some(mut readable) = steps.into_iter().find(|offset| can_be_read(*offset)) else {
            self.lost.push(self.offset..u64::MAX);
            return false;
        };
        let first = self.offset;
        let mut lost = first;
        while readable - lost > 1 {
            let middle = lost.midpoint(readable);
            *(if can_be_read(middle) { &mut readable } else { &mut lost }) = middle;
        }
        self.offset = readable;
        self.lost.push(first..readable);
        true
    }
}

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.dir.fs.engine().check_open() {
            let is_over = self.done && self.told == self.batch.entries.len();
            (self.batch, self.told, self.done) = (Dir::no_entries(&self.dir), 0, true);
            return if is_over { None } else { Some(Err(at(&self.dir.path)(error))) };
        }
        while self.told == self.batch.entries.len() {
            if let Some(error) = self.failed.take() {
                return Some(Err(error));
            }
            if self.done {
                return None;
            }
            self.fetch();
        }
        let record = self.batch.entries.get(self.told)?.clone();
        self.told += 1;
        Some(Ok(DirEntry { batch: Arc::clone(&self.batch), record }))
    }
}
