//! Walks the source tree in the order in which it is written: depth first, names bytewise.
//!
//! One thread lists directories and numbers what it finds; readers look at the files meanwhile ([`super::reader`]),
//! and the writer gets everything through one queue, in the order of the numbers.
//!
//! # Memory and handles
//! A directory's names live while the walk is in it. Open directories are few: of a deep path only the last
//! [`OPEN_DEPTH`] stay open, the ones above are opened again through ".." on the way back (and compared with what
//! was there before).

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::FileType;

use super::listing::Listing;
use super::reader::{Job, Part};
use super::source::{Meta, SourceDir, at_path, join};
use super::subvolume::Subvolumes;
use crate::SubvolumeKind;

/// How many levels of the path stay open.
const OPEN_DEPTH: usize = 64;
/// Parts that a reader may put ahead for one file; its bytes are bounded by the budget.
const PARTS_AHEAD: usize = 4;

/// What the writer is told, in order.
pub(crate) enum Step {
    /// A directory begins; its content follows, then its [`Step::Leave`].
    Enter { number: u64, name: Vec<u8>, path: Vec<u8>, meta: Box<Meta>, subvolume: Option<SubvolumeKind> },
    /// The directory is complete.
    Leave { number: u64 },
    /// Anything else; what it is comes from a reader.
    File { number: u64, name: Vec<u8>, dir: Arc<SourceDir>, parts: Receiver<Result<Part>> },
    /// The walk ends here.
    Failed(Error),
}

/// One level of the path that the walk is at.
struct Level {
    dir: Option<Arc<SourceDir>>,
    path: Vec<u8>,
    dev: u64,
    ino: u64,
    listing: Listing,
    next: usize,
    /// Which subvolume its files belong to: links cannot reach over the border.
    subvolume: u32,
}

/// The nobody-listens-any-more end of a walk.
struct Hangup;

enum Stop {
    Hangup,
    Failed(Error),
}

impl From<Hangup> for Stop {
    fn from(_: Hangup) -> Self {
        Self::Hangup
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(crate) struct Walker<'a> {
    steps: SyncSender<Step>,
    jobs: SyncSender<Job>,
    subvolumes: &'a Subvolumes,
    /// The image itself may lie in the tree that it is made from.
    image: Option<(u64, u64)>,
    number: u64,
    subvolume_count: u32,
}

impl<'a> Walker<'a> {
    pub(crate) const fn new(
        steps: SyncSender<Step>,
        jobs: SyncSender<Job>,
        subvolumes: &'a Subvolumes,
        image: Option<(u64, u64)>,
    ) -> Self {
        Self { steps, jobs, subvolumes, image, number: 0, subvolume_count: 0 }
    }

    /// Walks everything below `root`, whose own entry is the first [`Step::Enter`], with an empty name.
    pub(crate) fn run(mut self, root: SourceDir) {
        match self.walk(Arc::new(root)) {
            Ok(()) | Err(Stop::Hangup) => {}
            // When nobody listens any more there is nobody to tell either.
            Err(Stop::Failed(error)) => drop(self.steps.send(Step::Failed(error))),
        }
    }

    fn walk(&mut self, root: Arc<SourceDir>) -> Result<(), Stop> {
        let mut levels = vec![self.enter(Vec::new(), root, 0)?];
        while let Some(level) = levels.last_mut() {
            if level.next == level.listing.len() {
                self.leave(&mut levels)?;
                continue;
            }
            let index = level.next;
            level.next += 1;
            let subvolume = level.subvolume;
            let dir = Arc::clone(level.dir.as_ref().expect("the level at hand is open"));
            let (name, kind) = level.listing.get(index);
            if is_dir(&dir, name, kind)? {
                let child = dir.open_dir(name)?;
                let name = name.to_bytes().to_vec();
                let child = self.enter(name, Arc::new(child), subvolume)?;
                levels.push(child);
                if let Some(far) = levels.len().checked_sub(OPEN_DEPTH + 1) {
                    levels[far].dir = None;
                }
            } else {
                self.file(name, dir, subvolume)?;
            }
        }
        Ok(())
    }

    fn next_number(&mut self) -> u64 {
        let number = self.number;
        self.number += 1;
        number
    }

    fn send(&self, step: Step) -> Result<(), Hangup> {
        self.steps.send(step).map_err(|_| Hangup)
    }

    fn enter(&mut self, name: Vec<u8>, dir: Arc<SourceDir>, parent_subvolume: u32) -> Result<Level, Stop> {
        let path = dir.path.clone();
        let meta = dir.meta().map_err(at_path(&path))?;
        let listing = Listing::read(std::os::fd::AsFd::as_fd(&dir.fd)).map_err(at_path(&path))?;
        let kind = self.subvolumes.kind_of(&path);
        let subvolume = match kind {
            Some(_) => {
                self.subvolume_count += 1;
                self.subvolume_count
            }
            None => parent_subvolume,
        };
        let (dev, ino) = (meta.dev, meta.ino);
        let number = self.next_number();
        let step = Step::Enter { number, name, path: path.clone(), meta: Box::new(meta), subvolume: kind };
        self.send(step)?;
        Ok(Level { dir: Some(dir), path, dev, ino, listing, next: 0, subvolume })
    }

    /// Leaves the last level, and opens the one above again when it had been closed.
    fn leave(&mut self, levels: &mut Vec<Level>) -> Result<(), Stop> {
        let left = levels.pop().expect("there is a level to leave");
        let number = self.next_number();
        self.send(Step::Leave { number })?;
        if let Some(above) = levels.last_mut()
            && above.dir.is_none()
        {
            let dir =
                left.dir.as_ref().expect("the level at hand is open").open_parent(above.path.clone())?;
            let meta = dir.meta().map_err(at_path(&above.path))?;
            if (meta.dev, meta.ino) != (above.dev, above.ino) {
                let moved = Error::new(ErrorKind::Stale, "the directory was moved while it was read");
                return Err(at_path(&above.path)(moved).into());
            }
            above.dir = Some(Arc::new(dir));
        }
        Ok(())
    }

    fn file(&mut self, name: &CStr, dir: Arc<SourceDir>, subvolume: u32) -> Result<(), Stop> {
        let number = self.next_number();
        let (send, parts) = sync_channel(PARTS_AHEAD);
        let image = self.image;
        let job = Job { number, dir: Arc::clone(&dir), name: name.to_owned(), subvolume, image, parts: send };
        // The job first: a step whose job nobody got would never be answered.
        self.jobs.send(job).map_err(|_| Hangup)?;
        self.send(Step::File { number, name: name.to_bytes().to_vec(), dir, parts })?;
        Ok(())
    }
}

fn is_dir(dir: &SourceDir, name: &CStr, kind: FileType) -> Result<bool> {
    match kind {
        FileType::Directory => Ok(true),
        FileType::Unknown => dir.is_dir(name).map_err(at_path(&join(&dir.path, name.to_bytes()))),
        _ => Ok(false),
    }
}
