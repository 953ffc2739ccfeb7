//! Data bytes: writing and reading whole sectors, with their checksums.

use std::sync::Arc;

use creamery_base::{DamagedBlock, Error, ErrorKind, Generation, InodeId, Logical, Result, TreeId, Wait};
use creamery_codec::ChecksumType;
use creamery_device::{AlignedBuffer, Parts};
use creamery_volume::{ReadBatch, ReadDone, Verdict, Volume, WriteBatch, Written};

use crate::csum_tree::{CsumTree, RangeChecksums};
use crate::data_extent::DataExtent;
use crate::extent_tree::{Backref, ExtentTree};
use crate::nocow_writer::NocowWriter;
use crate::space_info::Space;
use crate::transaction::Transaction;

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
///     let found = engine.data().find_csums(at, 4096, DataCsums::Present, Wait::Yes)?;
///     let range = (at, AlignedBuffer::zeroed(4096), found);
///     engine.data().submit_read([range], Wait::Yes, Box::new(|reports| assert!(reports[0].is_good())));
///     Ok(())
/// }
/// ```
pub struct FoundCsums(Option<(ChecksumType, RangeChecksums)>);

impl FoundCsums {
    /// The verdict on the sector at `index`, which was read as `bytes`.
    fn judge(&self, index: usize, bytes: &[u8]) -> Verdict {
        let Some((kind, found)) = &self.0 else { return Verdict::Unknown };
        let agrees = found.get(index) == Some(creamery_codec::checksum(*kind, bytes).as_bytes(*kind));
        Verdict::of_checksum(agrees)
    }
}

/// Reads and writes the data of files, at addresses that their extents name.
///
/// ```no_run
/// # fn read(engine: &creamery_txn::Engine, at: creamery_base::Logical) -> creamery_base::Result<Vec<u8>> {
/// use creamery_base::Wait;
/// use creamery_txn::DataCsums;
/// let mut sector = vec![0; 4096];
/// engine.data().read(at, &mut sector, DataCsums::Present, Wait::Yes)?;
/// # Ok(sector)
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct DataIo<'e> {
    pub(crate) volume: &'e Arc<Volume>,
    pub(crate) csum_tree: &'e CsumTree,
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) space: &'e Space,
    pub(crate) transaction: &'e Transaction,
    /// Whether reads return data with a wrong or missing checksum.
    pub(crate) takes_unchecked_data: bool,
}

impl DataIo<'_> {
    /// Writes whole sectors to space that was handed out. Blocks until the device took them; durable with the
    /// commit of the transaction of [`Handle::complete_data`](crate::Handle::complete_data).
    /// Errors: device errors.
    pub fn write(&self, extent: &DataExtent, data: &[u8]) -> Result<Written> {
        assert!(data.len() as u64 <= extent.len(), "writing past the space that was handed out");
        self.volume.write_data(extent.start(), data)
    }

    /// Writes shared buffers at `at`, in space that was handed out or set aside: in as few requests as possible. Durable as with [`DataIo::write`].
    /// Errors: device errors.
    pub fn write_parts(&self, at: Logical, parts: Parts) -> Result<Written> {
        let mut batch = WriteBatch::default();
        batch.add_data(at, parts);
        self.volume.write(batch)
    }

    /// Whether only file extent items of `owner` with this `offset` (that of [`Handle::complete_data`](crate::Handle::complete_data))
    /// refer to the extent of `len` bytes at `start`, and others did neither in the last durable commit nor in a log behind it. The extent was made after `since`,
    /// the generation up to which blocks of the owner's tree may be shared. "No" may be wrong. "Yes" holds until the owner, or a caller that knows the extent,
    /// makes another reference.
    /// Errors: would block; device errors; damage.
    pub fn is_exclusive(
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
    pub fn read(&self, at: Logical, out: &mut [u8], csums: DataCsums, wait: Wait) -> Result<()> {
        let sector = self.volume.sector_size() as usize;
        assert!(out.len().is_multiple_of(sector));
        if csums == DataCsums::Absent {
            return self.volume.read_data(at, out, &|_, _| Verdict::Unknown, wait);
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
        let sector = self.volume.sector_size() as usize;
        for (number, bytes) in out.chunks_mut(sector).enumerate() {
            let at = at + (number * sector) as u64;
            match self.read_checked(at, bytes, wait) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(error),
                Err(_) => self.volume.read_data(at, bytes, &|_, _| Verdict::Unknown, wait)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn read_checked(&self, at: Logical, out: &mut [u8], wait: Wait) -> Result<()> {
        let found = self.find_csums(at, out.len(), DataCsums::Present, wait)?;
        self.volume.read_data(at, out, &|index, bytes| found.judge(index, bytes), wait)
    }

    /// The checksums of `len` bytes of an extent in use, whole sectors, to check a read against.
    /// Errors: would block; device errors; damage; unreadable, naming the first sector that has no checksum.
    pub fn find_csums(&self, at: Logical, len: usize, csums: DataCsums, wait: Wait) -> Result<FoundCsums> {
        if csums == DataCsums::Absent {
            return Ok(FoundCsums(None));
        }
        let (kind, sector) = (self.volume.checksum_type(), self.volume.sector_size() as usize);
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
    /// `done` gets a report of each, in their order. It repairs nothing; [`read`](Self::read) does. `wait` is that of
    /// [`Volume::submit_read`](creamery_volume::Volume::submit_read).
    pub fn submit_read(
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
