//! Allocation of inode numbers.
//!
//! Neighbouring numbers are neighbouring items: threads that took numbers in turn would all insert into the last leaf of the tree, one after the other. So each
//! thread takes runs of numbers, and inodes that several threads make at once lie in leaves of their own. A single thread gets consecutive numbers. The unused rest
//! of a run is not lost when the filesystem is closed: the next opening goes on behind the highest number in use.
//!
//! # Invariants
//! - INO-1: no number is given twice. Shown by `no_number_is_given_twice`.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{ObjectId, PerThread};

/// Numbers in a run: its inodes fill more than a hundred leaves, so that threads seldom meet at the ends of their runs.
const RUN_LEN: u64 = 8192;

/// The numbers of one subvolume.
pub(crate) struct InoAllocator {
    /// Where the next run begins.
    next: AtomicU64,
    runs: PerThread<RankedMutex<Range<u64>, { rank::LEAF }>>,
}

impl InoAllocator {
    /// Allocates numbers behind `last`, the highest in use.
    pub(crate) fn behind(last: ObjectId) -> Self {
        Self { next: AtomicU64::new(last.get() + 1), runs: PerThread::default() }
    }

    /// Bytes of memory that one allocator takes beside itself.
    pub(super) fn striped_memory() -> u64 {
        PerThread::<RankedMutex<Range<u64>, { rank::LEAF }>>::memory()
    }

    /// Allocates a number; `None` when all are used up.
    pub(crate) fn allocate(&self) -> Option<ObjectId> {
        let mut run = self.runs.mine().lock();
        if run.is_empty() {
            let take = |next: u64| (next <= ObjectId::LAST_FREE.get()).then(|| next.saturating_add(RUN_LEN));
            let start = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
            *run = start..start.saturating_add(RUN_LEN).min(ObjectId::LAST_FREE.get() + 1);
            assert!(
                run.end <= self.next.load(Ordering::Relaxed),
                "INO-1: the next run begins behind this one"
            );
        }
        run.next().map(ObjectId::new)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn one_thread_gets_one_number_after_the_other() {
        let numbers = InoAllocator::behind(ObjectId::new(300));
        for wanted in 301..301 + 3 * RUN_LEN {
            assert_eq!(numbers.allocate(), Some(ObjectId::new(wanted)));
        }
    }

    #[test]
    fn no_number_is_given_twice() {
        let numbers = InoAllocator::behind(ObjectId::new(255));
        let all: Vec<Vec<ObjectId>> = std::thread::scope(|scope| {
            let take = || (0..2 * RUN_LEN).map(|_| numbers.allocate().expect("there are more")).collect();
            let threads: Vec<_> = (0..20).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it only counts")).collect()
        });
        let different: HashSet<ObjectId> = all.iter().flatten().copied().collect();
        assert_eq!(different.len() as u64, 20 * 2 * RUN_LEN);
    }

    #[test]
    fn the_last_number_is_the_last() {
        let numbers = InoAllocator::behind(ObjectId::new(ObjectId::LAST_FREE.get() - 2));
        assert_eq!(numbers.allocate(), Some(ObjectId::new(ObjectId::LAST_FREE.get() - 1)));
        assert_eq!(numbers.allocate(), Some(ObjectId::LAST_FREE));
        assert_eq!((numbers.allocate(), numbers.allocate()), (None, None));
    }
}
