//! Direct overwrites of a file that its item does not show yet (`overwrite_times`).

use creamery_base::Timespec;
use creamery_base::lock::{RankedMutex, rank};
use creamery_txn::DelallocReservation;

use crate::items::InodeItem;

/// The writes of a file that its item does not show.
#[derive(Default)]
pub(super) struct NotedWrites(RankedMutex<Option<Box<Noted>>, { rank::LEAF }>);

struct Noted {
    /// The time when the last one ended.
    last: Timespec,
    /// How many there are.
    writes: u64,
    /// Reserved room for a change of the item; `None` while a thread that changes it has borrowed the room.
    room: Option<DelallocReservation>,
}

impl NotedWrites {
    /// Notes one more write. Returns `room` if an earlier write is noted, whose reservation is enough.
    pub(super) fn note(&self, now: Timespec, room: DelallocReservation) -> Option<DelallocReservation> {
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

    /// Adds the noted writes to `item`.
    pub(super) fn show(&self, item: &mut InodeItem) {
        if let Some(noted) = &*self.0.lock() {
            (item.mtime, item.ctime) = (noted.last, noted.last);
            item.sequence = item.sequence.wrapping_add(noted.writes);
        }
    }

    /// Forgets the notes: the item shows them now. Returns false if there are none.
    pub(super) fn forget(&self) -> bool {
        let noted = self.0.lock().take();
        noted.is_some()
    }

    /// Lends the room for changing the item, if it is there.
    pub(super) fn lend_room(&self) -> Option<DelallocReservation> {
        self.0.lock().as_mut().and_then(|noted| noted.room.take())
    }

    /// Gives back the borrowed room. Returns it if another change of the item has written the times meanwhile.
    pub(super) fn give_back(&self, room: DelallocReservation) -> Option<DelallocReservation> {
        match &mut *self.0.lock() {
            Some(noted) if noted.room.is_none() => noted.room.replace(room),
            _ => Some(room),
        }
    }
}
