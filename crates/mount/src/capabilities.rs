//! Capabilities of programs (`security.capability`) in files that are written around the kernel's cache.
//!
//! A write to a program takes its capabilities away. Otherwise any writer could have code of his own run with them. The kernel takes them away
//! by itself, but not where a file is written with `FOPEN_DIRECT_IO` (Linux 6.18). There the server does it before the write. It looks once, and
//! again when somebody has given some.

use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::Result;

/// What is known of the capabilities of a file that is open.
#[derive(Default, Debug)]
pub(crate) struct Capabilities {
    has_none: AtomicBool,
}

impl Capabilities {
    /// Takes them away with `remove`.
    pub(crate) fn take(&self, remove: impl FnOnce() -> Result<()>) -> Result<()> {
        // Said before, so that who gives some meanwhile has the last word.
        if self.has_none.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        remove().inspect_err(|_| self.given())
    }

    /// Somebody has given the file some, or may have.
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
