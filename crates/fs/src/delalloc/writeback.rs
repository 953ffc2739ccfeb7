//! Writing back: which files, when, and how much may be dirty.
//!
//! Files queue in the order in which they became dirty. A file whose dirty pages have all been taken starts again at the end when
//! some become dirty again. The background writes back the first file when it has been dirty for [`AGE`], or when all files
//! together use more than an eighth of the limit. A step takes one run of a file. A writer above the limit takes steps itself
//! until there is room, and so does a writer that finds no space. So without a background thread the data still reaches the
//! devices, only later.
//!
//! # Invariants
//! - WRITEBACK-1: bytes that are dirty or in flight are counted from the write on until their run has landed or they are
//!   discarded. Shown by `delayed_data_is_counted_until_it_is_on_disk`.
//! - WRITEBACK-2: a thread that takes a step waits for no step of another thread, and holds nothing that such a step needs (rank
//!   WRITEBACK).
//!   Shown by `who_writes_back_in_the_midst_of_that_is_noticed`.
//! - WRITEBACK-3: when a write has ended, a file that it left dirty stands in the queue, in one place, until the file was written
//!   back.
//!   Shown by `who_is_written_and_synced_again_and_again_keeps_nobody_from_being_due`.
//! - WRITEBACK-4: once the filesystem is being closed, nothing stays delayed. A writer that sees this after its file stands in the
//!   queue writes the file back itself. Shown by `what_was_written_with_success_while_the_filesystem_is_closed_is_durable` of the
//!   library.
//! - WRITEBACK-5: a thread that waits until the data of a file is written back gets the error of every run of it that failed since
//!   the wait began, whichever thread had that run in flight.
//!   Shown by `a_flush_that_waits_for_the_run_of_another_thread_learns_that_it_failed`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_base::{CachePadded, Error, ErrorKind, InodeId, Result, TreeId};
use creamery_device::AlignedBuffer;
use creamery_txn::{CommitParticipant, DelallocReservation, Due, Engine, Handle, Reclaimer};

use super::state::{DirtySince, NextRun};
use super::{DelallocRange, Delayed, ErrSeq, WriteErrors};

/// The longest time that a file is dirty before the background writes it back. A shorter commit interval shortens it.
const AGE: Duration = Duration::from_secs(30);
/// The background writes back from this fraction (one eighth) of the limit on.
const BACKGROUND_SHARE: u64 = 8;
/// How long a writer waits for a run to land before it checks whether any run is in flight.
const PATIENCE: Duration = Duration::from_millis(200);
/// The queue may have this many entries more than twice the number of live ones.
const LINE_SLACK: usize = 64;

/// A function that takes the id of a file that lost data.
type TellLoss = Box<dyn Fn(InodeId) + Send + Sync>;

/// The files of a filesystem with delayed data.
pub(crate) struct Writeback {
    /// Bytes that may be dirty or in flight.
    most: u64,
    bytes: CachePadded<AtomicU64>,
    /// In the order in which the files became dirty. A clean file leaves the queue when a thread meets it.
    line: RankedMutex<Line, { rank::LEAF }>,
    /// How many files of the queue are alive, approximately.
    alive: AtomicUsize,
    /// Runs that landed.
    landed: RankedMutex<u64, { rank::LEAF }>,
    somebody_landed: RankedCondvar,
    /// The filesystem is being closed.
    closing: AtomicBool,
    /// Steps for a thread that needs room released some.
    freed: AtomicBool,
    /// The errors of all files, for the callers of sync.
    errors: WriteErrors,
    /// Called after a run failed and landed: the kernel may cache data that is lost.
    tell_loss: OnceLock<TellLoss>,
    counters: WritebackTally,
}

/// The queue of files with delayed data.
type Line = VecDeque<Weak<dyn Delayed>>;

/// Takes a file out of the line. The search begins at the front, where a file that was just written back stands.
fn take_out(line: &mut Line, file: &Weak<dyn Delayed>) {
    if let Some(at) = line.iter().position(|other| other.ptr_eq(file)) {
        line.remove(at);
    }
}

/// The result of a step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WritebackStep {
    /// A run was written back, or failed to be.
    Taken,
    /// There is no run to take, but some are in flight.
    InFlight,
    Nothing,
}

/// Counts of writeback so far.
#[derive(Default)]
struct WritebackTally {
    runs: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    no_space: AtomicU64,
    throttled: AtomicU64,
    at_once: AtomicU64,
}

/// A snapshot of the counts of writeback so far.
#[derive(Clone, Copy)]
pub(crate) struct WritebackCounters {
    pub(crate) delayed_bytes: u64,
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) no_space: u64,
    pub(crate) throttled: u64,
    pub(crate) at_once: u64,
}

impl Writeback {
    /// Makes the queue. `most` is the limit of delayed bytes.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            bytes: CachePadded::default(),
            line: RankedMutex::default(),
            alive: AtomicUsize::new(0),
            landed: RankedMutex::new(0),
            somebody_landed: RankedCondvar::new(),
            closing: AtomicBool::new(false),
            freed: AtomicBool::new(false),
            errors: WriteErrors::default(),
            tell_loss: OnceLock::new(),
            counters: WritebackTally::default(),
        }
    }

    /// Bytes that are dirty or in flight.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    pub(crate) fn counters(&self) -> WritebackCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        WritebackCounters {
            delayed_bytes: self.bytes(),
            runs: of(&self.counters.runs),
            bytes: of(&self.counters.bytes),
            failures: of(&self.counters.failures),
            no_space: of(&self.counters.no_space),
            throttled: of(&self.counters.throttled),
            at_once: of(&self.counters.at_once),
        }
    }

    /// Reports the last error of any file to the caller of sync at `place`, unless that caller has seen it.
    pub(crate) fn report_losses(&self, place: &ErrSeq) -> Result<()> {
        self.errors.report(place)
    }

    /// Has `tell` called with each file that loses delayed data, once the run that failed has landed. Panics at a second call.
    pub(crate) fn tell_losses_to(&self, tell: impl Fn(InodeId) + Send + Sync + 'static) {
        assert!(self.tell_loss.set(Box::new(tell)).is_ok(), "one listener hears of losses");
    }

    /// Whether anything may be delayed at all.
    pub(crate) const fn is_on(&self) -> bool {
        self.most > 0
    }

    /// From now on new writes are not delayed, or not for long (WRITEBACK-4).
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Whether the filesystem is being closed. Call this after [`Writeback::note_dirty`]: `false` means that the closing thread
    /// finds that file in the queue.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    /// Counts `added` bytes that become dirty. The caller has the file's state locked.
    pub(crate) fn count(&self, added: u64) {
        self.bytes.fetch_add(added, Ordering::AcqRel);
    }

    /// Notes that `added` bytes of `file` became dirty. The file was clean before if it `begins` to be dirty.
    pub(crate) fn note_dirty(&self, file: &Arc<dyn Delayed>, engine: &Engine, added: u64, begins: bool) {
        let before = self.bytes().saturating_sub(added);
        let is_first =
            (begins || !file.delalloc().is_queued()) && self.stand_in_line(file, VecDeque::push_back);
        let enough = self.most / BACKGROUND_SHARE;
        if is_first || before < enough && before + added >= enough {
            engine.background().wake();
        }
    }

    /// Gives the file the one place in the queue that `push` chooses (WRITEBACK-3). Returns whether no other file stands there.
    fn stand_in_line(&self, file: &Arc<dyn Delayed>, push: fn(&mut Line, Weak<dyn Delayed>)) -> bool {
        let mut line = self.line.lock();
        let file_in_line = Arc::downgrade(file);
        let others = if file.delalloc().set_queued(true) {
            // A file that is written again and again stands at the end.
            line.iter().rposition(|other| other.ptr_eq(&file_in_line)).map(|at| line.remove(at));
            self.alive.load(Ordering::Relaxed).saturating_sub(1)
        } else {
            self.alive.fetch_add(1, Ordering::Relaxed)
        };
        if line.len() > 2 * others + LINE_SLACK {
            line.retain(|file| file.strong_count() > 0);
        }
        push(&mut line, file_in_line);
        others == 0
    }

    /// Uncounts `bytes` bytes that are neither dirty nor in flight any more.
    pub(crate) fn forget(&self, bytes: u64) {
        let all = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        assert!(all >= bytes, "WRITEBACK-1: more is forgotten than was dirty");
    }

    /// Uncounts an inode of the queue that leaves memory, and its `bytes` bytes of delayed data, which is of no use any more.
    pub(crate) fn forget_inode(&self, bytes: u64) {
        self.forget(bytes);
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits, and takes steps, until `len` bytes more may be delayed. The caller holds no locks.
    pub(crate) fn throttle(&self, len: u64) {
        // One write may be larger than the limit.
        let is_too_much = || self.bytes() > 0 && self.bytes() + len > self.most;
        if !is_too_much() {
            return;
        }
        self.counters.throttled.fetch_add(1, Ordering::Relaxed);
        while is_too_much() {
            let seen = *self.landed.lock();
            let step = self.try_step();
            if step == WritebackStep::Taken {
                continue;
            }
            // All of it is in flight: the thread that has it lands it.
            let landed = self.landed.lock();
            let waits = |landed: &mut u64| *landed == seen;
            let landed = self.somebody_landed.pass_while_for(Reason::Writeback, landed, PATIENCE, waits);
            if *landed == seen && step == WritebackStep::Nothing {
                return; // a thread that is about to delete the file holds its writeback off
            }
        }
    }

    /// Takes steps as long as `attempt` finds no room, because each run returns a part of its reservation. Returns `None` when
    /// delaying is off, or when there is still no room. The caller wants to delay `len` bytes and holds no locks.
    /// Errors: those of `attempt`.
    pub(crate) fn make_room<R>(
        &self,
        len: usize,
        attempt: impl Fn() -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        if !self.is_on() || self.is_closing() {
            return Ok(None);
        }
        self.throttle(len as u64);
        loop {
            let room = attempt()?;
            if room.is_some() {
                return Ok(room);
            }
            if !self.step() {
                self.counters.at_once.fetch_add(1, Ordering::Relaxed);
                return Ok(None);
            }
        }
    }

    /// When the next step is due.
    pub(crate) fn due(&self, engine: &Engine) -> Due {
        let Some(since) = self.first_dirty() else {
            // Data in flight may be dirty again when it lands, and nothing wakes the background then.
            return if self.is_anybody_in_line() { Due::In(AGE) } else { Due::Never };
        };
        match self.left(since, engine) {
            Duration::ZERO => Due::Now,
            left => Due::In(left),
        }
    }

    /// How long data that is dirty `since` then may stay dirty.
    fn left(&self, since: DirtySince, engine: &Engine) -> Duration {
        match since {
            _ if self.bytes() >= self.most / BACKGROUND_SHARE => Duration::ZERO,
            DirtySince::Hasty => Duration::ZERO,
            DirtySince::Time(since) => {
                let age = engine.commit_interval().map_or(AGE, |interval| interval.min(AGE));
                (since + age).saturating_sub(engine.env().monotonic())
            }
        }
    }

    /// Since when the first file in the queue is dirty that has a run to take.
    fn first_dirty(&self) -> Option<DirtySince> {
        let mut index = 0;
        loop {
            let next = self.line.lock().get(index).cloned()?;
            match next.upgrade() {
                None => self.leave(&next),
                Some(file) if !file.delalloc().any() => self.leave_if_clean(&file),
                Some(file) => match file.delalloc().dirty_since() {
                    Some(since) => return Some(since),
                    None => index += 1, // it is in flight, or about to be deleted
                },
            }
        }
    }

    fn is_anybody_in_line(&self) -> bool {
        !self.line.lock().is_empty()
    }

    /// Has the dirty data of `file` written back soon: the file goes to the front of the queue.
    pub(crate) fn start_writeback(&self, file: &Arc<dyn Delayed>, engine: &Engine) {
        if file.delalloc().start_writeback() {
            self.stand_in_line(file, VecDeque::push_front);
            engine.background().wake();
        }
    }

    /// Writes back a run of the first file in the queue that has one to take. Returns false when there is none: all runs are in
    /// flight, or the queue is clean.
    pub(crate) fn step(&self) -> bool {
        self.try_step() == WritebackStep::Taken
    }

    /// Takes a step if one is due. The file that was due may be in flight by now, and the files behind it may not be due yet.
    pub(crate) fn step_if_due(&self, engine: &Engine) -> bool {
        let is_due = |file: &Arc<dyn Delayed>| {
            file.delalloc().dirty_since().is_none_or(|since| self.left(since, engine).is_zero())
        };
        self.try_step_of(is_due) == WritebackStep::Taken
    }

    fn try_step(&self) -> WritebackStep {
        self.try_step_of(|_| true)
    }

    /// Takes a step of the first file in the queue that has a run, if that file `may` be taken.
    fn try_step_of(&self, may: impl Fn(&Arc<dyn Delayed>) -> bool) -> WritebackStep {
        let (mut index, mut otherwise) = (0, WritebackStep::Nothing);
        loop {
            let Some(next) = self.line.lock().get(index).cloned() else { return otherwise };
            let Some(file) = next.upgrade() else {
                self.leave(&next);
                continue;
            };
            if !may(&file) {
                return otherwise;
            }
            match file.delalloc().try_take_run() {
                NextRun::Taken(run, room) => {
                    self.write_back(&*file, &run, room);
                    if file.delalloc().begins_anew() {
                        self.stand_in_line(&file, VecDeque::push_back);
                    }
                    self.leave_if_clean(&file);
                    return WritebackStep::Taken;
                }
                NextRun::InFlight => (index, otherwise) = (index + 1, WritebackStep::InFlight),
                NextRun::None if file.delalloc().any() => index += 1,
                NextRun::None => self.leave_if_clean(&file),
            }
        }
    }

    fn leave(&self, file: &Weak<dyn Delayed>) {
        take_out(&mut self.line.lock(), file);
    }

    /// Takes a clean file out of the queue. The queue stays locked from the first look to the last, so a thread that flushes all
    /// files misses none.
    fn leave_if_clean(&self, file: &Arc<dyn Delayed>) {
        if file.delalloc().any() {
            return;
        }
        let mut line = self.line.lock();
        let stood = file.delalloc().set_queued(false);
        if file.delalloc().any() {
            // A writer that made the file dirty meanwhile may have seen it as queued, so it stays queued.
            file.delalloc().set_queued(stood);
            return;
        }
        take_out(&mut line, &Arc::downgrade(file));
        if stood {
            self.alive.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Writes back the data that is dirty now, of all files, and waits for runs in flight. The openers of the files get the
    /// errors.
    /// Errors: that of the first file with a run that failed meanwhile.
    pub(crate) fn flush_all(&self) -> Result<()> {
        self.flush_those(|_| true)
    }

    /// Writes back the dirty files of one subvolume, as [`flush_all`](Self::flush_all) does for all.
    pub(crate) fn flush_subvolume(&self, id: TreeId) -> Result<()> {
        self.flush_those(|file| file.id().subvolume == id)
    }

    fn flush_those(&self, wanted: impl Fn(&dyn Delayed) -> bool) -> Result<()> {
        let all: Vec<Weak<dyn Delayed>> = self.line.lock().iter().cloned().collect();
        let mut first = Ok(());
        for file in all.iter().filter_map(Weak::upgrade).filter(|file| wanted(&**file)) {
            let done = self.flush(&*file);
            self.leave_if_clean(&file);
            first = first.and(done);
        }
        first
    }

    /// Writes back the data of `file` that is dirty when this begins, and waits for runs in flight.
    /// Errors: a run failed meanwhile, this thread's or another's (WRITEBACK-5); the rest is written back all the same.
    pub(crate) fn flush(&self, file: &dyn Delayed) -> Result<()> {
        let (delalloc, mut at) = (file.delalloc(), 0);
        let Some((end, errors)) = delalloc.end_and(|| file.write_errors().so_far()) else { return Ok(()) };
        while at < end
            && let Some((run, room)) = delalloc.take_run(at)
        {
            at = run.end;
            self.write_back(file, &run, room);
        }
        delalloc.wait_landed();
        file.write_errors().since(errors)
    }

    /// Writes back the runs of `file` that overlap `[start, end)`, and waits for runs in flight. No thread makes anything dirty
    /// meanwhile. Each flush cuts the same runs, so their room is enough for them. None of them grows the file (DELALLOC-4). The
    /// openers get the errors.
    pub(crate) fn flush_range(&self, file: &dyn Delayed, (start, end): (u64, u64)) {
        let delalloc = file.delalloc();
        while let Some(at) = delalloc.run_in(start, end)
            && let Some((run, room)) = delalloc.take_run(at)
        {
            self.write_back(file, &run, room);
        }
        delalloc.wait_landed();
    }

    /// Writes back a run that is in flight. Data that does not reach the tree is lost, and the file's errors report it.
    fn write_back(&self, file: &dyn Delayed, run: &DelallocRange, mut room: DelallocReservation) {
        let _step = HeldNote::wait(LockPosition::of(rank::WRITEBACK));
        let landing = LandsRun::of(self, file, run);
        let done = file.write_back(run, &mut room);
        drop(room);
        if let Err(error) = &done {
            self.check_kept(error);
        }
        landing.lands(done);
        if self.bytes() == 0 {
            AlignedBuffer::trim_spare();
        }
    }

    /// Counts a run that failed for want of the filesystem's space: it had room (DELALLOC-8). For want of the host's space a run
    /// may fail.
    fn check_kept(&self, error: &Error) {
        if error.kind() == ErrorKind::NoSpace && error.host().is_none() {
            self.counters.no_space.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn run_landed(&self, bytes: u64) {
        self.forget(bytes);
        *self.landed.lock() += 1;
        self.somebody_landed.notify_all();
    }
}

/// Lands a run that is in flight when it drops, even if the thread that writes it back panics: other threads wait for that.
struct LandsRun<'a> {
    writeback: &'a Writeback,
    file: &'a dyn Delayed,
    run: &'a DelallocRange,
    failure: Option<Arc<Error>>,
}

impl<'a> LandsRun<'a> {
    fn of(writeback: &'a Writeback, file: &'a dyn Delayed, run: &'a DelallocRange) -> Self {
        // The result until `lands` sets another: the thread panicked.
        let failure = Error::new(ErrorKind::Aborted, "writeback did not complete");
        Self { writeback, file, run, failure: Some(Arc::new(failure)) }
    }

    fn lands(mut self, outcome: Result<()>) {
        self.failure = outcome.err().map(Arc::new);
    }
}

impl Drop for LandsRun<'_> {
    fn drop(&mut self) {
        let WritebackTally { runs, bytes, failures, .. } = &self.writeback.counters;
        self.file.delalloc().land_run(|| {
            runs.fetch_add(1, Ordering::Relaxed);
            bytes.fetch_add(self.run.len(), Ordering::Relaxed);
            if let Some(failure) = &self.failure {
                failures.fetch_add(1, Ordering::Relaxed);
                self.file.write_errors().note(Arc::clone(failure));
                self.writeback.errors.note(Arc::clone(failure));
            }
        });
        self.writeback.run_landed(self.run.len());
        if self.failure.is_some()
            && let Some(tell) = self.writeback.tell_loss.get()
        {
            tell(self.file.id());
        }
    }
}

/// With `flushoncommit`: the data that is delayed when a thread asks for a commit is part of that commit.
pub(crate) struct FlushOnCommit(pub(crate) Arc<Writeback>);

impl CommitParticipant for FlushOnCommit {
    fn settle(&self, _: &Handle<'_>) -> Result<()> {
        Ok(())
    }

    fn prepare(&self) {
        let _ = self.0.flush_all();
    }
}

impl Reclaimer for Writeback {
    fn reclaim_step(&self) -> Result<bool> {
        let any = self.step();
        self.freed.fetch_or(any, Ordering::AcqRel);
        Ok(any)
    }

    fn has_freed(&self) -> bool {
        self.freed.swap(false, Ordering::AcqRel)
    }
}
