//! What is asked of a mount, and what it answers, as JSON.

use creamery_base::{Error, ObjectId, QgroupId, TreeId};
use creamery_fs::{NewExtents, NewSize, QuotaChange, QuotaReport, Resized, SubvolumeTable};
use serde::{Deserialize, Serialize};

use crate::facts::LiveFacts;
use crate::why::Why;

/// What is asked; which fields count the number of the control says.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Order {
    /// The name in the directory that is asked, any bytes.
    pub(crate) name: Vec<u8>,
    /// A subvolume, instead of a name.
    pub(crate) id: Option<u64>,
    /// Whether nothing may be changed in it.
    pub(crate) read_only: bool,
    /// Also what is in it.
    pub(crate) recursive: bool,
    /// The first transaction that counts.
    pub(crate) since: u64,
    /// The inode and the offset where to go on.
    pub(crate) from: Option<(ObjectId, u64)>,
    /// The quota groups that a new subvolume is in.
    pub(crate) groups: Vec<QgroupId>,
    /// What is to become of quotas.
    pub(crate) quotas: Option<QuotaChange>,
    /// Another label.
    pub(crate) label: Option<Vec<u8>>,
    /// The device that is to have another size, and which.
    pub(crate) resize: Option<(u64, NewSize)>,
    /// A logical address, and whether any of its extent counts.
    pub(crate) logical: Option<(u64, bool)>,
}

/// A subvolume that was deleted.
///
/// ```
/// let gone = creamery_mount::DeletedSubvolume { id: 256, path: b"home".to_vec() };
/// assert_eq!(gone.id, 256);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct DeletedSubvolume {
    /// Its number.
    pub id: u64,
    /// Where it was: from the top level, or its name where that was all that was asked for.
    pub path: Vec<u8>,
}

/// How it went.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    /// Why not.
    pub(crate) failure: Option<String>,
    /// What kind of a failure that is.
    pub(crate) why: Why,
    /// Those that were deleted, also before a failure.
    pub(crate) deleted: Vec<DeletedSubvolume>,
    /// Those that wait for being dropped.
    pub(crate) waiting: Vec<u64>,
    /// The subvolume that was asked, and whether in its root.
    pub(crate) here: Option<(TreeId, bool)>,
    /// All of them.
    pub(crate) table: Option<SubvolumeTable>,
    /// What is new in it.
    pub(crate) extents: Option<NewExtents>,
    /// The quotas there are.
    pub(crate) quotas: Option<QuotaReport>,
    /// What the filesystem is called.
    pub(crate) label: Vec<u8>,
    /// A device that has another size now.
    pub(crate) resized: Option<Resized>,
    /// Flags, bytes and used bytes of block groups of one kind and profile.
    pub(crate) space: Vec<[u64; 3]>,
    /// What is known of the server and its filesystem.
    pub(crate) facts: Option<LiveFacts>,
    /// Who refers to data: subvolume, inode, offset.
    pub(crate) users: Vec<(TreeId, ObjectId, u64)>,
    /// Whether the kernel has been told of all that changed so far.
    pub(crate) told: bool,
}

impl Outcome {
    pub(super) fn failed(error: &Error) -> Self {
        Self { failure: Some(error.without_kind()), why: Why::of_error(error), ..Self::default() }
    }
}
