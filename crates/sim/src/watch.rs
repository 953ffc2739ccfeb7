//! Work that may hang, and what it was doing then.

use std::panic::resume_unwind;
use std::sync::Arc;

use creamery_testkit::{HANG, ends_within};
use parking_lot::Mutex;

/// Is told what is being done.
///
/// ```
/// let watch = creamery_sim::Watch::default();
/// watch.doing(&"opening");
/// ```
#[derive(Default, Debug)]
pub struct Watch {
    doing: Mutex<String>,
}

impl Watch {
    /// This is being done from now on.
    pub fn doing(&self, what: &dyn std::fmt::Debug) {
        *self.doing.lock() = format!("{what:?}");
    }
}

/// Does `work` on a thread of its own; panics with what it was doing when it hangs, see [`HANG`]. A thread that hangs
/// stays behind: it ends with the process.
///
/// ```
/// assert_eq!(creamery_sim::watched(|_| 7), 7);
/// ```
///
/// # Panics
/// When it hangs, or where `work` does.
pub fn watched<T: Send + 'static>(work: impl FnOnce(&Watch) -> T + Send + 'static) -> T {
    let watch = Arc::new(Watch::default());
    let theirs = Arc::clone(&watch);
    outcome(ends_within(HANG, move || work(&theirs)), &watch)
}

fn outcome<T>(ended: Option<std::thread::Result<T>>, watch: &Watch) -> T {
    match ended {
        Some(Ok(value)) => value,
        Some(Err(panic)) => resume_unwind(panic),
        None => panic!("it hangs: after {} s it is still doing {}", HANG.as_secs(), watch.doing.lock()),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn work_that_hangs_is_told_with_what_it_was_doing() {
        let watch = Watch::default();
        watch.doing(&"a write");
        let panic = catch_unwind(AssertUnwindSafe(|| outcome::<()>(None, &watch)));
        let told = panic.expect_err("it hung");
        let text = told.downcast_ref::<String>().expect("words");
        assert!(text.contains("it hangs") && text.contains("a write"), "{text}");
    }
}
