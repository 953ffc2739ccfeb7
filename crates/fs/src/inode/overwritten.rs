//! The part of a file in the times of its overwrites; `overwrite_times` has the rest.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use creamery_base::Result;
use creamery_base::gate::Reason;
use creamery_txn::{DelallocReservation, ReserveItems};

use super::lock::HeldExtents;
use super::{Inode, InodeItem, state};
use crate::operation::finish;
use crate::overwrite_times::{Overwritten, TimesTurn};

impl Inode {
    /// Whether the times of an overwrite may be written later.
    pub(crate) fn may_put_times_off(&self, item: &InodeItem) -> bool {
        // The times of an inode without a name are not written later.
        item.nlink > 0 && (self.has(state::OVERWRITTEN) || self.context().overwrite_times().has_room())
    }

    /// Notes an overwrite of the file, after a call of [`DataIo::overwrote`](creamery_txn::DataIo::overwrote). Its times follow, in
    /// `room`, which is for one item. `is` holds the item unchanged meanwhile (ATIME-1). Without it this waits for the item.
    pub(crate) fn overwritten(self: &Arc<Self>, room: DelallocReservation, is: Option<HeldExtents<'_>>) {
        let file = self.as_file().expect("only files have data");
        let item = is.unwrap_or_else(|| self.item.read_for(Reason::InodeLock, 0));
        let now = self.engine().env().now();
        // Delayed data was written before, and shows its own times.
        file.delalloc().move_times(now);
        let spare = file.noted_writes().note(now, room);
        self.state.fetch_or(state::OVERWRITTEN, Ordering::AcqRel);
        drop(item);
        if spare.is_none() {
            let times = self.context().overwrite_times();
            times.add(Arc::downgrade(self) as Weak<dyn Overwritten>, self.engine());
            self.engine().background().wake();
        }
    }

    /// Makes the noted times part of `item`.
    pub(super) fn show_overwritten(&self, item: &mut InodeItem) {
        if self.has(state::OVERWRITTEN)
            && let Some(file) = self.as_file()
        {
            file.noted_writes().show(item);
        }
    }

    /// Notes that the times are part of the item, which is locked for writing, or of no use any more.
    pub(super) fn overwritten_is_in(&self, _: &InodeItem) {
        if self.has(state::OVERWRITTEN)
            && let Some(file) = self.as_file()
        {
            self.state.fetch_and(!state::OVERWRITTEN, Ordering::AcqRel);
            assert!(file.noted_writes().forget(), "OVERWRITE-2: what is noted is written once");
        }
    }

    /// Writes the unwritten times of overwrites, for an fsync.
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
        // There is no room if an operation has just written the times.
        let Some(mut room) = file.noted_writes().lend_room() else { return Ok(()) };
        let units = ReserveItems::items(1).of(self.id.subvolume);
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
