//! Direct requests that must not wait, beside writers, snapshots and commits that stop in the middle of their work.
//!
//! Operations and background take turns. Between two operations the background stands anywhere: within a commit, in writeback, with locks
//! held. There the run tries requests that must not wait, while no other thread runs. So they cause all changes between before and after:
//!
//! - A refused request leaves everything as it was (DIRECT-4).
//! - A thread that may wait repeats the request, with the result of any write or read (retry equivalence).
//! - A request that began is answered, with that result.
//!
//! The filesystem itself asserts that none of them waits (DIRECT-5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use anyhow::{Context, Result, ensure};
use creamery_base::{TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_fs::{
    DirectAt, DirectDone, DirectRequest, Fallocate, Filesystem, FsOptions, InodeFlags, NewInode, OpenFile,
    SetAttributes,
};
use creamery_testkit::Random;
use creamery_txn::Options;

use crate::crash::judge;
use crate::device::SimDevice;
use crate::driver;
use crate::image::Image;
use crate::turns::Beside;

const SECTOR: u64 = 4096;
/// Sectors of each file; it has preallocated space for some more.
const SECTORS: u64 = 64;
const SET_ASIDE: u64 = 16;
/// Attempts between two operations.
const ATTEMPTS: u64 = 40;
const SNAPSHOTS_MAX: usize = 4;

/// The results of such a run.
///
/// ```
/// assert_eq!(creamery_sim::UnwaitingReport::default().begun, 0);
/// ```
#[derive(Clone, Default, Debug)]
pub struct UnwaitingReport {
    /// Requests that must not wait.
    pub attempts: u64,
    /// Requests that began.
    pub begun: u64,
    /// Refused requests, by reason.
    pub refused: BTreeMap<&'static str, u64>,
    /// Refused requests whose traces were not compared, as a thread with a short lock ran meanwhile.
    pub not_compared: u64,
    /// Refused requests that a waiting thread carried out later.
    pub retried: u64,
    /// Steps of the background that ended, and how often a step stopped in the middle.
    pub steps: (u64, u64),
}

/// A request that began, and the expected data of a read.
struct Begun {
    file: usize,
    answer: Receiver<DirectDone>,
    expected: Option<Vec<u8>>,
}

struct UnwaitingRunState {
    random: Random,
    fs: Arc<Filesystem>,
    files: Vec<Arc<OpenFile>>,
    /// The content of each file once all requests have ended.
    model: Vec<Vec<u8>>,
    begun: Vec<Begun>,
    snapshots: Vec<String>,
    report: UnwaitingReport,
}

/// Tries `attempts` requests of `seed` on `base`.
///
/// # Errors
/// A refused request left a trace, or the content of a file is wrong.
pub fn unwaiting_run(base: &Image, seed: u64, attempts: u64) -> Result<UnwaitingReport> {
    let device = Arc::new(SimDevice::new(base.clone()));
    let options = FsOptions { delayed_bytes: 1 << 20, ..FsOptions::default() };
    let fs = driver::open_with(&device, Options::default(), options)?;
    let mut run = UnwaitingRunState::new(fs, seed)?;
    let beside = Beside::begin(run.fs.engine(), seed);
    let mut operations = 0_u64;
    while run.report.attempts < attempts {
        operations += 1;
        let step = beside.run(|| run.operation());
        step.with_context(|| format!("seed {seed}, operation {operations}"))?;
        for _ in 0..ATTEMPTS {
            run.attempt(&beside).with_context(|| format!("seed {seed}, behind operation {operations}"))?;
        }
    }
    beside.run(|| run.end())?;
    run.report.steps = beside.end();
    let UnwaitingRunState { fs, files, report, .. } = run;
    files.into_iter().for_each(|file| fs.close(file));
    fs.shut_down()?;
    judge(&device.image())?;
    Ok(report)
}

impl UnwaitingRunState {
    fn new(fs: Arc<Filesystem>, seed: u64) -> Result<Self> {
        let top = fs.root(TreeId::FS)?;
        let (mut files, mut model) = (Vec::new(), Vec::new());
        for flags in [InodeFlags::NODATACOW, InodeFlags::NODATACOW, InodeFlags::empty()] {
            let name = format!("file{}", files.len());
            let id = fs.create(top, name.as_bytes(), &NewInode::file(0o600))?.id;
            fs.set_attributes(id, &SetAttributes { flags: Some(flags), ..SetAttributes::default() })?;
            let open = fs.open_file(id)?;
            let content = vec![1; (SECTORS * SECTOR) as usize];
            open.write_at(0, &content)?;
            open.sync()?;
            open.fallocate(Fallocate::Allocate { keep_size: true }, SECTORS * SECTOR, SET_ASIDE * SECTOR)?;
            files.push(open);
            model.push(content);
        }
        fs.sync()?;
        let (begun, snapshots, report) = (Vec::new(), Vec::new(), UnwaitingReport::default());
        Ok(Self { random: Random::new(seed), fs, files, model, begun, snapshots, report })
    }

    /// An operation that changes a file, makes it durable, snapshots it, or ends requests.
    fn operation(&mut self) -> Result<()> {
        let file = self.random.below(self.files.len() as u64) as usize;
        let offset = self.random.below(SECTORS * SECTOR);
        match self.random.below(16) {
            0..4 => {
                let len = 1 + self.random.below(3 * SECTOR) as usize;
                let bytes = vec![self.random.below(256) as u8; len];
                ensure!(self.files[file].write_at(offset, &bytes)? == len, "there is room");
                self.put(file, offset, &bytes);
            }
            4 => {
                let at = offset / SECTOR * SECTOR;
                self.files[file].fallocate(Fallocate::PunchHole, at, SECTOR)?;
                self.put(file, at, &[0; SECTOR as usize]);
            }
            5..8 => self.files[file].sync()?,
            8 => self.fs.sync()?,
            9 => self.snapshot()?,
            10 => self.delete_snapshot()?,
            11..13 => self.compare(file)?,
            _ => self.end_begun()?,
        }
        Ok(())
    }

    fn len_of(&self, file: usize) -> u64 {
        self.model[file].len() as u64
    }

    fn put(&mut self, file: usize, offset: u64, bytes: &[u8]) {
        let (model, offset) = (&mut self.model[file], offset as usize);
        model.resize(model.len().max(offset + bytes.len()), 0);
        model[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// The expected data of a read now.
    fn part(&self, file: usize, offset: u64, len: usize) -> Vec<u8> {
        let model = &self.model[file];
        let start = model.len().min(offset as usize);
        model[start..model.len().min(start + len)].to_vec()
    }

    fn snapshot(&mut self) -> Result<()> {
        if self.snapshots.len() < SNAPSHOTS_MAX {
            let name = format!("snapshot{}", self.random.below(u64::MAX));
            self.fs.create_snapshot(TreeId::FS, self.fs.root(TreeId::FS)?, name.as_bytes(), true)?;
            self.snapshots.push(name);
        }
        Ok(())
    }

    fn delete_snapshot(&mut self) -> Result<()> {
        if let Some(name) = self.snapshots.pop() {
            self.fs.delete_subvolume(self.fs.root(TreeId::FS)?, name.as_bytes())?;
        }
        Ok(())
    }

    fn compare(&self, file: usize) -> Result<()> {
        let mut found = vec![0xaa; self.model[file].len()];
        let len = self.files[file].read_at(0, &mut found, Wait::Yes)?;
        ensure!(len == found.len(), "file {file} has {len} bytes, and not {}", found.len());
        let differs = found.iter().zip(&self.model[file]).position(|(found, wanted)| found != wanted);
        ensure!(differs.is_none(), "file {file} differs at {differs:?}");
        Ok(())
    }

    /// Waits for all outstanding answers.
    fn end_begun(&mut self) -> Result<()> {
        for begun in std::mem::take(&mut self.begun) {
            let done = answer(&self.files[begun.file], &begun.answer);
            check(done, begun.expected.as_deref())?;
        }
        Ok(())
    }

    /// A request, and the expected data of a read now.
    fn request(&mut self, file: usize) -> (DirectRequest, Option<Vec<u8>>) {
        let mut offset = self.random.below(SECTORS + SET_ASIDE) * SECTOR;
        let mut len = (1 + self.random.below(3)) * SECTOR;
        match self.random.below(20) {
            0 => offset += 1 + self.random.below(SECTOR - 1),
            1 => len -= self.random.below(SECTOR),
            _ => {}
        }
        if self.random.below(3) == 0 {
            let buffer = AlignedBuffer::zeroed(len as usize);
            let expected = self.part(file, offset, len as usize);
            return (DirectRequest::Read { offset, buffer }, Some(expected));
        }
        let at = if self.random.below(8) == 0 { DirectAt::End } else { DirectAt::Offset(offset) };
        let data = AlignedBuffer::from_slice(&vec![self.random.below(256) as u8; len as usize]);
        (DirectRequest::Write { at, data }, None)
    }

    fn attempt(&mut self, beside: &Beside) -> Result<()> {
        let file = self.random.below(self.files.len() as u64) as usize;
        let (request, expected) = self.request(file);
        // This bounds the length of a file.
        if matches!(&request, DirectRequest::Write { .. }) && self.len_of(file) > (SECTORS + 8) * SECTOR {
            return self.shorten(file, beside);
        }
        let (send, answer) = channel();
        let written = match &request {
            DirectRequest::Write { at: DirectAt::Offset(offset), data } => Some((*offset, data.to_vec())),
            DirectRequest::Write { data, .. } => Some((self.len_of(file), data.to_vec())),
            _ => None,
        };
        self.report.attempts += 1;
        let open = &self.files[file];
        let done = Box::new(move |done| drop(send.send(done)));
        let ((before, tried, after), has_turned) = beside.run_alone(|| {
            let before = open.traces();
            let tried = open.try_submit_direct(request, done);
            (before, tried, open.traces())
        });
        let begun = Begun { file, answer, expected };
        match tried {
            Ok(()) => {
                self.report.begun += 1;
                self.begun.push(begun);
            }
            Err(refused) => {
                let why = refused.why.name();
                *self.report.refused.entry(why).or_default() += 1;
                self.report.not_compared += u64::from(has_turned);
                ensure!(
                    has_turned || before == after,
                    "{why}: {before:?} before, {after:?} after (DIRECT-4)"
                );
                if self.random.below(8) > 0 {
                    return Ok(());
                }
                self.report.retried += 1;
                beside.run(|| self.files[file].submit_direct(refused.request, refused.done));
                self.begun.push(begun);
            }
        }
        if let Some((offset, bytes)) = written {
            self.put(file, offset, &bytes);
        }
        Ok(())
    }

    fn shorten(&mut self, file: usize, beside: &Beside) -> Result<()> {
        let size = SECTORS * SECTOR;
        let id = self.files[file].id();
        let attributes = SetAttributes { size: Some(size), ..SetAttributes::default() };
        beside.run(|| self.fs.set_attributes(id, &attributes))?;
        self.model[file].truncate(size as usize);
        let aside = Fallocate::Allocate { keep_size: true };
        beside.run(|| self.files[file].fallocate(aside, size, SET_ASIDE * SECTOR))?;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.end_begun()?;
        (0..self.files.len()).try_for_each(|file| self.compare(file))
    }
}

/// Waits for the answer to a request.
fn answer(file: &OpenFile, answer: &Receiver<DirectDone>) -> DirectDone {
    let taken = std::cell::Cell::new(None);
    file.direct_waiter().wait(|| {
        if let Ok(done) = answer.try_recv() {
            taken.set(Some(done));
        }
        let done = taken.take();
        let is_there = done.is_some();
        taken.set(done);
        is_there
    });
    taken.take().expect("it was waited for")
}

fn check(done: DirectDone, expected: Option<&[u8]>) -> Result<()> {
    let DirectDone { buffer, outcome } = done;
    let part = outcome?;
    match expected {
        Some(expected) => {
            ensure!(part.len == expected.len(), "a read got {} bytes of {}", part.len, expected.len());
            ensure!(buffer[..part.len] == *expected, "a read at {} got something else", part.offset);
        }
        None => ensure!(part.len == buffer.len(), "a write wrote {} bytes of {}", part.len, buffer.len()),
    }
    Ok(())
}
