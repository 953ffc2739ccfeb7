//! Errors of writing back, reported to each opener once.
//!
//! A write that ended in memory cannot report that its data met an error later, so fsync(2) does. Linux keeps such errors in an
//! `errseq_t`, and this follows its rules: an opener learns of every error that came while it had the file open, once, and of an
//! error before that only if no opener has seen it. Several errors in a row are one report, of the last of them.
//!
//! Errors are numbered. [`WriteErrors`] are those of one file, or of the whole filesystem; an [`ErrSeq`] is how far one opener
//! has got in them. A thread that waits for data which another thread writes back compares two looks
//! ([`WriteErrors::so_far`], [`WriteErrors::since`]); that reports to no opener.
//!
//! # Invariants
//! - ERRSEQ-1: an error leaves memory only when an opener has seen it, or when its file has no name and no opener left.
//!   Shown by `an_error_that_nobody_has_seen_outlives_the_pressure_on_the_table`.
//! - ERRSEQ-2: an opener is behind no error that was not reported: to itself, or to another one before it came.
//!   Shown by `an_error_that_no_opener_has_seen_is_reported_to_the_next_ones`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, Result};

/// The errors of one file, or of the whole filesystem.
#[derive(Default)]
pub(crate) struct WriteErrors {
    /// How many there were; changes under the mutex.
    count: AtomicU64,
    /// The number of the last one that an opener has seen.
    seen: AtomicU64,
    last: RankedMutex<Option<Arc<Error>>, { rank::LEAF }>,
}

/// The number of the last error that an opener need not get any more: it has seen that one, or another opener saw it before this one came.
#[derive(Default)]
pub(crate) struct ErrSeq(AtomicU64);

impl WriteErrors {
    /// Adds an error.
    pub(crate) fn note(&self, error: Arc<Error>) {
        let mut last = self.last.lock();
        *last = Some(error);
        self.count.fetch_add(1, Ordering::Release);
    }

    /// The place of a new opener: behind the errors that others have seen, before the unseen ones (ERRSEQ-2).
    pub(crate) fn opened(&self) -> ErrSeq {
        ErrSeq(AtomicU64::new(self.seen.load(Ordering::Acquire)))
    }

    /// A place behind all errors, for [`Fault::OpenedBehindErrors`](crate::fault::Fault::OpenedBehindErrors).
    pub(crate) fn behind_all(&self) -> ErrSeq {
        ErrSeq(AtomicU64::new(self.so_far()))
    }

    /// Reports the last error to the opener at `place`, unless it has seen that.
    pub(crate) fn report(&self, place: &ErrSeq) -> Result<()> {
        let count = self.so_far();
        if place.0.fetch_max(count, Ordering::AcqRel) >= count {
            return Ok(());
        }
        let before = self.seen.fetch_max(count, Ordering::AcqRel);
        assert!(before <= self.so_far(), "ERRSEQ-2: an opener has seen an error that did not happen");
        Err(self.last())
    }

    /// Whether there is an error that no opener has seen (ERRSEQ-1).
    pub(crate) fn any_unseen(&self) -> bool {
        self.so_far() > self.seen.load(Ordering::Acquire)
    }

    /// How many there were until now.
    pub(crate) fn so_far(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// The last error, if one came after there were `before`. No opener has seen it by that.
    pub(crate) fn since(&self, before: u64) -> Result<()> {
        if self.so_far() > before { Err(self.last()) } else { Ok(()) }
    }

    fn last(&self) -> Error {
        let last = self.last.lock().clone().expect("an error is noted before it is counted");
        Error::with_source(last.kind(), "written data was lost", last)
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::ErrorKind;

    use super::*;

    fn kind(outcome: Result<()>) -> Option<ErrorKind> {
        outcome.err().map(|error| error.kind())
    }

    #[test]
    fn an_error_is_reported_once_to_each_opener_that_may_learn_of_it() {
        let errors = WriteErrors::default();
        let (one, other) = (errors.opened(), errors.opened());
        assert_eq!(kind(errors.report(&one)), None);
        errors.note(Arc::new(ErrorKind::Io.into()));
        let unseen = errors.opened();
        assert!(errors.any_unseen());
        assert_eq!(kind(errors.report(&one)), Some(ErrorKind::Io));
        assert!(!errors.any_unseen());
        let late = errors.opened();
        assert_eq!([&one, &late].map(|place| kind(errors.report(place))), [None; 2]);
        assert_eq!(kind(errors.report(&unseen)), Some(ErrorKind::Io), "nobody had seen it when it came");
        errors.note(Arc::new(ErrorKind::NoSpace.into()));
        for place in [&one, &other, &late, &unseen] {
            assert_eq!(kind(errors.report(place)), Some(ErrorKind::NoSpace));
            assert_eq!(kind(errors.report(place)), None);
        }
    }

    #[test]
    fn a_look_back_reports_to_no_opener() {
        let errors = WriteErrors::default();
        let before = errors.so_far();
        errors.note(Arc::new(ErrorKind::Io.into()));
        assert_eq!([before, errors.so_far()].map(|at| kind(errors.since(at))), [Some(ErrorKind::Io), None]);
        assert!(errors.any_unseen());
    }

    #[test]
    #[should_panic(expected = "ERRSEQ-2")]
    fn an_opener_ahead_of_the_errors_is_a_bug() {
        let errors = WriteErrors::default();
        errors.note(Arc::new(ErrorKind::Io.into()));
        errors.seen.store(7, Ordering::Release);
        let _ = errors.report(&ErrSeq::default());
    }
}
