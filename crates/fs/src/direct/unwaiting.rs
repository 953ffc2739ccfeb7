//! The proof that a request that must not wait did not: the gate's own count of the waits of its thread.

use std::cell::Cell;

use creamery_base::gate;
use creamery_base::sync::thread_local;

use crate::counters::Nowait;

thread_local! {
    /// Whether this thread must not wait now.
    static MUST_NOT: Cell<bool> = const { Cell::new(false) };
}

/// A thread that must not wait, until this value drops.
#[must_use]
pub(crate) struct Unwaiting {
    waits_before: u64,
}

impl Unwaiting {
    pub(crate) fn begin() -> Self {
        MUST_NOT.with(|must_not| must_not.set(true));
        Self { waits_before: gate::waits_of_this_thread() }
    }

    /// Whether this thread must not wait. Such a thread calls no completion, because the caller's code may wait.
    pub(super) fn is_under_way() -> bool {
        MUST_NOT.with(Cell::get)
    }

    /// Ends the section in which the thread must not wait. Counts its waits; there are none, unless the option lets looks wait
    /// (`may_wait`).
    pub(crate) fn end(self, nowait: &Nowait, may_wait: bool) {
        let waits = gate::waits_of_this_thread() - self.waits_before;
        Nowait::add(&nowait.blocked, waits);
        assert!(may_wait || waits == 0, "DIRECT-5: a request that must not wait has waited {waits} times");
    }
}

impl Drop for Unwaiting {
    fn drop(&mut self) {
        MUST_NOT.with(|must_not| must_not.set(false));
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::gate::Reason;

    use super::*;

    #[test]
    #[should_panic(expected = "DIRECT-5")]
    fn a_wait_is_noticed() {
        let unwaiting = Unwaiting::begin();
        gate::passing(Reason::Lock, || ());
        unwaiting.end(&Nowait::default(), false);
    }

    #[test]
    fn a_wait_that_is_allowed_is_counted() {
        let (unwaiting, nowait) = (Unwaiting::begin(), Nowait::default());
        gate::passing(Reason::Lock, || ());
        unwaiting.end(&nowait, true);
        assert_eq!(nowait.counters().blocked, 1);
    }
}
