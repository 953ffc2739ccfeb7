//! Waiting for other users of an image, if the program allows its opens to wait.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use creamery_base::gate::{self, Reason};
use creamery_base::{Error, ErrorKind, Result};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The program's setting.
static PATIENCE: OnceLock<Patience> = OnceLock::new();

struct Patience {
    most: Duration,
    tell: fn(&Error),
    go_on: fn() -> bool,
    /// When the first wait began.
    begun: OnceLock<Instant>,
}

/// From now on opens wait for an image that is in use, all opens of this process together at most `most`; then opening fails as
/// usual. `tell` is called once, when the first wait begins, and `go_on` before each attempt: if it returns false, opening fails as
/// interrupted. A second call changes nothing.
///
/// ```
/// use std::time::Duration;
/// creamery_device::wait_for_users(Duration::from_secs(10), |error| eprintln!("waiting: {error}"), || true);
/// ```
pub fn wait_for_users(most: Duration, tell: fn(&Error), go_on: fn() -> bool) {
    let patience = Patience { most, tell, go_on, begun: OnceLock::new() };
    let _ = PATIENCE.set(patience); // the first one counts
}

/// Repeats `attempt` while the image is in use and the program waits for that.
pub(crate) fn patiently<T>(attempt: impl FnMut() -> Result<T>) -> Result<T> {
    patiently_as(PATIENCE.get(), attempt)
}

fn patiently_as<T>(patience: Option<&Patience>, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        let (error, patience) = match (attempt(), patience) {
            (Err(error), Some(patience)) if error.kind() == ErrorKind::Busy => (error, patience),
            (outcome, _) => return outcome,
        };
        patience.pause(error)?;
    }
}

impl Patience {
    /// Waits a moment. Errors: `error`, if the time is over; interrupted.
    fn pause(&self, error: Error) -> Result<()> {
        if self.most.is_zero() {
            return Err(error);
        }
        let begun = *self.begun.get_or_init(|| {
            (self.tell)(&error);
            Instant::now()
        });
        if !(self.go_on)() {
            return Err(ErrorKind::Interrupted.into());
        }
        let left = self.most.saturating_sub(begun.elapsed());
        if left.is_zero() {
            return Err(error);
        }
        gate::passing(Reason::Device, || std::thread::sleep(left.min(PAUSE)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(seconds: u64, go_on: fn() -> bool) -> Patience {
        Patience { most: Duration::from_secs(seconds), tell: |_| {}, go_on, begun: OnceLock::new() }
    }

    /// Runs attempts of which `times` find the image in use. Returns the outcome and the number of attempts.
    fn attempts(patience: Option<&Patience>, times: u32) -> (Result<()>, u32) {
        let mut made = 0;
        let outcome = patiently_as(patience, || {
            made += 1;
            if made > times { Ok(()) } else { Err(ErrorKind::Busy.into()) }
        });
        (outcome, made)
    }

    #[test]
    fn an_image_in_use_is_waited_for_where_the_program_said_so() {
        let (outcome, made) = attempts(Some(&patience(1 << 20, || true)), 3);
        assert!(outcome.is_ok() && made == 4, "{made}");
        for none in [None, Some(&patience(0, || true))] {
            let (outcome, made) = attempts(none, 3);
            assert_eq!((outcome.map_err(|error| error.kind()), made), (Err(ErrorKind::Busy), 1));
        }
        let (outcome, made) = attempts(Some(&patience(1 << 20, || false)), 3);
        assert_eq!((outcome.map_err(|error| error.kind()), made), (Err(ErrorKind::Interrupted), 1));
    }

    #[test]
    fn other_errors_are_not_waited_for() {
        let mut made = 0;
        let outcome: Result<()> = patiently_as(Some(&patience(1 << 20, || true)), || {
            made += 1;
            Err(ErrorKind::NotFound.into())
        });
        assert_eq!((outcome.map_err(|error| error.kind()), made), (Err(ErrorKind::NotFound), 1));
    }
}
