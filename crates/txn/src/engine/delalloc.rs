//! Keeping room for data that is written later.

use creamery_base::{Result, TreeId};

use super::Engine;
use crate::chunk_allocator::Claim;
use crate::flush_policy::FlushPolicy;
use crate::handle::Handle;
use crate::held;
use crate::space_info::{DelallocReservation, SpaceKind};
use crate::units::Units;

/// Items that an operation changes in one handle, about.
const OPERATION_UNITS: u64 = 16;

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
        let metadata = u64::from(items) * self.item_bytes();
        loop {
            if self.room_claims.any() {
                return Ok(None); // RECLAIM-4
            }
            let chunks = self.chunks.made();
            // Asking and adding is one step, also beside reservations of metadata and allocations of data.
            let alone = self.reservations.hold();
            if !self.metadata_fits_later(metadata) {
                return Ok(None);
            }
            if self.data_fits_later(bytes, metadata) {
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
        let metadata = u64::from(items) * self.item_bytes();
        let _alone = self.reservations.hold();
        let fits = !self.room_claims.any()
            && self.metadata_fits_later(metadata)
            && self.data_fits_later(0, metadata);
        fits.then(|| self.delalloc.keep(0, metadata, None))
    }

    /// Whether the existing block groups have room for `bytes` more of delayed data and, where they are shared, `metadata` more. Room that is kept
    /// already has its place there (DELALLOC-7).
    fn data_fits_later(&self, bytes: u64, metadata: u64) -> bool {
        let shared = if self.shares_groups() { metadata } else { 0 };
        self.data_room() >= self.delalloc.data() + bytes + shared
    }

    /// Bytes that data may take of the existing block groups, including all that is kept for it.
    pub(super) fn data_room(&self) -> u64 {
        if self.shares_groups() { self.data_headroom() } else { self.space.available(SpaceKind::Data) }
    }

    /// Whether `metadata` more bytes can be kept: in the existing block groups, or in new ones (DELALLOC-7).
    fn metadata_fits_later(&self, metadata: u64) -> bool {
        if self.shares_groups() {
            return true; // `data_fits_later` checks it
        }
        let copies = self.space.copies(SpaceKind::Metadata);
        let promised = self.reservations.may_use() + metadata;
        self.metadata_beyond(promised, FlushPolicy::NoFlush)
            <= self.chunks.allocatable(SpaceKind::Metadata, copies)
    }

    /// Whether kept metadata still has its place when a handle of this policy raises the promises to `promised` bytes (DELALLOC-7).
    pub(super) fn fits_later(&self, promised: u64, policy: FlushPolicy) -> bool {
        let copies = self.space.copies(SpaceKind::Metadata);
        let more =
            if self.shares_groups() { 0 } else { self.chunks.allocatable(SpaceKind::Metadata, copies) };
        self.metadata_beyond(promised, policy) <= more
    }

    /// Bytes of kept metadata without a block group yet, when `promised` bytes are promised besides, and the part of the reserve that
    /// `policy` leaves is left.
    fn metadata_beyond(&self, promised: u64, policy: FlushPolicy) -> u64 {
        let wanted = self.wanted_later(promised + self.delalloc.metadata(), policy);
        wanted.saturating_sub(self.available_blocks())
    }

    /// The unallocated bytes that delayed data needs for metadata; without delayed data, the need of the next operation, so that some are left when
    /// data has taken all the rest.
    pub(super) fn claim(&self) -> Claim<'_> {
        let _alone = self.reservations.hold();
        let copies = self.space.copies(SpaceKind::Metadata);
        let promised = self.reservations.may_use() + OPERATION_UNITS * self.item_bytes();
        let beyond = self.metadata_beyond(promised, FlushPolicy::NoFlush);
        let metadata = if self.shares_groups() { 0 } else { beyond };
        Claim { _alone, metadata, copies }
    }

    /// Bytes of data for which chunks can still be made after the delayed data is written: that takes far less metadata than is kept
    /// for it.
    pub(super) fn allocatable_data(&self) -> u64 {
        let mut claim = self.claim();
        if claim.metadata > 0 {
            // By the bytes in use: an engine opened for reading has not loaded the free space.
            let groups = self.space.figures(SpaceKind::Metadata);
            let next = self.wanted_later(OPERATION_UNITS * self.item_bytes(), FlushPolicy::NoFlush);
            claim.metadata = next.saturating_sub(groups.total.saturating_sub(groups.used));
        }
        self.chunks.allocatable_data(self.space.copies(SpaceKind::Data), &claim)
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

    /// Splits off the room that `room` has for changing `items` items.
    pub fn split_off(&self, room: &mut DelallocReservation, items: u32) -> DelallocReservation {
        room.take(0, u64::from(items) * self.item_bytes())
    }

    /// Begins a handle like [`Engine::start`], for changing `units` after the data of `room` was written: the metadata kept
    /// for so many items becomes the handle's. It runs no reclaimer, for the caller itself writes data back.
    pub fn start_reserved(&self, units: Units, room: &mut DelallocReservation) -> Result<Handle<'_>> {
        // Until the handle has it, kept room belongs to no thread: writers of delayed data may use all of it ([`Engine::fits`]).
        let mut handle = self.start(Units { policy: FlushPolicy::FlushLimit, ..units })?;
        handle.came_of_kept(room.has_promise(u64::from(units.items) * self.item_bytes()));
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
