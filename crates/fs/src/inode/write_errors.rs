//! Failures of writing back, told once to each who had the file open.
//!
//! A write that ended in memory cannot tell that its data met a failure later, so fsync does: to every handle that was open
//! then, once, whoever asks first and however many have it open. Failures are numbered; a handle knows up to which it was told
//! or had nothing to do with. Of several failures since then the last one is told.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Result};

/// The failures of one file, or of all.
#[derive(Default)]
pub(crate) struct WriteErrors {
    count: AtomicU64,
    last: RankedMutex<Option<(ErrorKind, String)>, { rank::LEAF }>,
}

/// Up to which failure somebody was told.
pub(crate) struct Told(AtomicU64);

impl Told {
    /// For somebody who wants to hear of all.
    pub(crate) const fn of_nothing() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl WriteErrors {
    /// One more.
    pub(crate) fn note(&self, error: &Error) {
        *self.last.lock() = Some((error.kind(), format!("written data was lost: {error}")));
        self.count.fetch_add(1, Ordering::Release);
    }

    /// For somebody who comes now: what was before is none of his business.
    pub(crate) fn told_so_far(&self) -> Told {
        Told(AtomicU64::new(self.count.load(Ordering::Acquire)))
    }

    /// The last failure, if `told` has not heard of it.
    pub(crate) fn tell(&self, told: &Told) -> Result<()> {
        let count = self.count.load(Ordering::Acquire);
        if told.0.fetch_max(count, Ordering::AcqRel) >= count {
            return Ok(());
        }
        let (kind, what) = self.last.lock().clone().expect("a failure that was counted was noted first");
        Err(Error::new(kind, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_once_to_each_who_was_there() {
        let errors = WriteErrors::default();
        let (one, other) = (errors.told_so_far(), errors.told_so_far());
        assert!(errors.tell(&one).is_ok());
        errors.note(&Error::from(ErrorKind::Io));
        let late = errors.told_so_far();
        assert_eq!(errors.tell(&one).map_err(|error| error.kind()), Err(ErrorKind::Io));
        assert!(errors.tell(&one).is_ok() && errors.tell(&late).is_ok());
        errors.note(&Error::from(ErrorKind::NoSpace));
        for told in [&one, &other, &late] {
            assert_eq!(errors.tell(told).map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
            assert!(errors.tell(told).is_ok());
        }
    }
}
