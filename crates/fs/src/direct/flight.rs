//! A direct write between its first lock and its answer.
//!
//! It takes its locks as a thread does, in the order of all locks, while it looks where its data goes. From then on it *carries* the
//! resources that it needs until its items are in the tree (`inode/carried`), and no thread holds them:
//!
//! | carried | because until it is complete |
//! |---|---|
//! | the range of bytes, alone | no thread reads or writes half-written bytes |
//! | the lock of operations: shared, or alone where the file grows | no thread changes its size or attributes, or the extents of its range |
//! | the change of the subvolume | the subvolume does not become read-only (RDONLY-1) |
//! | the right to write in place in the subvolume, and in the block groups | no snapshot has the overwritten data (NOCOW-3), and no thread moves it (NOCOW-4) |
//! | new space, and room for metadata | its completion needs no reclaim |
//!
//! One drop gives all of it back, whatever becomes of the write: it is refused, a device fails, a thread panics, or all goes well.
//!
//! # Locking
//! A completing thread holds no lock that a completion takes, and no lock of a kind that threads hold while they wait for carried
//! resources: rank WRITEBACK. It waits for handles, commits, items and nodes.

use std::sync::Arc;

use creamery_base::lock::{HeldNote, LockPosition, rank};
use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_txn::DelallocReservation;
use creamery_volume::{WriteBatch, WriteReport, Written};

use super::DirectPart;
use super::answer::Answer;
use super::landing::{Carries, Landing, LandingItem};
use crate::context::Context;
use crate::counters::Direct;
use crate::data::{DirectlyWritten, PreparedWrite};
use crate::in_flight::Begun;
use crate::inode::carried::{OwnedOperations, OwnedRange};
use crate::inode::lock::{ExclusiveInode, HeldExtents, SharedInode};
use crate::inode::{Inode, InodeItem, RangeGuard};
use crate::subvolume::{OwnedChange, SubvolumeChange};

/// The lock of operations that a write holds.
pub(super) enum Operations<'a> {
    /// Shared with others.
    Shared(SharedInode<'a>),
    Alone(ExclusiveInode<'a>),
}

/// The locks of a writing thread. The fields drop in order.
pub(super) struct WriterLocks<'a> {
    pub(super) range: RangeGuard<'a>,
    pub(super) operations: Operations<'a>,
    pub(super) change: SubvolumeChange,
}

/// A write that has its places and carries its locks. The fields drop in order.
pub(crate) struct WriteFlight {
    carried: WriteResources,
    /// The request is known until it is answered.
    begun: Begun,
}

/// The resources that a write carries to its end. The fields drop in order.
pub(super) struct WriteResources {
    data: PreparedWrite,
    /// The inode's item as the write knows it.
    item: InodeItem,
    range: OwnedRange,
    lock: OwnedOperations,
    change: OwnedChange,
    /// Given back when no more of it is needed.
    room: DelallocReservation,
}

impl WriteFlight {
    /// Makes the flight of a write of `data`, which has its places in `room`, to a file that is `locked` and whose item is `item`.
    pub(super) fn new(
        inode: &Arc<Inode>,
        locked: WriterLocks<'_>,
        (data, item): (PreparedWrite, InodeItem),
        (mut room, begun): (DelallocReservation, Begun),
    ) -> Self {
        // A write in place needs no space.
        drop(room.take(room.data_bytes(), 0));
        let WriterLocks { range, operations, change } = locked;
        let range = OwnedRange::carry(inode, range);
        let lock = match operations {
            Operations::Shared(shared) => OwnedOperations::of_shared(inode, shared),
            Operations::Alone(exclusive) => OwnedOperations::of_exclusive(inode, exclusive),
        };
        let change = OwnedChange::carry(change);
        begun.is_carried();
        Self { carried: WriteResources { data, item, range, lock, change, room }, begun }
    }

    /// Writes `batch`, which covers all its places, and completes the write, for a thread that waits for both.
    /// Errors: device errors; no space; damage; aborted.
    pub(crate) fn carry_out(self, batch: WriteBatch) -> Result<DirectPart> {
        let written = self.context().engine().volume().write(batch);
        let Self { carried, begun: _begun } = self;
        carried.complete(written, None)
    }

    /// Sends `batch`, which covers all its places, to the devices, and waits for nothing. Without `wait` this thread does no I/O
    /// itself.
    pub(crate) fn submit(self, batch: WriteBatch, wait: Wait, answer: Answer) {
        let engine = Arc::clone(self.context().engine());
        let unanswered = Error::new(ErrorKind::Io, "a direct write was dropped unanswered");
        let Self { carried, begun } = self;
        let landing = Landing::new((carried, begun), Err(unanswered), answer);
        let done = |report: Result<WriteReport>| {
            landing.lands(|landed, _| *landed = report.and_then(WriteReport::into_written));
        };
        engine.volume().submit_write(batch, wait, Box::new(done));
    }

    fn context(&self) -> &Context {
        self.carried.lock.inode().context()
    }
}

impl WriteResources {
    /// Puts the data that the devices have `written` into the file, and gives all back. With `is`, the locked item, it waits for nothing.
    /// Errors: those of the devices; no space; damage; aborted.
    fn complete(self, written: Result<Written>, is: Option<HeldExtents<'_>>) -> Result<DirectPart> {
        let _held = is.is_none().then(|| HeldNote::wait(LockPosition::of(rank::WRITEBACK)));
        // A panicking thread drops the bindings from the last to the first.
        let Self { mut room, change, lock, range, mut item, mut data } = self;
        let (file, size, offset) = (lock.file(), item.size, data.start());
        let done = written.and_then(|proof| {
            data.landed(file.engine(), proof);
            data.complete(&mut room, (lock.inode(), &file), &mut item, is)
        });
        assert!(
            !lock.is_shared() || item.size == size,
            "DIRECT-8: a write that shares the inode leaves the size as it is"
        );
        let direct = &file.context().counters().direct;
        if done.is_err() {
            Direct::count(&direct.failed);
        }
        let done = done.map(|written| count(direct, offset, written));
        drop((range, lock, change, room));
        done
    }
}

impl Carries for WriteResources {
    type Landed = Result<Written>;

    fn inode(&self) -> &Arc<Inode> {
        self.lock.inode()
    }

    fn wake_those_who_wait(&self) {
        self.lock.wake_those_who_wait();
    }

    fn ends_at_once<'i>(&self, inode: &'i Inode, landed: &Result<Written>) -> Option<LandingItem<'i>> {
        let is_good = landed.is_ok() && self.lock.is_shared();
        let ends = is_good && self.data.overwrites(self.item.size) && inode.may_put_times_off(&self.item);
        ends.then(|| inode.try_hold_extents()).flatten().map(LandingItem::Held)
    }

    fn finish(self, landed: Result<Written>, _: &mut Answer, item: LandingItem<'_>) -> Result<DirectPart> {
        let is = match item {
            LandingItem::Held(is) => Some(is),
            LandingItem::Free => None,
        };
        self.complete(landed, is)
    }
}

/// Counts the bytes written at `offset`.
pub(super) fn count(direct: &Direct, offset: u64, written: DirectlyWritten) -> DirectPart {
    let DirectlyWritten { len, in_place } = written;
    Direct::add(&direct.write_bytes, len as u64);
    Direct::add(&direct.in_place_bytes, in_place);
    Direct::add(&direct.to_new_space_bytes, len as u64 - in_place);
    DirectPart { offset, len }
}
