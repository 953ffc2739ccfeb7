//! Reads files ahead of the writer: stat, xattrs, data.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Result};
use creamery_fs::{Filesystem, PackedAhead};
use rustix::fs::FileType;

use super::budget::{Budget, Closed};
use super::source::{
    Handle, Meta, SourceDir, at_path, data_parts, from_stat, io_error, join, read_exactly, read_some,
    read_xattrs,
};

/// Maximum bytes of a piece of data; pieces are cut at multiples of it.
pub(crate) const PIECE: u64 = 1 << 20;

/// Maximum bytes of a piece of a file that does not report its size.
const UNTOLD_PIECE: u64 = 64 << 10;

/// One file to read.
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) dir: Arc<SourceDir>,
    pub(crate) name: CString,
    /// The type from the directory; unknown if the host's filesystem does not report it.
    pub(crate) kind: FileType,
    pub(crate) subvolume: u32,
    pub(crate) image: Option<(u64, u64)>,
    pub(crate) parts: SyncSender<Result<Part>>,
}

/// The messages of a reader, in order: one [`Part::Meta`], data, [`Part::End`].
pub(crate) enum Part {
    /// The attributes of the file.
    Meta(Box<Meta>),
    /// A piece of its data. The bytes are charged to the budget. A small file may have its compressed data as well, which is not charged:
    /// it is shorter, and the number of files ahead is limited.
    Data { offset: u64, bytes: Vec<u8>, packed: Option<PackedAhead> },
    /// The end of the data; a regular file has this size.
    End { size: u64 },
}

/// A file with more than one name, within one subvolume.
pub(crate) type LinkKey = (u32, u64, u64);

/// The state that the readers share.
pub(crate) struct Shared<'a> {
    /// The target filesystem.
    pub(crate) fs: &'a Filesystem,
    pub(crate) budget: Budget,
    /// Bytes of a block of the new filesystem: holes shrink to whole blocks.
    pub(crate) sector_size: u64,
    /// Whether hard links are kept.
    pub(crate) links: bool,
    /// For each file of several names, the lowest number that a reader has seen: a later name needs no data.
    pub(crate) first_seen: RankedMutex<HashMap<LinkKey, u64>, { rank::LEAF }>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(fs: &'a Filesystem, budget: u64, links: bool) -> Self {
        let sector_size = fs.engine().sector_size().into();
        Self { fs, budget: Budget::new(budget), sector_size, links, first_seen: RankedMutex::default() }
    }

    /// Drops a file whose names have all been seen.
    pub(crate) fn forget(&self, key: LinkKey) {
        self.first_seen.lock().remove(&key);
    }
}

enum ReadStop {
    /// The writer needs no more of this file.
    Unwanted,
    Failed(Error),
}

impl From<Error> for ReadStop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Closed> for ReadStop {
    fn from(_: Closed) -> Self {
        Self::Unwanted
    }
}

/// The jobs that are left, for several readers.
pub(crate) type Jobs = RankedMutex<Receiver<Job>, { rank::JOBS }>;

/// Works on jobs until there are none left.
pub(crate) fn run(jobs: &Jobs, shared: &Shared<'_>) {
    loop {
        let job = jobs.lock().recv();
        let Ok(job) = job else { return };
        match read(&job, shared) {
            Ok(()) | Err(ReadStop::Unwanted) => {}
            Err(ReadStop::Failed(error)) => {
                let path = join(&job.dir.path, job.name.to_bytes());
                // The writer may have ended already.
                drop(job.parts.send(Err(at_path(&path)(error))));
            }
        }
    }
}

fn send(job: &Job, part: Part) -> Result<(), ReadStop> {
    job.parts.send(Ok(part)).map_err(|_| ReadStop::Unwanted)
}

fn read(job: &Job, shared: &Shared<'_>) -> Result<(), ReadStop> {
    if job.kind == FileType::RegularFile {
        return read_regular(job, shared);
    }
    let mut meta = job.dir.stat(&job.name)?;
    if meta.kind == FileType::RegularFile {
        return read_regular(job, shared);
    }
    meta.xattrs = job.dir.special_xattrs(&job.name)?;
    if meta.kind == FileType::Symlink {
        meta.target = job.dir.read_link(&job.name)?;
    }
    send(job, Part::Meta(Box::new(meta)))?;
    send(job, Part::End { size: 0 })
}

fn read_regular(job: &Job, shared: &Shared<'_>) -> Result<(), ReadStop> {
    let file = job.dir.open_file(&job.name)?;
    let mut meta = from_stat(&rustix::fs::fstat(&file).map_err(io_error)?);
    if job.image == Some((meta.dev, meta.ino)) {
        let inside = "the image lies in its source directory; put it elsewhere";
        return Err(Error::invalid(inside).into());
    }
    if meta.kind != FileType::RegularFile {
        return Err(Error::new(ErrorKind::Stale, "replaced by another file type while it was read").into());
    }
    meta.xattrs = read_xattrs(&Handle::Open(file.as_fd()))?;
    let wanted = !shared.links || meta.nlink < 2 || is_first(job, shared, &meta);
    let mut size = meta.size;
    send(job, Part::Meta(Box::new(meta)))?;
    if wanted && size > 0 {
        for (start, end) in data_parts(file.as_fd(), size, shared.sector_size)? {
            send_data(job, shared, &file, (start, end), size)?;
        }
    } else if wanted {
        size = send_untold(job, shared, &file)?;
    }
    send(job, Part::End { size })
}

/// Sends the content of a file that claims to be empty, as all files in /proc do. Returns the number of bytes.
fn send_untold(job: &Job, shared: &Shared<'_>, file: &impl AsFd) -> Result<u64, ReadStop> {
    let mut at = 0;
    loop {
        shared.budget.take(job.number, UNTOLD_PIECE)?;
        let read = read_some(file.as_fd(), at, UNTOLD_PIECE as usize);
        let len = read.as_ref().map_or(0, |bytes| bytes.len() as u64);
        shared.budget.give_back(UNTOLD_PIECE - len);
        if len == 0 {
            return read.map(|_| at).map_err(ReadStop::from);
        }
        send_piece(job, shared, at, read?, None)?;
        at += len;
    }
}

/// Sends data that is charged to the budget.
fn send_piece(
    job: &Job,
    shared: &Shared<'_>,
    offset: u64,
    bytes: Vec<u8>,
    packed: Option<PackedAhead>,
) -> Result<(), ReadStop> {
    let len = bytes.len() as u64;
    job.parts.send(Ok(Part::Data { offset, bytes, packed })).map_err(|_| {
        shared.budget.give_back(len);
        ReadStop::Unwanted
    })
}

/// Whether this name comes before all others of the file that readers have seen so far. That is always true for the first name; it may be
/// true for a later one as well, which costs a needless read.
fn is_first(job: &Job, shared: &Shared<'_>, meta: &Meta) -> bool {
    let mut seen = shared.first_seen.lock();
    match seen.entry((job.subvolume, meta.dev, meta.ino)) {
        Entry::Occupied(entry) if *entry.get() < job.number => false,
        Entry::Occupied(mut entry) => {
            entry.insert(job.number);
            true
        }
        Entry::Vacant(entry) => {
            entry.insert(job.number);
            true
        }
    }
}

fn send_data(
    job: &Job,
    shared: &Shared<'_>,
    file: &impl AsFd,
    (start, end): (u64, u64),
    size: u64,
) -> Result<(), ReadStop> {
    let mut at = start;
    while at < end {
        let stop = end.min((at / PIECE + 1) * PIECE);
        let len = usize::try_from(stop - at).expect("a piece fits in memory");
        shared.budget.take(job.number, stop - at)?;
        match read_exactly(file.as_fd(), at, len) {
            Ok(bytes) => {
                let is_all = bytes.len() as u64 == size;
                let packed = if is_all { shared.fs.pack_ahead(&bytes) } else { None };
                send_piece(job, shared, at, bytes, packed)?;
            }
            Err(error) => {
                shared.budget.give_back(stop - at);
                return Err(error.into());
            }
        }
        at = stop;
    }
    Ok(())
}
