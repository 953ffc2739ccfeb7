//! The queue from the walk and the readers to the writer.
//!
//! One thread walks the source and numbers the files it finds. Readers read the files in any order. The writer gets everything through one
//! queue in the order of the numbers; for a file it gets the receiving end of a channel from the file's reader.
//!
//! # Why there is no deadlock
//! - A file's job is queued before its step, so a reader has or will get the job of every step that the writer waits for.
//! - Readers take jobs in order.
//! - The file with the next number always gets memory (BUDGET-1).

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use creamery_base::{Error, Result};
use rustix::fs::FileType;

use super::reader::{Job, Part};
use super::source::{Meta, SourceDir};
use super::subvolume::Subvolumes;
use super::walk::{Visitor, WalkStop, walk};
use crate::SubvolumeKind;

/// Files that are read ahead of the writer. Each may hold a directory open.
pub(crate) const FILES_AHEAD: usize = 256;
/// Parts of one file that a reader may send ahead; the budget bounds their bytes.
const PARTS_AHEAD: usize = 4;

/// The steps that the writer takes in order.
pub(crate) enum Step {
    /// A directory begins; its content follows, then its [`Step::Leave`].
    Enter { number: u64, name: Vec<u8>, path: Vec<u8>, meta: Box<Meta>, subvolume: Option<SubvolumeKind> },
    /// The directory is complete.
    Leave { number: u64 },
    /// Any other file; its kind and content come from a reader.
    File { number: u64, name: Vec<u8>, parts: Receiver<Result<Part>> },
    /// The file at this path cannot be read. The walk goes on behind it.
    Unread { path: Vec<u8>, error: Error },
    /// The walk ends here.
    Failed(Error),
}

/// The end of the queue that the walk feeds.
pub(crate) struct Feeder<'a> {
    pub(crate) steps: SyncSender<Step>,
    pub(crate) jobs: SyncSender<Job>,
    pub(crate) subvolumes: &'a Subvolumes,
    /// Device and inode of the image, which may lie in its own source tree.
    pub(crate) image: Option<(u64, u64)>,
    number: u64,
    /// The number of subvolumes so far, and the subvolume of each level of the path.
    subvolume_count: u32,
    levels: Vec<u32>,
}

impl<'a> Feeder<'a> {
    pub(crate) const fn new(
        steps: SyncSender<Step>,
        jobs: SyncSender<Job>,
        subvolumes: &'a Subvolumes,
        image: Option<(u64, u64)>,
    ) -> Self {
        Self { steps, jobs, subvolumes, image, number: 0, subvolume_count: 0, levels: Vec::new() }
    }

    /// Walks everything below `root`, whose own entry is the first step.
    pub(crate) fn run(mut self, root: SourceDir) {
        match walk(root, &mut self) {
            Ok(()) | Err(WalkStop::Enough) => {}
            // If the writer has ended, nobody receives the error.
            Err(WalkStop::Failed(error)) => drop(self.steps.send(Step::Failed(error))),
        }
    }

    /// Queues one file that is no directory, under the name `to`.
    pub(crate) fn run_file(mut self, dir: SourceDir, name: &CStr, to: &[u8]) {
        // If the queue is closed, the writer has reported its own error.
        drop(self.queue_file(name, FileType::Unknown, &Arc::new(dir), to, 0));
    }

    fn queue_file(
        &mut self,
        name: &CStr,
        kind: FileType,
        dir: &Arc<SourceDir>,
        to: &[u8],
        subvolume: u32,
    ) -> Result<(), WalkStop> {
        let number = self.next_number();
        let (send, parts) = sync_channel(PARTS_AHEAD);
        let job = Job {
            number,
            dir: Arc::clone(dir),
            name: name.to_owned(),
            kind,
            subvolume,
            image: self.image,
            parts: send,
        };
        self.jobs.send(job).map_err(|_| WalkStop::Enough)?;
        self.send(Step::File { number, name: to.to_vec(), parts })
    }

    fn next_number(&mut self) -> u64 {
        let number = self.number;
        self.number += 1;
        number
    }

    fn send(&self, step: Step) -> Result<(), WalkStop> {
        self.steps.send(step).map_err(|_| WalkStop::Enough)
    }
}

impl Visitor for Feeder<'_> {
    fn enter(&mut self, name: &[u8], dir: &SourceDir, meta: Meta) -> Result<(), WalkStop> {
        let subvolume = self.subvolumes.kind_of(&dir.path);
        let level = if subvolume.is_some() {
            self.subvolume_count += 1;
            self.subvolume_count
        } else {
            self.levels.last().copied().unwrap_or(0)
        };
        self.levels.push(level);
        let number = self.next_number();
        let (name, path, meta) = (name.to_vec(), dir.path.clone(), Box::new(meta));
        self.send(Step::Enter { number, name, path, meta, subvolume })
    }

    fn leave(&mut self) -> Result<(), WalkStop> {
        self.levels.pop();
        let number = self.next_number();
        self.send(Step::Leave { number })
    }

    fn unread(&mut self, path: &[u8], error: Error) -> Result<(), WalkStop> {
        self.send(Step::Unread { path: path.to_vec(), error })
    }

    fn file(&mut self, name: &CStr, kind: FileType, dir: &Arc<SourceDir>) -> Result<(), WalkStop> {
        let subvolume = *self.levels.last().expect("files lie in the root or below");
        self.queue_file(name, kind, dir, name.to_bytes(), subvolume)
    }
}
