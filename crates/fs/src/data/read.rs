//! Reading file data.
//!
//! One pass over the extent maps copies inline bytes and zeroes holes and prealloc straight into the caller's buffer, and
//! notes where the rest lies; then, with no lock of a tree block held, the rest is read. Whole sectors go from the
//! device into the caller's buffer without a copy; only a range's ragged ends pass through a buffer of ours,
//! because checksums are of whole sectors.
//!
//! # Invariants
//! - DATAREAD-1: bytes behind the end of the file are never returned, whatever the last sector holds.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`.
//! - DATAREAD-2: no data is read from a device while a tree block is locked. Shown by
//!   `data_that_is_read_with_a_tree_block_locked_is_a_bug`.
//! - DATAREAD-3: a sector of a file with checksums is returned only when it has one and matches it.
//!   Shown by `readers_get_what_was_written_and_a_rotten_sector_is_an_error`,
//!   `data_without_a_checksum_is_read_for_nodatasum_files_only`.

use std::ops::Range;

use creamery_base::lock::{HeldNote, LockPosition as LockPlace, rank};
use creamery_base::{Error, ErrorKind, Logical, Result, Wait};
use creamery_format::Compression;
use creamery_format::file_extent::Extent;
use creamery_txn::{DataCsums, Engine};
use smallvec::SmallVec;

use super::compressed;
use super::extent_map::{ExtentKind, ExtentMap, ExtentMaps};
use super::processors::as_they_come;
use crate::inode::{Inode, InodeFlags, InodeItem};

/// Upper bound of the extent maps noted before they are read: it bounds the memory for a file of a million extents.
const BATCH: usize = 64;
/// Upper bound of the bytes read at once through a buffer when an end is ragged.
const BOUNCE: u64 = 64 << 10;
/// Lower bound of the extents that one thread unpacks: making a thread takes as long as a quarter of an extent.
const EXTENTS_PER_THREAD: usize = 2;

/// Reads at `offset` into `out`; returns how many bytes the file has there, at most `out.len()`. The rest of `out`
/// may be overwritten with zeros. Errors: would block; device errors; damage.
pub(crate) fn read(
    inode: &Inode,
    item: &InodeItem,
    offset: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<usize> {
    let engine = inode.engine();
    if offset >= item.size || out.is_empty() {
        return Ok(0);
    }
    let len = usize::try_from(item.size - offset).unwrap_or(usize::MAX).min(out.len());
    let sector = u64::from(engine.sector_size());
    let mut window = Window { out, offset, end: offset + len as u64 };
    assert!(window.end <= item.size, "DATAREAD-1: what lies behind the end of the file is nobody's");
    let limit = window.end.next_multiple_of(sector);
    let source = Source { engine, csums: csums_of(item), wait };
    let mut at = offset - offset % sector;
    while at < limit {
        let (batch, next) = gather(inode, &mut window, (at, limit), sector, wait)?;
        let mut packed = SmallVec::<[(ExtentMap, Extent); 4]>::new();
        for map in batch {
            match map.kind {
                ExtentKind::Data(disk) => {
                    let failed = |error: Error| match error.kind() {
                        ErrorKind::Unreadable => of_file(error, inode, first_unreadable(source, map, disk)),
                        _ => error,
                    };
                    window.read_sectors(source, map, disk).map_err(failed)?;
                }
                ExtentKind::Compressed(extent) => packed.push((map, extent)),
                ExtentKind::Hole | ExtentKind::Prealloc | ExtentKind::Inline => {
                    unreachable!("done while gathering")
                }
            }
        }
        if !packed.is_empty() {
            window.read_packed(inode, source, &packed)?;
        }
        at = next;
    }
    Ok(len)
}

/// Uncompressed data on devices: whole sectors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainExtent {
    /// The position in the file where it begins.
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) disk: Logical,
}

impl PlainExtent {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        as_len(self.end - self.start)
    }

    /// The range of these bytes in a buffer that begins at `offset` in the file.
    pub(crate) fn bytes(&self, offset: u64) -> Range<usize> {
        as_len(self.start - offset)..as_len(self.end - offset)
    }
}

/// Reads like [`read`] from the sector at `offset` on, except data that lies on devices uncompressed: returns its places instead.
/// `None` where some of it is compressed, and the content of `out` is arbitrary then. Errors: would block; device errors; damage.
pub(crate) fn find(
    inode: &Inode,
    item: &InodeItem,
    offset: u64,
    out: &mut [u8],
    wait: Wait,
) -> Result<Option<Vec<PlainExtent>>> {
    let sector = u64::from(inode.engine().sector_size());
    assert!(offset.is_multiple_of(sector) && offset < item.size);
    let end = item.size.min(offset.saturating_add(out.len() as u64));
    let (mut window, mut at, limit) = (Window { out, offset, end }, offset, end.next_multiple_of(sector));
    let mut places = Vec::new();
    while at < limit {
        let (batch, next) = gather(inode, &mut window, (at, limit), sector, wait)?;
        for ExtentMap { start, end, kind } in batch {
            match kind {
                ExtentKind::Data(disk) => places.push(PlainExtent { start, end, disk }),
                ExtentKind::Compressed(_) => return Ok(None),
                ExtentKind::Hole | ExtentKind::Prealloc | ExtentKind::Inline => {
                    unreachable!("done while gathering")
                }
            }
        }
        at = next;
    }
    Ok(Some(places))
}

/// Adds the unreadable part of the file to the error.
fn of_file(error: Error, inode: &Inode, map: ExtentMap) -> Error {
    match error.kind() {
        ErrorKind::Unreadable => {
            let (start, end) = (map.start, map.end);
            error.context(format!("reading inode {}, bytes {start} to {end}", inode.id))
        }
        _ => error,
    }
}

/// The first sector that cannot be read: of many the error names this one.
fn first_unreadable(source: Source<'_>, map: ExtentMap, disk: Logical) -> ExtentMap {
    let mut sector = vec![0; usize::try_from(source.sector()).expect("a sector fits in memory")];
    let mut starts = (map.start..map.end).step_by(sector.len());
    match starts.find(|start| source.read(disk + (start - map.start), &mut sector).is_err()) {
        Some(start) => ExtentMap { start, end: start + source.sector(), ..map },
        None => map,
    }
}

/// Whether the data of a file has checksums, by its flags.
pub(crate) fn csums_of(item: &InodeItem) -> DataCsums {
    if item.flags.contains(InodeFlags::NODATASUM) { DataCsums::Absent } else { DataCsums::Present }
}

/// The source of a file's data, and how to read it.
#[derive(Clone, Copy)]
struct Source<'e> {
    engine: &'e Engine,
    csums: DataCsums,
    wait: Wait,
}

impl Source<'_> {
    fn read(&self, at: Logical, out: &mut [u8]) -> Result<()> {
        // Checks the order of locks as if this locked a tree block, because a thread that has one must not read (DATAREAD-2).
        drop(HeldNote::wait(LockPlace::of(rank::NODE)));
        self.engine.data().read(at, out, self.csums, self.wait)
    }

    /// The sector size, in bytes.
    fn sector(&self) -> u64 {
        self.engine.sector_size().into()
    }
}

/// The caller's buffer as a part of the file. Bytes from `end` on do not count.
struct Window<'a> {
    out: &'a mut [u8],
    offset: u64,
    end: u64,
}

/// Fills in the parts that need no device. Returns the other extent maps, and where it stopped.
fn gather(
    inode: &Inode,
    window: &mut Window<'_>,
    range: (u64, u64),
    sector: u64,
    wait: Wait,
) -> Result<(SmallVec<[ExtentMap; 4]>, u64)> {
    let mut batch = SmallVec::new();
    let mut next = range.0;
    let _still = inode.hold_extents(wait)?;
    let mut maps = ExtentMaps::new(inode.tree(), inode.id.ino, range, sector, wait)?;
    while batch.len() < BATCH {
        let Some(map) = maps.next()? else { break };
        match map.kind {
            ExtentKind::Hole | ExtentKind::Prealloc => window.slice(map.start, map.end).fill(0),
            ExtentKind::Inline => {
                let (data, ram_bytes, compression) = maps.inline()?;
                if compression == Compression::None {
                    window.copy(map, 0, data);
                } else {
                    let unpacked = compressed::unpack_inline(compression, data, ram_bytes, sector)?;
                    window.copy(map, 0, &unpacked);
                }
            }
            ExtentKind::Data(_) | ExtentKind::Compressed(_) => batch.push(map),
        }
        next = map.end;
    }
    Ok((batch, next))
}

impl Window<'_> {
    /// The part of the buffer for `[start, end)` of the file, cut to the bytes that count.
    fn slice(&mut self, start: u64, end: u64) -> &mut [u8] {
        let start = start.clamp(self.offset, self.end) - self.offset;
        let end = end.clamp(self.offset, self.end) - self.offset;
        &mut self.out[as_len(start)..as_len(end)]
    }

    /// Copies the part of `map` that counts out of `content`, which begins at `from` in the file. Bytes that `content` lacks become
    /// zeros.
    fn copy(&mut self, map: ExtentMap, from: u64, content: &[u8]) {
        let skip = as_len(map.start.max(self.offset) - from).min(content.len());
        let out = self.slice(map.start, map.end);
        let copied = out.len().min(content.len() - skip);
        out[..copied].copy_from_slice(&content[skip..skip + copied]);
        out[copied..].fill(0);
    }

    /// Reads the sectors at `disk`.
    fn read_sectors(&mut self, source: Source<'_>, map: ExtentMap, disk: Logical) -> Result<()> {
        let room = self.offset + self.out.len() as u64;
        if map.start >= self.offset && map.end <= room {
            let (start, end) = (map.start - self.offset, map.end - self.offset);
            source.read(disk, &mut self.out[as_len(start)..as_len(end)])?;
            let counted = self.end.min(map.end) - self.offset;
            self.out[as_len(counted)..as_len(end)].fill(0);
            return Ok(());
        }
        if map.end - map.start <= BOUNCE {
            return self.read_through_buffer(source, map, disk);
        }
        // Ragged ends by themselves, the middle without a copy.
        let mut parts = SmallVec::<[u64; 4]>::new();
        parts.push(map.start);
        if map.start < self.offset {
            parts.push(map.start + source.sector());
        }
        if map.end > room {
            parts.push(map.end - source.sector());
        }
        parts.push(map.end);
        for pair in parts.windows(2) {
            let part = ExtentMap { start: pair[0], end: pair[1], kind: map.kind };
            let disk = disk + (part.start - map.start);
            if part.start >= self.offset && part.end <= room {
                let (start, end) = (as_len(part.start - self.offset), as_len(part.end - self.offset));
                source.read(disk, &mut self.out[start..end])?;
                let counted = as_len(self.end.min(part.end) - self.offset);
                self.out[counted..end].fill(0);
            } else {
                self.read_through_buffer(source, part, disk)?;
            }
        }
        Ok(())
    }

    fn read_through_buffer(&mut self, source: Source<'_>, map: ExtentMap, disk: Logical) -> Result<()> {
        let mut buffer = vec![0; as_len(map.end - map.start)];
        source.read(disk, &mut buffer)?;
        self.copy(map, map.start, &buffer);
        Ok(())
    }

    /// Reads parts of compressed extents. Each extent is read whole, one after the other, and unpacked at the same time on all
    /// processors, unless its unpacked data is kept.
    fn read_packed(
        &mut self,
        inode: &Inode,
        source: Source<'_>,
        parts: &[(ExtentMap, Extent)],
    ) -> Result<()> {
        let kept = &inode.context().compression().unpacked;
        let mut waiting = Vec::new();
        let (mut at, mut rest) = (self.offset, &mut *self.out);
        for &(map, extent) in parts {
            let (start, end) = (map.start.clamp(self.offset, self.end), map.end.clamp(self.offset, self.end));
            let out = rest.split_off_mut(as_len(start - at)..).unwrap_or_default();
            let (out, behind) = out.split_at_mut(as_len(end - start));
            (at, rest) = (end, behind);
            let part = PackedPart { map, extent, skip: extent.offset + (start - map.start), out };
            match kept.get(&extent, source.csums) {
                Some(unpacked) => part.copy_from(&unpacked),
                None => waiting.push(part),
            }
        }
        let count = waiting.len();
        let mut waiting = waiting.into_iter();
        let make = |_| {
            let part = waiting.next().expect("there are so many");
            let mut packed = vec![0; as_len(part.extent.disk_num_bytes)];
            let read = source.read(part.extent.disk_bytenr, &mut packed);
            read.map_err(|error| of_file(error, inode, part.map))?;
            // An extent that claims a generation to come could be confused with another one when that has come.
            let is_kept = part.extent.generation <= source.engine.generation()
                && (!part.is_cheap() || kept.is_asked_again(&part.extent, source.csums));
            Ok((part, packed, is_kept))
        };
        let work = |(part, packed, is_kept): (PackedPart<'_>, Vec<u8>, bool)| {
            let (map, extent) = (part.map, part.extent);
            let unpacked = part.unpack(&packed, is_kept, source.sector());
            let unpacked = unpacked.map_err(|error| of_file(error, inode, map))?;
            unpacked.into_iter().for_each(|unpacked| kept.keep(&extent, source.csums, unpacked));
            Ok(())
        };
        // A reader that must not wait may stop at the first of them.
        let each = if source.wait.allowed() { EXTENTS_PER_THREAD } else { usize::MAX };
        let done = as_they_come(count, each, make, work)?;
        kept.count(done.len());
        done.into_iter().collect()
    }
}

/// A part of a compressed extent that is to be read.
struct PackedPart<'o> {
    map: ExtentMap,
    extent: Extent,
    /// The position of the part in the unpacked data of the extent.
    skip: u64,
    out: &'o mut [u8],
}

impl PackedPart<'_> {
    /// The end of the part in the unpacked data of the extent.
    fn end(&self) -> u64 {
        self.skip.saturating_add(self.out.len() as u64).min(self.extent.unpacked_len())
    }

    /// Whether the part can be unpacked for less than the whole extent, and is at most half of it.
    fn is_cheap(&self) -> bool {
        compressed::has_parts(self.extent.compression)
            && 2 * self.out.len() as u64 <= self.extent.unpacked_len()
    }

    /// Fills the part from the unpacked data of the extent; bytes that it lacks become zeros.
    fn copy_from(self, unpacked: &[u8]) {
        let shown = unpacked.get(as_len(self.skip)..).unwrap_or_default();
        let len = shown.len().min(self.out.len());
        self.out[..len].copy_from_slice(&shown[..len]);
        self.out[len..].fill(0);
    }

    /// Fills the part. Returns the unpacked data of the extent if that `is_kept`, and more of it remains to be read.
    fn unpack(self, packed: &[u8], is_kept: bool, sector: u64) -> Result<Option<Vec<u8>>> {
        let (compression, len) = (self.extent.compression, self.extent.unpacked_len());
        let end = self.end();
        if (self.skip, self.out.len() as u64) == (0, len) {
            compressed::unpack_into(compression, packed, self.out, sector)?;
            return Ok(None);
        }
        if !is_kept && compressed::has_parts(compression) {
            let part = compressed::unpack_part(compression, packed, (self.skip.min(end), end), sector)?;
            Self { skip: 0, ..self }.copy_from(&part);
            return Ok(None);
        }
        let unpacked = compressed::unpack(compression, packed, len, sector)?;
        self.copy_from(&unpacked);
        Ok(is_kept.then_some(unpacked))
    }
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer or an extent")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::support::{SECTOR, assert_noticed, new_file};

    #[test]
    fn data_that_is_read_with_a_tree_block_locked_is_a_bug() {
        assert_noticed("LOCK-1", |engine| {
            let file = new_file(&engine, 300, InodeFlags::NODATASUM);
            let range = (0, SECTOR);
            let _locked =
                ExtentMaps::new(file.tree(), file.id.ino, range, SECTOR, Wait::Yes).expect("a readable tree");
            let source = Source { engine: &engine, csums: DataCsums::Absent, wait: Wait::Yes };
            let _ = source.read(Logical::new(0), &mut [0; SECTOR as usize]);
        });
    }
}
