//! Waiting for a state, and the one limit after which something counts as hanging.
//!
//! A test waits for an event, or asks until a state is reached. It asserts no time: a machine that does other work, too, takes as long
//! as it likes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// After so long something hangs. This watches for hangs and asserts nothing: no machine is so busy that work which goes on reaches it.
pub const HANG: Duration = Duration::from_secs(15 * 60);
const PAUSE: Duration = Duration::from_millis(2);

/// Asks until `is` says yes.
///
/// ```
/// let mut asked = 0;
/// creamery_testkit::until("the third question", || {
///     asked += 1;
///     Ok(asked == 3)
/// })
/// .unwrap();
/// ```
///
/// # Errors
/// When `is` fails, and with `what` when it hangs: see [`HANG`].
pub fn until(what: &str, is: impl FnMut() -> Result<bool>) -> Result<()> {
    within(HANG, what, is)
}

fn within(limit: Duration, what: &str, mut is: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is()? {
        if start.elapsed() > limit {
            bail!("it hangs: waited {} s for {what}", limit.as_secs());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// Asks until `is` says yes, in tests that return nothing.
///
/// ```
/// creamery_testkit::wait_until("nothing", || true);
/// ```
///
/// # Panics
/// With `what` when it hangs: see [`HANG`].
#[track_caller]
pub fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    if let Err(error) = until(what, || Ok(is())) {
        panic!("{error}");
    }
}

/// Does `work` on a thread of its own. Returns what it returns, or its panic; nothing when it is still at work after `limit`. A
/// thread that hangs stays behind: it ends with the process.
///
/// ```
/// let ended = creamery_testkit::ends_within(creamery_testkit::HANG, || 7);
/// assert_eq!(ended.unwrap().unwrap(), 7);
/// ```
pub fn ends_within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<std::thread::Result<T>> {
    let (done, outcome) = channel();
    std::thread::spawn(move || {
        // Nobody listens any more only when the time is over.
        let _ = done.send(catch_unwind(AssertUnwindSafe(work)));
    });
    outcome.recv_timeout(limit).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};

    use super::*;

    #[test]
    fn a_hang_ends_with_the_name_of_the_state_that_never_came() {
        let error = within(Duration::ZERO, "the moon", || Ok(false)).unwrap_err();
        assert_eq!(error.to_string(), "it hangs: waited 0 s for the moon");
        assert!(within(Duration::ZERO, "nothing", || Ok(true)).is_ok());
        assert!(until("an answer", || bail!("nobody answers")).is_err());
    }

    #[test]
    fn work_that_hangs_returns_nothing_and_work_that_panics_its_panic() {
        let never = Arc::new(Barrier::new(2));
        let hangs = Arc::clone(&never);
        assert!(ends_within(PAUSE, move || hangs.wait().is_leader()).is_none());
        never.wait();
        let panic = ends_within(HANG, || panic!("it dies")).unwrap().unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"it dies"));
    }
}
