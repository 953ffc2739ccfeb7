//! The primitives of the program.

pub(super) use parking_lot::RawRwLock;
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub(crate) use std::sync::atomic::AtomicBool;
pub use std::thread_local;
use std::time::Duration;

use crate::gate::{self, Chance, Reason};

/// Returns the result of `attempt`, else of `wait`, which waits for it. A thread that takes turns only repeats `attempt` (TURNS-1). A wait is
/// counted if it has a reason, and for the rank of the lock, if it has one.
pub(crate) fn lock_by<T>(
    rank: Option<u8>,
    reason: Option<Reason>,
    attempt: impl Fn() -> Option<T>,
    wait: impl FnOnce() -> T,
) -> T {
    gate::may_turn(Chance::Lock);
    match attempt() {
        Some(got) => got,
        None => gate::lock(rank, reason, attempt, wait),
    }
}

/// How many turns of other threads stand for a wait with a timeout, at most.
const TURNS_MAX: usize = 8;

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
    /// Creates a condition variable.
    #[must_use]
    pub const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    /// Releases the lock and waits until `waits` returns false.
    pub fn wait_while<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        mut waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        if !gate::takes_turns() {
            self.0.wait_while(&mut guard, waits);
            return guard;
        }
        while waits(&mut guard) {
            let mutex = MutexGuard::mutex(&guard);
            drop(guard);
            guard = gate::until(|| mutex.try_lock()).expect("it takes turns");
        }
        guard
    }

    /// Waits like [`wait_while`](Self::wait_while), for `timeout` at most.
    pub fn wait_while_for<'m, T>(
        &self,
        mut guard: MutexGuard<'m, T>,
        timeout: Duration,
        mut waits: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'m, T> {
        if !gate::takes_turns() {
            let _ = self.0.wait_while_for(&mut guard, waits, timeout);
            return guard;
        }
        // A simulator's time passes in steps of its own.
        for _ in 0..TURNS_MAX {
            if !waits(&mut guard) {
                break;
            }
            let mutex = MutexGuard::mutex(&guard);
            drop(guard);
            let anybody = gate::must_turn();
            // As in any condition variable, the wait ends only when the lock is taken again.
            guard = lock_by(None, None, || mutex.try_lock(), || mutex.lock());
            if !anybody {
                break;
            }
        }
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
