//! A direct write between its first lock and its answer.
//!
//! It takes its locks as a thread does, in the order of all locks, while it looks where its data goes. What it needs until its items are in
//! the tree it then *carries* (`inode/carried`), and no thread has any of it:
//!
//! | carried | because until it is complete |
//! |---|---|
//! | the range of bytes, alone | nobody reads or writes what is half there |
//! | the lock of operations: shared, or alone where the file grows | nobody changes its size or attributes, or the extents of its range |
//! | the change of the subvolume | that does not become read-only (RDONLY-1) |
//! | the right to write in place in the subvolume, and in the block groups | no snapshot has what is written over (NOCOW-3), and nobody moves it (NOCOW-4) |
//! | new space, and room for metadata | it finds some, without asking anybody to free any |
//!
//! All of it is given back by one drop, whatever becomes of the write: it is refused, a device fails, a thread panics, or all goes well.
//!
//! # Locking
//! Who completes has no lock of what a completion takes, and none that others hold who wait for what is carried: rank WRITEBACK. It
//! waits for handles, commits, items and nodes.

use std::sync::Arc;

use creamery_base::Result;
use creamery_base::lock::{Held, Place, rank};
use creamery_device::SharedBytes;
use creamery_txn::DelallocReservation;
use creamery_volume::WriteBatch;

use super::DirectPart;
use super::write::{Locked, Operations};
use crate::counters::Direct;
use crate::data::{DirectlyWritten, Prepared};
use crate::inode::carried::{OwnedLock, OwnedRange};
use crate::inode::{FileInode, Inode, InodeItem};
use crate::subvolume::OwnedChange;

/// A write that has its places and carries its locks. The fields go from the first to the last.
pub(crate) struct Flight {
    data: Prepared,
    /// What the write knows of the file.
    item: InodeItem,
    range: OwnedRange,
    lock: OwnedLock,
    change: OwnedChange,
    /// Given back when nothing needs it.
    room: DelallocReservation,
}

impl Flight {
    /// Finds places for `data` at `offset` in a file that is `locked`. Returns what is to be written before it is complete.
    /// Errors: no space; device errors; damage; aborted.
    pub(super) fn begin(
        (inode, file): (&Arc<Inode>, &FileInode<'_>),
        locked: Locked<'_>,
        mut item: InodeItem,
        mut room: DelallocReservation,
        (offset, data): (u64, &SharedBytes),
    ) -> Result<(Self, WriteBatch)> {
        let (data, batch) = Prepared::new(&mut room, file, &mut item, offset, data)?;
        // What is written in place needs no space, nor what does not fit.
        drop(room.take(room.data_bytes(), 0));
        let Locked { range, operations, change } = locked;
        let range = OwnedRange::carry(inode, range);
        let lock = match operations {
            Operations::Shared(shared) => OwnedLock::of_shared(inode, shared),
            Operations::Alone(exclusive) => OwnedLock::of_exclusive(inode, exclusive),
        };
        Ok((Self { data, item, range, lock, change: OwnedChange::carry(change), room }, batch))
    }

    /// Writes what [`Flight::begin`] told and completes it, for a thread that waits for both.
    /// Errors: device errors; no space; damage; aborted.
    pub(crate) fn carry_out(mut self, batch: WriteBatch) -> Result<DirectPart> {
        let engine = Arc::clone(self.lock.file().context().engine());
        let proof = engine.volume().write(batch)?;
        self.data.landed(&engine, proof);
        self.complete()
    }

    /// Makes what is on its devices what the file shows, and gives all back.
    fn complete(self) -> Result<DirectPart> {
        let _held = Held::wait(Place::of(rank::WRITEBACK));
        let Self { data, mut item, range, lock, change, mut room } = self;
        let (file, size, offset) = (lock.file(), item.size, data.start());
        let done = data.complete(&mut room, &file, &mut item);
        assert!(
            !lock.is_shared() || item.size == size,
            "DIRECT-8: who shares the inode leaves the size as it is"
        );
        let direct = &file.context().counters().direct;
        let done = done.map(|written| count(direct, offset, written));
        drop((range, lock, change, room));
        done
    }
}

/// Counts what was written at `offset`.
pub(super) fn count(direct: &Direct, offset: u64, written: DirectlyWritten) -> DirectPart {
    let DirectlyWritten { len, in_place } = written;
    Direct::add(&direct.write_bytes, len as u64);
    Direct::add(&direct.in_place_bytes, in_place);
    Direct::add(&direct.to_new_space_bytes, len as u64 - in_place);
    DirectPart { offset, len }
}
