//! The old free space cache: files of the root tree, one for each large block group, that list its free space.
//!
//! Linux discards a cache whose checksums, generation or sum of free bytes are wrong, so these are warnings. If Linux accepts a cache with
//! wrong free space, it writes data over data: an error.
//!
//! A cache begins with a checksum of each of its pages and the generation. Entries of 17 bytes (start, length, kind) follow, none of which
//! crosses the end of a page. Behind them come whole pages of bitmaps, in the order of their entries.

use std::collections::BTreeMap;

use creamery_base::{Logical, ObjectId, TreeId};
use creamery_codec::{ChecksumType, checksum};
use creamery_format::{BlockRef, FileExtent, Key, KeyType, RawFreeSpaceHeader, RawInodeItem};
use zerocopy::FromBytes;

use crate::chunks::ChunkTable;
use crate::extents::BlockGroup;
use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::report::ProblemSite;

/// Bytes of a page of the cache, regardless of the sector size.
const PAGE: usize = 4096;
const ENTRY: usize = 17;
const KIND_EXTENT: u8 = 1;
const KIND_BITMAP: u8 = 2;
/// Maximum length of a cache: the checksums of its pages must fit in the first one.
const LEN_MAX: u64 = 4 << 20;

/// A cache's file, from the items read so far.
#[derive(Default)]
struct CacheFile {
    size: u64,
    /// File offset, address and length.
    extents: Vec<(u64, u64, u64)>,
}

/// The caches in the root tree.
#[derive(Default)]
pub(crate) struct SpaceCaches {
    headers: BTreeMap<u64, RawFreeSpaceHeader>,
    files: BTreeMap<u64, CacheFile>,
}

impl SpaceCaches {
    /// Reads an item of the root tree.
    pub(crate) fn item(&mut self, leaf: BlockRef<'_>, slot: usize) {
        let (key, data) = (leaf.key(slot), leaf.data(slot));
        let ino = key.objectid.get();
        match key.kind {
            KeyType::UNTYPED if key.objectid == ObjectId::FREE_SPACE => {
                if let Ok(header) = RawFreeSpaceHeader::ref_from_bytes(data) {
                    self.headers.insert(key.offset, *header);
                }
            }
            KeyType::INODE_ITEM => {
                if let Ok(raw) = RawInodeItem::ref_from_bytes(data) {
                    self.files.entry(ino).or_default().size = raw.size.get();
                }
            }
            KeyType::EXTENT_DATA => {
                let Ok(FileExtent::Regular(extent)) = FileExtent::parse(data) else { return };
                if !extent.is_hole() {
                    let at = extent.disk_bytenr.get().saturating_add(extent.offset.get());
                    let piece = (key.offset, at, extent.num_bytes.get());
                    self.files.entry(ino).or_default().extents.push(piece);
                }
            }
            _ => {}
        }
    }

    /// Compares the caches with the used ranges.
    pub(crate) fn judge(
        &self,
        reader: &Reader<'_>,
        groups: &[BlockGroup],
        used: &Ranges,
        chunks: &ChunkTable,
    ) {
        for group in groups {
            let Some(header) = self.headers.get(&group.start) else { continue };
            let key = Key::new(ObjectId::FREE_SPACE, KeyType::UNTYPED, group.start);
            let place = ProblemSite::key(TreeId::ROOT, key);
            let listed = match self.read(reader, header) {
                Ok(listed) => Ranges::from_unsorted(listed),
                Err(why) => {
                    reader.sink.add(Problem::SpaceCacheUnusable, place, why);
                    continue;
                }
            };
            let (start, end) = (group.start, group.start.saturating_add(group.len));
            let taken = used.within(start, end).chain(chunks.superblock_ranges(start)).collect();
            let taken = Ranges::from_unsorted(taken);
            let (found, want) = (listed.covered(0, u64::MAX), end - start - taken.covered(start, end));
            let missing = taken.gaps(start, end).find_map(|(from, to)| listed.first_gap(from, to));
            if found != want {
                let message = format!("free bytes, expected {want}, found {found}");
                reader.sink.add(Problem::SpaceCacheUnusable, place, message);
            } else if let Some((from, to)) = missing {
                let message = format!("[{from}, {to}) is free, but listed otherwise");
                reader.sink.add(Problem::SpaceCacheWrong, place, message);
            }
        }
    }

    /// The ranges that a cache lists as free.
    fn read(&self, reader: &Reader<'_>, header: &RawFreeSpaceHeader) -> Result<Vec<(u64, u64)>, String> {
        let ino = Key::from(header.location).objectid.get();
        let file = self.files.get(&ino).ok_or_else(|| format!("inode {ino} does not exist"))?;
        if file.size == 0 || file.size > LEN_MAX || !file.size.is_multiple_of(PAGE as u64) {
            return Err(format!("inode {ino} has {} bytes", file.size));
        }
        let mut last = "it cannot be read".to_owned();
        for copy in 0..WAYS_MAX {
            let Some(bytes) = file.bytes(reader, copy) else { break };
            match parse(&bytes, header, reader.sector_size) {
                Ok(listed) => return Ok(listed),
                Err(why) => last = why,
            }
        }
        Err(last)
    }
}

/// Maximum number of tries: the copies of any profile, and the stripes that a chunk with parity may have lost.
const WAYS_MAX: usize = 8;

impl CacheFile {
    /// All bytes, each extent read in its way number `copy`.
    fn bytes(&self, reader: &Reader<'_>, copy: usize) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        for &(offset, at, len) in &self.extents {
            let len = len.min(self.size.saturating_sub(bytes.len() as u64));
            if offset != bytes.len() as u64 || len == 0 {
                break;
            }
            let way = reader.volume.ways(Logical::new(at), len).ok()?.nth(copy)?;
            let from = bytes.len();
            bytes.resize(from + usize::try_from(len).ok()?, 0);
            reader.volume.read_way(&way, Logical::new(at), &mut bytes[from..]).ok()?;
        }
        (bytes.len() as u64 == self.size).then_some(bytes)
    }
}

fn parse(bytes: &[u8], header: &RawFreeSpaceHeader, sector: u64) -> Result<Vec<(u64, u64)>, String> {
    let pages = bytes.len() / PAGE;
    let sums = pages * 4;
    let sum_of = |page: usize| {
        let from = if page == 0 { sums } else { page * PAGE };
        let to = (page + 1) * PAGE;
        checksum(ChecksumType::Crc32c, bytes.get(from..to).unwrap_or_default())
    };
    if sums + 8 > PAGE {
        return Err(format!("{pages} pages, whose checksums leave no room in the first"));
    }
    let generation = u64::from_le_bytes(*bytes[sums..].first_chunk().expect("a page has room"));
    let mut reading = Reading { bytes, sums, sum_of: &sum_of, at: sums + 8 };
    reading.verify(0)?;
    if generation != header.generation.get() {
        return Err(format!("generation, expected {}, found {generation}", header.generation));
    }
    let (mut free, mut bitmaps) = (Vec::new(), Vec::new());
    for _ in 0..header.num_entries.get().saturating_add(header.num_bitmaps.get()) {
        match reading.entry()? {
            (start, len, KIND_EXTENT) => free.push((start, start.saturating_add(len))),
            (start, _, KIND_BITMAP) => bitmaps.push(start),
            (_, _, kind) => return Err(format!("an entry of kind {kind}")),
        }
    }
    for start in bitmaps {
        bits(reading.page()?, start, sector, &mut free);
    }
    Ok(free)
}

/// Adds the free ranges of a bitmap whose first bit is address `start`.
fn bits(page: &[u8], start: u64, sector: u64, free: &mut Vec<(u64, u64)>) {
    let set = (0..page.len() * 8).filter(|bit| page[bit / 8] >> (bit % 8) & 1 == 1);
    for bit in set {
        let from = start.saturating_add(bit as u64 * sector);
        match free.last_mut() {
            Some(last) if last.1 == from => last.1 = from.saturating_add(sector),
            _ => free.push((from, from.saturating_add(sector))),
        }
    }
}

/// Reads a cache; verifies every page when it begins.
struct Reading<'a> {
    bytes: &'a [u8],
    sums: usize,
    sum_of: &'a dyn Fn(usize) -> creamery_codec::Checksum,
    at: usize,
}

impl<'a> Reading<'a> {
    fn verify(&self, page: usize) -> Result<(), String> {
        let stored = self.bytes.get(page * 4..page * 4 + 4).filter(|_| page * 4 < self.sums);
        let good = stored.is_some_and(|stored| (self.sum_of)(page).as_bytes(ChecksumType::Crc32c) == stored);
        if good { Ok(()) } else { Err(format!("page {page} does not have its checksum")) }
    }

    fn entry(&mut self) -> Result<(u64, u64, u8), String> {
        if self.at % PAGE + ENTRY > PAGE {
            self.at = self.at.next_multiple_of(PAGE);
        }
        if self.at.is_multiple_of(PAGE) {
            self.verify(self.at / PAGE)?;
        }
        let entry = self.bytes.get(self.at..self.at + ENTRY).ok_or("it ends among the entries")?;
        self.at += ENTRY;
        let number = |at: usize| u64::from_le_bytes(*entry[at..].first_chunk().expect("17 bytes"));
        Ok((number(0), number(8), entry[16]))
    }

    fn page(&mut self) -> Result<&'a [u8], String> {
        let from = self.at.next_multiple_of(PAGE);
        self.verify(from / PAGE)?;
        self.at = from + PAGE;
        self.bytes.get(from..from + PAGE).ok_or_else(|| "it ends among the bitmaps".to_owned())
    }
}
