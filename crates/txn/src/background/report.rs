//! Reports of the background work.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Background;

/// The state of one background work.
///
/// ```
/// let report = creamery_txn::BackgroundReport { name: "cleaner", steps: 7, ..Default::default() };
/// assert_eq!(report.to_string(), "cleaner: 7 steps");
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BackgroundReport {
    /// Its name.
    pub name: &'static str,
    /// Steps taken.
    pub steps: u64,
    /// Failed steps, and a panic in `due`.
    pub failures: u64,
    /// The message of the last failure.
    pub last_failure: Option<String>,
    /// How long the present step has taken.
    pub running: Option<Duration>,
}

impl fmt::Display for BackgroundReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, steps, failures, last_failure, running } = self;
        write!(f, "{name}: {steps} steps")?;
        if let Some(running) = running {
            write!(f, ", one for {:.1} s now", running.as_secs_f64())?;
        }
        match last_failure {
            Some(failure) => write!(f, ", {failures} failed, the last one: {failure}"),
            None => Ok(()),
        }
    }
}

impl Background {
    /// The state of the background work, one report for each work.
    #[must_use]
    pub fn report(&self) -> Vec<BackgroundReport> {
        let now = self.env.monotonic();
        let works = self.works.read().clone();
        let running = |slot: &super::Slot| {
            let begun = Duration::from_micros(slot.begun.load(Ordering::Relaxed));
            (slot.at_it.load(Ordering::Relaxed) > 0).then(|| now.saturating_sub(begun))
        };
        let report = |slot: &super::Slot| BackgroundReport {
            name: slot.work.name(),
            steps: slot.steps.load(Ordering::Relaxed),
            failures: slot.failures.load(Ordering::Relaxed),
            last_failure: slot.last_failure.lock().clone(),
            running: running(slot),
        };
        works.iter().map(|slot| report(slot)).collect()
    }
}
