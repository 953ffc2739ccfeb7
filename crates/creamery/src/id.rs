//! Numbers and addresses that Btrfs has on disk, each a type of its own.

pub use creamery_base::{DevId, Generation, Logical, ObjectId, QgroupId, TreeId};
