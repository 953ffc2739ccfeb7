//! A reader-writer lock with a rank.

use core::ops::{Deref, DerefMut};

use super::{Held, Place};
use crate::gate::{self, Reason};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A reader-writer lock with a rank from [`rank`](super::rank). A thread that reads does not ask once more: it would stand
/// behind a writer who waits for it.
///
/// ```
/// use creamery_base::lock::{rank, RankedRwLock};
/// let names: RankedRwLock<Vec<&str>, { rank::LEAF }> = RankedRwLock::new(Vec::new());
/// names.write().push("milk");
/// assert_eq!(names.read().len(), 1);
/// ```
#[derive(Default)]
pub struct RankedRwLock<T, const RANK: u8> {
    inner: RwLock<T>,
}

impl<T, const RANK: u8> RankedRwLock<T, RANK> {
    /// A new, unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { inner: RwLock::new(value) }
    }

    /// Locks for reading, waiting for a writer (LOCK-1).
    pub fn read(&self) -> RankedRead<'_, T> {
        self.read_within(0)
    }

    /// Locks for writing, waiting for everybody else (LOCK-1).
    pub fn write(&self) -> RankedWrite<'_, T> {
        self.write_within(0)
    }

    /// As [`read`](Self::read), of one of several of this rank that are taken in the order of `within`.
    pub fn read_within(&self, within: u128) -> RankedRead<'_, T> {
        let held = Held::wait(Place::within(RANK, within));
        RankedRead { guard: self.inner.read(), _held: held }
    }

    /// As [`read_within`](Self::read_within); a wait that happens is counted as one for `reason`.
    pub fn read_for(&self, reason: Reason, within: u128) -> RankedRead<'_, T> {
        let held = Held::wait(Place::within(RANK, within));
        let guard = self.inner.try_read().unwrap_or_else(|| gate::passing(reason, || self.inner.read()));
        RankedRead { guard, _held: held }
    }

    /// As [`write`](Self::write), of one of several of this rank that are taken in the order of `within`.
    pub fn write_within(&self, within: u128) -> RankedWrite<'_, T> {
        let held = Held::wait(Place::within(RANK, within));
        RankedWrite { guard: self.inner.write(), _held: held }
    }

    /// As [`write_within`](Self::write_within); a wait that happens is counted as one for `reason`.
    pub fn write_for(&self, reason: Reason, within: u128) -> RankedWrite<'_, T> {
        let held = Held::wait(Place::within(RANK, within));
        let guard = self.inner.try_write().unwrap_or_else(|| gate::passing(reason, || self.inner.write()));
        RankedWrite { guard, _held: held }
    }

    /// Locks for reading if that needs no waiting; `within` as in [`read_within`](Self::read_within).
    pub fn try_read_within(&self, within: u128) -> Option<RankedRead<'_, T>> {
        let guard = self.inner.try_read()?;
        Some(RankedRead { guard, _held: Held::tried(Place::within(RANK, within)) })
    }

    /// Locks for writing if nobody holds it; `within` as in [`write_within`](Self::write_within).
    pub fn try_write_within(&self, within: u128) -> Option<RankedWrite<'_, T>> {
        let guard = self.inner.try_write()?;
        Some(RankedWrite { guard, _held: Held::tried(Place::within(RANK, within)) })
    }

    /// The value, without locking: the caller has the lock for himself.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

/// The witness that a [`RankedRwLock`] is locked for reading.
///
/// ```
/// use creamery_base::lock::RankedRead;
/// fn first(names: &RankedRead<'_, Vec<String>>) -> Option<String> { names.first().cloned() }
/// ```
#[must_use]
pub struct RankedRead<'a, T> {
    guard: RwLockReadGuard<'a, T>,
    _held: Held,
}

/// The witness that a [`RankedRwLock`] is locked for writing.
///
/// ```
/// use creamery_base::lock::RankedWrite;
/// fn add(names: &mut RankedWrite<'_, Vec<String>>) { names.push("cream".to_owned()); }
/// ```
#[must_use]
pub struct RankedWrite<'a, T> {
    guard: RwLockWriteGuard<'a, T>,
    _held: Held,
}

impl<T> Deref for RankedRead<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> Deref for RankedWrite<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for RankedWrite<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use super::RankedRwLock;
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
        let first = lock.read_within(2);
        let second = lock.try_read_within(1).expect("readers share");
        assert!(lock.try_write_within(0).is_none());
        assert_eq!((*first, *second), (7, 7));
    }
}
