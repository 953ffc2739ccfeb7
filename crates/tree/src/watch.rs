//! State shared by all buffers of a store: the mark of a half-edited block, times of write locks, and the count of links.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use creamery_base::{Histogram, HistogramSnapshot};

use crate::LEVELS;
use crate::links::Linked;

/// How long the write locks of one level of all trees were held and waited for, in nanoseconds.
///
/// ```
/// assert_eq!(creamery_tree::LockTimes::default().held.percentile(99), 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct LockTimes {
    /// From locking to unlocking.
    pub held: HistogramSnapshot,
    /// From asking to locking. Locks that were free do not count.
    pub waited: HistogramSnapshot,
}

#[derive(Default)]
pub(crate) struct Watch {
    poisoned: AtomicBool,
    timing: AtomicBool,
    held: [Histogram; LEVELS],
    waited: [Histogram; LEVELS],
    linked: Linked,
}

impl Watch {
    /// Creates the state for a cache of `blocks` blocks.
    pub(crate) fn of_cache(blocks: u64) -> Self {
        Self { linked: Linked::of_cache(blocks), ..Self::default() }
    }

    pub(crate) const fn linked(&self) -> &Linked {
        &self.linked
    }

    /// Marks the store as poisoned. Called by a thread that panics with a block half edited, before it unlocks the block.
    pub(crate) fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    pub(crate) fn set_timing(&self, on: bool) {
        self.timing.store(on, Ordering::Relaxed);
    }

    /// Returns the time if times are taken. Only statistics use it.
    pub(crate) fn now(&self) -> Option<Instant> {
        self.timing.load(Ordering::Relaxed).then(Instant::now)
    }

    pub(crate) fn held(&self, level: u8, since: Option<Instant>) {
        if let Some(since) = since {
            self.held[usize::from(level)].record(nanoseconds_since(since));
        }
    }

    pub(crate) fn waited(&self, level: u8, since: Option<Instant>) {
        if let Some(since) = since {
            self.waited[usize::from(level)].record(nanoseconds_since(since));
        }
    }

    pub(crate) fn lock_times(&self) -> [LockTimes; LEVELS] {
        std::array::from_fn(|level| LockTimes {
            held: self.held[level].snapshot(),
            waited: self.waited[level].snapshot(),
        })
    }
}

fn nanoseconds_since(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
