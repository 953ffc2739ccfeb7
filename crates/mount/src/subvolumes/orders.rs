//! Orders to a mount, and its answers, as JSON.

use creamery_base::{Error, ObjectId, QgroupId, TreeId};
use creamery_fs::{NewExtents, NewSize, QuotaChange, QuotaReport, Resized, SubvolumeTable};
use serde::{Deserialize, Serialize};

use crate::facts::LiveFacts;
use crate::why::Why;

/// An order; the number of the control says which fields count.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SubvolumeOrder {
    /// The name in the directory that got the order, any bytes.
    pub(crate) name: Vec<u8>,
    /// The number of a subvolume, instead of a name.
    pub(crate) id: Option<u64>,
    /// Whether the subvolume is or becomes read-only.
    pub(crate) read_only: bool,
    /// Also deletes nested subvolumes.
    pub(crate) recursive: bool,
    /// The first transaction that counts.
    pub(crate) since: u64,
    /// The inode and the offset to continue at.
    pub(crate) from: Option<(ObjectId, u64)>,
    /// The quota groups of a new subvolume.
    pub(crate) groups: Vec<QgroupId>,
    /// The change of the quotas.
    pub(crate) quotas: Option<QuotaChange>,
    /// The new label.
    pub(crate) label: Option<Vec<u8>>,
    /// A device number, and the new size on that device.
    pub(crate) resize: Option<(u64, NewSize)>,
    /// A logical address, and whether the whole extent counts.
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
    /// The number of the subvolume.
    pub id: u64,
    /// The path of the subvolume from the top level, or only its name if the order had a name and was not recursive.
    pub path: Vec<u8>,
}

/// The result of an order.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Outcome {
    /// The error message, if it failed.
    pub(crate) failure: Option<String>,
    /// The kind of the failure.
    pub(crate) why: Why,
    /// The deleted subvolumes, also those before a failure.
    pub(crate) deleted: Vec<DeletedSubvolume>,
    /// Deleted subvolumes that are not yet dropped.
    pub(crate) waiting: Vec<u64>,
    /// The subvolume of the directory, and whether the directory is its root.
    pub(crate) here: Option<(TreeId, bool)>,
    /// All subvolumes.
    pub(crate) table: Option<SubvolumeTable>,
    /// The new extents of a subvolume.
    pub(crate) extents: Option<NewExtents>,
    /// The quotas.
    pub(crate) quotas: Option<QuotaReport>,
    /// The label of the filesystem.
    pub(crate) label: Vec<u8>,
    /// The device with a new size.
    pub(crate) resized: Option<Resized>,
    /// Flags, bytes and used bytes of block groups, one entry for each kind and profile.
    pub(crate) space: Vec<[u64; 3]>,
    /// Information about the server and its filesystem.
    pub(crate) facts: Option<LiveFacts>,
    /// References to data: subvolume, inode, offset in bytes.
    pub(crate) users: Vec<(TreeId, ObjectId, u64)>,
    /// Whether the kernel was notified of all changes so far.
    pub(crate) told: bool,
}

impl Outcome {
    pub(super) fn failed(error: &Error) -> Self {
        Self { failure: Some(error.without_kind()), why: Why::of_error(error), ..Self::default() }
    }
}
