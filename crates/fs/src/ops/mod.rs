//! Operations on one inode that need its data: setting attributes, deleting its items, and reading a symbolic link.
//!
//! They are functions, not methods of `Inode`: a call is a path, so `cargo xtask tidy` sees that they lie above `data` and `inode`.

pub(crate) mod eviction;
mod set_attributes;
mod symlink;

pub use set_attributes::{SetAttributes, Time, WritingUser};
pub(crate) use set_attributes::{kill_privileges, set_attributes};
pub(crate) use symlink::{check_target, read_link};
