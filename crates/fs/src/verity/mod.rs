//! Files with fs-verity: what is read of them is what it was when they were sealed, or an error.
//!
//! Such a file has a descriptor with the digest of a Merkle tree's root, and the tree, whose leaves are digests of the file's blocks;
//! both lie in items beside those of its data (`creamery_format::VerityDescriptor`). Whoever reads has whole blocks read, hashes
//! each, and compares with the digest that the tree has for it. A block of the tree is believed when its own digest is the one
//! in the block above, up to the descriptor, which is believed: who wants to know whether it is the right one asks for the
//! [digest](crate::OpenFile::verity) of the file.
//!
//! The file's data never changes any more: it cannot be opened for writing, or cut. Its names and attributes can.
//!
//! # Invariants
//! - VERITY-1: no byte of such a file is returned that its tree does not vouch for, holes and data in the tree included.
//!   Shown by `a_changed_byte_anywhere_is_an_error_and_the_rest_is_read`.
//! - VERITY-2: what is kept was verified, and is of the inode that it is kept for: numbers of inodes are not used again (INODE-3).
//!   Shown by `a_changed_tree_or_descriptor_is_an_error`.
//!
//! # Locking
//! What is kept has locks of its own, under which nothing else is done.
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

use creamery_base::{Result, Wait};
use creamery_format::InodeFlags;

use self::file::VerityFile;
use crate::data;
use crate::inode::{Inode, InodeItem};

pub use digest::VerityInfo;
pub(crate) use items::remove_stale;
pub(crate) use kept::KeptVerity;

/// Whether a file's data is to be verified.
pub(crate) const fn is_sealed(item: &InodeItem) -> bool {
    item.flags.contains(InodeFlags::VERITY)
}

/// As [`data::read`], of a file with fs-verity.
/// Errors: as there; [`ErrorKind::Unreadable`](creamery_base::ErrorKind::Unreadable) for what is not as it was, and where items are
/// missing or make no sense; what `out` has then is arbitrary.
pub(crate) fn read(
    inode: &Inode,
    item: &InodeItem,
    offset: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<usize> {
    if offset >= item.size || out.is_empty() {
        return Ok(0);
    }
    let file = VerityFile::open(inode, item, wait)?;
    let block = file.block_len() as u64;
    let end = item.size.min(offset.saturating_add(out.len() as u64));
    // The last block of the file is whole where the file ends.
    let whole_end = if end == item.size { end } else { end - end % block };
    let mut aside = Vec::new();
    let mut at = offset;
    while at < end {
        if at.is_multiple_of(block) && at < whole_end {
            let part = &mut out[as_len(at - offset)..as_len(whole_end - offset)];
            read_verified(item, &file, at, part)?;
            at = whole_end;
        } else {
            let start = at - at % block;
            aside.resize(as_len(item.size.min(start + block) - start), 0);
            read_verified(item, &file, start, &mut aside)?;
            let wanted = &aside[as_len(at - start)..as_len(end.min(start + block) - start)];
            out[as_len(at - offset)..][..wanted.len()].copy_from_slice(wanted);
            at += wanted.len() as u64;
        }
    }
    Ok(as_len(end - offset))
}

/// Reads whole blocks.
fn read_verified(item: &InodeItem, file: &VerityFile<'_>, at: u64, out: &mut [u8]) -> Result<()> {
    let read = data::read(file.inode, item, at, out, file.wait)?;
    assert!(read == out.len(), "VERITY-1: what is hashed was read");
    file.verify(at, out)
}

/// A length that is bounded by a buffer's, or a block's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
