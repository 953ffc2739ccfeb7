//! A direct write that must not wait: it begins at once, or is refused and has left no trace.
//!
//! Only one kind of write takes nothing that other threads may hold for long: a write over one extent that is the file's alone,
//! without checksums. All metadata that shows this has to be in memory. The steps follow this order; the first one that cannot
//! finish at once gives the answer ([`Refusal`]):
//!
//! | step | refused as |
//! |---|---|
//! | the file: shared, or alone where the write grows it; its item | `InodeBusy`, `ItemBusy` |
//! | its flags: NODATACOW or PREALLOC, and NODATASUM | `NotInPlace`, `Checksums` |
//! | where the write begins and ends | `BeyondSize`, `Misaligned` |
//! | nothing of that is delayed | `Delayed` |
//! | devices that have room, and were written before | `DeviceBusy` |
//! | the range of bytes | `RangeBusy` |
//! | the right to write in place, which a snapshot takes | `Snapshot` |
//! | one item of the file's tree that covers the range | `MapCold`, `Inline`, `Compressed`, `SeveralExtents`, `Hole`, `Copied` |
//! | the extent's owners and checksums, and its block group | `OwnersCold`, `Shared`, `Checksums`, `GroupReadOnly` |
//! | room for changing the item | `NoRoom` |
//!
//! No step reads a tree block from a device, takes a new chunk, frees anything, starts a handle or commits. Each step keeps its gains in a
//! field of a value, or in a variable, whose drop gives it back. So a refusal undoes nothing by itself (DIRECT-4).
//!
//! Errors that waiting does not cure answer the request: for example, a read-only filesystem.
//!
//! Quota groups are not asked: the write takes no new space, and their limits let its completion through, as they do for the end of every
//! write.
//!
//! With [`FsOptions::direct_waits`](crate::FsOptions) the two steps that look into trees wait for them, as Linux does. This shows the cost
//! of such waits for other threads.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_device::SharedBytes;

use super::DirectAt;
use super::flight::{Operations, WriteFlight, WriterLocks};
use super::write::{Started, write_nothing};
use crate::counters::Refusal;
use crate::data::{self, PreparedWrite};
use crate::in_flight::RequestPurpose;
use crate::inode::permission::{check_appends, check_overwrites};
use crate::inode::{FILE_SIZE_MAX, FileInode, Inode, InodeFlags, InodeItem};

/// The reason why an attempt failed.
pub(crate) enum AttemptFailure {
    /// A thread that may wait has to make the write.
    Refused(Refusal),
    Failed(Error),
}

impl AttemptFailure {
    /// The error, for a thread that may wait: such a thread gets no refusal.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Failed(error) => error,
            Self::Refused(why) => unreachable!("{why:?}: a request that may wait is not refused"),
        }
    }
}

impl From<Error> for AttemptFailure {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

pub(crate) type Attempted<T> = std::result::Result<T, AttemptFailure>;

/// Turns the error `WouldBlock` into the refusal `why`.
pub(super) fn at_once<T>(got: Result<T>, why: Refusal) -> Attempted<T> {
    got.map_err(|error| match error.kind() {
        ErrorKind::WouldBlock => AttemptFailure::Refused(why),
        _ => AttemptFailure::Failed(error),
    })
}

/// Refuses with `why` if `is_so`.
pub(super) fn unless(is_so: bool, why: Refusal) -> Attempted<()> {
    if is_so { Err(AttemptFailure::Refused(why)) } else { Ok(()) }
}

/// A file that is locked for a write, and the target range of the write. The fields drop in order.
struct LockedTarget<'a> {
    operations: Operations<'a>,
    item: InodeItem,
    offset: u64,
    end: u64,
}

/// Begins to write `data` to the inode, which is this file, without waiting for anything.
/// Errors: those of a write that waits: file too large; the inode is marked immutable or append-only, or has fs-verity; the
/// subvolume or the filesystem is read-only; damage; aborted.
pub(crate) fn attempt(
    (inode, file): (&Arc<Inode>, &FileInode<'_>),
    at: DirectAt,
    data: &SharedBytes,
) -> Attempted<Started> {
    let engine = file.engine();
    engine.check_open()?;
    file.check_writable()?;
    engine.check_writable()?;
    if data.is_empty() {
        return at_once(write_nothing(file, at, Wait::No), Refusal::ItemBusy).map(Started::Done);
    }
    let change = file.begin_change()?;
    let LockedTarget { operations, item, offset, end } = lock(file, at, data.len() as u64)?;
    check_flags(&item)?;
    let is_whole = |at: u64| at.is_multiple_of(engine.sector_size().into());
    unless(offset > item.size, Refusal::BeyondSize)?;
    unless(!is_whole(offset) || !is_whole(end), Refusal::Misaligned)?;
    unless(file.delalloc().touches(offset, end), Refusal::Delayed)?;
    unless(engine.volume().is_untouched() || !engine.volume().takes_at_once(), Refusal::DeviceBusy)?;
    let range = at_once(file.lock_range(offset, end, Wait::No), Refusal::RangeBusy)?;
    // Nothing becomes dirty in the range from here on, because that takes the range.
    unless(file.delalloc().touches(offset, end), Refusal::Delayed)?;
    let looks = if file.context().policy().direct_waits { Wait::Yes } else { Wait::No };
    if offset == item.size {
        let is_inline = at_once(data::is_inline(file, &item, looks), Refusal::MapCold)?;
        unless(is_inline, Refusal::Inline)?;
    }
    let place = data::in_one_extent(file, &item, (offset, end), looks)?.map_err(AttemptFailure::Refused)?;
    let (prepared, batch, units) = PreparedWrite::in_place(file, &item, (offset, data), place);
    let Some(room) = engine.keep_at_once(units) else { return Err(AttemptFailure::Refused(Refusal::NoRoom)) };
    let begun = file.context().in_flight().begin(file.id, RequestPurpose::Write)?;
    let locked = WriterLocks { range, operations, change };
    let flight = WriteFlight::new(inode, locked, (prepared, item), (room, begun));
    Ok(Started::Flight(Box::new(flight), batch))
}

/// Locks the file for a write of `len` bytes: shared where the file keeps its size.
fn lock<'a>(file: &'a FileInode<'_>, at: DirectAt, len: u64) -> Attempted<LockedTarget<'a>> {
    if let DirectAt::Offset(offset) = at {
        let end = offset.saturating_add(len);
        let shared = at_once(file.lock_shared(Wait::No), Refusal::InodeBusy)?;
        let (item, stored) = at_once(file.item_and_stored_size(Wait::No), Refusal::ItemBusy)?;
        if data::is_overwrite(file, item.size, end) {
            check_overwrites(&item)?;
            // Writeback of data that grows the file changes extents that this write relies on.
            unless(item.size != stored, Refusal::Delayed)?;
            return Ok(LockedTarget { operations: Operations::Shared(shared), item, offset, end });
        }
    }
    alone(file, at, len)
}

fn alone<'a>(file: &'a FileInode<'_>, at: DirectAt, len: u64) -> Attempted<LockedTarget<'a>> {
    let Some(locked) = file.try_lock_exclusive()? else {
        return Err(AttemptFailure::Refused(Refusal::InodeBusy));
    };
    let offset = match at {
        DirectAt::Offset(offset) => {
            check_overwrites(&locked)?;
            offset
        }
        DirectAt::End => {
            check_appends(&locked, locked.size)?;
            locked.size
        }
    };
    let end = offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(ErrorKind::FileTooLarge);
    let end = end.map_err(Error::from)?;
    unless(file.delalloc().any(), Refusal::Delayed)?;
    let item = (*locked).clone();
    Ok(LockedTarget { operations: Operations::Alone(locked), item, offset, end })
}

/// Whether a file with this item may be written in place without changing checksums.
fn check_flags(item: &InodeItem) -> Attempted<()> {
    let may = item.flags.intersects(InodeFlags::NODATACOW | InodeFlags::PREALLOC);
    unless(!may, Refusal::NotInPlace)?;
    unless(!item.flags.contains(InodeFlags::NODATASUM), Refusal::Checksums)
}
