//! The abort: the end of all writing, with its reason and its place.
//!
//! Committed data stays; later changes are lost. From then on every change and every commit fails with an error. One registered callback
//! learns of the abort once, when it happens.
//!
//! # Invariants
//! - ABORT-1: the first reason is kept. Later ones are mostly its consequences. Shown by `the_first_reason_is_kept`.
//! - ABORT-2: the callback learns of it exactly once, also if it registers after the abort. Shown by `an_abort_is_told_once`,
//!   `who_asks_after_the_abort_is_told_at_once`.

use std::fmt;
use std::io;
use std::sync::OnceLock;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Generation, Result};

use crate::commit::CommitPhase;

/// The reason that nothing can be written any more.
///
/// ```no_run
/// # fn example(engine: &creamery_txn::Engine) {
/// if let Some(abort) = engine.aborted() {
///     println!("{abort}"); // transaction 9 aborted, phase write-out: writing 16384 bytes at ...
/// }
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Abort {
    /// The running transaction, the first that is not durable or the one after it.
    pub transaction: Generation,
    /// The phase of the commit on its way; `running` when there was none.
    pub phase: CommitPhase,
    /// File, line and column.
    pub place: String,
    /// The error.
    pub reason: String,
}

impl fmt::Display for Abort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The place in the source is for debugging, and of no use to a user who wants a file written.
        let Self { transaction, phase, reason, .. } = self;
        write!(f, "transaction {transaction} aborted, phase {phase}: {reason}")
    }
}

/// A callback that learns of the abort.
type Tell = Box<dyn FnOnce(&Abort) + Send>;

/// The error of later operations where the host has no room. It leaves out the words of its kind, which would be one more reason: a filesystem that is
/// read-only because its host is full has room itself. The host's error, as its source, names the remedy for every later caller, too.
#[derive(Debug)]
struct Refusal(Abort, io::Error);

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.1)
    }
}

/// Whether all writing has ended, and the callback.
#[derive(Default)]
pub(crate) struct AbortCell {
    /// With the host's error kind, if the host has no room.
    abort: OnceLock<(Abort, Option<io::ErrorKind>)>,
    tell: RankedMutex<Option<Tell>, { rank::LEAF }>,
}

impl AbortCell {
    /// The abort, if there was one.
    pub(crate) fn get(&self) -> Option<&Abort> {
        self.abort.get().map(|(abort, _)| abort)
    }

    /// Ends all writing for good, unless it has ended already (ABORT-1). `host` is the error kind of the host's system.
    pub(crate) fn set(&self, abort: Abort, host: Option<io::ErrorKind>) {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let full = host.filter(|host| matches!(host, StorageFull | QuotaExceeded | FileTooLarge));
        if self.abort.set((abort, full)).is_ok() {
            self.tell();
        }
    }

    /// Checks that writing goes on. Errors: read-only: all writing has ended.
    pub(crate) fn check(&self) -> Result<()> {
        match self.abort.get() {
            None => Ok(()),
            Some((abort, None)) => Err(Error::new(ErrorKind::ReadOnly, abort.to_string())),
            Some((abort, Some(host))) => {
                let refusal = Refusal(abort.clone(), (*host).into());
                Err(Error::with_source(ErrorKind::ReadOnly, "", refusal))
            }
        }
    }

    /// Calls `tell` when there is an abort, at once if there is one already. Only the latest `tell` is kept.
    pub(crate) fn tell_to(&self, tell: Tell) {
        *self.tell.lock() = Some(tell);
        self.tell();
    }

    /// Calls the callback, which one thread takes out (ABORT-2): the one that aborts or the one that registers, the later of both.
    fn tell(&self) {
        let Some(abort) = self.get() else { return };
        let tell = self.tell.lock().take();
        if let Some(tell) = tell {
            tell(abort);
        }
    }

    /// Puts the transaction and the phase of the abort in front of a commit's error.
    pub(crate) fn named(&self, error: Error) -> Error {
        match self.get() {
            // Its message has both already.
            _ if error.kind() == ErrorKind::ReadOnly => error,
            Some(Abort { transaction, phase, .. }) => {
                error.context(format_args!("transaction {transaction} aborted, phase {phase}"))
            }
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn because(reason: &str) -> Abort {
        let (place, reason) = ("a.rs:1:1".to_owned(), reason.to_owned());
        Abort { transaction: Generation::new(9), phase: CommitPhase::Flush, place, reason }
    }

    /// A callback that counts its calls.
    fn counts(told: &Arc<AtomicUsize>, wants: &'static str) -> Tell {
        let told = Arc::clone(told);
        Box::new(move |abort| {
            assert_eq!(abort.reason, wants);
            told.fetch_add(1, Ordering::Relaxed);
        })
    }

    #[test]
    fn the_first_reason_is_kept() {
        let aborts = AbortCell::default();
        assert!(aborts.get().is_none());
        aborts.set(because("no cable"), None);
        aborts.set(because("no superblock, for want of a cable"), Some(io::ErrorKind::StorageFull));
        assert_eq!(aborts.get(), Some(&because("no cable")));
        let refused = aborts.check().expect_err("it ended");
        assert_eq!((refused.kind(), refused.host()), (ErrorKind::ReadOnly, None));
    }

    #[test]
    fn of_a_full_host_its_words_are_the_last() {
        let aborts = AbortCell::default();
        assert!(aborts.check().is_ok());
        aborts.set(because("no room"), Some(io::ErrorKind::StorageFull));
        let refused = aborts.check().expect_err("it ended");
        assert_eq!((refused.kind(), refused.host()), (ErrorKind::ReadOnly, Some(io::ErrorKind::StorageFull)));
        assert!(refused.to_string().ends_with("phase flush: no room"), "{refused}");
    }

    #[test]
    fn an_abort_is_told_once() {
        let (aborts, told) = (AbortCell::default(), Arc::default());
        aborts.tell_to(counts(&told, "never"));
        aborts.tell_to(counts(&told, "no cable"));
        assert_eq!(told.load(Ordering::Relaxed), 0);
        aborts.set(because("no cable"), None);
        aborts.set(because("no disk"), None);
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn who_asks_after_the_abort_is_told_at_once() {
        let (aborts, told) = (AbortCell::default(), Arc::default());
        aborts.set(because("no cable"), None);
        aborts.tell_to(counts(&told, "no cable"));
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn an_error_of_a_commit_says_where_it_aborted() {
        let aborts = AbortCell::default();
        let error = || Error::new(ErrorKind::Io, "no cable");
        assert_eq!(aborts.named(error()).to_string(), error().to_string());
        aborts.set(because("no cable"), None);
        assert!(aborts.named(error()).to_string().contains("phase flush"));
        let told = Error::new(ErrorKind::ReadOnly, "it says so");
        assert!(!aborts.named(told).to_string().contains("phase"));
    }
}
