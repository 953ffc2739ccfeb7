//! The library from its users' side.

mod archives;
mod as_in_std;
mod beside_std;
mod close;
mod deleted_in_use;
mod direct;
mod in_place_beside_snapshots;
mod made_directories;
mod moved_subvolumes;
mod paths;
mod scrub_ahead;
mod scrub_kept;
mod shared_leaves;
mod sharing;
mod snapshots;
mod subvolume_ids;
