//! Subvolumes and snapshots: the handle for them, and what is known about each.

pub use creamery_fs::{ListedSubvolume, NamedTree, SubvolumeInfo, SubvolumeTable};

pub use crate::beginning::TOP_LEVEL;

pub use crate::subvolumes::{Snapshot, Subvolumes};
