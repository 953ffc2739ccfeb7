//! Locks that know their rank: one list, outer first. Taking a lock whose rank is not greater than one already
//! held panics in debug builds, so an inversion is found by the first test that walks over it, not by the first
//! deadlock.
//!
//! Node locks of trees are not in this list: their order is tree class, then level, then left to right, and it
//! is argued in the `tree` crate. All ranks below [`rank::SHARD`] may be held while a node lock is taken; from
//! [`rank::SHARD`] on they are short: no I/O and no node lock under them.

use std::ops::{Deref, DerefMut};

use crate::sync::{Mutex, MutexGuard};

/// The list of ranks, outer to inner.
pub mod rank {
    /// One commit at a time.
    pub const COMMIT: u8 = 10;
    /// The running transaction.
    pub const TRANSACTION: u8 = 20;
    /// Allocating a chunk.
    pub const CHUNK_ALLOCATION: u8 = 30;
    /// A delayed ref head.
    pub const REF_HEAD: u8 = 40;
    /// Rewriting a bad copy: held across that I/O, and under node locks.
    pub const REPAIR: u8 = 50;
    /// Short locks start here: no I/O, no node lock under them.
    pub const SHARD: u8 = 60;
    /// One block group's free space.
    pub const BLOCK_GROUP: u8 = 64;
    /// A shard of the delayed refs.
    pub const DELAYED_REFS: u8 = 66;
    /// A shard of the buffer index.
    pub const BUFFER_SHARD: u8 = 70;
    /// Innermost: may be taken under everything.
    pub const LEAF: u8 = 90;
}

#[cfg(debug_assertions)]
mod held {
    use std::cell::RefCell;

    #[cfg(feature = "shuttle")]
    use crate::sync::shuttle::thread_local;

    thread_local! {
        static HELD: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn push(rank: u8) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            if let Some(&top) = held.iter().max() {
                assert!(rank > top, "lock rank {rank} taken while {top} is held");
            }
            held.push(rank);
        });
    }

    pub(super) fn push_tried(rank: u8) {
        HELD.with(|held| held.borrow_mut().push(rank));
    }

    pub(super) fn pop(rank: u8) {
        HELD.with(|held| {
            let mut held = held.borrow_mut();
            let at = held.iter().rposition(|&r| r == rank).expect("a held lock is in the list");
            held.remove(at);
        });
    }
}

#[cfg(not(debug_assertions))]
mod held {
    pub(super) const fn push(_rank: u8) {}
    pub(super) const fn push_tried(_rank: u8) {}
    pub(super) const fn pop(_rank: u8) {}
}

/// A mutex with a rank from [`rank`].
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
    /// A new, unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: Mutex::new(value) }
    }

    /// Locks, waiting for the holder. Panics in debug builds when a lock of the same or an inner rank is held.
    pub fn lock(&self) -> RankedGuard<'_, T, RANK> {
        held::push(RANK);
        RankedGuard { guard: self.inner.lock() }
    }

    /// Locks if nobody holds it. Exempt from the order, since it cannot wait.
    pub fn try_lock(&self) -> Option<RankedGuard<'_, T, RANK>> {
        let guard = self.inner.try_lock()?;
        held::push_tried(RANK);
        Some(RankedGuard { guard })
    }

    /// The value, when nobody else can hold the lock.
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
#[must_use]
pub struct RankedGuard<'a, T, const RANK: u8> {
    guard: MutexGuard<'a, T>,
}

impl<T, const RANK: u8> Deref for RankedGuard<'_, T, RANK> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T, const RANK: u8> DerefMut for RankedGuard<'_, T, RANK> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T, const RANK: u8> Drop for RankedGuard<'_, T, RANK> {
    fn drop(&mut self) {
        held::pop(RANK);
    }
}
