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
    /// The position behind the last entry that was there when the listing began: names that are made meanwhile add nothing to it.
    end: u64,
    batch: Arc<Batch>,
    /// How many entries of the batch were handed out.
    told: usize,
    done: bool,
    /// What is to be told when the batch is.
    failed: Option<Error>,
    passes_damage: bool,
    /// Numbers of entries that could not be read.
    lost: Vec<Range<u64>>,
}

/// What is listed.
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

/// Entries fetched at once, with their names one behind the other: an entry handed out is a share of this, so that listing
/// allocates nothing for each.
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

/// An entry that was lost, and found elsewhere.
pub(crate) struct Found {
    pub(crate) name: Vec<u8>,
    pub(crate) id: InodeId,
    pub(crate) kind: fs::FileType,
}

/// One of them.
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
    /// Its name.
    #[must_use]
    pub fn file_name(&self) -> &OsStr {
        OsStr::from_bytes(&self.batch.names[self.record.name.clone()])
    }

    /// The path of the directory as it was given, with the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.batch.dir.path.join(self.file_name())
    }

    /// What it is; symbolic links are not followed.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        self.record.kind
    }

    pub(crate) const fn id(&self) -> InodeId {
        self.record.id
    }

    /// The directory that it is in.
    pub(crate) fn dir_id(&self) -> InodeId {
        self.batch.dir.id
    }

    /// Lists it, if it is a directory and still has its name. Looking it up again is what keeps a walk from going in
    /// circles in a damaged filesystem.
    pub(crate) fn read_dir(&self) -> Result<ReadDir> {
        let (dir, path) = (&self.batch.dir, self.path());
        let found = dir.fs.lookup(dir.id, self.file_name().as_bytes(), Wait::Yes).map_err(at(&path))?;
        if found != self.id() {
            return Err(at(&path)(ErrorKind::NotFound.into()));
        }
        ReadDir::new(Arc::clone(&dir.fs), found, path)
    }

    /// Lists it without looking it up: what leads from names to directories may be damaged, too. Who does that keeps out of circles
    /// by himself. What is shown as an empty directory in a subvolume's place is looked up all the same: nothing is lost with it, and
    /// no directory has the top level in it.
    pub(crate) fn read_dir_past_damage(&self) -> Result<ReadDir> {
        if self.id().ino == ObjectId::EMPTY_SUBVOLUME_DIR {
            return self.read_dir();
        }
        ReadDir::new(Arc::clone(&self.batch.dir.fs), self.id(), self.path()).map(ReadDir::past_damage)
    }

    /// What is known about it; symbolic links are not followed.
    ///
    /// # Errors
    /// When it is gone by now.
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

    /// The same, but an error does not end it: what is behind a leaf that cannot be read comes after it.
    pub(crate) fn past_damage(self) -> Self {
        Self { passes_damage: true, ..self }
    }

    /// Numbers of entries that could not be read, once.
    pub(crate) fn take_lost(&mut self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.lost)
    }

    /// Entries that were found elsewhere come behind those of the listing, which is at its end. Whether there are some.
    pub(crate) fn go_on_with(&mut self, found: Vec<Found>) -> bool {
        let mut batch = Batch { dir: Arc::clone(&self.dir), names: Vec::new(), entries: Vec::new() };
        for Found { name, id, kind } in found {
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

    /// The directory that is listed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir.path
    }

    /// Looks where the directory ends, once: at the first batch, which is all of most directories.
    fn find_end(&mut self) {
        if self.end == u64::MAX && !self.passes_damage {
            // What cannot be read there, the listing meets.
            self.end = self.dir.fs.end_of_dir(self.dir.id, Wait::Yes).unwrap_or(u64::MAX);
        }
    }

    /// Fills the batch. Of what failed on the way is told behind what came before.
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

    /// Goes to the first entry behind what cannot be read; whether there can be one. A leaf has a few hundred entries, so ever longer
    /// steps from its first one soon lead out of it, and no further than the end of the next.
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
