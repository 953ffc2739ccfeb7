//! The bytes of two files that have to be read to know whether the files are equal.
//!
//! A range that both files show of one extent is equal without reading the data, and so are two ranges that read as zeros: holes and
//! preallocated space. Addresses have no meaning across filesystems, so there only zeros are known to be equal.
//!
//! Equal here means that the items of the trees agree. The data behind them may still be unreadable.

use std::ops::Range;

use creamery_base::{Result, Wait};
use creamery_format::Compression;

use super::clone_range::{PIECES_MAX, Pieces, Shared, SourcePart, pieces};
use crate::inode::FileInode;

/// The content of a place of a file, as far as it can be compared without reading data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Zeros,
    /// Inline bytes.
    Inline,
    /// The byte at `offset` of an unpacked extent.
    Extent {
        disk_bytenr: u64,
        disk_num_bytes: u64,
        compression: Compression,
        offset: u64,
    },
}

impl Shown {
    /// The content of `piece` at the byte `at` of the file.
    const fn of(piece: &SourcePart, at: u64) -> Self {
        match piece.what {
            Shared::Hole | Shared::Extent { prealloc: true, .. } => Self::Zeros,
            Shared::Inline => Self::Inline,
            Shared::Extent { extent, .. } => Self::Extent {
                disk_bytenr: extent.disk_bytenr.get(),
                disk_num_bytes: extent.disk_num_bytes,
                compression: extent.compression,
                offset: extent.offset + (at - piece.start),
            },
        }
    }

    /// Whether both are known to be equal. `is_one`: both files are in one filesystem.
    fn is_equal(self, other: Self, is_one: bool) -> bool {
        match self {
            Self::Zeros => other == Self::Zeros,
            Self::Inline => false,
            Self::Extent { .. } => is_one && self == other,
        }
    }
}

/// The first bytes of `range` that the files do not share by their items; `None` when they share all. Delayed bytes have no items,
/// so a file with delayed data shares nothing.
/// Errors: device errors; damage of either tree.
pub(crate) fn first_unshared(
    one: &FileInode<'_>,
    other: &FileInode<'_>,
    range: Range<u64>,
) -> Result<Option<Range<u64>>> {
    if range.is_empty() {
        return Ok(None);
    }
    if one.delalloc().any() || other.delalloc().any() {
        return Ok(Some(range));
    }
    let is_one = std::ptr::eq(one.engine(), other.engine());
    // Both begin and end with whole sectors; the caller reads no further than its range.
    let sector = u64::from(one.engine().sector_size().max(other.engine().sector_size()));
    let (mut at, end) = (range.start - range.start % sector, range.end.next_multiple_of(sector));
    let mut found: Option<u64> = None;
    while at < range.end {
        let (ones, others) = (pieces_of(one, (at, end))?, pieces_of(other, (at, end))?);
        let (mut left, mut right) = (ones.iter().peekable(), others.iter().peekable());
        while let (Some(piece), Some(beside), true) = (left.peek(), right.peek(), at < range.end) {
            let is_equal = Shown::of(piece, at).is_equal(Shown::of(beside, at), is_one);
            match found {
                None if !is_equal => found = Some(at),
                Some(start) if is_equal => return Ok(clip(&range, start, at)),
                _ => {}
            }
            at = piece.end.min(beside.end);
            left.next_if(|piece| piece.end <= at);
            right.next_if(|beside| beside.end <= at);
        }
        if let Some(start) = found {
            return Ok(clip(&range, start, at));
        }
    }
    Ok(None)
}

/// The first pieces of a file, with its items held only while they are looked at.
fn pieces_of(inode: &FileInode<'_>, range: (u64, u64)) -> Result<Pieces> {
    let _still = inode.hold_extents(Wait::Yes)?;
    pieces(inode, range, PIECES_MAX)
}

fn clip(range: &Range<u64>, start: u64, end: u64) -> Option<Range<u64>> {
    Some(start.max(range.start)..end.min(range.end))
}
