//! A reader-writer lock with a rank.

use super::{HeldNote, LockPosition, Ranked, reason_of};
use crate::gate::Reason;
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, lock_by};

/// A reader-writer lock with a rank from [`rank`](super::rank). A thread that holds it for reading must not lock it again: it would
/// wait behind a writer that waits for this thread.
///
/// ```
/// use creamery_base::lock::{rank, RankedRwLock};
/// let names: RankedRwLock<Vec<&str>, { rank::LEAF }> = RankedRwLock::new(Vec::new());
/// names.write().push("milk");
/// assert_eq!(names.read().len(), 1);
/// ```
#[derive(Default)]
pub struct RankedRwLock<T, const RANK: u8> {
    pub(super) inner: RwLock<T>,
}

impl<T, const RANK: u8> RankedRwLock<T, RANK> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { inner: RwLock::new(value) }
    }

    /// Locks for reading, and waits for a writer (LOCK-1). If the lock is a long one, the gate counts a wait that happens as
    /// [`Reason::Lock`].
    pub fn read(&self) -> RankedRead<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::of(RANK));
        Ranked {
            guard: lock_by(Some(RANK), reason_of(RANK), || self.inner.try_read(), || self.inner.read()),
            held,
        }
    }

    /// Locks for writing, and waits until no other thread holds the lock (LOCK-1). Waits are counted as in [`read`](Self::read).
    pub fn write(&self) -> RankedWrite<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::of(RANK));
        Ranked {
            guard: lock_by(Some(RANK), reason_of(RANK), || self.inner.try_write(), || self.inner.write()),
            held,
        }
    }

    /// Locks one of several locks of this rank for reading, like [`read`](Self::read). They are taken in the order of `within`. The gate
    /// counts a wait that happens as `reason`.
    pub fn read_for(&self, reason: Reason, within: u128) -> RankedRead<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::within(RANK, within));
        let guard = lock_by(Some(RANK), Some(reason), || self.inner.try_read(), || self.inner.read());
        Ranked { guard, held }
    }

    /// Locks one of several locks of this rank for writing, like [`write`](Self::write). They are taken in the order of `within`. The gate
    /// counts a wait that happens as `reason`.
    pub fn write_for(&self, reason: Reason, within: u128) -> RankedWrite<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::within(RANK, within));
        let guard = lock_by(Some(RANK), Some(reason), || self.inner.try_write(), || self.inner.write());
        Ranked { guard, held }
    }

    /// Locks for reading if that needs no wait; `within` as in [`read_for`](Self::read_for).
    pub fn try_read_within(&self, within: u128) -> Option<RankedRead<'_, T, RANK>> {
        let guard = self.inner.try_read()?;
        Some(Ranked { guard, held: HeldNote::tried(LockPosition::within(RANK, within)) })
    }

    /// Locks for writing if no thread holds it; `within` as in [`write_for`](Self::write_for).
    pub fn try_write_within(&self, within: u128) -> Option<RankedWrite<'_, T, RANK>> {
        let guard = self.inner.try_write()?;
        Some(Ranked { guard, held: HeldNote::tried(LockPosition::within(RANK, within)) })
    }

    /// Returns the value without locking: `&mut self` excludes other threads.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// The witness that a [`RankedRwLock`] is locked for reading.
///
/// ```
/// use creamery_base::lock::{rank, RankedRead};
/// fn first(names: &RankedRead<'_, Vec<String>, { rank::LEAF }>) -> Option<String> { names.first().cloned() }
/// ```
pub type RankedRead<'a, T, const RANK: u8> = Ranked<RwLockReadGuard<'a, T>, RANK>;

/// The witness that a [`RankedRwLock`] is locked for writing.
///
/// ```
/// use creamery_base::lock::{rank, RankedWrite};
/// fn add(names: &mut RankedWrite<'_, Vec<String>, { rank::LEAF }>) { names.push("cream".to_owned()); }
/// ```
pub type RankedWrite<'a, T, const RANK: u8> = Ranked<RwLockWriteGuard<'a, T>, RANK>;

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use super::RankedRwLock;
    use crate::gate::Reason;
    use crate::lock::rank;

    #[test]
    #[should_panic(expected = "LOCK-1")]
    fn reading_twice_is_a_bug() {
        let lock: RankedRwLock<(), { rank::LEAF }> = RankedRwLock::new(());
        let _first = lock.read();
        let _second = lock.read();
    }

    #[test]
    fn trying_needs_no_order() {
        let lock: RankedRwLock<u32, { rank::INODE }> = RankedRwLock::new(7);
        let first = lock.read_for(Reason::InodeLock, 2);
        let second = lock.try_read_within(1).expect("readers share");
        assert!(lock.try_write_within(0).is_none());
        assert_eq!((*first, *second), (7, 7));
    }
}
