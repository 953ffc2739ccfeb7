//! Reading: delayed data lies over the extents in the tree.

use creamery_base::{Result, Wait};

use super::verified;
use crate::data;
use crate::inode::{FileInode, InodeItem};
use crate::verity;

/// Reads like [`data::read`], delayed data included; `item` is the inode's item for that state. Data with fs-verity is verified.
pub(crate) fn read(
    inode: &FileInode<'_>,
    item: &InodeItem,
    offset: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<usize> {
    if verity::is_sealed(item) {
        assert!(!inode.delalloc().any(), "VERITY-1: nothing is written to a file that is sealed");
        return verified::read(inode, item, offset, out, wait);
    }
    if !inode.delalloc().any() || offset >= item.size {
        return data::read(inode, item, offset, out, wait);
    }
    let len = usize::try_from(item.size - offset).unwrap_or(usize::MAX).min(out.len());
    let out = &mut out[..len];
    let missing = inode.delalloc().copy_out(offset, out);
    // A range that is not delayed now does not become delayed: the caller has the range.
    for (start, end) in missing {
        let (start, end) = (as_len(start - offset), as_len(end - offset));
        data::read(inode, item, offset + start as u64, &mut out[start..end], wait)?;
    }
    Ok(len)
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
