//! Writing back: which files, when, and how much may be dirty.
//!
//! Files stand in line in the order in which they became dirty. The first one is written back when it has been dirty for
//! [`AGE`], or when all together have more than a quarter of what they may; a step takes one run of it. Who writes and finds
//! that there is too much takes steps himself until there is room, and so does who finds no space: with nobody in the
//! background the data goes to the devices all the same, only later.
//!
//! # Invariants
//! - WRITEBACK-1: bytes that are dirty or in flight are counted from the write on until their run has landed or they are
//!   discarded. Shown by `delayed_data_is_counted_until_it_is_on_disk`.
//! - WRITEBACK-2: who takes a step waits for no step of somebody else, and holds nothing that one needs (rank WRITEBACK).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::gate::{self, Reason};
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};
use creamery_base::{CachePadded, Result};
use creamery_txn::{DelallocReservation, Due, Engine, Reclaimer};

use super::Run;
use super::state::NextRun;
use crate::data;
use crate::inode::Inode;

/// How long a file is dirty at most before it is written back, if anybody does that in the background.
pub(crate) const AGE: Duration = Duration::from_secs(30);
/// The share of what may be dirty from which on the background writes back.
const BACKGROUND_SHARE: u64 = 4;
/// How long a writer waits for a run to land before he looks whether one is in flight at all.
const PATIENCE: Duration = Duration::from_millis(200);
/// Of the line so many are looked at to see when a step is due: more than threads write back at once.
const LOOKED_AT: usize = 8;
/// So many more than twice those that are alive may stand in line.
const LINE_SLACK: usize = 64;

/// The files of a filesystem with delayed data.
pub(crate) struct Writeback {
    /// Bytes that may be dirty or in flight.
    most: u64,
    bytes: CachePadded<AtomicU64>,
    /// Those with delayed data in the order in which they began to have some; those without leave it when they are met.
    line: RankedMutex<VecDeque<Weak<Inode>>, { rank::LEAF }>,
    /// How many of the line are alive, about.
    alive: AtomicUsize,
    /// Runs that landed.
    landed: RankedMutex<u64, { rank::LEAF }>,
    somebody_landed: RankedCondvar,
    /// Steps have given room back since somebody asked.
    freed: AtomicBool,
    counters: Counters,
}

/// What was written back.
#[derive(Default)]
struct Counters {
    runs: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    throttled: AtomicU64,
    at_once: AtomicU64,
}

/// What the writing back of delayed data did so far.
#[derive(Clone, Copy)]
pub(crate) struct WritebackCounters {
    pub(crate) delayed_bytes: u64,
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
    pub(crate) failures: u64,
    pub(crate) throttled: u64,
    pub(crate) at_once: u64,
}

impl Writeback {
    /// At most `most` bytes may be delayed.
    pub(crate) fn new(most: u64) -> Self {
        Self {
            most,
            bytes: CachePadded::default(),
            line: RankedMutex::default(),
            alive: AtomicUsize::new(0),
            landed: RankedMutex::new(0),
            somebody_landed: RankedCondvar::new(),
            freed: AtomicBool::new(false),
            counters: Counters::default(),
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
            throttled: of(&self.counters.throttled),
            at_once: of(&self.counters.at_once),
        }
    }

    /// Whether anything may be delayed at all.
    pub(crate) const fn is_on(&self) -> bool {
        self.most > 0
    }

    /// `added` bytes become dirty; the file's state is locked.
    pub(super) fn count(&self, added: u64) {
        self.bytes.fetch_add(added, Ordering::AcqRel);
    }

    /// `added` bytes of `inode` became dirty.
    pub(super) fn note_dirty(&self, inode: &Arc<Inode>, added: u64) {
        let before = self.bytes().saturating_sub(added);
        let queued = inode.delalloc().set_queued(true);
        let is_first = !queued && self.stand_in_line(inode);
        let enough = self.most / BACKGROUND_SHARE;
        if is_first || before < enough && before + added >= enough {
            inode.engine().wake_background();
        }
    }

    /// Returns whether nobody stood there.
    fn stand_in_line(&self, inode: &Arc<Inode>) -> bool {
        let alive = self.alive.fetch_add(1, Ordering::Relaxed);
        let mut line = self.line.lock();
        if line.len() > 2 * alive + LINE_SLACK {
            line.retain(|inode| inode.strong_count() > 0);
        }
        line.push_back(Arc::downgrade(inode));
        alive == 0
    }

    /// So many bytes are neither dirty nor in flight any more.
    pub(crate) fn forget(&self, bytes: u64) {
        let all = self.bytes.fetch_sub(bytes, Ordering::AcqRel);
        assert!(all >= bytes, "WRITEBACK-1: more is forgotten than was dirty");
        self.freed.store(true, Ordering::Release);
    }

    /// An inode of the line goes out of memory, with `bytes` bytes of delayed data that nobody needs any more.
    pub(crate) fn forget_inode(&self, bytes: u64) {
        self.forget(bytes);
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits, taking steps, until `len` bytes more may be delayed. The caller holds nothing.
    pub(crate) fn throttle(&self, len: u64) {
        if self.bytes() + len <= self.most {
            return;
        }
        self.counters.throttled.fetch_add(1, Ordering::Relaxed);
        while self.bytes() + len > self.most {
            let seen = *self.landed.lock();
            if self.step() {
                continue;
            }
            // All of it is in flight: whoever has it lands.
            let landed = self.landed.lock();
            let waits = |landed: &mut u64| *landed == seen;
            let waited = || self.somebody_landed.wait_while_for(landed, PATIENCE, waits);
            let landed = gate::passing(Reason::Writeback, waited);
            if *landed == seen {
                return; // it is kept from being written back, by who is about to delete it
            }
        }
    }

    /// Room for delaying a write of `len` bytes, for which others may be written back first; none when nothing may be delayed, or
    /// there is no room even so. The caller holds nothing.
    pub(crate) fn reserve(&self, engine: &Engine, len: usize) -> Option<DelallocReservation> {
        if !self.is_on() {
            return None;
        }
        self.throttle(len as u64);
        loop {
            let room = super::write::reserve(engine, len as u64);
            // What is written back leaves the room that was kept for more than it took.
            if room.is_some() {
                return room;
            }
            if !self.step() {
                self.counters.at_once.fetch_add(1, Ordering::Relaxed);
                return None;
            }
        }
    }

    /// Has what is dirty of `inode` written back soon.
    pub(crate) fn hasten(&self, inode: &Inode) {
        if inode.delalloc().hasten() {
            inode.engine().wake_background();
        }
    }

    /// When a step is due.
    pub(crate) fn due(&self, now: Duration) -> Due {
        let Some(due) = self.first_due() else { return Due::Never };
        if self.bytes() >= self.most / BACKGROUND_SHARE {
            return Due::Now;
        }
        match due.saturating_sub(now) {
            Duration::ZERO => Due::Now,
            left => Due::In(left),
        }
    }

    /// When the first in line with dirty pages is due.
    fn first_due(&self) -> Option<Duration> {
        let first: Vec<Weak<Inode>> = self.line.lock().iter().take(LOOKED_AT).cloned().collect();
        first.iter().filter_map(|inode| inode.upgrade()?.delalloc().due()).min()
    }

    /// Writes a run of the first in line back. False when nobody in line has one that is not in flight.
    pub(crate) fn step(&self) -> bool {
        let mut index = 0;
        loop {
            let Some(next) = self.line.lock().get(index).cloned() else { return false };
            let Some(inode) = next.upgrade() else {
                self.leave(&next);
                continue;
            };
            match inode.delalloc().try_take_run() {
                NextRun::Taken(run, room) => {
                    // What becomes of it is told to those who have the file open.
                    let _ = write_back(&inode, &run, room);
                    self.leave_if_clean(&inode);
                    return true;
                }
                NextRun::InFlight => index += 1,
                NextRun::None if inode.delalloc().any() => index += 1,
                NextRun::None => self.leave_if_clean(&inode),
            }
        }
    }

    fn leave(&self, inode: &Weak<Inode>) {
        let mut line = self.line.lock();
        if let Some(at) = line.iter().position(|other| other.ptr_eq(inode)) {
            line.remove(at);
        }
    }

    fn leave_if_clean(&self, inode: &Arc<Inode>) {
        if inode.delalloc().any() {
            return;
        }
        self.leave(&Arc::downgrade(inode));
        if inode.delalloc().set_queued(false) {
            self.alive.fetch_sub(1, Ordering::Relaxed);
        }
        // Who made it dirty meanwhile may have taken it for one that stands in line.
        if inode.delalloc().any() && !inode.delalloc().set_queued(true) {
            self.stand_in_line(inode);
        }
    }

    /// Writes back what is dirty now, of all files, and waits for what is in flight. Those who have the files open are told
    /// what fails. Errors: the first failure.
    pub(crate) fn flush_all(&self) -> Result<()> {
        let all: Vec<Weak<Inode>> = self.line.lock().iter().cloned().collect();
        let mut first = Ok(());
        for inode in all.iter().filter_map(Weak::upgrade) {
            let done = flush(&inode);
            self.leave_if_clean(&inode);
            first = first.and(done);
        }
        first
    }

    fn run_landed(&self, bytes: u64) {
        self.forget(bytes);
        *self.landed.lock() += 1;
        self.somebody_landed.notify_all();
    }
}

impl Reclaimer for Writeback {
    fn reclaim_step(&self) -> Result<bool> {
        Ok(self.step())
    }

    fn has_freed(&self) -> bool {
        self.freed.swap(false, Ordering::AcqRel)
    }
}

/// Writes back what is dirty of `inode` when this begins, and waits for what is in flight.
/// Errors: the first failure; the rest is written back all the same.
pub(crate) fn flush(inode: &Inode) -> Result<()> {
    let mut first = Ok(());
    let mut at = 0;
    let Some(end) = inode.delalloc().end() else { return Ok(()) };
    while at < end
        && let Some((run, room)) = inode.delalloc().take_run(at)
    {
        at = run.end;
        first = first.and(write_back(inode, &run, room));
    }
    inode.delalloc().wait_landed();
    first
}

/// Writes a run back that is in flight. Errors: no space; device errors; damage; aborted. What is not in the tree by then is lost.
fn write_back(inode: &Inode, run: &Run, mut room: DelallocReservation) -> Result<()> {
    let _step = Held::wait(Place::of(rank::WRITEBACK));
    let writeback = &inode.shared().writeback;
    let done = data::write_back(inode, run, &mut room);
    drop(room);
    let of = &writeback.counters;
    of.runs.fetch_add(1, Ordering::Relaxed);
    of.bytes.fetch_add(run.len(), Ordering::Relaxed);
    if let Err(error) = &done {
        of.failures.fetch_add(1, Ordering::Relaxed);
        inode.write_errors().note(error);
        inode.shared().write_errors.note(error);
    }
    inode.delalloc().land_run();
    writeback.run_landed(run.len());
    done
}
