//! A condition variable for mutexes with a rank.

use std::time::Duration;

use super::{Ranked, RankedGuard, rank};
use crate::gate::{self, Reason};
use crate::sync::Condvar;

/// A condition variable for a [`RankedMutex`](super::RankedMutex). Waiting takes the guard and gives it back; the place stays
/// held meanwhile, because the thread returns to it.
///
/// ```
/// use creamery_base::lock::{rank, RankedCondvar, RankedMutex};
/// let ready: RankedMutex<bool, { rank::LEAF }> = RankedMutex::new(true);
/// let changed = RankedCondvar::new();
/// let guard = changed.wait_while(ready.lock(), |ready| !*ready);
/// assert!(*guard);
/// ```
#[derive(Default, Debug)]
pub struct RankedCondvar(Condvar);

impl RankedCondvar {
    /// Creates a condition variable.
    #[must_use]
    pub const fn new() -> Self {
        Self(Condvar::new())
    }

    /// Releases the lock and waits until `waits` returns false.
    pub fn wait_while<'m, T, const RANK: u8>(
        &self,
        guard: RankedGuard<'m, T, RANK>,
        waits: impl FnMut(&mut T) -> bool,
    ) -> RankedGuard<'m, T, RANK> {
        let Ranked { guard, held } = guard;
        Ranked { guard: self.0.wait_while(guard, waits), held }
    }

    /// Waits like [`wait_while`](Self::wait_while), for `timeout` at most.
    pub fn wait_while_for<'m, T, const RANK: u8>(
        &self,
        guard: RankedGuard<'m, T, RANK>,
        timeout: Duration,
        waits: impl FnMut(&mut T) -> bool,
    ) -> RankedGuard<'m, T, RANK> {
        let Ranked { guard, held } = guard;
        Ranked { guard: self.0.wait_while_for(guard, timeout, waits), held }
    }

    /// Waits like [`wait_while`](Self::wait_while), and passes the gate for `reason`.
    pub fn pass_while<'m, T, const RANK: u8>(
        &self,
        reason: Reason,
        guard: RankedGuard<'m, T, RANK>,
        waits: impl FnMut(&mut T) -> bool,
    ) -> RankedGuard<'m, T, RANK> {
        let Ranked { guard, held } = guard;
        let guard = gate::giving_back(RANK >= rank::SHORT, reason, || self.0.wait_while(guard, waits));
        Ranked { guard, held }
    }

    /// Waits like [`pass_while`](Self::pass_while), for `timeout` at most.
    pub fn pass_while_for<'m, T, const RANK: u8>(
        &self,
        reason: Reason,
        guard: RankedGuard<'m, T, RANK>,
        timeout: Duration,
        waits: impl FnMut(&mut T) -> bool,
    ) -> RankedGuard<'m, T, RANK> {
        let Ranked { guard, held } = guard;
        let guard =
            gate::giving_back(RANK >= rank::SHORT, reason, || self.0.wait_while_for(guard, timeout, waits));
        Ranked { guard, held }
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
