//! Keeping room for data that is written later.

use creamery_base::{Result, TreeId};

use super::Engine;
use crate::flush_policy::FlushPolicy;
use crate::handle::Handle;
use crate::held;
use crate::reserve_items::ReserveItems;
use crate::space_info::{DelallocReservation, SpaceKind};

impl Engine {
    /// Keeps room for `bytes` bytes of data to be written later, and for changing `items` items then. `None` when
    /// there is not enough for all of it: then reclaimers may free some ([`Reclaimer`](crate::Reclaimer)), or the caller writes the data
    /// at once. Its policy is [`FlushPolicy::NoFlush`]. It allocates a chunk of data where one has room, and waits for a commit's
    /// critical section at most.
    /// Errors: a limit of the subvolume's quota groups would be exceeded; writing data back and committing may help.
    pub fn reserve_delalloc(
        &self,
        subvolume: TreeId,
        bytes: u64,
        items: u32,
    ) -> Result<Option<DelallocReservation>> {
        held::assert_none("RESERVE-2: who holds a handle allocates no chunk");
        let mut charge = self.qgroups.charge(subvolume, bytes)?;
        let headroom = self.headroom();
        let metadata = u64::from(items) * headroom.item_bytes();
        loop {
            if self.room_claims.any() {
                return Ok(None); // RECLAIM-4
            }
            let chunks = self.chunks.made();
            // Asking and adding is one step, also beside reservations of metadata and allocations of data.
            let alone = self.reservations.hold();
            if !headroom.metadata_fits_later(metadata) {
                return Ok(None);
            }
            if headroom.data_fits_later(bytes, metadata) {
                return Ok(Some(self.delalloc.keep(bytes, metadata, charge.take())));
            }
            drop(alone);
            if !self.allocate_chunk(SpaceKind::Data, chunks)? {
                return Ok(None);
            }
        }
    }

    /// Keeps room for changing `items` items after data was written over existing data, which takes no data space. `None` when there is not enough
    /// now. It makes no chunk, runs no reclaimer, and waits for nothing.
    pub fn keep_at_once(&self, items: u32) -> Option<DelallocReservation> {
        self.headroom().keep_at_once(items)
    }

    /// Bytes that are kept for data to be written later.
    #[must_use]
    pub fn delalloc_bytes(&self) -> u64 {
        self.delalloc.data()
    }

    /// Bytes of metadata that are kept for data to be written later.
    #[must_use]
    pub fn delalloc_metadata_bytes(&self) -> u64 {
        self.delalloc.metadata()
    }

    /// Begins a handle like [`Engine::start`], for changing `units` after the data of `room` was written: the metadata kept
    /// for so many items becomes the handle's. It runs no reclaimer, for the caller itself writes data back.
    pub fn start_reserved(&self, units: ReserveItems, room: &mut DelallocReservation) -> Result<Handle<'_>> {
        // Until the handle has it, kept room belongs to no thread: writers of delayed data may use all of it (`Headroom::fits`).
        let mut handle = self.start(ReserveItems { policy: FlushPolicy::FlushLimit, ..units })?;
        handle.came_of_kept(room.has_promise(units.items));
        Ok(handle)
    }

    /// Ends a handle of [`Engine::start_reserved`] that changed nothing: its kept room is in `room` again, and no other thread
    /// can take it in between (DELALLOC-9).
    ///
    /// # Panics
    /// When it changed something, or `room` is of another filesystem.
    #[track_caller]
    pub fn end_unused(&self, mut handle: Handle<'_>, room: &mut DelallocReservation) {
        assert!(room.is_of(&self.delalloc), "DELALLOC-1: room of another filesystem");
        let (promise, bytes) = handle.give_up_promise();
        // A thread that reads both sums sees it in one of them.
        let alone = self.reservations.hold();
        room.keep_again(bytes);
        drop(promise);
        drop(alone);
        handle.end();
    }
}
