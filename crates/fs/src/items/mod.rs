//! Items of files as Rust values: inode items, the names of directory entries, and the references from an inode to its names.
//!
//! This folder does not depend on inode objects or locks: `inode_ref` changes a tree that its caller has locked as `names`
//! requires.

mod inode_item;
pub(crate) mod inode_ref;
mod name;

pub(crate) use inode_item::FILE_SIZE_MAX;
pub use inode_item::InodeItem;
pub(crate) use name::Name;
