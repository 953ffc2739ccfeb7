//! Background work for files. The background does four things:
//! - it completes requests that devices have answered;
//! - it writes data back that was written a while ago or is too much;
//! - it deletes inodes that were unlinked and closed;
//! - it commits the deletion when the filesystem is at rest.
//!
//! While operations run, they take steps of the cleaner, too, and commits happen anyway. On an idle filesystem the background makes the space free a few seconds
//! later.

use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Generation, Result};
use creamery_txn::{BackgroundWork, Due, Engine};

use crate::cleaner::{Cleaner, Cleaning};
use crate::context::Context;
use crate::delalloc::Writeback;
use crate::in_flight::InFlight;

/// How long dead inodes wait for steps of operations, and how long a filesystem stays unchanged until it counts as at rest.
const NAP: Duration = Duration::from_secs(1);

/// Registers this work with the pool of `engine`.
pub(crate) fn register(engine: &Arc<Engine>, cleaner: &Arc<Cleaner>, context: &Context) {
    engine.background().register(Arc::new(Completing(Arc::downgrade(context.in_flight()))));
    if engine.is_opened_for_reading() {
        return;
    }
    let writeback = context.writeback();
    let (of, engine_of) = (Arc::downgrade(writeback), Arc::downgrade(engine));
    engine.background().register(Arc::new(WritingBack { writeback: of, engine: engine_of }));
    let since = RankedMutex::new(None);
    engine.background().register(Arc::new(CleaningUp { cleaner: Arc::downgrade(cleaner), since }));
    let since = RankedMutex::new(None);
    engine.background().register(Arc::new(CommittingAtRest { cleaner: Arc::downgrade(cleaner), since }));
}

/// When work is due: once `what` has stayed unchanged for [`NAP`]. `since` holds the value, and the time when it was first seen. `now` is by the monotonic clock.
fn after_a_nap<T: PartialEq>(since: &mut Option<(T, Duration)>, what: T, now: Duration) -> Due {
    let begun = match since {
        Some((same, begun)) if *same == what => *begun,
        _ => now,
    };
    *since = Some((what, begun));
    match (begun + NAP).saturating_sub(now) {
        Duration::ZERO => Due::Now,
        left => Due::In(left),
    }
}

/// Files that write back at once: more wait for the device, not for each other's checksums.
const WRITERS: usize = 4;

/// Completes requests that devices have answered, and requests that must be durable before they are answered.
struct Completing(Weak<InFlight>);

impl BackgroundWork for Completing {
    fn name(&self) -> &'static str {
        "direct"
    }

    /// Due also on an aborted or read-only filesystem: a caller waits for the answer.
    fn due(&self) -> Due {
        match self.0.upgrade() {
            Some(in_flight) if in_flight.has_work() => Due::Now,
            _ => Due::Never,
        }
    }

    fn step(&self) -> Result<()> {
        if let Some(in_flight) = self.0.upgrade() {
            in_flight.help();
        }
        Ok(())
    }

    fn at_once(&self) -> usize {
        WRITERS
    }

    fn left(&self) {
        if let Some(in_flight) = self.0.upgrade() {
            in_flight.wake_pollers();
        }
    }
}

/// Writes back ranges of delayed data.
struct WritingBack {
    writeback: Weak<Writeback>,
    engine: Weak<Engine>,
}

impl BackgroundWork for WritingBack {
    fn name(&self) -> &'static str {
        "writeback"
    }

    fn due(&self) -> Due {
        match (self.writeback.upgrade(), self.engine.upgrade()) {
            (Some(writeback), Some(engine)) if engine.read_only().is_none() => writeback.due(&engine),
            _ => Due::Never,
        }
    }

    fn step(&self) -> Result<()> {
        if let (Some(writeback), Some(engine)) = (self.writeback.upgrade(), self.engine.upgrade()) {
            writeback.step_if_due(&engine);
        }
        Ok(())
    }

    fn step_early(&self) -> Result<()> {
        if let Some(writeback) = self.writeback.upgrade() {
            writeback.step();
        }
        Ok(())
    }

    fn at_once(&self) -> usize {
        WRITERS
    }
}

/// Takes steps of the cleaner after a nap, on a filesystem where no operation takes them.
struct CleaningUp {
    cleaner: Weak<Cleaner>,
    since: RankedMutex<Option<((), Duration)>, { rank::LEAF }>,
}

impl BackgroundWork for CleaningUp {
    fn name(&self) -> &'static str {
        "cleaner"
    }

    fn due(&self) -> Due {
        let cleaner = self.cleaner.upgrade().filter(|cleaner| cleaner.engine().read_only().is_none());
        let cleaner = cleaner.filter(|cleaner| cleaner.has_dead() && cleaner.engine().has_changes());
        let now = cleaner.map(|cleaner| cleaner.engine().env().monotonic());
        let mut since = self.since.lock();
        match now {
            Some(now) => after_a_nap(&mut since, (), now),
            None => {
                *since = None;
                Due::Never
            }
        }
    }

    fn step(&self) -> Result<()> {
        let Some(cleaner) = self.cleaner.upgrade() else { return Ok(()) };
        if cleaner.step()? == Cleaning::Idle {
            // The remaining inodes cannot go yet: the next check is after a nap.
            *self.since.lock() = None;
        }
        Ok(())
    }
}

/// Figures of which at least one changes with every change of the filesystem.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Uncommitted {
    generation: Generation,
    dirty_bytes: u64,
    delayed_refs: u64,
}

/// Commits deletions: the space of deleted items can only be used after a commit.
struct CommittingAtRest {
    cleaner: Weak<Cleaner>,
    since: RankedMutex<Option<(Uncommitted, Duration)>, { rank::LEAF }>,
}

impl BackgroundWork for CommittingAtRest {
    fn name(&self) -> &'static str {
        "commit-at-rest"
    }

    fn due(&self) -> Due {
        let Some(cleaner) = self.cleaner.upgrade() else { return Due::Never };
        let engine = cleaner.engine();
        if !cleaner.has_deleted() || engine.read_only().is_some() {
            *self.since.lock() = None;
            return Due::Never;
        }
        let counters = engine.counters();
        let now = Uncommitted {
            generation: engine.generation(),
            dirty_bytes: counters.store.dirty_bytes,
            delayed_refs: counters.delayed_refs,
        };
        let time = engine.env().monotonic();
        after_a_nap(&mut self.since.lock(), now, time)
    }

    fn step(&self) -> Result<()> {
        self.cleaner.upgrade().map_or(Ok(()), |cleaner| cleaner.engine().commit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_begins_its_nap_anew() {
        let mut since = None;
        let second = Duration::from_secs;
        assert_eq!(after_a_nap(&mut since, 1, second(10)), Due::In(NAP));
        assert_eq!(after_a_nap(&mut since, 2, second(11)), Due::In(NAP));
        assert_eq!(after_a_nap(&mut since, 2, second(12)), Due::Now);
    }
}
