//! Statistics of background work, in a public form.

use std::time::Duration;

use creamery_txn::BackgroundReport;
use serde::{Deserialize, Serialize};

/// Statistics of one kind of background work: work that has to be done and that no caller waits for.
///
/// ```
/// assert_eq!(creamery_fs::BackgroundStatistics::default().steps, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BackgroundStatistics {
    /// The name of the work.
    pub name: String,
    /// Steps so far.
    pub steps: u64,
    /// Steps that failed.
    pub failures: u64,
    /// The error of the last failed step.
    pub last_failure: Option<String>,
    /// How long the present step has run, microseconds; `None` if no step runs.
    pub running_micros: Option<u64>,
}

impl From<BackgroundReport> for BackgroundStatistics {
    fn from(report: BackgroundReport) -> Self {
        let BackgroundReport { name, steps, failures, last_failure, running } = report;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self { name: name.to_owned(), steps, failures, last_failure, running_micros: running.map(micros) }
    }
}
