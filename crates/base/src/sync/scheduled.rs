//! The primitives under the scheduler: every operation that could wait lets the scheduler choose the next thread.

#![allow(unsafe_code)] // the trait of raw locks is unsafe to implement

use std::sync::{PoisonError, TryLockError};
use std::time::Duration;

use parking_lot::lock_api::{self, GuardSend};
pub use shuttle::sync::MutexGuard;
pub(crate) use shuttle::sync::atomic::AtomicBool;
pub use shuttle::thread_local;

use crate::gate::{self, Reason};

/// Returns the result of `attempt`, else of `wait`, during which the scheduler runs other threads. A wait is counted if it has a reason.
pub(crate) fn lock_by<T>(
    rank: Option<u8>,
    reason: Option<Reason>,
    attempt: impl Fn() -> Option<T>,
    wait: impl FnOnce() -> T,
) -> T {
    attempt().unwrap_or_else(|| gate::lock(rank, reason, attempt, wait))
}

/// A reader-writer lock with the interface of `parking_lot`'s.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// The witness that a [`RwLock`] is locked for reading.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// The witness that a [`RwLock`] is locked for writing.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

/// A condition variable for a [`Mutex`].
#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

impl Condvar {
    /// Creates a condition variable.
    pub const fn new() -> Self {
        Self(shuttle::sync::Condvar::new())
    }

    /// Releases the lock and waits until `waits` returns false.
    pub fn wait_while<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        mut waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        while waits(&mut guard) {
            guard = self.0.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        guard
    }

    /// Returns the guard at once, in place of a wait with a timeout: the scheduler has no time, so a wait for an event that never comes
    /// would last for ever.
    pub fn wait_while_for<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        _timeout: Duration,
        _waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        guard
    }

    /// Wakes one waiting thread. All threads that wait here must wait for the same condition.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A mutex with the interface of `parking_lot`'s: a panic leaves it unlocked and usable.
#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    /// Locks, and waits for the holder.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks if no thread holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Returns the value. By taking `self`, it needs no lock.
    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct Holders {
    readers: usize,
    writer: bool,
}

/// A reader-writer lock made of the scheduler's mutex and condition variable. Readers do not queue behind a waiting
/// writer: the scheduler chooses which of them goes first, so that it meets every order.
pub struct RawRwLock {
    holders: Mutex<Holders>,
    freed: Condvar,
}

impl RawRwLock {
    fn wait_until(&self, free: impl Fn(&Holders) -> bool, take: impl Fn(&mut Holders)) {
        take(&mut self.freed.wait_while(self.holders.lock(), |holders| !free(holders)));
    }

    fn try_take(&self, free: impl Fn(&Holders) -> bool, take: impl Fn(&mut Holders)) -> bool {
        let mut holders = self.holders.lock();
        let now = free(&holders);
        if now {
            take(&mut holders);
        }
        now
    }
}

// SAFETY: a writer enters only when there are no holders and a reader only when there is no writer; both numbers
// change under one mutex.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self =
        Self { holders: Mutex::new(Holders { readers: 0, writer: false }), freed: Condvar::new() };
    type GuardMarker = GuardSend;

    fn lock_shared(&self) {
        self.wait_until(|holders| !holders.writer, |holders| holders.readers += 1);
    }

    fn try_lock_shared(&self) -> bool {
        self.try_take(|holders| !holders.writer, |holders| holders.readers += 1)
    }

    unsafe fn unlock_shared(&self) {
        self.holders.lock().readers -= 1;
        self.freed.notify_all();
    }

    fn lock_exclusive(&self) {
        self.wait_until(|holders| !holders.writer && holders.readers == 0, |holders| holders.writer = true);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.try_take(|holders| !holders.writer && holders.readers == 0, |holders| holders.writer = true)
    }

    unsafe fn unlock_exclusive(&self) {
        self.holders.lock().writer = false;
        self.freed.notify_all();
    }
}
