//! A mutex with a rank.

use super::{HeldNote, LockPosition, Ranked, reason_of};
use crate::gate::Reason;
use crate::sync::{Mutex, MutexGuard, lock_by};

/// A mutex with a rank from [`rank`](super::rank).
///
/// ```
/// use creamery_base::lock::{rank, RankedMutex};
/// let counter: RankedMutex<u64, { rank::LEAF }> = RankedMutex::new(1);
/// *counter.lock() += 1;
/// assert_eq!(*counter.lock(), 2);
/// ```
#[derive(Debug, Default)]
pub struct RankedMutex<T, const RANK: u8> {
    inner: Mutex<T>,
}

impl<T, const RANK: u8> RankedMutex<T, RANK> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: Mutex::new(value) }
    }

    /// Locks, and waits for the holder (LOCK-1). If the lock is a long one, the gate counts a wait that happens as [`Reason::Lock`].
    pub fn lock(&self) -> RankedGuard<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::of(RANK));
        Ranked {
            guard: lock_by(Some(RANK), reason_of(RANK), || self.inner.try_lock(), || self.inner.lock()),
            held,
        }
    }

    /// Locks like [`lock`](Self::lock); the gate counts a wait that happens as `reason`.
    pub fn lock_for(&self, reason: Reason) -> RankedGuard<'_, T, RANK> {
        let held = HeldNote::wait(LockPosition::of(RANK));
        let guard = lock_by(Some(RANK), Some(reason), || self.inner.try_lock(), || self.inner.lock());
        Ranked { guard, held }
    }

    /// Locks if no thread holds it.
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T, RANK>> {
        let guard = self.inner.try_lock()?;
        Some(Ranked { guard, held: HeldNote::tried(LockPosition::of(RANK)) })
    }

    /// Returns the value. By taking `self`, it needs no lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

/// The witness that a [`RankedMutex`] is locked.
///
/// ```
/// use creamery_base::lock::{rank, RankedGuard, RankedMutex};
/// fn add(total: &mut RankedGuard<'_, u64, { rank::LEAF }>) { **total += 1; }
/// let total = RankedMutex::new(0);
/// add(&mut total.lock());
/// ```
pub type RankedGuard<'a, T, const RANK: u8> = Ranked<MutexGuard<'a, T>, RANK>;

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use super::RankedMutex;
    use crate::lock::rank;

    #[test]
    #[should_panic(expected = "LOCK-1")]
    fn an_inversion_is_a_bug() {
        let outer: RankedMutex<(), { rank::INODE }> = RankedMutex::new(());
        let inner: RankedMutex<(), { rank::LEAF }> = RankedMutex::new(());
        let _inner = inner.lock();
        let _outer = outer.lock();
    }

    #[test]
    fn a_guard_that_is_gone_is_held_no_more() {
        let outer: RankedMutex<(), { rank::INODE }> = RankedMutex::new(());
        let inner: RankedMutex<(), { rank::LEAF }> = RankedMutex::new(());
        drop(inner.lock());
        let first = outer.lock();
        let second = inner.lock();
        assert!(outer.try_lock().is_none());
        drop((first, second));
        drop(outer.lock());
    }
}
