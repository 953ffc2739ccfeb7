//! The abort: the end of all writing, with its reason and its place.
//!
//! What was committed stays; what came after is lost, and everybody who has to do with it is told: whoever changes
//! something or asks for a commit from then on by an error, and once, when it happens, who asked to be told.
//!
//! # Invariants
//! - ABORT-1: the first reason is kept. Later ones are mostly its consequences.
//! - ABORT-2: it is told exactly once, also to somebody who asks after the abort.

use std::fmt;
use std::panic::Location;

use creamery_base::{Error, ErrorKind, Generation, Result, panics};

use crate::commit::CommitPhase;
use crate::engine::Engine;

/// Why nothing can be written any more.
///
/// ```no_run
/// # fn example(engine: &creamery_txn::Engine) {
/// if let Some(abort) = engine.aborted() {
///     println!("{abort}"); // transaction 9 aborted at FILE:LINE:COLUMN, phase write-out: writing 16384 bytes at ...
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abort {
    /// The running transaction, the first that is not durable or the one after it.
    pub transaction: Generation,
    /// What the commit on its way was at; `running` when there was none.
    pub phase: CommitPhase,
    /// File, line and column.
    pub place: String,
    /// What went wrong.
    pub reason: String,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { transaction, phase, place, reason } = self;
        write!(f, "transaction {transaction} aborted at {place}, phase {phase}: {reason}")
    }
}

/// Somebody who wants to be told.
pub(crate) type Tell = Box<dyn FnOnce(&Abort) + Send>;

impl Engine {
    /// The abort, if there was one.
    #[must_use]
    pub fn aborted(&self) -> Option<&Abort> {
        self.aborted.get()
    }

    /// Calls `tell` when the engine aborts, at once if it has already. It runs where the abort happens, perhaps under locks of the
    /// filesystem: it must not ask for anything of it. Only the latest `tell` is kept.
    pub fn tell_abort(&self, tell: impl FnOnce(&Abort) + Send + 'static) {
        *self.tell_abort.lock() = Some(Box::new(tell));
        self.tell();
    }

    /// Stops all writing: an operation died in its middle, so nobody vouches for what is in memory.
    pub fn abort_after_panic(&self, panic: &panics::Panic) {
        self.abort_at(panic.place.clone(), format!("a thread panicked: {}", panic.message));
    }

    /// Stops all writing for good. The first reason is kept (ABORT-1).
    pub(crate) fn abort(&self, error: &Error, place: &Location<'_>) {
        match panics::dying_of() {
            Some(panic) => self.abort_after_panic(&panic),
            None => self.abort_at(place.to_string(), error.to_string()),
        }
    }

    fn abort_at(&self, place: String, reason: String) {
        let first = {
            let (transaction, phase) = (self.generation(), self.pipeline.phase());
            self.aborted.set(Abort { transaction, phase, place, reason })
        };
        if first.is_ok() {
            self.tell();
        }
    }

    /// Whoever takes the teller out calls it (ABORT-2): the one who aborts or the one who asks, whichever comes later.
    fn tell(&self) {
        let Some(abort) = self.aborted() else { return };
        let tell = self.tell_abort.lock().take();
        if let Some(tell) = tell {
            tell(abort);
        }
    }

    /// Puts the transaction and the place of the abort in front of the error that a commit fails with.
    pub(crate) fn named(&self, error: Error) -> Error {
        match self.aborted() {
            // It says so already.
            _ if error.kind() == ErrorKind::ReadOnly => error,
            Some(Abort { transaction, phase, place, .. }) => {
                error.context(format_args!("transaction {transaction} aborted at {place}, phase {phase}"))
            }
            None => error,
        }
    }

    /// Aborts when `done` is an error.
    #[track_caller]
    pub(crate) fn or_abort<T>(&self, done: Result<T>) -> Result<T> {
        if let Err(error) = &done {
            self.abort(error, Location::caller());
        }
        done
    }

    /// Aborts because a thread died with a tree block half edited.
    #[track_caller]
    pub(crate) fn abort_when_poisoned(&self) {
        if self.store().is_poisoned() && self.aborted().is_none() {
            let error = Error::new(ErrorKind::Aborted, "a thread panicked with a tree block half edited");
            self.abort(&error, Location::caller());
        }
    }
}
