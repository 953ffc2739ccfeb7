//! Locks with a rank for objects that outlive a run of a test's scheduler: devices, and the state of the process.
//!
//! Such a run begins many times in one process, and its threads are not the system's. These locks are the system's all
//! the same, so no operation under them may let the scheduler switch to another thread. Outside of such tests
//! they work like the other locks.

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::{HeldNote, LockPosition, Ranked};
use crate::gate::Wait;

fn before(rank: u8, wait: Wait) -> HeldNote {
    if cfg!(feature = "shuttle") {
        HeldNote::nothing()
    } else {
        HeldNote::before(LockPosition::of(rank), wait)
    }
}

/// A mutex like [`RankedMutex`](super::RankedMutex), for a `static`.
///
/// ```
/// use creamery_base::lock::{rank, ProcessMutex};
/// static OPENED: ProcessMutex<u64, { rank::LEAF }> = ProcessMutex::new(0);
/// *OPENED.lock() += 1;
/// assert_eq!(*OPENED.lock(), 1);
/// ```
#[derive(Debug, Default)]
pub struct ProcessMutex<T, const RANK: u8> {
    inner: Mutex<T>,
}

impl<T, const RANK: u8> ProcessMutex<T, RANK> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: Mutex::new(value) }
    }

    /// Locks, and waits for the holder (LOCK-1).
    pub fn lock(&self) -> Ranked<MutexGuard<'_, T>, RANK> {
        let held = before(RANK, Wait::Yes);
        Ranked { guard: self.inner.lock(), held }
    }

    /// Returns the value. By taking `self`, it needs no lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }

    /// Locks if no thread holds it.
    pub fn try_lock(&self) -> Option<Ranked<MutexGuard<'_, T>, RANK>> {
        let guard = self.inner.try_lock()?;
        Some(Ranked { guard, held: before(RANK, Wait::No) })
    }
}

/// A condition variable like [`RankedCondvar`](super::RankedCondvar), for a [`ProcessMutex`].
///
/// ```
/// use creamery_base::lock::{rank, ProcessCondvar, ProcessMutex};
/// let ready: ProcessMutex<bool, { rank::LEAF }> = ProcessMutex::new(true);
/// assert!(*ProcessCondvar::new().wait_while(ready.lock(), |ready| !*ready));
/// ```
#[derive(Default, Debug)]
pub struct ProcessCondvar(Condvar);

impl ProcessCondvar {
    /// Creates a condition variable.
    #[must_use]
    pub const fn new() -> Self {
        Self(Condvar::new())
    }

    /// Releases the lock and waits until `waits` returns false.
    pub fn wait_while<'m, T, const RANK: u8>(
        &self,
        mut guard: Ranked<MutexGuard<'m, T>, RANK>,
        waits: impl FnMut(&mut T) -> bool,
    ) -> Ranked<MutexGuard<'m, T>, RANK> {
        self.0.wait_while(&mut guard.guard, waits);
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

/// A reader-writer lock like [`RankedRwLock`](super::RankedRwLock), for a device.
///
/// ```
/// use creamery_base::lock::{rank, ProcessRwLock};
/// let bytes: ProcessRwLock<Vec<u8>, { rank::DEVICE }> = ProcessRwLock::new(vec![0]);
/// bytes.write()[0] = 1;
/// assert_eq!(bytes.read()[0], 1);
/// ```
#[derive(Debug, Default)]
pub struct ProcessRwLock<T, const RANK: u8> {
    inner: RwLock<T>,
}

impl<T, const RANK: u8> ProcessRwLock<T, RANK> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { inner: RwLock::new(value) }
    }

    /// Locks for reading, and waits for a writer (LOCK-1).
    pub fn read(&self) -> ProcessRead<'_, T, RANK> {
        let held = before(RANK, Wait::Yes);
        Ranked { guard: self.inner.read(), held }
    }

    /// Locks for writing, and waits until no other thread holds the lock (LOCK-1).
    pub fn write(&self) -> ProcessWrite<'_, T, RANK> {
        let held = before(RANK, Wait::Yes);
        Ranked { guard: self.inner.write(), held }
    }
}

/// The witness that a [`ProcessRwLock`] is locked for reading.
///
/// ```
/// use creamery_base::lock::{rank, ProcessRead};
/// fn first(bytes: &ProcessRead<'_, Vec<u8>, { rank::DEVICE }>) -> Option<u8> { bytes.first().copied() }
/// ```
pub type ProcessRead<'a, T, const RANK: u8> = Ranked<RwLockReadGuard<'a, T>, RANK>;

/// The witness that a [`ProcessRwLock`] is locked for writing.
///
/// ```
/// use creamery_base::lock::{rank, ProcessWrite};
/// fn clear(bytes: &mut ProcessWrite<'_, Vec<u8>, { rank::DEVICE }>) { bytes.clear() }
/// ```
pub type ProcessWrite<'a, T, const RANK: u8> = Ranked<RwLockWriteGuard<'a, T>, RANK>;
