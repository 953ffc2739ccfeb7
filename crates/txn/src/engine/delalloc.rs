//! Keeping room for data that is written later.

use creamery_base::{Result, TreeId};

use super::Engine;
use crate::flush_policy::FlushPolicy;
use crate::handle::Handle;
use crate::space_info::{DelallocReservation, SpaceKind};
use crate::units::Units;

/// Of what no chunk has yet this share may be counted on, for data and metadata together: a chunk comes in large pieces, each
/// of one kind, and metadata keeps two copies.
const UNALLOCATED_SHARE: u64 = 2;

impl Engine {
    /// Keeps room for `bytes` bytes of data to be written later, and for changing `items` items when that is done. None when
    /// there is not enough for all of it: then others may free some ([`Reclaimer`](crate::Reclaimer)), or the data is written
    /// at once: its policy is [`FlushPolicy::NoFlush`]. It waits for nothing and allocates nothing.
    /// Errors: a limit of the subvolume's quota groups is in the way. What is written back and committed may make room.
    pub fn reserve_delalloc(
        &self,
        subvolume: TreeId,
        bytes: u64,
        items: u32,
    ) -> Result<Option<DelallocReservation>> {
        let charge = self.qgroups.charge(subvolume, bytes)?;
        let metadata = u64::from(items) * self.item_bytes();
        // Asking and adding is one step, for those who are promised metadata and those who take data, too.
        let _alone = self.reservations.hold();
        let fits = self.fits_later(self.reservations.may_use(), bytes, metadata);
        Ok(fits.then(|| self.delalloc.keep(bytes, metadata, charge)))
    }

    /// Whether so much more can be kept when `promised` bytes of metadata are promised.
    pub(super) fn fits_later(&self, promised: u64, bytes: u64, metadata: u64) -> bool {
        let data = self.delalloc.data() + bytes;
        if self.shares_groups() {
            return self.data_headroom() >= data + metadata;
        }
        let unallocated = self.unallocated() / UNALLOCATED_SHARE;
        let beyond = |wanted: u64, kind: SpaceKind| {
            wanted.saturating_sub(self.space.available(kind)).saturating_mul(self.space.copies(kind))
        };
        let metadata = self.wanted_later(promised + self.delalloc.metadata() + metadata);
        beyond(data, SpaceKind::Data).saturating_add(beyond(metadata, SpaceKind::Metadata)) <= unallocated
    }

    /// Bytes that are kept for data to be written later.
    #[must_use]
    pub fn delalloc_bytes(&self) -> u64 {
        self.delalloc.data()
    }

    /// Bytes of metadata that are kept for that.
    #[must_use]
    pub fn delalloc_metadata_bytes(&self) -> u64 {
        self.delalloc.metadata()
    }

    /// As [`Engine::start`], for changing `units` when data for which `room` is kept was written: what is kept of metadata
    /// for so many becomes the handle's. It asks nobody to write data back, for that is what it does.
    pub fn start_reserved(&self, units: Units, room: &mut DelallocReservation) -> Result<Handle<'_>> {
        // What is kept is nobody's until the handle has it: who writes back is let at all of it ([`Engine::fits`]).
        let handle = self.start(Units { policy: FlushPolicy::FlushLimit, ..units })?;
        room.has_promise(u64::from(units.items) * self.item_bytes());
        Ok(handle)
    }
}
