//! SEEK_DATA and SEEK_HOLE.
//!
//! The answer is found on the map alone: inline and regular extents are data, preallocated space and holes of both
//! kinds are holes, and the end of the file is one more. What is delayed is looked at before (`file::seek`).
//!
//! What the inode says is no shortcut: that a file has as many bytes on disk as in it does not say that none of them are set aside. The
//! flag PREALLOC is fallocate's; where Linux clones such space the target does not get it.

use creamery_base::{Result, Wait};

use super::extent_map::{ExtentKind, ExtentMaps};
use crate::inode::{Inode, InodeItem};

/// What is looked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    Data,
    Hole,
}

/// The first place at or behind `offset` that is data, or a hole; none when there is none before the end, or the
/// offset is not in the file. The end itself is a hole.
pub(crate) fn seek(inode: &Inode, item: &InodeItem, offset: u64, want: Want) -> Result<Option<u64>> {
    if offset >= item.size {
        return Ok(None);
    }
    let sector = u64::from(inode.engine().sector_size());
    let range = (offset - offset % sector, item.size.next_multiple_of(sector));
    let _still = inode.hold_extents(Wait::Yes)?;
    let mut maps = ExtentMaps::new(inode.tree(), inode.id.ino, range, sector, Wait::Yes)?;
    while let Some(map) = maps.next()? {
        let found = match map.kind {
            ExtentKind::Hole | ExtentKind::Prealloc => Want::Hole,
            ExtentKind::Inline | ExtentKind::Data(_) | ExtentKind::Compressed(_) => Want::Data,
        };
        if found == want {
            return Ok(Some(map.start.max(offset)));
        }
    }
    Ok((want == Want::Hole).then_some(item.size))
}
