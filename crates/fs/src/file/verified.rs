//! Reading files with fs-verity: each whole block is verified against the tree of digests before a byte of it is returned.

use creamery_base::{Result, Wait};

use crate::data;
use crate::inode::{Inode, InodeItem};
use crate::verity::VerityFile;

/// Reads like [`data::read`], from a file with fs-verity.
/// Errors: those of [`data::read`]; [`ErrorKind::Unreadable`](creamery_base::ErrorKind::Unreadable) for data that differs from the
/// sealed data, and where items are missing or make no sense. The content of `out` is arbitrary then.
pub(super) fn read(
    inode: &Inode,
    item: &InodeItem,
    offset: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<usize> {
    if offset >= item.size || out.is_empty() {
        return Ok(0);
    }
    let file = VerityFile::open(inode.context().kept_verity(), inode.tree(), inode.id, item, wait)?;
    let read_verified = |at: u64, out: &mut [u8]| {
        let read = data::read(inode, item, at, out, wait)?;
        assert!(read == out.len(), "VERITY-1: what is hashed was read");
        file.verify(at, out)
    };
    let block = file.block_len() as u64;
    let end = item.size.min(offset.saturating_add(out.len() as u64));
    // The last block of the file is whole where the file ends.
    let whole_end = if end == item.size { end } else { end - end % block };
    let mut aside = Vec::new();
    let mut at = offset;
    while at < end {
        if at.is_multiple_of(block) && at < whole_end {
            let part = &mut out[as_len(at - offset)..as_len(whole_end - offset)];
            read_verified(at, part)?;
            at = whole_end;
        } else {
            let start = at - at % block;
            aside.resize(as_len(item.size.min(start + block) - start), 0);
            read_verified(start, &mut aside)?;
            let wanted = &aside[as_len(at - start)..as_len(end.min(start + block) - start)];
            out[as_len(at - offset)..][..wanted.len()].copy_from_slice(wanted);
            at += wanted.len() as u64;
        }
    }
    Ok(as_len(end - offset))
}

/// A length that is bounded by a buffer's, or a block's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
