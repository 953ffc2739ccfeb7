//! A limit of time for work that may hang, and what it was doing then.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

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

/// Does `work` on a thread of its own; panics with what it was doing when it takes longer than `limit`. A thread that hangs
/// stays behind: it ends with the process.
///
/// ```
/// use std::time::Duration;
/// assert_eq!(creamery_sim::watched(Duration::from_secs(60), |_| 7), 7);
/// ```
///
/// # Panics
/// When it takes too long, or where `work` does.
pub fn watched<T: Send + 'static>(limit: Duration, work: impl FnOnce(&Watch) -> T + Send + 'static) -> T {
    let watch = Arc::new(Watch::default());
    let (done, outcome) = channel();
    let theirs = Arc::clone(&watch);
    std::thread::spawn(move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(|| work(&theirs))));
    });
    match outcome.recv_timeout(limit) {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(RecvTimeoutError::Timeout) => {
            panic!("it hangs: after {} s it is still doing {}", limit.as_secs(), watch.doing.lock())
        }
        Err(RecvTimeoutError::Disconnected) => panic!("it vanished while doing {}", watch.doing.lock()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn work_that_hangs_is_told_with_what_it_was_doing() {
        let never = Arc::new(Barrier::new(2));
        let hangs = Arc::clone(&never);
        let panic = catch_unwind(AssertUnwindSafe(|| {
            watched(Duration::from_millis(50), move |watch| {
                watch.doing(&"a write");
                hangs.wait();
            });
        }));
        never.wait();
        let told = panic.expect_err("it hung");
        let text = told.downcast_ref::<String>().expect("words");
        assert!(text.contains("it hangs") && text.contains("a write"), "{text}");
    }
}
