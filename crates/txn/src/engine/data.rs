//! Handing out space for data.

use creamery_base::{Error, ErrorKind, Logical, Result, TreeId};

use super::Engine;
use super::make_room::Tried;
use crate::csum_tree::LEFT_OVER_PER_HANDLE;
use crate::data_extent::DataExtent;
use crate::flush_policy::FlushPolicy;
use crate::held;
use crate::qgroup::Charge;
use crate::reserve_items::ReserveItems;
use crate::space_info::{DelallocReservation, SpaceKind};

impl Engine {
    /// Hands out sector-aligned space for `len` bytes of data, or less, but not below `min`: at `hint` if all of it is free there,
    /// else in the same block group if that has a run of `len` bytes, else where it fits best. Call it before a
    /// handle begins: it may allocate a chunk, run reclaimers, or commit ([`FlushPolicy::FlushData`]).
    /// The space is for the subvolume `owner`.
    /// Errors: no space, also after all that; a limit of the subvolume's quota groups would be exceeded; read-only; those of a commit.
    pub fn allocate_data(
        &self,
        owner: TreeId,
        len: u64,
        min: u64,
        hint: Option<Logical>,
    ) -> Result<DataExtent> {
        let sector = u64::from(self.sector_size());
        let charge = match self.qgroups.charge(owner, len) {
            Err(error) if error.kind() == ErrorKind::QuotaExceeded => {
                self.count_what_is_freed()?;
                self.qgroups.charge_some(owner, min.max(sector), len, sector)?
            }
            charge => charge?,
        };
        let len = charge.as_ref().map_or(len, Charge::bytes);
        let mut extent = self.allocate(len, min, hint, None)?;
        extent.charge_for(charge);
        Ok(extent)
    }

    /// Hands out sector-aligned space that `room` keeps, for a writer of delayed data: it runs no reclaimer ([`FlushPolicy::FlushLimit`]).
    /// `len`, `min`, `hint` and the errors are those of [`Engine::allocate_data`], without quota limits.
    pub fn allocate_reserved(
        &self,
        len: u64,
        min: u64,
        hint: Option<Logical>,
        room: &mut DelallocReservation,
    ) -> Result<DataExtent> {
        self.allocate(len, min, hint, Some(room))
    }

    fn allocate(
        &self,
        len: u64,
        min: u64,
        hint: Option<Logical>,
        mut room: Option<&mut DelallocReservation>,
    ) -> Result<DataExtent> {
        held::assert_none("RESERVE-2: who holds a handle allocates no chunk");
        self.check_writable()?;
        let sector = u64::from(self.sector_size());
        assert!(len > 0 && len.is_multiple_of(sector) && min.is_multiple_of(sector));
        let policy = if room.is_some() { FlushPolicy::FlushLimit } else { FlushPolicy::FlushData };
        let mut tried = Tried::default();
        loop {
            let chunks = self.chunks.made();
            let own = room.as_ref().map_or(0, |room| room.data_bytes());
            if let Some((group, start, len)) = self.headroom().take_data(len, min.max(sector), hint, own) {
                let mut extent = DataExtent::new(group, start, len);
                extent.charge_for(room.as_mut().and_then(|room| room.has_space(len)));
                self.remove_left_over_csums(&extent)?;
                return Ok(extent);
            }
            if self.allocate_chunk(SpaceKind::Data, chunks)? {
                continue;
            }
            if !self.make_room(&mut tried, policy, SpaceKind::Data)? {
                return Err(Error::new(ErrorKind::NoSpace, format!("allocating {len} bytes of data")));
            }
        }
    }

    /// Removes checksums in the space of `extent` that belong to no extent: a log that was given up leaves such (CSUM-4). Their number is unbounded, and the changes
    /// of a handle are not: so each handle removes a few.
    fn remove_left_over_csums(&self, extent: &DataExtent) -> Result<()> {
        let end = (extent.start() + extent.len()).get();
        while let Some(from) = self.csum_tree.last_of(extent.start(), extent.len())? {
            let handle = self.start(ReserveItems::reclaiming(LEFT_OVER_PER_HANDLE))?;
            match self.csum_tree.remove(&handle, from, end - from.get()) {
                Ok(()) => handle.end(),
                Err(error) => return Err(handle.abort(error)),
            }
        }
        Ok(())
    }
}
