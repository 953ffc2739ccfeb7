//! Files with fs-verity: a read returns the bytes that were sealed, or an error.
//!
//! Such a file has a descriptor with the digest of a Merkle tree's root, and the tree, whose leaves are digests of the file's blocks; both
//! lie in items beside those of its data (`creamery_format::VerityDescriptor`). A read (`file/verified`) reads whole blocks, hashes each,
//! and compares the hash with the digest in the tree. A block of the tree is trusted when its own digest is the one in the block above, up
//! to the descriptor, which is trusted: the user compares the [digest](crate::OpenFile::verity) of the file with the expected one.
//!
//! The file's data never changes any more: it cannot be opened for writing, or cut. Its names and attributes can.
//!
//! # Invariants
//! - VERITY-1: every returned byte of such a file matches its tree, holes and inline data included.
//!   Shown by `a_changed_byte_anywhere_is_an_error_and_the_rest_is_read`.
//! - VERITY-2: kept data was verified, and is of the inode that it is kept for: numbers of inodes are not used again (INODE-3).
//!   Shown by `a_changed_tree_or_descriptor_is_an_error`.
//!
//! # Locking
//! Kept data has locks of its own, under which nothing else is done.
//!
//! # References
//! `Documentation/filesystems/fsverity.rst` of Linux, and `linux/btrfs_tree.h` for the items.

mod digest;
mod file;
mod items;
mod kept;
mod sealed;
#[cfg(test)]
mod tests;

use creamery_format::InodeFlags;

use crate::items::InodeItem;

pub use digest::VerityInfo;
pub(crate) use digest::info;
pub(crate) use file::VerityFile;
pub(crate) use items::remove_stale;
pub(crate) use kept::KeptVerity;

/// Whether a file's data is to be verified.
pub(crate) const fn is_sealed(item: &InodeItem) -> bool {
    item.flags.contains(InodeFlags::VERITY)
}
