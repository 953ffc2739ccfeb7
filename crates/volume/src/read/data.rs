//! Reading data: if a sector is bad in one copy, it comes from another.

use std::ops::Range;

use creamery_base::{DamagedBlock, DevId, Error, ErrorKind, Logical, Result, Wait};
use creamery_device::AlignedBuffer;

use super::search::{Mended, Search, VerifySector};
use super::ways::{Kind, Trust};
use super::{ReadWay, Verdict, no_good_copy};
use crate::Chunk;
use crate::device_range::DeviceRange;
use crate::index::index;
use crate::volume::Volume;

/// Ways that are tried to explain why no way is good.
const EXPLAINED: usize = 16;

impl Volume {
    /// Fills `out`, whole sectors, from `at` on. `verify` gets each sector with its index in the range and returns
    /// its verdict. A bad sector is taken from another copy, and the bad copies are rewritten if
    /// the volume is open for writing.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] for [`Wait::No`]; [`ErrorKind::Unreadable`] or [`ErrorKind::Io`] if a sector has
    /// no good copy, with the logical address of the first such sector; [`ErrorKind::Corrupt`] if no chunk covers the
    /// range. The content of `out` is unspecified then.
    pub fn read_data(&self, at: Logical, out: &mut [u8], verify: VerifySector<'_>, wait: Wait) -> Result<()> {
        self.search_data(at, out, verify, wait, &|mended, good| self.repair_sectors(mended, good, verify))
    }

    /// Reads data like [`read_data`](Self::read_data), but rewrites nothing: for callers that only look, or have a
    /// [`Mender`](crate::Mender) that rewrites.
    ///
    /// # Errors
    /// Those of [`read_data`](Self::read_data).
    pub fn find_data(&self, at: Logical, out: &mut [u8], verify: VerifySector<'_>, wait: Wait) -> Result<()> {
        self.search_data(at, out, verify, wait, &|_, _| ())
    }

    /// Tries the ways. `took` gets sectors that were bad in some way, and their good bytes.
    fn search_data(
        &self,
        at: Logical,
        out: &mut [u8],
        verify: VerifySector<'_>,
        wait: Wait,
        took: &dyn Fn(&Mended, &[u8]),
    ) -> Result<()> {
        let sector = index(self.sector_size());
        assert!(out.len().is_multiple_of(sector), "data is read in whole sectors");
        if !wait.allowed() {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.counters.data_reads.add(1);
        self.counters.data_read_bytes.add(out.len() as u64);
        let doing = |at: Logical| format!("reading data at logical {at}");
        if !at.is_aligned(sector as u64) {
            return Err(Error::new(ErrorKind::Corrupt, format!("{}: the address is not aligned", doing(at))));
        }
        let mut search = Search::new(self, at, out.len()).map_err(|error| error.context(doing(at)))?;
        while let Some(step) = search.next() {
            let (at, bytes) = search.target(&step);
            let read = self.read_way(step.way(), at, &mut out[bytes]);
            for mended in search.took(self, step, &read, out, verify)? {
                took(&mended, &out[search.bytes(&mended.sectors)]);
            }
        }
        let bad = search.into_bad();
        let Some(first) = bad.first() else { return Ok(()) };
        let unreadable: usize = bad.iter().map(Range::len).sum();
        self.counters.unreadable.add(unreadable as u64);
        let error = self.explain(at + (first.start * sector) as u64, first.start, verify)?;
        Err(error.context(format!("{unreadable} of {} sectors unreadable", out.len() / sector)))
    }

    /// Rewrites bad copies of sectors that are good now.
    fn repair_sectors(&self, mended: &Mended, good: &[u8], verify: VerifySector<'_>) {
        if mended.bad.is_empty() {
            return; // the same way returned other bytes a moment ago
        }
        let (sectors, sector) = (&mended.sectors, index(self.sector_size()));
        self.counters.mirror_fallbacks.add(sectors.len() as u64);
        for bad in &mended.bad {
            self.repair(bad.direct(), good, sectors.len() as u64, &|now| {
                let mut sectors = sectors.clone().zip(now.chunks(sector));
                sectors.any(|(number, bytes)| verify(number, bytes) == Verdict::Bad)
            });
        }
    }

    /// Returns an error that explains why the sector at `at` is good in no way. Reads it once more to find out. Even if it is good now, the
    /// caller has no data and gets an error.
    fn explain(&self, at: Logical, number: usize, verify: VerifySector<'_>) -> Result<Error> {
        let mut bytes = AlignedBuffer::zeroed(index(self.sector_size()));
        let mut bad = Vec::new();
        for way in self.ways(at, self.sector_size().into())?.take(EXPLAINED) {
            let error = match self.read_way(&way, at, &mut bytes) {
                Err(error) => error,
                Ok(()) => match verify(number, &bytes) {
                    Verdict::Bad => Error::new(ErrorKind::Unreadable, "checksum mismatch"),
                    verdict if self.is_believed(&way, &way.direct()[0], verdict) => {
                        Error::new(ErrorKind::Io, "it was bad in an earlier read")
                    }
                    _ => {
                        Error::new(ErrorKind::Unreadable, "its device missed writes, and it has no checksum")
                    }
                },
            };
            bad.push((way, error));
        }
        Ok(no_good_copy(DamagedBlock::Data(at), &bad))
    }

    /// Whether a member may lack writes to a chunk. A chunk of one copy cannot be written without the member, so after a power cut alone
    /// the member is behind by one commit whose data it has. A member that is further behind is an old copy.
    #[must_use]
    pub fn may_have_missed(&self, dev: DevId, chunk: &Chunk) -> bool {
        let Some(stopped_at) = self.members().stopped_at(dev) else { return false };
        stopped_at.next() != self.generation() || chunk.is_readable_without(&|other| other == dev)
    }

    /// Whether a sector that was read in this way, from this piece, counts as good (MEMBER-3).
    pub(super) fn is_believed(&self, way: &ReadWay, piece: &DeviceRange, verdict: Verdict) -> bool {
        let is_doubtful = match &way.0 {
            Kind::Copy(_, None) => false,
            Kind::Copy(_, Some(chunk)) => self.may_have_missed(piece.at.dev, chunk),
            Kind::Without { trust, .. } => *trust != Trust::Known,
        };
        match verdict {
            Verdict::Good => true,
            Verdict::Bad => false,
            Verdict::Unknown => !is_doubtful || self.rescue().ignore_data_csums,
        }
    }
}
