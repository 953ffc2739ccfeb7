//! Room for data that is written later, beside the promises.

use std::sync::Arc;

use creamery_base::Logical;

use super::Headroom;
use crate::chunk_allocator::Claim;
use crate::flush_policy::FlushPolicy;
use crate::space_info::{BlockGroup, DelallocReservation, SpaceKind};

/// Items that an operation changes in one handle, about.
const OPERATION_UNITS: u64 = 16;

impl<'e> Headroom<'e> {
    /// Keeps room for changing `items` items after data was written over existing data, which takes no data space. `None` when there is not enough
    /// now. It makes no chunk, runs no reclaimer, and waits for nothing.
    pub(crate) fn keep_at_once(&self, items: u32) -> Option<DelallocReservation> {
        let metadata = u64::from(items) * self.item_bytes();
        let _alone = self.need.reservations.hold();
        let fits = !self.room_claims.any()
            && self.metadata_fits_later(metadata)
            && self.data_fits_later(0, metadata);
        fits.then(|| self.delalloc.keep(0, metadata, None))
    }

    /// The unallocated bytes that delayed data needs for metadata; without delayed data, the need of the next operation, so that some are left when
    /// data has taken all the rest.
    pub(crate) fn claim(&self) -> Claim<'e> {
        let _alone = self.need.reservations.hold();
        let copies = self.need.space.copies(SpaceKind::Metadata);
        let promised = self.need.reservations.may_use() + OPERATION_UNITS * self.item_bytes();
        let beyond = self.metadata_beyond(promised, FlushPolicy::NoFlush);
        let metadata = if self.shares_groups() { 0 } else { beyond };
        Claim { _alone, metadata, copies }
    }

    /// Whether the existing block groups have room for `bytes` more of delayed data and, where they are shared, `metadata` more. Room that is kept
    /// already has its place there (DELALLOC-7).
    pub(crate) fn data_fits_later(&self, bytes: u64, metadata: u64) -> bool {
        let shared = if self.shares_groups() { metadata } else { 0 };
        self.data_room() >= self.delalloc.data() + bytes + shared
    }

    /// Bytes that data may take of the existing block groups, including all that is kept for it.
    pub(crate) fn data_room(&self) -> u64 {
        match self.shares_groups() {
            true => self.shared_with_data(),
            false => self.need.space.available(SpaceKind::Data),
        }
    }

    /// Whether `metadata` more bytes can be kept: in the existing block groups, or in new ones (DELALLOC-7).
    pub(crate) fn metadata_fits_later(&self, metadata: u64) -> bool {
        if self.shares_groups() {
            return true; // `data_fits_later` checks it
        }
        let copies = self.need.space.copies(SpaceKind::Metadata);
        let promised = self.need.reservations.may_use() + metadata;
        self.metadata_beyond(promised, FlushPolicy::NoFlush)
            <= self.need.chunks.allocatable(SpaceKind::Metadata, copies)
    }

    /// Whether kept metadata still has its place when a handle of this policy raises the promises to `promised` bytes (DELALLOC-7).
    pub(super) fn fits_later(&self, promised: u64, policy: FlushPolicy) -> bool {
        let copies = self.need.space.copies(SpaceKind::Metadata);
        let more = match self.shares_groups() {
            true => 0,
            false => self.need.chunks.allocatable(SpaceKind::Metadata, copies),
        };
        self.metadata_beyond(promised, policy) <= more
    }

    /// Bytes of kept metadata without a block group yet, when `promised` bytes are promised besides, and the part of the reserve that
    /// `policy` leaves is left.
    fn metadata_beyond(&self, promised: u64, policy: FlushPolicy) -> u64 {
        let wanted = self.wanted_later(promised + self.delalloc.metadata(), policy);
        wanted.saturating_sub(self.available_blocks())
    }

    /// Bytes of data for which chunks can still be made after the delayed data is written: that takes far less metadata than is kept
    /// for it.
    pub(crate) fn allocatable_data(&self) -> u64 {
        let mut claim = self.claim();
        if claim.metadata > 0 {
            // By the bytes in use: an engine opened for reading has not loaded the free space.
            let groups = self.need.space.figures(SpaceKind::Metadata);
            let next = self.wanted_later(OPERATION_UNITS * self.item_bytes(), FlushPolicy::NoFlush);
            claim.metadata = next.saturating_sub(groups.total.saturating_sub(groups.used));
        }
        self.need.chunks.allocatable_data(self.need.space.copies(SpaceKind::Data), &claim)
    }

    /// Takes data space out of the existing groups: `len` bytes, or less, but not below `min`. It leaves the space that is kept for delayed
    /// data, except `own` bytes of it.
    pub(crate) fn take_data(
        &self,
        len: u64,
        min: u64,
        hint: Option<Logical>,
        own: u64,
    ) -> Option<(Arc<BlockGroup>, Logical, u64)> {
        let (space, reservations) = (self.need.space, self.need.reservations);
        let _running = self.transaction.join();
        // Reading how much there is for data and taking it is one step: two steps would take the last of it twice, or take space that is
        // kept for delayed data or, in shared groups, was promised to metadata meanwhile.
        if self.shares_groups() {
            reservations.call_in();
        }
        let _alone = reservations.hold();
        let kept = self.delalloc.data().saturating_sub(own);
        let sector = u64::from(self.need.store.volume().sector_size());
        // Callers without `own` leave the kept space untouched.
        let room = if own > 0 { space.available(SpaceKind::Data) } else { self.data_room() };
        let most = room.saturating_sub(kept) / sector * sector;
        if most < min { None } else { space.allocate_data(len.min(most), min, hint) }
    }
}
