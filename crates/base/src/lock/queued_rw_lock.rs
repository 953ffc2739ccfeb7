//! A reader-writer lock whose writers wait in a queue.
//!
//! Many threads that change one directory want its lock, each for a microsecond. If all of them sleep at the lock, each unlocking wakes one. The woken thread mostly finds the
//! lock taken by a thread that was awake, and sleeps again. Its two switches take ten times as long as the work. So a writer that finds the lock taken waits for its turn first.
//! One writer at a time has the turn, and only this one sleeps at the lock. Threads that are awake pass it one after the other, and an unlocking wakes no other
//! writer. Readers share the lock and have no turns.
//!
//! A thread has the turn only while it waits for the lock behind it. So the turn has no rank.

use super::{HeldNote, LockPosition, Ranked, RankedRead, RankedRwLock, RankedWrite};
use crate::gate::Reason;
use crate::sync::{Mutex, lock_by};

/// A reader-writer lock with a rank from [`rank`](super::rank), one of several that are taken in an order, and for which many writers wait at once.
///
/// ```
/// use creamery_base::gate::Reason;
/// use creamery_base::lock::{QueuedRwLock, rank};
/// let names: QueuedRwLock<Vec<&str>, { rank::INODE }> = QueuedRwLock::new(Vec::new());
/// names.write_for(Reason::InodeLock, 257).push("milk");
/// assert_eq!(names.read_for(Reason::InodeLock, 257).len(), 1);
/// ```
#[derive(Default)]
pub struct QueuedRwLock<T, const RANK: u8> {
    lock: RankedRwLock<T, RANK>,
    turn: Mutex<()>,
}

impl<T, const RANK: u8> QueuedRwLock<T, RANK> {
    /// A new, unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { lock: RankedRwLock::new(value), turn: Mutex::new(()) }
    }

    /// Locks for reading like [`RankedRwLock::read_for`]: readers share the lock and wait in no queue.
    pub fn read_for(&self, reason: Reason, within: u128) -> RankedRead<'_, T, RANK> {
        self.lock.read_for(reason, within)
    }

    /// Locks for writing like [`RankedRwLock::write_for`], behind the writers that wait already.
    pub fn write_for(&self, reason: Reason, within: u128) -> RankedWrite<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::within(RANK, within));
        let behind_others = || {
            let _turn = self.turn.lock();
            self.lock.inner.write()
        };
        let guard = lock_by(Some(RANK), Some(reason), || self.lock.inner.try_write(), behind_others);
        Ranked { guard, held }
    }

    /// Tries to lock for reading like [`RankedRwLock::try_read_within`].
    pub fn try_read_within(&self, within: u128) -> Option<RankedRead<'_, T, RANK>> {
        self.lock.try_read_within(within)
    }

    /// Tries to lock for writing like [`RankedRwLock::try_write_within`].
    pub fn try_write_within(&self, within: u128) -> Option<RankedWrite<'_, T, RANK>> {
        self.lock.try_write_within(within)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::thread;

    use super::*;
    use crate::lock::rank;

    #[test]
    fn writers_go_one_at_a_time_and_all_get_there() {
        let lock: QueuedRwLock<(u64, u64), { rank::INODE }> = QueuedRwLock::new((0, 0));
        let held = lock.write_for(Reason::InodeLock, 1);
        assert!(lock.try_read_within(1).is_none() && lock.try_write_within(1).is_none());
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut both = lock.write_for(Reason::InodeLock, 1);
                        both.0 += 1;
                        both.1 += 1;
                    }
                    let both = lock.read_for(Reason::InodeLock, 1);
                    assert_eq!(both.0, both.1, "nobody is half done");
                });
            }
            drop(held);
        });
        assert_eq!(*lock.read_for(Reason::InodeLock, 1), (8000, 8000));
    }
}
