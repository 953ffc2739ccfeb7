//! The primitives of the program.

pub(super) use parking_lot::RawRwLock;
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use std::thread_local;
use std::time::Duration;

/// A condition variable for a [`Mutex`]. Waiting takes the guard and gives it back.
///
/// ```
/// use creamery_base::sync::{Condvar, Mutex};
/// let (ready, changed) = (Mutex::new(true), Condvar::new());
/// let guard = changed.wait_while(ready.lock(), |ready| !*ready);
/// assert!(*guard);
/// ```
#[derive(Default, Debug)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// One that nobody waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Lets the lock go and waits until `waits` says no.
    pub fn wait_while<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        self.0.wait_while(&mut guard, waits);
        guard
    }

    /// As [`wait_while`](Self::wait_while), for `timeout` at most.
    pub fn wait_while_for<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        timeout: Duration,
        waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        let _ = self.0.wait_while_for(&mut guard, waits, timeout);
        guard
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
