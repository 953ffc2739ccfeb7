//! Operations on one inode that need its data: deleting its items, and reading a symbolic link.
//!
//! They are functions, not methods of `Inode`: a call is a path, so `cargo xtask tidy` sees that they stand above `data` and `inode`.

pub(crate) mod eviction;
mod symlink;

pub(crate) use symlink::{check_target, read_link};
