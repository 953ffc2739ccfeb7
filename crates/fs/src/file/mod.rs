//! A file as it is for everybody who looks: its delayed data over what is in the tree.
//!
//! [`delalloc`](crate::delalloc) has the layers that are in memory, `data` what is in the tree. Here they meet: `read` looks at
//! one after the other, `verified` holds files with fs-verity against their digests, `write` makes pages dirty, `write_back` carries a
//! run from the first to the last.

mod read;
#[cfg(test)]
mod tests;
mod verified;
mod write;
mod write_back;

pub(crate) use read::read;
pub(crate) use write::write;
