//! How background work goes, as programs read it.

use std::time::Duration;

use creamery_txn::BackgroundReport;
use serde::{Deserialize, Serialize};

/// One sort of background work: what has to be done and nobody waits for.
///
/// ```
/// assert_eq!(creamery_fs::BackgroundStatistics::default().steps, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct BackgroundStatistics {
    /// Its name.
    pub name: String,
    /// Steps that were taken.
    pub steps: u64,
    /// How many of them failed.
    pub failures: u64,
    /// What the last of these said.
    pub last_failure: Option<String>,
    /// How long the step takes that is being taken, microseconds; none when none is.
    pub running_micros: Option<u64>,
}

impl From<BackgroundReport> for BackgroundStatistics {
    fn from(report: BackgroundReport) -> Self {
        let BackgroundReport { name, steps, failures, last_failure, running } = report;
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self { name: name.to_owned(), steps, failures, last_failure, running_micros: running.map(micros) }
    }
}
