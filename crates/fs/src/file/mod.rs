//! The content of a file for all readers: its delayed data over the extents in the tree.
//!
//! [`delalloc`](crate::delalloc) has the layers that are in memory, `data` the extents in the tree. Here they meet: `read` looks at
//! one after the other, `verified` verifies files with fs-verity, `write` makes pages dirty, `write_back` carries a run from the first
//! to the last.

mod read;
#[cfg(test)]
mod tests;
mod verified;
mod write;
mod write_back;

pub(crate) use read::read;
pub(crate) use write::write;
