//! A direct write, from its first lock to its answer.

use creamery_base::{ErrorKind, Result, Wait};
use creamery_device::SharedBytes;

use super::way::{Buffered, in_the_way};
use super::{DirectAt, DirectPart};
use crate::counters::Direct;
use crate::data::{self, DirectlyWritten};
use crate::inode::permission::{check_appends, check_overwrites};
use crate::inode::{FILE_SIZE_MAX, FileInode, InodeItem};

/// How a request is carried out.
pub(crate) enum Way {
    /// It was, directly.
    Done(DirectPart),
    /// It is to go through memory; nothing has happened.
    Buffered(Buffered),
}

/// Writes `data`, which the caller gave away.
/// Errors: no space for any of it; file too large; the inode is marked immutable or append-only, or has fs-verity; the subvolume or
/// the filesystem is read-only; device errors; damage; aborted.
pub(crate) fn write(file: &FileInode<'_>, at: DirectAt, data: &SharedBytes) -> Result<Way> {
    file.engine().check_open()?;
    file.check_writable()?;
    file.engine().check_writable()?;
    if data.is_empty() {
        return write_nothing(file, at).map(Way::Done);
    }
    let sector = u64::from(file.engine().sector_size());
    let len = data.len() as u64;
    let is_whole = |at: u64| at.is_multiple_of(sector);
    if !is_whole(len) || matches!(at, DirectAt::Offset(offset) if !is_whole(offset)) {
        return Ok(Way::Buffered(Buffered::Misaligned));
    }
    let _change = file.begin_change()?;
    if let DirectAt::Offset(offset) = at
        && data::is_overwrite(file, file.size(), offset.saturating_add(len))
    {
        let _shared = file.lock_shared(Wait::Yes)?;
        if let Some(mut item) = item_beside_others(file, offset.saturating_add(len))? {
            check_overwrites(&item)?;
            let size = item.size;
            let way = write_shared(file, &mut item, offset, data)?;
            assert!(item.size == size, "DIRECT-8: who shares the inode leaves the size as it is");
            return Ok(way);
        }
    }
    write_alone(file, at, data)
}

/// What a write of nothing comes to: it is refused as any other, and has nothing to wait for.
fn write_nothing(file: &FileInode<'_>, at: DirectAt) -> Result<DirectPart> {
    let _change = file.begin_change()?;
    let item = file.item(Wait::Yes)?;
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

/// The item of a file that is shared, for a write that ends at `end`; none if that has to have the file alone.
fn item_beside_others(file: &FileInode<'_>, end: u64) -> Result<Option<InodeItem>> {
    let size = file.item(Wait::Yes)?.size;
    // Who grows it has it alone. So if nothing is delayed of that now, nothing is until it is shared no more.
    let item = file.tree_item();
    Ok(Some(item).filter(|item| item.size == size && data::is_overwrite(file, size, end)))
}

/// Writes to a file that others may share.
fn write_shared(file: &FileInode<'_>, item: &mut InodeItem, offset: u64, data: &SharedBytes) -> Result<Way> {
    let end = offset + data.len() as u64;
    let _range = file.lock_range(offset, end)?;
    if file.delalloc().touches(offset, end) {
        file.flush_range((offset, end));
    }
    write_locked(file, item, offset, data)
}

/// Writes to a file that this has alone.
fn write_alone(file: &FileInode<'_>, at: DirectAt, data: &SharedBytes) -> Result<Way> {
    let mut locked = file.lock_exclusive()?;
    match at {
        DirectAt::Offset(_) => check_overwrites(&locked)?,
        DirectAt::End => check_appends(&locked, locked.size)?,
    }
    // What is lost of it is the openers' to learn; the file ends where it ends without that.
    let _ = file.settle(&mut locked);
    let offset = match at {
        DirectAt::Offset(offset) => offset,
        DirectAt::End => locked.size,
    };
    if !offset.is_multiple_of(file.engine().sector_size().into()) {
        return Ok(Way::Buffered(Buffered::Misaligned));
    }
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
    let end = end.ok_or(ErrorKind::FileTooLarge)?;
    // Growing over a gap changes what lies between the old end and the new data.
    let _range = file.lock_range(offset.min(locked.size), end)?;
    write_locked(file, locked.item_mut(), offset, data)
}

/// Writes to a file that is locked, with the range.
fn write_locked(file: &FileInode<'_>, item: &mut InodeItem, offset: u64, data: &SharedBytes) -> Result<Way> {
    // What a deletion keeps from being written back after an abort stays delayed.
    file.engine().check_writable()?;
    let end = offset + data.len() as u64;
    assert!(
        !file.delalloc().touches(offset, end),
        "DIRECT-7: nothing of what is written directly is delayed"
    );
    if let Some(why) = in_the_way(file, (offset, end))? {
        return Ok(Way::Buffered(why));
    }
    let DirectlyWritten { len, in_place } = data::write_direct(file, item, offset, data)?;
    let direct = &file.context().counters().direct;
    Direct::add(&direct.write_bytes, len as u64);
    Direct::add(&direct.in_place_bytes, in_place);
    Direct::add(&direct.to_new_space_bytes, len as u64 - in_place);
    Ok(Way::Done(DirectPart { offset, len }))
}
