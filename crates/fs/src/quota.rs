//! Quotas as users ask for them: changes, and reports.

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
        /// An extent counts for the subvolume that made it, not for all subvolumes that refer to it.
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
        /// The group of the lower level.
        member: QgroupId,
        /// The group of the higher level.
        group: QgroupId,
    },
    /// End the membership of a group in another one.
    Remove {
        /// The group of the lower level.
        member: QgroupId,
        /// The group of the higher level.
        group: QgroupId,
    },
    /// Set or clear one limit of a group.
    Limit {
        /// The group; `None` for that of the subvolume that is asked.
        group: Option<QgroupId>,
        /// The most bytes; `None` for no limit.
        most: Option<u64>,
        /// The limit is on bytes that no other group reaches, instead of all.
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
    /// The number of the group.
    pub id: QgroupId,
    /// Bytes of extents that it reaches.
    pub referenced: u64,
    /// Bytes of those extents that no other group reaches.
    pub exclusive: u64,
    /// The limit of `referenced`; `None` for no limit.
    pub max_referenced: Option<u64>,
    /// The limit of `exclusive`; `None` for no limit.
    pub max_exclusive: Option<u64>,
    /// The groups of which it is a member.
    pub parents: Vec<QgroupId>,
    /// The members of the group.
    pub members: Vec<QgroupId>,
    /// The path of its subvolume from the top level, which has an empty one; `None` for other groups and where the subvolume is
    /// gone.
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
    /// Whether quotas are enabled.
    pub enabled: bool,
    /// Whether an extent counts for the subvolume that made it.
    pub simple: bool,
    /// Whether the numbers may be wrong.
    pub inconsistent: bool,
    /// The progress of a running rescan: everything up to this logical address is counted.
    pub rescan: Option<Logical>,
    /// The error that ended the last rescan before everything was counted; `None` when it ended well, or the filesystem was opened
    /// later.
    pub rescan_failure: Option<String>,
    /// The groups, in the order of their names.
    pub groups: Vec<QgroupReport>,
}

/// The cost of counting, since the filesystem was opened.
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
    /// How often a limit refused an operation.
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
