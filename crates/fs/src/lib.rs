//! Files and names over the engine's trees: subvolumes, inodes, directories, extended attributes and file data.

mod data;
mod inode;
mod keys;

pub use inode::{FileType, Inode, InodeFlags, InodeItem, RangeGuard, RangeLocks};
