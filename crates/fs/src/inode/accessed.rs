//! The part of an inode in its access time; `access_time` has the rest.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use creamery_base::gate::Reason;
use creamery_base::{Result, Wait};
use creamery_txn::Handle;

use super::lock::LockedItem;
use super::{Inode, InodeItem, state};
use crate::access_time::{Accessed, Atime, AtimeOptions, Length};
use crate::keys;

impl Inode {
    /// Notes a read. Does nothing when access times do not move, or cannot be written.
    pub(crate) fn accessed(self: &Arc<Self>) {
        let times = self.context().access_times();
        let options = times.options();
        let length = if options.atime == Atime::Off { None } else { self.note_access(options) };
        match length {
            None | Some(Length::Usual) => {}
            Some(Length::Noteworthy) => self.engine().background().wake(),
            // A reader does not want the errors of that write.
            Some(Length::TooLong) => drop(times.write_some(self.engine())),
        }
    }

    /// Notes an access now, if that moves the time. Returns the length of the queue if the inode joined it.
    fn note_access(self: &Arc<Self>, options: AtimeOptions) -> Option<Length> {
        let (engine, now) = (self.engine(), self.engine().env().now());
        let item = self.hold_extents(Wait::Yes).ok()?;
        let seen = self.as_it_is(&item);
        let has_item = !self.has(state::GONE) && self.id.ino != keys::EMPTY_SUBVOLUME_DIR;
        if !has_item || !options.moves(&seen, now) {
            return None;
        }
        if engine.read_only().is_some() {
            return None;
        }
        let _change = self.begin_change().ok()?;
        *self.access_time.lock() = now;
        self.state.fetch_or(state::ACCESSED, Ordering::AcqRel);
        if item.nlink == 0 {
            return None; // the time goes with the inode's last user (ATIME-2)
        }
        let before = self.state.fetch_or(state::ACCESS_QUEUED, Ordering::AcqRel);
        let is_new = before & state::ACCESS_QUEUED == 0;
        let weak = || Arc::downgrade(self) as Weak<dyn Accessed>;
        is_new.then(|| self.context().access_times().add(weak(), engine))
    }

    /// Makes the unwritten times part of `item`, a copy of the inode's item that was taken with that locked.
    pub(super) fn take_along(&self, item: &mut InodeItem) {
        if self.has(state::ACCESSED) {
            item.atime = *self.access_time.lock();
        }
        self.show_overwritten(item);
    }

    /// Notes that the access time is part of the item, which is locked for writing, or of no use any more.
    fn access_time_is_in(&self, _: &InodeItem) {
        self.state.fetch_and(!state::ACCESSED, Ordering::AcqRel);
    }
}

impl LockedItem<'_> {
    /// Notes that all times are part of the item now, or of no use any more.
    pub(super) fn times_written(&self) {
        self.inode.access_time_is_in(&self.item);
        self.inode.overwritten_is_in(&self.item);
    }
}

impl Accessed for Inode {
    fn leave_queue(&self) {
        self.state.fetch_and(!state::ACCESS_QUEUED, Ordering::AcqRel);
    }

    /// Writes the access time alone. That counts as no change for an fsync or a change counter.
    fn write_access_time(&self, handle: &Handle<'_>) -> Result<()> {
        self.change_item(handle, |locked| {
            let mut next = locked.item.clone();
            if !self.has(state::ACCESSED) || self.has(state::GONE) || next.nlink == 0 {
                return Ok(());
            }
            self.take_along(&mut next);
            if self.has(state::OVERWRITTEN) {
                next.transid = handle.generation(); // overwrites count as a change (OVERWRITE-1)
            }
            locked.replace(&next)
        })
    }

    fn forget_access_time(&self) {
        let item = self.item.write_for(Reason::InodeLock, 0);
        self.access_time_is_in(&item);
    }
}
