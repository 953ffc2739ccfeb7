//! A file's part in the times of writes over what it has; `overwrite_times` is about the whole.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, Timespec};
use creamery_txn::{DelallocReservation, Units};

use super::{Inode, InodeItem, state};
use crate::operation::finish;
use crate::overwrite_times::{Overwritten, TimesTurn};

/// The writes of a file that its item does not show.
#[derive(Default)]
pub(super) struct NotedWrites(RankedMutex<Option<Box<Noted>>, { rank::LEAF }>);

struct Noted {
    /// When the last one ended.
    last: Timespec,
    /// How many they are.
    writes: u64,
    /// Room for changing the item. A thread that changes it has borrowed the room.
    room: Option<DelallocReservation>,
}

impl NotedWrites {
    /// Notes one more write. Returns the room where some is kept already.
    fn note(&self, now: Timespec, room: DelallocReservation) -> Option<DelallocReservation> {
        let first = |room| Box::new(Noted { last: now, writes: 1, room: Some(room) });
        match &mut *self.0.lock() {
            Some(noted) => {
                noted.last = noted.last.max(now);
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

    /// Gives back what was lent. Returns it where another change of the item has written the times meanwhile.
    fn give_back(&self, room: DelallocReservation) -> Option<DelallocReservation> {
        match &mut *self.0.lock() {
            Some(noted) if noted.room.is_none() => noted.room.replace(room),
            _ => Some(room),
        }
    }
}

impl Inode {
    /// Whether the times of a write over what the file has may follow later.
    pub(crate) fn may_put_times_off(&self, item: &InodeItem) -> bool {
        // The times of an inode without a name are not written later.
        item.nlink > 0 && (self.has(state::OVERWRITTEN) || self.context().overwrite_times().has_room())
    }

    /// The file was written over, and [`Engine::overwrote`](creamery_txn::Engine::overwrote) was told before: its times follow, in `room`, which
    /// is for one item.
    pub(crate) fn overwritten(self: &Arc<Self>, room: DelallocReservation) {
        let file = self.as_file().expect("only files have data");
        // The item stays as it is meanwhile (ATIME-1).
        let item = self.item.read_for(Reason::InodeLock, 0);
        let now = self.engine().now();
        // What is delayed was written before, and shows its own times.
        file.delalloc().move_times(now);
        let spare = file.noted_writes().note(now, room);
        self.state.fetch_or(state::OVERWRITTEN, Ordering::AcqRel);
        drop(item);
        if spare.is_none() {
            let times = self.context().overwrite_times();
            times.add(Arc::downgrade(self) as Weak<dyn Overwritten>, self.engine());
            self.engine().wake_background();
        }
    }

    /// Makes the times that are noted part of `item`.
    pub(super) fn show_overwritten(&self, item: &mut InodeItem) {
        if self.has(state::OVERWRITTEN)
            && let Some(file) = self.as_file()
        {
            file.noted_writes().show(item);
        }
    }

    /// They are part of the item, which is locked for writing, or of no use any more.
    pub(super) fn overwritten_is_in(&self, _: &InodeItem) {
        if self.has(state::OVERWRITTEN)
            && let Some(file) = self.as_file()
        {
            self.state.fetch_and(!state::OVERWRITTEN, Ordering::AcqRel);
            let noted = file.noted_writes().take();
            assert!(noted.is_some(), "OVERWRITE-2: what is noted is written once");
        }
    }

    /// Writes the times of writes over what the file has, if there are any to write: for an fsync.
    /// Errors: aborted; the filesystem is being closed.
    pub(crate) fn write_overwritten_times(&self) -> Result<()> {
        if !self.has(state::OVERWRITTEN) {
            return Ok(());
        }
        let turn = self.context().overwrite_times().turn();
        self.write_times(&turn)
    }
}

impl Overwritten for Inode {
    fn write_times(&self, _: &TimesTurn<'_>) -> Result<()> {
        let Some(file) = self.as_file().filter(|_| self.has(state::OVERWRITTEN)) else { return Ok(()) };
        // There is none where an operation has written the times just now.
        let Some(mut room) = file.noted_writes().lend_room() else { return Ok(()) };
        let units = Units::items(1).of(self.id.subvolume);
        let handle = match self.engine().start_reserved(units, &mut room) {
            Ok(handle) => handle,
            Err(error) => {
                drop(file.noted_writes().give_back(room));
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
