//! Subvolumes and snapshots: what is known about them.

pub use creamery_fs::{ListedSubvolume, NamedTree, SubvolumeInfo, SubvolumeTable};

pub use crate::beginning::TOP_LEVEL;
