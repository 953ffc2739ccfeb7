//! Direct requests that have to go through memory.

use creamery_base::{Result, Wait};

use crate::counters::Direct;
use crate::data::extent_map::{ExtentKind, ExtentMaps};
use crate::inode::{FileInode, InodeItem};
use crate::verity;

/// The reason why a request goes through memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Buffered {
    /// The request begins or ends within a sector.
    Misaligned,
    /// The data is stored in the tree itself.
    Inline,
    /// The data is compressed.
    Compressed,
    /// The request reads a file with fs-verity, where whole blocks are verified against their digests.
    Sealed,
}

impl Buffered {
    /// The reason, if there is one, for a read of so many bytes at `offset`. Compressed data is unpacked into the caller's buffer.
    pub(crate) fn of_read(
        file: &FileInode<'_>,
        item: &InodeItem,
        (offset, len): (u64, usize),
    ) -> Option<Self> {
        let sector = u64::from(file.engine().sector_size());
        match () {
            () if verity::is_sealed(item) => Some(Self::Sealed),
            () if !offset.is_multiple_of(sector) || !(len as u64).is_multiple_of(sector) => {
                Some(Self::Misaligned)
            }
            () => None,
        }
    }

    /// Counts a request.
    pub(crate) fn count(self, direct: &Direct) {
        Direct::count(match self {
            Self::Misaligned => &direct.buffered_misaligned,
            Self::Inline => &direct.buffered_inline,
            Self::Compressed => &direct.buffered_compressed,
            Self::Sealed => &direct.buffered_verity,
        });
    }
}

/// The reason, if there is one, why a range without delayed data cannot be written over directly.
/// Errors: device errors; damage.
pub(super) fn in_the_way(file: &FileInode<'_>, range: (u64, u64)) -> Result<Option<Buffered>> {
    let sector = u64::from(file.engine().sector_size());
    let _still = file.hold_extents(Wait::Yes)?;
    let mut maps = ExtentMaps::new(file.tree(), file.id.ino, range, sector, Wait::Yes)?;
    while let Some(map) = maps.next()? {
        match map.kind {
            ExtentKind::Inline => return Ok(Some(Buffered::Inline)),
            ExtentKind::Compressed(_) => return Ok(Some(Buffered::Compressed)),
            ExtentKind::Hole | ExtentKind::Prealloc | ExtentKind::Data(_) => {}
        }
    }
    Ok(None)
}
