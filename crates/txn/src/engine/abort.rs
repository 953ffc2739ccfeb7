//! The abort: its callback, and the reasons for which the engine aborts.

use std::panic::Location;

use creamery_base::{Error, ErrorKind, panics};

use super::Engine;
use crate::abort::Abort;

impl Engine {
    /// The abort, if there was one.
    #[must_use]
    pub fn aborted(&self) -> Option<&Abort> {
        self.transaction.aborts().get()
    }

    /// Waits until no commit is on its way, and returns the abort, if there was one: a commit that the abort met has failed by then, or is durable.
    /// Never call it with a handle.
    #[must_use]
    pub fn aborted_and_over(&self) -> Option<&Abort> {
        let abort = self.aborted()?;
        let _turn = self.pipeline.turns.take();
        // The committer gets the error.
        let _ = self.end_write_out();
        Some(abort)
    }

    /// Calls `tell` when the engine aborts, at once if it has already. It runs at the place of the abort, perhaps under locks of the
    /// filesystem: it must not call into the filesystem. Only the latest `tell` is kept.
    pub fn tell_abort(&self, tell: impl FnOnce(&Abort) + Send + 'static) {
        self.transaction.aborts().tell_to(Box::new(tell));
    }

    /// Stops all writing after a panic in the middle of an operation: the state in memory may be inconsistent.
    pub fn abort_after_panic(&self, panic: &panics::Panic) {
        self.transaction.abort_after_panic(panic);
    }

    /// Aborts because a thread died with a tree block half edited.
    #[track_caller]
    pub(super) fn abort_when_poisoned(&self) {
        if self.store.is_poisoned() && self.aborted().is_none() {
            let error = Error::new(ErrorKind::Aborted, "a thread panicked with a tree block half edited");
            self.transaction.abort(&error, Location::caller());
        }
    }
}
