//! Tools for a filesystem that cannot be opened, or not for writing: `docs/use/rescue.md` says what to try, and in which order.

mod dry_run;
mod find_root;
pub(crate) mod openable;
mod restore;
mod scan;
mod start;
mod superblocks;
mod tree_roots;
mod way_in;

pub use find_root::{FindRoot, RootCandidate, Roots, find_roots};
pub(crate) use find_root::{candidate_at, tree_block_places};
pub use restore::RestoreOptions;
pub use scan::{FoundFilesystem, FoundSuperblock, Scan, scan, scan_device};
pub use start::Start;
pub use superblocks::{SuperRecovery, clear_space_cache, zero_log};
pub use tree_roots::{TreeRoot, TreeRoots, tree_roots};
pub use way_in::{WayIn, way_in};

pub use creamery_volume::{EarlierRoot, Rescue};

pub use crate::selection::PathPattern;
