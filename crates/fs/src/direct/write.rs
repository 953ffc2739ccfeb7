//! A direct write, from its first lock to the point where it is in flight.

use std::sync::Arc;

use creamery_base::{ErrorKind, Result, Wait};
use creamery_device::SharedBytes;
use creamery_txn::DelallocReservation;
use creamery_volume::WriteBatch;

use super::flight::{Operations, WriteFlight, WriterLocks, count};
use super::way::{Buffered, in_the_way};
use super::{DirectAt, DirectPart};
use crate::counters::Direct;
use crate::data::{self, PreparedWrite, reserve};
use crate::fault::Fault;
use crate::in_flight::RequestPurpose;
use crate::inode::lock::SharedInode;
use crate::inode::permission::{check_appends, check_overwrites};
use crate::inode::{FILE_SIZE_MAX, FileInode, Inode, InodeItem};
use crate::subvolume::SubvolumeChange;

/// The way in which a request is carried out.
pub(crate) enum DirectRoute {
    /// A direct write has begun.
    Direct(Started),
    /// The request has to go through memory; nothing has happened.
    Buffered(Buffered),
}

/// A direct write that was begun.
pub(crate) enum Started {
    /// The write has ended.
    Done(DirectPart),
    /// The write is in flight as soon as this batch is submitted.
    Flight(Box<WriteFlight>, WriteBatch),
}

/// Begins to write `data`, which the caller gave away, to the inode, which is this file.
/// Errors: no space for any of it; file too large; the inode is marked immutable or append-only, or has fs-verity; the subvolume or
/// the filesystem is read-only; device errors; damage; aborted.
pub(crate) fn begin(
    (inode, file): (&Arc<Inode>, &FileInode<'_>),
    at: DirectAt,
    data: &SharedBytes,
) -> Result<DirectRoute> {
    file.engine().check_open()?;
    file.check_writable()?;
    file.engine().check_writable()?;
    if data.is_empty() {
        return write_nothing(file, at, Wait::Yes).map(|part| DirectRoute::Direct(Started::Done(part)));
    }
    let sector = u64::from(file.engine().sector_size());
    let len = data.len() as u64;
    let is_whole = |at: u64| at.is_multiple_of(sector);
    if !is_whole(len) || matches!(at, DirectAt::Offset(offset) if !is_whole(offset)) {
        return Ok(DirectRoute::Buffered(Buffered::Misaligned));
    }
    let write = Beginning { inode, file, data, room: keep_room(file, len)? };
    let change = file.begin_change()?;
    if let DirectAt::Offset(offset) = at
        && data::is_overwrite(file, file.size(), offset.saturating_add(len))
    {
        let shared = file.lock_shared(Wait::Yes)?;
        match item_beside_others(file, offset.saturating_add(len))? {
            Some(item) => return write.beside_others((shared, change), item, offset),
            None => drop(shared),
        }
    }
    write.alone(change, at)
}

/// Keeps room for data that may need new space. `None` where room is scarce: then the write reserves on its way, and other writes wait
/// for it.
fn keep_room(file: &FileInode<'_>, len: u64) -> Result<Option<DelallocReservation>> {
    match reserve::keep(file.engine(), file.id.subvolume, len) {
        // It may take no new space at all, or less.
        Err(error) if error.kind() == ErrorKind::QuotaExceeded => Ok(None),
        room => room,
    }
}

/// The outcome of a write of no bytes: it is refused as any other, and has nothing to wait for.
pub(super) fn write_nothing(file: &FileInode<'_>, at: DirectAt, wait: Wait) -> Result<DirectPart> {
    let _change = file.begin_change()?;
    let item = file.item(wait)?;
    let offset = match at {
        DirectAt::Offset(offset) => {
            check_overwrites(&item)?;
            offset
        }
        DirectAt::End => {
            check_appends(&item, item.size)?;
            item.size
        }
    };
    if offset > FILE_SIZE_MAX {
        return Err(ErrorKind::FileTooLarge.into());
    }
    Ok(DirectPart { offset, len: 0 })
}

/// The item of a file that is shared, for a write that ends at `end`; `None` if the write has to have the file alone.
fn item_beside_others(file: &FileInode<'_>, end: u64) -> Result<Option<InodeItem>> {
    let size = file.item(Wait::Yes)?.size;
    // A thread that grows the file has it alone. So if no delayed data grows it now, none does as long as the file is shared.
    let item = file.tree_item();
    let is_written = item.size == size || file.context().has(Fault::SharedBesideGrowth);
    Ok(Some(item).filter(|_| is_written && data::is_overwrite(file, size, end)))
}

/// A write that begins.
struct Beginning<'w> {
    inode: &'w Arc<Inode>,
    file: &'w FileInode<'w>,
    data: &'w SharedBytes,
    room: Option<DelallocReservation>,
}

impl<'w> Beginning<'w> {
    /// Begins in a file that others may share.
    fn beside_others(
        self,
        (shared, change): (SharedInode<'w>, SubvolumeChange),
        item: InodeItem,
        offset: u64,
    ) -> Result<DirectRoute> {
        check_overwrites(&item)?;
        let file = self.file;
        let end = offset + self.data.len() as u64;
        let range = file.lock_range(offset, end, Wait::Yes)?;
        if file.delalloc().touches(offset, end) {
            file.flush_range((offset, end));
        }
        self.locked(WriterLocks { range, operations: Operations::Shared(shared), change }, item, offset)
    }

    /// Begins in a file that this write has alone.
    fn alone(self, change: SubvolumeChange, at: DirectAt) -> Result<DirectRoute> {
        let file = self.file;
        let mut locked = file.lock_exclusive()?;
        match at {
            DirectAt::Offset(_) => check_overwrites(&locked)?,
            DirectAt::End => check_appends(&locked, locked.size)?,
        }
        // Open files report the losses; the file then ends where it ends without the lost data.
        let _ = file.settle(&mut locked);
        let offset = match at {
            DirectAt::Offset(offset) => offset,
            DirectAt::End => locked.size,
        };
        if !offset.is_multiple_of(file.engine().sector_size().into()) {
            return Ok(DirectRoute::Buffered(Buffered::Misaligned));
        }
        let end = offset.checked_add(self.data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
        let end = end.ok_or(ErrorKind::FileTooLarge)?;
        // Growing over a gap changes the bytes between the old end and the new data.
        let range = file.lock_range(offset.min(locked.size), end, Wait::Yes)?;
        let item = (*locked).clone();
        self.locked(WriterLocks { range, operations: Operations::Alone(locked), change }, item, offset)
    }

    /// Begins in a file that is locked, with the range. `item` is its inode's item.
    fn locked(self, locked: WriterLocks<'w>, mut item: InodeItem, offset: u64) -> Result<DirectRoute> {
        let Self { inode, file, data, room } = self;
        // Data that an abort keeps from being written back stays delayed.
        file.engine().check_writable()?;
        let end = offset + data.len() as u64;
        assert!(
            !file.delalloc().touches(offset, end),
            "DIRECT-7: nothing of what is written directly is delayed"
        );
        if let Some(why) = in_the_way(file, (offset, end))? {
            return Ok(DirectRoute::Buffered(why));
        }
        if let Some(mut room) = room {
            let begun = file.context().in_flight().begin(file.id, RequestPurpose::Write)?;
            if let Some((data, batch)) = PreparedWrite::new(&mut room, file, &mut item, offset, data)? {
                let flight = WriteFlight::new(inode, locked, (data, item), (room, begun));
                return Ok(DirectRoute::Direct(Started::Flight(Box::new(flight), batch)));
            }
        }
        at_once((file, &locked), item, offset, data).map(|part| DirectRoute::Direct(Started::Done(part)))
    }
}

/// Writes to a file that is locked, piece by piece, and has other threads free the room that it takes.
fn at_once(
    (file, locked): (&FileInode<'_>, &WriterLocks<'_>),
    mut item: InodeItem,
    offset: u64,
    data: &SharedBytes,
) -> Result<DirectPart> {
    let (size, direct) = (item.size, &file.context().counters().direct);
    let written = data::write_direct(file, &mut item, offset, data)?;
    let is_shared = matches!(locked.operations, Operations::Shared(_));
    assert!(
        !is_shared || item.size == size,
        "DIRECT-8: a write that shares the inode leaves the size as it is"
    );
    Direct::count(&direct.at_once);
    Ok(count(direct, offset, written))
}
