//! The abort: the end of all writing, with its reason and its place.
//!
//! What was committed stays; what came after is lost, and everybody who has to do with it is told: whoever changes
//! something or asks for a commit from then on by an error, and once, when it happens, who asked to be told.
//!
//! # Invariants
//! - ABORT-1: the first reason is kept. Later ones are mostly its consequences.
//! - ABORT-2: it is told exactly once, also to somebody who asks after the abort.

use std::fmt;
use std::sync::OnceLock;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Generation};

use crate::commit::CommitPhase;

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
type Tell = Box<dyn FnOnce(&Abort) + Send>;

/// Whether all writing has ended, and who is to be told.
#[derive(Default)]
pub(crate) struct AbortCell {
    abort: OnceLock<Abort>,
    tell: RankedMutex<Option<Tell>, { rank::LEAF }>,
}

impl AbortCell {
    /// The abort, if there was one.
    pub(crate) fn get(&self) -> Option<&Abort> {
        self.abort.get()
    }

    /// Ends all writing for good, unless something has already (ABORT-1).
    pub(crate) fn set(&self, abort: Abort) {
        if self.abort.set(abort).is_ok() {
            self.tell();
        }
    }

    /// Calls `tell` when there is an abort, at once if there is. Only the latest `tell` is kept.
    pub(crate) fn tell_to(&self, tell: Tell) {
        *self.tell.lock() = Some(tell);
        self.tell();
    }

    /// Whoever takes the teller out calls it (ABORT-2): the one who aborts or the one who asks, whichever comes later.
    fn tell(&self) {
        let Some(abort) = self.get() else { return };
        let tell = self.tell.lock().take();
        if let Some(tell) = tell {
            tell(abort);
        }
    }

    /// Puts the transaction and the place of the abort in front of the error that a commit fails with.
    pub(crate) fn named(&self, error: Error) -> Error {
        match self.get() {
            // It says so already.
            _ if error.kind() == ErrorKind::ReadOnly => error,
            Some(Abort { transaction, phase, place, .. }) => {
                error.context(format_args!("transaction {transaction} aborted at {place}, phase {phase}"))
            }
            None => error,
        }
    }
}
