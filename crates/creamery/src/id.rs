//! Numbers and addresses of the Btrfs format, each with its own type.

pub use creamery_base::{DevId, Generation, Logical, ObjectId, QgroupId, TreeId};
