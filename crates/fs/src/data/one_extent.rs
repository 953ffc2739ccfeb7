//! Whether a range of a file may be written in place as a whole, for a write that must not wait, and is never made in part.
//!
//! The check is that of `nocow`, at one item, and it returns the reason for a refusal.

use creamery_base::{ErrorKind, Result, Wait};
use creamery_format::Compression;
use creamery_format::file_extent::{EXTENT_LEN_MAX, FileExtentItem};

use super::extent_map::ExtentItems;
use super::nocow::{Candidate, Decided, NocowExtent};
use crate::counters::{Nocow, Refusal};
use crate::inode::lock::HeldExtents;
use crate::inode::{FileInode, InodeFlags, InodeItem};
use crate::subvolume::InPlaceWriter;

/// The extent that contains a range, and the writer that keeps snapshots waiting for the write.
pub(crate) struct OneExtent {
    pub(super) extent: NocowExtent,
    pub(super) writer: InPlaceWriter,
}

impl OneExtent {
    /// Whether it is preallocated, and has no data yet.
    pub(crate) const fn is_prealloc(&self) -> bool {
        self.extent.item.is_prealloc
    }
}

/// The result of a look, or `None` if it found a lock taken or a block not in memory.
fn unless_blocked<T>(looked: Result<T>) -> Result<Option<T>> {
    match looked {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        looked => looked.map(Some),
    }
}

/// The extent of a file with this item that contains `[start, end)`, if that may be written in place; else the reason for a
/// refusal.
/// Errors: device errors, where `wait` lets it read; damage.
pub(crate) fn in_one_extent(
    inode: &FileInode<'_>,
    item: &InodeItem,
    range: (u64, u64),
    wait: Wait,
) -> Result<std::result::Result<OneExtent, Refusal>> {
    let Some(writer) = InPlaceWriter::begin(inode.subvolume(), inode.id.ino) else {
        Nocow::count(&inode.context().counters().nocow.barred);
        return Ok(Err(Refusal::Snapshot));
    };
    let Some(still) = unless_blocked(inode.hold_extents(wait))? else { return Ok(Err(Refusal::ItemBusy)) };
    let looked = unless_blocked(candidate(&still, inode, item, range, wait))?;
    drop(still);
    let candidate = match looked {
        Some(Ok(candidate)) => candidate,
        Some(Err(why)) => return Ok(Err(why)),
        None => return Ok(Err(Refusal::MapCold)),
    };
    Ok(match unless_blocked(candidate.decide(inode, range, wait))? {
        Some(Decided::InPlace(extent)) => Ok(OneExtent { extent, writer }),
        Some(Decided::Shared) => Err(Refusal::Shared),
        Some(Decided::WithCsums) => Err(Refusal::Checksums),
        Some(Decided::NoGroup) => Err(Refusal::GroupReadOnly),
        None => Err(Refusal::OwnersCold),
    })
}

/// The item that covers the range, by the checks in its leaf.
/// Errors: would block; device errors; damage.
fn candidate(
    _: &HeldExtents<'_>,
    inode: &FileInode<'_>,
    item: &InodeItem,
    (at, to): (u64, u64),
    wait: Wait,
) -> Result<std::result::Result<Candidate, Refusal>> {
    let since = inode.tree().last_snapshot();
    let sector = u64::from(inode.engine().sector_size());
    let mut items = ExtentItems::new(inode.tree(), inode.id.ino, (at, to), sector, wait)?;
    let Some(found) = items.next()?.filter(|found| found.start <= at) else { return Ok(Err(Refusal::Hole)) };
    let (start, end) = (found.start, found.end);
    let (extent, is_prealloc) = match found.extent {
        FileExtentItem::Inline { .. } => return Ok(Err(Refusal::Inline)),
        FileExtentItem::Hole { .. } => return Ok(Err(Refusal::Hole)),
        FileExtentItem::Prealloc(extent) => (extent, true),
        FileExtentItem::Regular(extent) => (extent, false),
    };
    let may_overwrite = item.flags.contains(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
    Ok(match () {
        () if extent.compression != Compression::None => Err(Refusal::Compressed),
        () if end < to || to - at > EXTENT_LEN_MAX => Err(Refusal::SeveralExtents),
        () if !is_prealloc && !may_overwrite => Err(Refusal::Copied),
        () if extent.generation <= since => Err(Refusal::Shared),
        () => Ok(Candidate { start, end, extent, is_prealloc }),
    })
}

/// Whether a file with this item is stored in the tree itself. Errors: would block; device errors; damage.
pub(crate) fn is_inline(inode: &FileInode<'_>, item: &InodeItem, wait: Wait) -> Result<bool> {
    let sector = u64::from(inode.engine().sector_size());
    if item.size == 0 || item.size > sector {
        return Ok(false);
    }
    let _still = inode.hold_extents(wait)?;
    let mut items = ExtentItems::new(inode.tree(), inode.id.ino, (0, sector), sector, wait)?;
    Ok(matches!(items.next()?.map(|item| item.extent), Some(FileExtentItem::Inline { .. })))
}
