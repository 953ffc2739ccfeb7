//! Times of direct writes over existing data: noted in memory, written to the tree later.
//!
//! A direct write in place over existing data changes the modification and change time of the file, and its change counter, and nothing else of a
//! tree. So it begins no handle: the inode notes its times as it notes that of a read (`access_time`), and stands in a queue, which the background
//! writes after [`WRITTEN_AFTER`]. Three things differ from a read:
//!
//! | | read | write |
//! |---|---|---|
//! | room to write the time | is reserved when the time is written; without room, the time goes back | is kept since the request began, so no time is lost |
//! | fsync | leaves the time | writes it first: the item's transid then shows a change to make durable |
//! | a snapshot, a sync, a subvolume that becomes read-only | a snapshot leaves it | all of them write it first: a comparison by times shows that the data differs |
//!
//! One thread at a time writes times (the turn). A thread that takes the turn after a write finds that write's times in the tree, or in the queue.
//!
//! # Invariants
//! - OVERWRITE-1: the item in the tree has the times of a write, and the transid of the transaction that took them in, before an fsync or a snapshot
//!   that begins behind the write looks at it. Shown by `what_is_overwritten_is_durable_with_its_times`,
//!   `a_snapshot_has_the_times_of_what_it_shows`, `an_access_time_takes_along_what_an_fsync_has_to_see`.
//! - OVERWRITE-2: room for one item is kept with the times of a file from the first write to the change of the item that has them.
//!   Shown by `a_write_over_what_a_file_has_changes_no_tree_and_its_times_follow`.
//!
//! # Locking
//! The queue is a table: no other lock is taken under it. A writer of times takes the turn first, then a handle, then the item. A thread that
//! reserves metadata may take the turn (it reclaims). So the holder of the turn begins its handles out of kept room only.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Result, memory};
use creamery_txn::{BackgroundWork, Due, Engine, Reclaimer};

/// How long times wait for another change of the inode.
const WRITTEN_AFTER: Duration = Duration::from_secs(5);
/// Files that may wait: room for an item is kept for each.
const FILES_MAX: usize = if cfg!(feature = "shuttle") { 1 } else { 64 };

/// The files of a filesystem with times of writes that are still to be written.
#[derive(Default)]
pub(crate) struct OverwriteTimes {
    /// The files in the order in which they were written to. The queue holds none of them alive.
    queue: RankedMutex<VecDeque<QueuedFile>, { rank::TABLE }>,
    turn: RankedMutex<(), { rank::WRITEBACK }>,
}

/// The witness that no other thread writes such times.
pub(crate) type TimesTurn<'a> = RankedGuard<'a, (), { rank::WRITEBACK }>;

/// A file with times of writes that are noted and not written.
pub(crate) trait Overwritten: Send + Sync {
    /// Writes the times out of the kept room, unless they are written already. Errors: aborted; the filesystem is being closed.
    fn write_times(&self, turn: &TimesTurn<'_>) -> Result<()>;
}

/// A file that waits, and the time since which it waits, by the monotonic clock.
type QueuedFile = (Duration, Weak<dyn Overwritten>);

impl OverwriteTimes {
    /// The memory of the queue, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory::vec::<QueuedFile>(self.queue.lock().capacity())
    }

    fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Whether one more file may wait.
    pub(crate) fn has_room(&self) -> bool {
        self.len() < FILES_MAX
    }

    /// Puts a file into the queue that has noted its first write. The caller wakes the background.
    pub(crate) fn add(&self, file: Weak<dyn Overwritten>, engine: &Engine) {
        let now = engine.env().monotonic();
        self.queue.lock().push_back((now, file));
    }

    /// Lets one thread at a time write times.
    pub(crate) fn turn(&self) -> TimesTurn<'_> {
        self.turn.lock()
    }

    /// Writes the times of the first file in the queue. Returns false if the queue is empty.
    /// Errors: those of [`Overwritten::write_times`]; the file waits on.
    fn write_first(&self) -> Result<bool> {
        let turn = self.turn();
        let first = self.queue.lock().pop_front();
        let Some((since, file)) = first else { return Ok(false) };
        let written = file.upgrade().map_or(Ok(()), |file| file.write_times(&turn));
        if written.is_err() {
            self.queue.lock().push_front((since, file));
        }
        written.map(|()| true)
    }

    /// Writes all times of writes that have ended.
    /// Errors: the first of those of [`Overwritten::write_times`].
    pub(crate) fn write_all(&self) -> Result<()> {
        let turn = self.turn();
        // The times of files that other threads took out of the queue before are written, and some thread takes out all that are in
        // it.
        let waiting = self.len();
        drop(turn);
        (0..waiting).try_for_each(|_| self.write_first().map(drop))
    }

    fn due(&self, now: Duration) -> Due {
        let queue = self.queue.lock();
        let Some((since, _)) = queue.front() else { return Due::Never };
        match (*since + WRITTEN_AFTER).saturating_sub(now) {
            left if left.is_zero() || queue.len() > FILES_MAX / 2 => Due::Now,
            left => Due::In(left),
        }
    }
}

/// Reclaims by writing these times when a reservation does not fit, which gives kept room back.
impl Reclaimer for OverwriteTimes {
    fn reclaim_step(&self) -> Result<bool> {
        self.write_first()
    }

    fn has_freed(&self) -> bool {
        false
    }
}

/// Registers the writing of times that wait for too long with the pool of `engine`.
pub(crate) fn register(engine: &Arc<Engine>, times: &Arc<OverwriteTimes>) {
    engine.register_reclaimer(times);
    engine.background().register(Arc::new(OverwriteTimesWriting {
        engine: Arc::downgrade(engine),
        times: Arc::clone(times),
    }));
}

struct OverwriteTimesWriting {
    engine: Weak<Engine>,
    times: Arc<OverwriteTimes>,
}

impl BackgroundWork for OverwriteTimesWriting {
    fn name(&self) -> &'static str {
        "overwrite-times"
    }

    fn due(&self) -> Due {
        match self.engine.upgrade() {
            Some(engine) if engine.read_only().is_none() => self.times.due(engine.env().monotonic()),
            _ => Due::Never,
        }
    }

    fn step(&self) -> Result<()> {
        self.times.write_first().map(drop)
    }
}
