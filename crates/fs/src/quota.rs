//! Quotas as people ask for them: what is to change, and what there is.

use creamery_base::{Logical, QgroupId};
use creamery_txn::{QgroupCounters, QuotaMode, QuotaStatus};
use serde::{Deserialize, Serialize};

/// A change of quotas.
///
/// ```
/// use creamery_fs::QuotaChange;
/// assert_ne!(QuotaChange::Enable { simple: false }, QuotaChange::Disable);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum QuotaChange {
    /// Begin to count, and give each subvolume a group. Full quotas begin with a rescan.
    Enable {
        /// An extent counts for the subvolume that made it, not for all who refer to it.
        simple: bool,
    },
    /// Forget all groups.
    Disable,
    /// Count everything anew. It has begun when this returns ([`QuotaReport::rescan`]).
    Rescan,
    /// Make a group.
    Create(QgroupId),
    /// Remove a group that has no members, and whose subvolume is gone.
    Destroy(QgroupId),
    /// Make a group a member of another one.
    Assign {
        /// Of the lower level.
        member: QgroupId,
        /// Of the higher one.
        group: QgroupId,
    },
    /// End that.
    Remove {
        /// Of the lower level.
        member: QgroupId,
        /// Of the higher one.
        group: QgroupId,
    },
    /// Set or clear one limit of a group.
    Limit {
        /// The group; none, that of the subvolume that is asked.
        group: Option<QgroupId>,
        /// The most bytes; none, as many as there are.
        most: Option<u64>,
        /// Of bytes that nobody else has, instead of all.
        exclusive: bool,
    },
    /// Remove the groups of subvolumes that are gone.
    ClearStale,
}

/// A group, as it is shown.
///
/// ```
/// assert_eq!(creamery_fs::QgroupReport::default().referenced, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QgroupReport {
    /// Its name.
    pub id: QgroupId,
    /// Bytes of extents that it reaches.
    pub referenced: u64,
    /// Of those that nobody else reaches.
    pub exclusive: u64,
    /// The most of the former; none, no limit.
    pub max_referenced: Option<u64>,
    /// The most of the latter.
    pub max_exclusive: Option<u64>,
    /// The groups of which it is a member.
    pub parents: Vec<QgroupId>,
    /// Its members.
    pub members: Vec<QgroupId>,
    /// The path of its subvolume from the top level, which is empty for that; none, of other groups and where it is gone.
    pub path: Option<Vec<u8>>,
    /// Whether its subvolume is deleted, and not all of that is dropped.
    pub is_deleted: bool,
}

/// The quotas of a filesystem.
///
/// ```
/// assert!(creamery_fs::QuotaReport::default().groups.is_empty());
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QuotaReport {
    /// Whether there are any.
    pub enabled: bool,
    /// Whether an extent counts for who made it.
    pub simple: bool,
    /// Whether the numbers may be wrong.
    pub inconsistent: bool,
    /// How far a rescan is that runs: everything up to this logical address is counted.
    pub rescan: Option<Logical>,
    /// What ended the last rescan before everything was counted; none, when it ended well, or the filesystem was opened later.
    pub rescan_failure: Option<String>,
    /// In the order of their names.
    pub groups: Vec<QgroupReport>,
}

/// What counting took, since the filesystem was opened.
///
/// ```
/// assert_eq!(creamery_fs::QuotaStatistics::default().known, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct QuotaStatistics {
    /// Changes of extents whose subvolume was known without a walk.
    pub known: u64,
    /// Extents whose references were walked when a transaction closed.
    pub walked: u64,
    /// Extents below blocks that deleted subvolumes shared.
    pub traced: u64,
    /// Extents that rescans counted.
    pub rescanned: u64,
    /// How often a limit was in the way.
    pub exceeded: u64,
}

impl From<QgroupCounters> for QuotaStatistics {
    fn from(counters: QgroupCounters) -> Self {
        let QgroupCounters { known, walked, traced, rescanned, exceeded } = counters;
        Self { known, walked, traced, rescanned, exceeded }
    }
}

impl QuotaReport {
    pub(crate) fn new(
        status: Option<QuotaStatus>,
        rescan_failure: Option<String>,
        groups: Vec<QgroupReport>,
    ) -> Self {
        let Some(QuotaStatus { mode, inconsistent, rescan }) = status else { return Self::default() };
        let simple = mode == QuotaMode::Simple;
        let rescan = rescan.map(Logical::new);
        Self { enabled: true, simple, inconsistent, rescan, rescan_failure, groups }
    }
}
