//! Locks with a rank for what outlives a run of a test's scheduler: devices, and what belongs to the process.
//!
//! Such a run begins anew many times in one process, and its threads are not the system's. These locks are of the system all
//! the same, so nothing may be done under them for which the scheduler could turn to another thread. Outside of such tests
//! they are like the others.

use core::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(feature = "shuttle"))]
use super::Held;
use super::Place;

/// Nothing is noted: of the scheduler's threads there is none before and after its run.
#[cfg(feature = "shuttle")]
struct Held;

#[cfg(feature = "shuttle")]
impl Held {
    const fn wait(_: Place) -> Self {
        Self
    }

    const fn tried(_: Place) -> Self {
        Self
    }
}

/// As [`RankedMutex`](super::RankedMutex), for a `static`.
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
    /// A new, unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self { inner: Mutex::new(value) }
    }

    /// Locks, waiting for the holder (LOCK-1).
    pub fn lock(&self) -> ProcessGuard<MutexGuard<'_, T>> {
        let held = Held::wait(Place::of(RANK));
        ProcessGuard { guard: self.inner.lock(), _held: held }
    }

    /// Locks if nobody holds it.
    pub fn try_lock(&self) -> Option<ProcessGuard<MutexGuard<'_, T>>> {
        let guard = self.inner.try_lock()?;
        Some(ProcessGuard { guard, _held: Held::tried(Place::of(RANK)) })
    }
}

/// As [`RankedRwLock`](super::RankedRwLock), for a device.
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
    /// A new, unlocked lock.
    pub const fn new(value: T) -> Self {
        Self { inner: RwLock::new(value) }
    }

    /// Locks for reading, waiting for a writer (LOCK-1).
    pub fn read(&self) -> ProcessGuard<RwLockReadGuard<'_, T>> {
        let held = Held::wait(Place::of(RANK));
        ProcessGuard { guard: self.inner.read(), _held: held }
    }

    /// Locks for writing, waiting for everybody else (LOCK-1).
    pub fn write(&self) -> ProcessGuard<RwLockWriteGuard<'_, T>> {
        let held = Held::wait(Place::of(RANK));
        ProcessGuard { guard: self.inner.write(), _held: held }
    }
}

/// The witness that one of them is locked.
///
/// ```
/// use creamery_base::lock::{rank, ProcessMutex};
/// let opened: ProcessMutex<u64, { rank::LEAF }> = ProcessMutex::new(0);
/// let mut guard = opened.lock();
/// *guard += 1;
/// ```
#[must_use]
pub struct ProcessGuard<G> {
    guard: G,
    _held: Held,
}

/// The witness that a [`ProcessRwLock`] is locked for reading.
///
/// ```
/// use creamery_base::lock::ProcessRead;
/// fn first(bytes: &ProcessRead<'_, Vec<u8>>) -> Option<u8> { bytes.first().copied() }
/// ```
pub type ProcessRead<'a, T> = ProcessGuard<RwLockReadGuard<'a, T>>;

impl<G: Deref> Deref for ProcessGuard<G> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for ProcessGuard<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}
