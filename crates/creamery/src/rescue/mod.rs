//! What helps where a filesystem cannot be opened, or not for writing: `docs/rescue.md` says what to try, and in which order.

mod find_root;
mod superblocks;

pub use find_root::{Candidate, FindRoot, Roots, find_roots};
pub use superblocks::{SuperRecovery, clear_space_cache, zero_log};
