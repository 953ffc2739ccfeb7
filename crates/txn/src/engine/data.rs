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

/// Whether the data of a file has checksums, which the file's flags say.
///
/// ```
/// assert_ne!(creamery_txn::DataCsums::Present, creamery_txn::DataCsums::Absent);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DataCsums {
    /// Every sector has one: without it nobody knows whether the data is good.
    Present,
    /// The file is NODATASUM: its data is taken as it is.
    Absent,
}

/// What sectors of data are held against: their checksums, or nothing.
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
    /// What is known of the sector at `index`, which was read as `bytes`.
    fn judge(&self, index: usize, bytes: &[u8]) -> Verdict {
        let Some((kind, found)) = &self.0 else { return Verdict::Unknown };
        let agrees = found.get(index) == Some(creamery_codec::checksum(*kind, bytes).as_bytes(*kind));
        Verdict::of_checksum(agrees)
    }
}

impl Engine {
    /// Hands out sector-aligned space for `len` bytes of data, or less, but not below `min`: at `near` if all of it is free there,
    /// else in the same block group if that has a run of `len` bytes, else where it fits best. Call it before a
    /// handle begins: it may allocate a chunk, have others free space, or commit ([`FlushPolicy::FlushData`]).
    /// It is for the subvolume `owner`.
    /// Errors: no space, also after all that; a limit of the subvolume's quota groups is in the way; read-only; those of a commit.
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

    /// The same out of what is kept in `room`, for who writes data back: it asks nobody to do that ([`FlushPolicy::FlushLimit`]).
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

    /// Removes checksums that no extent has, as a log that was given up leaves them (CSUM-4). There may be any number of them, and what
    /// a handle may change is bounded: so each handle removes a few.
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

    /// Takes data space out of the groups there are: `len` bytes, or less, but not below `min`. What is kept for data to be
    /// written later is left for others, but for `own` bytes of it.
    fn take_data(
        &self,
        len: u64,
        min: u64,
        near: Option<Logical>,
        own: u64,
    ) -> Option<(Arc<BlockGroup>, Logical, u64)> {
        let _running = self.join();
        // How much there is for data is looked at and taken in one step: two would take the last of it twice, or take what was
        // kept for others or, of groups that are shared, promised to metadata meanwhile.
        let shares_groups = self.shares_groups();
        if shares_groups {
            self.reservations.call_in();
        }
        let _alone = self.reservations.hold();
        let kept = self.delalloc.data().saturating_sub(own);
        let sector = u64::from(self.sector_size());
        // All others leave what is kept where it is.
        let room = if own > 0 { self.space.available(SpaceKind::Data) } else { self.data_room() };
        let most = room.saturating_sub(kept) / sector * sector;
        if most < min { None } else { self.space.allocate_data(len.min(most), min, near) }
    }

    /// Writes whole sectors to space that was handed out. Blocks until the device took them; durable with the
    /// commit of the transaction that is told ([`Handle::complete_data`](crate::Handle::complete_data)).
    /// Errors: device errors.
    pub fn write_data(&self, extent: &DataExtent, data: &[u8]) -> Result<Written> {
        assert!(data.len() as u64 <= extent.len(), "writing past the space that was handed out");
        self.volume().write_data(extent.start(), data)
    }

    /// The same of shared buffers at `at`, which lies in space that was handed out or set aside: in as few requests as possible.
    /// Errors: device errors.
    pub fn write_data_parts(&self, at: Logical, parts: Parts) -> Result<Written> {
        let mut batch = WriteBatch::default();
        batch.add_data(at, parts);
        self.volume().write(batch)
    }

    /// Whether only file extent items of `owner` with this `offset` (as of [`Handle::complete_data`](crate::Handle::complete_data))
    /// refer to the extent of `len` bytes at `start`, which was made after `since`, the generation up to which blocks of
    /// the owner's tree may be shared; no others did in the last durable commit, or in a log behind it. "No" may be wrong. True until the owner or who knows it makes another reference.
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

    /// The right to write in place at a range of an extent; none when its block group takes nothing new, or when a part of it is in
    /// no group.
    pub fn nocow_writer(&self, at: Logical, len: u64) -> Option<NocowWriter> {
        let group = self.space.group_at(at).filter(|group| group.holds(at, len))?;
        NocowWriter::new(group)
    }

    /// Data was written over what is there, and no tree changes because of it: the next commit, or the next writing of logs, flushes it.
    /// A caller that wants it durable asks for one of these behind this. It takes an innermost lock only, and no handle.
    pub fn overwrote(&self, written: Written) {
        self.transaction.overwrote(written);
    }

    /// How many writes in place have begun in the block group at an address; none while one is under way, or where there is no group. What
    /// lies there and has no checksum is of one moment where this is the same number before and after it is read.
    #[must_use]
    pub fn writes_in_place(&self, at: Logical) -> Option<u64> {
        self.space.group_at(at)?.nocow_begun()
    }

    /// Reads whole sectors of an extent in use and checks them against the checksum tree, when the data has checksums.
    /// Errors: would block; device errors; unreadable, naming the sector, when it has no checksum or no copy matches it, unless
    /// that is passed over ([`creamery_volume::Rescue`]).
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

    /// Sector by sector, so that one that is good somewhere is read from there.
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

    /// What `len` bytes of an extent in use, whole sectors, are held against when they are read.
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

    /// Reads ranges of extents in use, whole sectors, each into its buffer, and holds them against what was found for them. Waits for nothing;
    /// `done` gets a report of each, in their order. Nothing is repaired on the way; [`read_data`](Self::read_data) does that. `wait` is that of
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
