//! The tail of a file: the sector that its last byte is in.
//!
//! Bytes past the end of the file in that sector must be zero before the file grows over it (DATA-4). Linux and others may have
//! left other bytes there, so the sector is checked, and written anew where it is not zero.

use creamery_base::{Result, Wait};

use super::completion::Completion;
use super::extent_map::{ExtentKind, ExtentMaps};
use super::ordered_extent::{OrderedExtent, SizeAfter};
use super::{ReserveSource, read};
use crate::inode::{FileInode, InodeItem};

/// The kind of data at the new end of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tail {
    /// The end is at the boundary of a sector, or has no data.
    Nothing,
    Inline,
    Data,
}

/// The kind of data where a file of `size` bytes ends.
pub(crate) fn tail_of(inode: &FileInode<'_>, size: u64, sector: u64) -> Result<Tail> {
    if size.is_multiple_of(sector) {
        return Ok(Tail::Nothing);
    }
    let last = size - size % sector;
    let mut maps = ExtentMaps::new(inode.tree(), inode.id.ino, (last, last + sector), sector, Wait::Yes)?;
    Ok(match maps.next()?.map(|map| map.kind) {
        Some(ExtentKind::Inline) => Tail::Inline,
        Some(ExtentKind::Data(_) | ExtentKind::Compressed(_)) => Tail::Data,
        Some(ExtentKind::Hole | ExtentKind::Prealloc) | None => Tail::Nothing,
    })
}

/// Settles the last sector of the file, so that the file may grow over it: an inline extent becomes a regular one, and bytes past
/// the end of the file become zero.
pub(crate) fn settle_tail(inode: &FileInode<'_>, item: &mut InodeItem) -> Result<()> {
    settle_tail_for(&mut ReserveSource::Operation, inode, item)
}

/// Settles the last sector of the file, for `behalf`.
pub(crate) fn settle_tail_for(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
) -> Result<()> {
    if is_tail_unsettled(inode, item)? {
        let size = item.size;
        rewrite_last_sector(behalf, inode, item, size)?;
    }
    Ok(())
}

/// Whether the last sector of the file is unsettled: it is inline, or has nonzero bytes past the end.
pub(crate) fn is_tail_unsettled(inode: &FileInode<'_>, item: &InodeItem) -> Result<bool> {
    let sector = u64::from(inode.engine().sector_size());
    if item.size == 0 {
        return Ok(false);
    }
    let last = (item.size - 1) / sector * sector;
    let still = inode.hold_extents(Wait::Yes)?;
    let what = ExtentMaps::new(inode.tree(), inode.id.ino, (last, last + sector), sector, Wait::Yes)?
        .next()?
        .map(|map| map.kind);
    drop(still);
    match what {
        Some(ExtentKind::Inline) => Ok(true),
        Some(ExtentKind::Data(_) | ExtentKind::Compressed(_)) if item.size < last + sector => {
            let behind = InodeItem { size: last + sector, ..item.clone() };
            let mut bytes = vec![0; as_len(last + sector - item.size)];
            read(inode, &behind, item.size, &mut bytes, Wait::Yes)?;
            Ok(bytes.iter().any(|byte| *byte != 0))
        }
        _ => Ok(false),
    }
}

/// Writes the sector that has the last byte of a file of `size` anew, with zeros behind it, and makes `size`, which
/// is not more than it was, the file's. The sector goes to new space even where data is written in place: a crash leaves the file as it was
/// or cut.
pub(crate) fn rewrite_last_sector(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    size: u64,
) -> Result<()> {
    let engine = inode.engine();
    assert!(size <= item.size && size > 0);
    let sector = u64::from(engine.sector_size());
    let last = (size - 1) / sector * sector;
    let mut bytes = vec![0; as_len(sector)];
    read(inode, item, last, &mut bytes[..as_len(size - last)], Wait::Yes)?;
    let mut ordered = OrderedExtent::allocate(behalf, inode, item, last, sector)?;
    ordered.write(engine, &bytes)?;
    ordered.complete(&mut Completion::new(behalf, inode, item, &mut 0), SizeAfter::Exactly(size))
}

/// A length that is bounded by a sector's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a sector")
}
