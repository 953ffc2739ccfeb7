//! Capabilities of programs (`security.capability`) in files that are written around the kernel's cache.
//!
//! A write to a program removes its capabilities. Otherwise any writer could run its own code with them. The kernel removes them
//! itself, except if a file is written with `FOPEN_DIRECT_IO` (Linux 6.18). There the server removes them before the write. It checks once, and
//! again after a process has set capabilities.

use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::Result;

/// Whether an open file has capabilities.
#[derive(Default, Debug)]
pub(crate) struct Capabilities {
    has_none: AtomicBool,
}

impl Capabilities {
    /// Removes the capabilities with `remove`.
    pub(crate) fn take(&self, remove: impl FnOnce() -> Result<()>) -> Result<()> {
        // This comes before the removal, so that capabilities that are set meanwhile stay recorded.
        if self.has_none.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        remove().inspect_err(|_| self.given())
    }

    /// Records that a process has set capabilities, or may have.
    pub(crate) fn given(&self) {
        self.has_none.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::ErrorKind;

    use super::*;

    #[test]
    fn they_are_taken_once_and_again_when_some_were_given() {
        let capabilities = Capabilities::default();
        let mut removed = 0;
        let mut take = |outcome: Result<()>| {
            let before = removed;
            let taken = capabilities.take(|| {
                removed += 1;
                outcome
            });
            (taken.is_ok(), removed - before)
        };
        assert_eq!(take(Err(ErrorKind::ReadOnly.into())), (false, 1));
        assert_eq!(take(Ok(())), (true, 1));
        assert_eq!(take(Ok(())), (true, 0));
        capabilities.given();
        assert_eq!(take(Ok(())), (true, 1));
        assert_eq!(take(Ok(())), (true, 0));
    }
}
