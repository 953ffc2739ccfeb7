//! SEEK_DATA and SEEK_HOLE.
//!
//! The answer is found on the map alone: inline and regular extents are data, preallocated space and holes of both
//! kinds are holes, and the end of the file is one more. There is no delayed allocation yet, so what is in the
//! tree is all there is.

use creamery_base::{Result, Wait};

use super::extent_map::{ExtentKind, ExtentMaps};
use crate::inode::{Inode, InodeFlags, InodeItem};

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
    // As many bytes on disk as in the file, and none of them set aside: there is no room for a hole.
    let full = item.nbytes == item.size && !item.flags.contains(InodeFlags::PREALLOC);
    if full {
        return Ok(Some(if want == Want::Data { offset } else { item.size }));
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
