//! Data space and data bytes: handing out space, writing and reading whole sectors, checksums.

use std::sync::Arc;

use creamery_base::{DamagedBlock, Error, ErrorKind, Generation, InodeId, Logical, Result, TreeId, Wait};
use creamery_codec::ChecksumType;
use creamery_device::{AlignedBuffer, Parts};
use creamery_volume::{ReadBatch, ReadDone, Verdict, WriteBatch, Written};

use super::Engine;
use super::make_room::Tried;
use crate::csum_tree::{Csums, LEFT_OVER_PER_HANDLE};
use crate::data_extent::DataExtent;
use crate::extent_tree::Backref;
use crate::flush_policy::FlushPolicy;
use crate::held;
use crate::nocow_writer::NocowWriter;
use crate::qgroup::Charge;
use crate::space_info::{BlockGroup, DelallocReservation, SpaceKind};
use crate::units::Units;

/// Whether the data of a file has checksums, by the file's flags.
///
/// ```
/// assert_ne!(creamery_txn::DataCsums::Present, creamery_txn::DataCsums::Absent);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataCsums {
    /// Every sector has one: without it the data cannot be checked.
    Present,
    /// The file is NODATASUM: its data is not checked.
    Absent,
}

/// The checksums to check sectors of data against, or none.
///
/// ```
/// use creamery_base::{Logical, Wait};
/// use creamery_device::AlignedBuffer;
/// use creamery_txn::{DataCsums, Engine};
/// fn read_ahead(engine: &Engine, at: Logical) -> creamery_base::Result<()> {
///     let found = engine.find_csums(at, 4096, DataCsums::Present, Wait::Yes)?;
///     let range = (at, AlignedBuffer::zeroed(4096), found);
///     engine.submit_read_data([range], Wait::Yes, Box::new(|reports| assert!(reports[0].is_good())));
///     Ok(())
/// }
/// ```
pub struct FoundCsums(Option<(ChecksumType, Csums)>);

impl FoundCsums {
    /// The verdict on the sector at `index`, which was read as `bytes`.
    fn judge(&self, index: usize, bytes: &[u8]) -> Verdict {
        let Some((kind, found)) = &self.0 else { return Verdict::Unknown };
        let agrees = found.get(index) == Some(creamery_codec::checksum(*kind, bytes).as_bytes(*kind));
        Verdict::of_checksum(agrees)
    }
}

impl Engine {
    /// Hands out sector-aligned space for `len` bytes of data, or less, but not below `min`: at `near` if all of it is free there,
    /// else in the same block group if that has a run of `len` bytes, else where it fits best. Call it before a
    /// handle begins: it may allocate a chunk, run reclaimers, or commit ([`FlushPolicy::FlushData`]).
    /// The space is for the subvolume `owner`.
    /// Errors: no space, also after all that; a limit of the subvolume's quota groups would be exceeded; read-only; those of a commit.
    pub fn allocate_data(
        &self,
        owner: TreeId,
        len: u64,
        min: u64,
        near: Option<Logical>,
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
        let mut extent = self.allocate(len, min, near, None)?;
        extent.charge_for(charge);
        Ok(extent)
    }

    /// Hands out sector-aligned space that `room` keeps, for a writer of delayed data: it runs no reclaimer ([`FlushPolicy::FlushLimit`]).
    /// `len`, `min`, `near` and the errors are those of [`Engine::allocate_data`], without quota limits.
    pub fn allocate_reserved(
        &self,
        len: u64,
        min: u64,
        near: Option<Logical>,
        room: &mut DelallocReservation,
    ) -> Result<DataExtent> {
        self.allocate(len, min, near, Some(room))
    }

    fn allocate(
        &self,
        len: u64,
        min: u64,
        near: Option<Logical>,
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
            if let Some((group, start, len)) = self.take_data(len, min.max(sector), near, own) {
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
            let handle = self.start(Units::reclaiming(LEFT_OVER_PER_HANDLE))?;
            match self.csum_tree.remove(&handle, from, end - from.get()) {
                Ok(()) => handle.end(),
                Err(error) => return Err(handle.abort(error)),
            }
        }
        Ok(())
    }

    /// Takes data space out of the existing groups: `len` bytes, or less, but not below `min`. It leaves the space that is kept for delayed
    /// data, except `own` bytes of it.
    fn take_data(
        &self,
        len: u64,
        min: u64,
        near: Option<Logical>,
        own: u64,
    ) -> Option<(Arc<BlockGroup>, Logical, u64)> {
        let _running = self.join();
        // Reading how much there is for data and taking it is one step: two steps would take the last of it twice, or take space that is
        // kept for delayed data or, in shared groups, was promised to metadata meanwhile.
        let shares_groups = self.shares_groups();
        if shares_groups {
            self.reservations.call_in();
        }
        let _alone = self.reservations.hold();
        let kept = self.delalloc.data().saturating_sub(own);
        let sector = u64::from(self.sector_size());
        // Callers without `own` leave the kept space untouched.
        let room = if own > 0 { self.space.available(SpaceKind::Data) } else { self.data_room() };
        let most = room.saturating_sub(kept) / sector * sector;
        if most < min { None } else { self.space.allocate_data(len.min(most), min, near) }
    }

    /// Writes whole sectors to space that was handed out. Blocks until the device took them; durable with the
    /// commit of the transaction of [`Handle::complete_data`](crate::Handle::complete_data).
    /// Errors: device errors.
    pub fn write_data(&self, extent: &DataExtent, data: &[u8]) -> Result<Written> {
        assert!(data.len() as u64 <= extent.len(), "writing past the space that was handed out");
        self.volume().write_data(extent.start(), data)
    }

    /// Writes shared buffers at `at`, in space that was handed out or set aside: in as few requests as possible. Durable as with [`Engine::write_data`].
    /// Errors: device errors.
    pub fn write_data_parts(&self, at: Logical, parts: Parts) -> Result<Written> {
        let mut batch = WriteBatch::default();
        batch.add_data(at, parts);
        self.volume().write(batch)
    }

    /// Whether only file extent items of `owner` with this `offset` (that of [`Handle::complete_data`](crate::Handle::complete_data))
    /// refer to the extent of `len` bytes at `start`, and others did neither in the last durable commit nor in a log behind it. The extent was made after `since`,
    /// the generation up to which blocks of the owner's tree may be shared. "No" may be wrong. "Yes" holds until the owner, or a caller that knows the extent,
    /// makes another reference.
    /// Errors: would block; device errors; damage.
    pub fn is_data_exclusive(
        &self,
        start: Logical,
        len: u64,
        owner: InodeId,
        offset: u64,
        since: Generation,
        wait: Wait,
    ) -> Result<bool> {
        self.extent_tree.is_sole_user(start, len, Backref::of_file(owner, offset), since, wait)
    }

    /// Whether any sector of a range has a checksum.
    /// Errors: would block; device errors; damage.
    pub fn has_csums(&self, start: Logical, len: u64, wait: Wait) -> Result<bool> {
        self.csum_tree.any(start, len, wait)
    }

    /// The right to write in place at a range of an extent; `None` when its block group takes no new data, or when a part of the range is in
    /// no group.
    pub fn nocow_writer(&self, at: Logical, len: u64) -> Option<NocowWriter> {
        let group = self.space.group_at(at).filter(|group| group.holds(at, len))?;
        NocowWriter::new(group)
    }

    /// Notes data that was written over existing data, which changes no tree: the next commit, or the next write of logs, flushes it.
    /// A caller that wants it durable asks for one of these afterwards. It takes an innermost lock only, and no handle.
    pub fn overwrote(&self, written: Written) {
        self.transaction.overwrote(written);
    }

    /// Number of writes in place that have begun in the block group at an address; `None` while one runs, or where there is no group. A read of
    /// data without checksums saw one moment if this number is equal before and after it.
    #[must_use]
    pub fn writes_in_place(&self, at: Logical) -> Option<u64> {
        self.space.group_at(at)?.nocow_begun()
    }

    /// Reads whole sectors of an extent in use and checks them against the checksum tree, when the data has checksums.
    /// Errors: would block; device errors; unreadable, naming the sector, when it has no checksum or no copy matches it, unless
    /// the rescue option ignores that ([`creamery_volume::Rescue`]).
    pub fn read_data(&self, at: Logical, out: &mut [u8], csums: DataCsums, wait: Wait) -> Result<()> {
        let sector = self.sector_size() as usize;
        assert!(out.len().is_multiple_of(sector));
        if csums == DataCsums::Absent {
            return self.volume().read_data(at, out, &|_, _| Verdict::Unknown, wait);
        }
        match self.read_checked(at, out, wait) {
            Err(error) if self.takes_unchecked_data && error.kind() != ErrorKind::WouldBlock => {
                self.read_past_checksums(at, out, wait)
            }
            read => read,
        }
    }

    /// Reads sector by sector, so that a sector with one good copy is read from that copy.
    fn read_past_checksums(&self, at: Logical, out: &mut [u8], wait: Wait) -> Result<()> {
        let sector = self.sector_size() as usize;
        for (number, bytes) in out.chunks_mut(sector).enumerate() {
            let at = at + (number * sector) as u64;
            match self.read_checked(at, bytes, wait) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error),
                Err(_) => self.volume().read_data(at, bytes, &|_, _| Verdict::Unknown, wait)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn read_checked(&self, at: Logical, out: &mut [u8], wait: Wait) -> Result<()> {
        let found = self.find_csums(at, out.len(), DataCsums::Present, wait)?;
        self.volume().read_data(at, out, &|index, bytes| found.judge(index, bytes), wait)
    }

    /// The checksums of `len` bytes of an extent in use, whole sectors, to check a read against.
    /// Errors: would block; device errors; damage; unreadable, naming the first sector that has no checksum.
    pub fn find_csums(&self, at: Logical, len: usize, csums: DataCsums, wait: Wait) -> Result<FoundCsums> {
        if csums == DataCsums::Absent {
            return Ok(FoundCsums(None));
        }
        let (kind, sector) = (self.checksum_type(), self.sector_size() as usize);
        let found = self.csum_tree.read(at, len / sector, wait)?;
        if let Some(missing) = found.first_missing() {
            let at = at + (missing * sector) as u64;
            let message = format!(
                "reading data at logical {at}: tree {} has no checksum for it, and its file is not NODATASUM",
                TreeId::CSUM
            );
            return Err(Error::new(ErrorKind::Unreadable, message).of_block(DamagedBlock::Data(at)));
        }
        Ok(FoundCsums(Some((kind, found))))
    }

    /// Reads ranges of extents in use, whole sectors, each into its buffer, and checks them against their checksums. It does not block;
    /// `done` gets a report of each, in their order. It repairs nothing; [`read_data`](Self::read_data) does. `wait` is that of
    /// [`Volume::submit_read`](creamery_volume::Volume::submit_read).
    pub fn submit_read_data(
        &self,
        ranges: impl IntoIterator<Item = (Logical, AlignedBuffer, FoundCsums)>,
        wait: Wait,
        done: ReadDone,
    ) {
        let mut batch = ReadBatch::default();
        for (at, buffer, found) in ranges {
            batch.add(at, buffer, move |index, bytes| found.judge(index, bytes));
        }
        self.volume.submit_read(batch, wait, done);
    }
}
