//! A file's part in the times of writes over what it has; `access_time` is about the whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, Timespec};
use creamery_txn::{DelallocReservation, Units};

use super::{Inode, InodeItem, state};
use crate::access_time::{Length, Turn};
use crate::operation::finish;

/// When a file was written over, as far as its item does not say that.
#[derive(Default)]
pub(super) struct Overwritten(RankedMutex<Option<Box<Noted>>, { rank::LEAF }>);

/// Writes of which the item does not tell.
struct Noted {
    /// When the last one ended.
    last: Timespec,
    /// How many they are.
    writes: u64,
    /// Room for changing the item. None while somebody changes it.
    room: Option<DelallocReservation>,
}

impl Overwritten {
    /// Notes one more write. Returns the room that is not needed: it is kept already.
    fn note(&self, now: Timespec, room: DelallocReservation) -> Option<DelallocReservation> {
        let first = |room| Box::new(Noted { last: now, writes: 1, room: Some(room) });
        match &mut *self.0.lock() {
            Some(noted) => {
                noted.last = now;
                noted.writes += 1;
                Some(room)
            }
            none => {
                *none = Some(first(room));
                None
            }
        }
    }

    fn show(&self, item: &mut InodeItem) {
        if let Some(noted) = &*self.0.lock() {
            (item.mtime, item.ctime) = (noted.last, noted.last);
            item.sequence = item.sequence.wrapping_add(noted.writes);
        }
    }

    fn take(&self) -> Option<Box<Noted>> {
        self.0.lock().take()
    }

    fn lend_room(&self) -> Option<DelallocReservation> {
        self.0.lock().as_mut().and_then(|noted| noted.room.take())
    }

    /// Gives back what was lent. Returns what is not needed: others have written the times meanwhile.
    fn give_back(&self, room: DelallocReservation) -> Option<DelallocReservation> {
        match &mut *self.0.lock() {
            Some(noted) if noted.room.is_none() => noted.room.replace(room),
            _ => Some(room),
        }
    }
}

impl Inode {
    /// Whether the times of a write over what the file has may be put off.
    pub(crate) fn may_put_times_off(&self, item: &InodeItem) -> bool {
        // Of an inode without a name nobody writes them later (ATIME-2).
        item.nlink > 0 && (self.has(state::OVERWRITTEN) || self.context().access_times().may_put_off())
    }

    /// The file was written over, and [`Engine::overwrote`](creamery_txn::Engine::overwrote) knows that: its times follow, in `room`, which is for one item.
    pub(crate) fn overwritten(self: &Arc<Self>, room: DelallocReservation) {
        let (file, now) = (self.as_file().expect("only files have data"), self.engine().now());
        // The item stays as it is meanwhile (ATIME-1).
        let item = self.item.read_for(Reason::InodeLock, 0);
        let spare = file.noted_overwrites().note(now, room);
        if spare.is_none() {
            self.context().access_times().count_overwritten();
        }
        self.state.fetch_or(state::OVERWRITTEN, Ordering::AcqRel);
        let length = self.queue_times();
        drop((item, spare));
        if !matches!(length, None | Some(Length::Usual)) {
            self.engine().wake_background();
        }
    }

    /// Makes the times that are noted part of `item`.
    pub(super) fn show_overwritten(&self, item: &mut InodeItem) {
        if self.has(state::OVERWRITTEN)
            && let Some(file) = self.as_file()
        {
            file.noted_overwrites().show(item);
        }
    }

    /// They are part of the item, which is locked for writing, or of no use any more.
    pub(super) fn overwritten_is_in(&self, _: &InodeItem) {
        if self.has(state::OVERWRITTEN)
            && let Some(file) = self.as_file()
        {
            self.state.fetch_and(!state::OVERWRITTEN, Ordering::AcqRel);
            let noted = file.noted_overwrites().take();
            assert!(noted.is_some(), "ATIME-1: what is noted is written once");
            self.context().access_times().forget_overwritten();
        }
    }

    /// Writes the times of writes over what the file has, if there are any to write: for an fsync.
    /// Errors: aborted.
    pub(crate) fn write_overwritten_times(&self) -> Result<()> {
        if !self.has(state::OVERWRITTEN) {
            return Ok(());
        }
        let turn = self.context().access_times().turn();
        self.write_its_overwritten(&turn)
    }

    /// The same for who has the turn.
    pub(super) fn write_its_overwritten(&self, _: &Turn<'_>) -> Result<()> {
        let Some(file) = self.as_file().filter(|_| self.has(state::OVERWRITTEN)) else { return Ok(()) };
        // None where an operation has written them just now.
        let Some(mut room) = file.noted_overwrites().lend_room() else { return Ok(()) };
        let units = Units::items(1).of(self.id.subvolume);
        let handle = match self.engine().start_reserved(units, &mut room) {
            Ok(handle) => handle,
            Err(error) => {
                drop(file.noted_overwrites().give_back(room));
                return Err(error);
            }
        };
        let written = self.change_item(&handle, |locked| {
            if !self.has(state::OVERWRITTEN) || self.has(state::GONE) {
                return Ok(());
            }
            let mut next = locked.item.clone();
            self.take_along(&mut next);
            next.transid = handle.generation();
            locked.replace(&next)
        });
        finish(handle, written)
    }
}
