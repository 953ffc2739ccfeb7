//! Reading and seeking: what is delayed lies over what is in the tree.

use creamery_base::{Result, Wait};

use crate::data::{self, Want};
use crate::inode::{Inode, InodeItem};

/// As [`data::read`], of the file as it is; `item` says what that is.
pub(crate) fn read(
    inode: &Inode,
    item: &InodeItem,
    offset: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<usize> {
    if !inode.delalloc().any() || offset >= item.size {
        return data::read(inode, item, offset, out, wait);
    }
    let len = usize::try_from(item.size - offset).unwrap_or(usize::MAX).min(out.len());
    let out = &mut out[..len];
    let missing = inode.delalloc().copy_out(offset, out);
    // What is not delayed now does not become so: the caller has the range.
    for (start, end) in missing {
        let (start, end) = (as_len(start - offset), as_len(end - offset));
        data::read(inode, item, offset + start as u64, &mut out[start..end], wait)?;
    }
    Ok(len)
}

/// As [`data::seek`], of the file as it is.
pub(crate) fn seek(inode: &Inode, item: &InodeItem, offset: u64, want: Want) -> Result<Option<u64>> {
    if offset >= item.size {
        return Ok(None);
    }
    // First what is delayed: what is complete meanwhile is in the tree by then.
    let delayed = if inode.delalloc().any() { inode.delalloc().ranges(offset) } else { Vec::new() };
    match want {
        Want::Data => {
            let first = delayed.first().map(|(start, _)| (*start).max(offset)).filter(|at| *at < item.size);
            let found = data::seek(inode, item, offset, want)?;
            Ok([first, found].into_iter().flatten().min())
        }
        Want::Hole => {
            let mut at = offset;
            loop {
                let Some(hole) = data::seek(inode, item, at, want)? else { return Ok(Some(item.size)) };
                match delayed.iter().find(|(start, end)| *start <= hole && hole < *end) {
                    Some((_, end)) if hole < item.size => at = *end,
                    _ => return Ok(Some(hole)),
                }
            }
        }
    }
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
