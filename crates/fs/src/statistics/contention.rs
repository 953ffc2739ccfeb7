//! Locks that threads found taken.

use creamery_base::lock::contention::{self, Contended};
use serde::{Deserialize, Serialize};

/// Locks of one rank that threads of the process found taken, and waited for. Counted only when that was asked for, for all
/// filesystems of the process together.
///
/// ```
/// assert_eq!(creamery_fs::ContentionStatistics::default().count, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ContentionStatistics {
    /// The rank, by the name that it has in `creamery_base::lock::rank`.
    pub rank: String,
    /// The number of waits.
    pub count: u64,
}

impl ContentionStatistics {
    /// The counts of all ranks of which a lock was found taken.
    pub(super) fn all() -> Vec<Self> {
        let of = |contended: Contended| Self { rank: contended.rank.to_owned(), count: contended.count };
        contention::so_far().into_iter().map(of).collect()
    }
}
