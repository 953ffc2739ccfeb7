//! The places of a set's bytes, from the on-disk format alone: nothing here uses the volume's own mapping.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery::Image;
use creamery::extents::{FiemapExtent, FiemapFlags, FiemapRequest};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_format::BlockGroupFlags;
use creamery_txn::{Engine, Options};
use creamery_volume::{Chunk, DeviceSet, Mode, Volume};

pub(crate) const SECTOR: u64 = 4096;
const ELEMENT: u64 = 64 << 10;

/// The chunks of a set.
pub(crate) struct Oracle {
    pub(crate) chunks: Vec<Arc<Chunk>>,
    /// Address of the root of the root tree.
    pub(crate) root: u64,
    /// Address of the root of the chunk tree.
    pub(crate) chunk_root: u64,
}

/// A place on a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OracleSpot {
    /// Position of the stripe in its chunk.
    pub(crate) stripe: usize,
    /// Position of the member.
    pub(crate) member: usize,
    pub(crate) offset: u64,
}

impl Oracle {
    pub(crate) fn of(files: &[PathBuf]) -> Result<Self> {
        let open = |file: &PathBuf| -> Result<Arc<dyn BlockDevice>> {
            Ok(Arc::new(FileDevice::open(file, Access::ReadOnly)?))
        };
        let devices = files.iter().map(open).collect::<Result<DeviceSet>>()?;
        let volume = Volume::open(devices, Mode::ReadOnly)?;
        let engine = Engine::open(volume, Options { read_only: true, ..Options::default() })?;
        let chunks = engine.volume().chunks();
        ensure!(!chunks.is_empty(), "a filesystem has chunks");
        let superblock = engine.volume().superblock();
        Ok(Self { chunks, root: superblock.root().0.get(), chunk_root: superblock.chunk_root().0.get() })
    }

    /// Columns of parity of the chunks of data.
    pub(crate) fn parity(&self) -> usize {
        self.data_chunks().next().map_or(0, parity_of)
    }

    /// The number of stripes of a row that may be lost or rotten.
    pub(crate) fn borne(&self) -> usize {
        self.data_chunks().map(borne_by).min().unwrap_or(0)
    }

    /// The largest number of stripes of a chunk.
    pub(crate) fn stripes_max(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.stripes.len()).max().unwrap_or(0)
    }

    pub(crate) fn data_chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.chunks.iter().map(|chunk| &**chunk).filter(|chunk| chunk.flags.contains(BlockGroupFlags::DATA))
    }

    /// Whether all chunks can be read without the members at these positions.
    pub(crate) fn bears(&self, away: &[usize]) -> bool {
        self.chunks.iter().all(|chunk| bears(chunk, &|stripe| away.contains(&member(chunk, stripe))))
    }

    pub(crate) fn chunk_at(&self, logical: u64) -> Result<&Chunk> {
        let has = |chunk: &&Arc<Chunk>| chunk.start.get() <= logical && logical < chunk.end().get();
        Ok(self.chunks.iter().find(has).with_context(|| format!("no chunk has {logical}"))?)
    }

    /// The place of the first copy of a sector.
    pub(crate) fn spot(&self, logical: u64) -> Result<OracleSpot> {
        let chunk = self.chunk_at(logical)?;
        let from = logical - chunk.start.get();
        let (number, within) = (from / ELEMENT, from % ELEMENT);
        let stripes = chunk.stripes.len() as u64;
        let (stripe, row) = match () {
            () if chunk.flags.contains(BlockGroupFlags::RAID0) => (number % stripes, number / stripes),
            () if chunk.flags.contains(BlockGroupFlags::RAID10) => {
                (number % (stripes / 2) * 2, number / (stripes / 2))
            }
            () if parity_of(chunk) > 0 => {
                let columns = stripes - parity_of(chunk) as u64;
                ((number / columns + number % columns) % stripes, number / columns)
            }
            () => (0, number),
        };
        Ok(spot(chunk, usize::try_from(stripe)?, row * ELEMENT + within))
    }

    /// The places of all copies of a sector.
    pub(crate) fn copies(&self, logical: u64) -> Result<Vec<OracleSpot>> {
        let (chunk, first) = (self.chunk_at(logical)?, self.spot(logical)?);
        let within = first.offset - chunk.stripes[first.stripe].offset;
        let copies = match () {
            () if chunk.flags.contains(BlockGroupFlags::RAID10) => 2,
            () if chunk.flags.contains(BlockGroupFlags::RAID0) || parity_of(chunk) > 0 => 1,
            () => chunk.stripes.len(),
        };
        Ok((first.stripe..first.stripe + copies).map(|stripe| spot(chunk, stripe, within)).collect())
    }

    /// The place of P, or Q, of a sector.
    pub(crate) fn parity_spot(&self, logical: u64, which: usize) -> Result<OracleSpot> {
        let chunk = self.chunk_at(logical)?;
        let from = logical - chunk.start.get();
        let stripes = chunk.stripes.len();
        let columns = stripes - parity_of(chunk);
        let row = from / ELEMENT / columns as u64;
        let stripe = (usize::try_from(row % stripes as u64)? + columns + which) % stripes;
        Ok(spot(chunk, stripe, row * ELEMENT + from % ELEMENT))
    }

    /// The first address of the row with `logical`, and the addresses at the same place of all its data columns.
    pub(crate) fn row(&self, logical: u64) -> Result<(u64, Vec<u64>)> {
        let chunk = self.chunk_at(logical)?;
        let columns = (chunk.stripes.len() - parity_of(chunk)) as u64;
        let from = logical - chunk.start.get();
        let start = chunk.start.get() + from / ELEMENT / columns * columns * ELEMENT;
        Ok((start, (0..columns).map(|column| start + column * ELEMENT + from % ELEMENT).collect()))
    }
}

fn spot(chunk: &Chunk, stripe: usize, within: u64) -> OracleSpot {
    OracleSpot { stripe, member: member(chunk, stripe), offset: chunk.stripes[stripe].offset + within }
}

/// The position of the member with a stripe: the kernel numbers devices from 1.
pub(crate) fn member(chunk: &Chunk, stripe: usize) -> usize {
    usize::try_from(chunk.stripes[stripe].dev.get() - 1).expect("few members")
}

fn parity_of(chunk: &Chunk) -> usize {
    match () {
        () if chunk.flags.contains(BlockGroupFlags::RAID5) => 1,
        () if chunk.flags.contains(BlockGroupFlags::RAID6) => 2,
        () => 0,
    }
}

/// The number of stripes of a chunk that may be lost, whichever they are.
fn borne_by(chunk: &Chunk) -> usize {
    let flags = chunk.flags;
    match () {
        () if flags.contains(BlockGroupFlags::RAID1C4) => 3,
        () if flags.contains(BlockGroupFlags::RAID1C3) || flags.contains(BlockGroupFlags::RAID6) => 2,
        () if flags.contains(BlockGroupFlags::RAID0) => 0,
        // The remaining profiles tolerate one loss; single has no profile and tolerates none.
        () => usize::from(!(flags & BlockGroupFlags::PROFILES).is_empty()),
    }
}

fn bears(chunk: &Chunk, is_away: &dyn Fn(usize) -> bool) -> bool {
    let away = (0..chunk.stripes.len()).filter(|&stripe| is_away(stripe));
    if chunk.flags.contains(BlockGroupFlags::RAID10) {
        return (0..chunk.stripes.len() / 2).all(|pair| !(is_away(2 * pair) && is_away(2 * pair + 1)));
    }
    away.count() <= borne_by(chunk)
}

/// The extents of a file with an address.
pub(crate) fn extents(files: &[PathBuf], path: &Path) -> Result<Vec<FiemapExtent>> {
    let fs = Image::open(&files[0])?;
    let all: Vec<FiemapExtent> =
        fs.open(path)?.fiemap(&FiemapRequest::default()).collect::<creamery::Result<_>>()?;
    Ok(all.into_iter().filter(|extent| !extent.flags.contains(FiemapFlags::DATA_INLINE)).collect())
}

/// The sectors of an uncompressed extent: offset in the file, and address.
pub(crate) fn sectors(extent: &FiemapExtent) -> impl Iterator<Item = (u64, u64)> {
    let (logical, physical) = (extent.logical, extent.physical);
    (0..extent.length.div_ceil(SECTOR))
        .map(move |number| (logical + number * SECTOR, physical + number * SECTOR))
}

/// A sector of a member.
pub(crate) fn read_sector(file: &Path, offset: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(SECTOR)?];
    File::open(file)?.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}
