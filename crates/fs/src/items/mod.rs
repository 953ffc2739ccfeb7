//! Items of files as Rust values: what an inode is, the names that entries have, and the references by which an inode knows its
//! names.
//!
//! Nothing here knows an inode object or a lock: `inode_ref` changes a tree that its caller has locked as `names` says.

mod inode_item;
pub(crate) mod inode_ref;
mod name;

pub(crate) use inode_item::FILE_SIZE_MAX;
pub use inode_item::InodeItem;
pub(crate) use name::Name;
