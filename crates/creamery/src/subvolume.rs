//! Subvolumes and snapshots: their handle, and information about each.

pub use creamery_fs::{ListedSubvolume, NamedTree, SubvolumeInfo, SubvolumeTable};

pub use crate::beginning::TOP_LEVEL;

pub use crate::subvolumes::{Snapshot, Subvolumes};
