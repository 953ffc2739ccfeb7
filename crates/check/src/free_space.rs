//! The free space tree: in each block group, the listed free space must be the space without extents.
//!
//! A group lists its free space as extents or as bitmaps, one bit for a sector; its info item says which. Space over a superblock copy is
//! never allocated. The writer decides whether to list it as free; Linux lists it.
//!
//! mkfs.btrfs up to 2025 leaves items of block groups behind that it used for itself and removed, below all others. No block group comes to
//! lie there again, since addresses are not reused; so the check skips them.

use std::collections::HashMap;

use creamery_base::TreeId;
use creamery_format::{BlockRef, Key, KeyType, RawFreeSpaceInfo};
use zerocopy::FromBytes;

use crate::chunks::ChunkTable;
use crate::extents::BlockGroup;
use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::report::{ProblemSite, Sink};
use crate::walk::{Meta, Sequence};

/// The group whose free space is being read.
struct OpenGroup {
    group: Option<BlockGroup>,
    key: Key,
    bitmaps: bool,
    want_count: u32,
    free: Vec<(u64, u64)>,
    /// Counts extents; for bitmaps, runs of bits.
    extents: u64,
    torn: bool,
}

/// End of the first block groups of mkfs.btrfs: 4 MiB of system from 1 MiB on, 8 of metadata, 8 of data. It removes those whose profile is
/// not the requested one, and until 2025 it left their items in the free space tree.
const MKFS_BEGAN_WITH: u64 = 21 << 20;

/// Reads the leaves of the free space tree.
pub(crate) struct FreeSpaceSequence<'a> {
    sink: &'a Sink,
    used: &'a Ranges,
    chunks: &'a ChunkTable,
    sector_size: u64,
    groups: HashMap<u64, BlockGroup>,
    /// The ranges of block groups, in order.
    taken: Vec<(u64, u64)>,
    open: Option<OpenGroup>,
}

impl<'a> FreeSpaceSequence<'a> {
    pub(crate) fn new(
        sink: &'a Sink,
        used: &'a Ranges,
        chunks: &'a ChunkTable,
        groups: &[BlockGroup],
        sector_size: u64,
    ) -> Self {
        let mut taken: Vec<_> =
            groups.iter().map(|group| (group.start, group.start.saturating_add(group.len))).collect();
        taken.sort_unstable();
        let groups = groups.iter().map(|group| (group.start, *group)).collect();
        Self { sink, used, chunks, sector_size, groups, taken, open: None }
    }

    pub(crate) fn finish(mut self, complete: bool) {
        self.close();
        if !complete {
            return;
        }
        let mut left: Vec<_> = self.groups.into_values().collect();
        left.sort_by_key(|group| group.start);
        for group in left {
            let key = Key::new(group.start.into(), KeyType::FREE_SPACE_INFO, group.len);
            self.sink.add(Problem::FreeSpaceInfoMissing, ProblemSite::key(TreeId::FREE_SPACE, key), "");
        }
    }

    /// Whether free space without a block group belongs to one of the first groups of mkfs.btrfs.
    fn left_by_mkfs(&self, key: Key) -> bool {
        let (start, end) = (key.objectid.get(), key.objectid.get().saturating_add(key.offset));
        let below_all = self.taken.first().is_some_and(|(first, _)| start < *first);
        let mut beside = self.taken.iter().take_while(|(from, _)| *from < end);
        below_all || end <= MKFS_BEGAN_WITH && !beside.any(|(_, to)| start < *to)
    }

    fn info(&mut self, key: Key, data: &[u8]) {
        self.close();
        let Ok(info) = RawFreeSpaceInfo::ref_from_bytes(data) else { return };
        let group = self.groups.remove(&key.objectid.get());
        if let Some(group) = group.filter(|group| group.len != key.offset) {
            let message = format!("expected {}, found {}", group.len, key.offset);
            self.sink.add(Problem::FreeSpaceInfoWrong, ProblemSite::key(TreeId::FREE_SPACE, key), message);
        }
        if group.is_none() && !self.left_by_mkfs(key) {
            self.sink.add(Problem::FreeSpaceGroup, ProblemSite::key(TreeId::FREE_SPACE, key), "");
        }
        self.open = Some(OpenGroup {
            group,
            key,
            bitmaps: info.uses_bitmaps(),
            want_count: info.extent_count.get(),
            free: Vec::new(),
            extents: 0,
            torn: false,
        });
    }

    fn free(&mut self, key: Key, bitmap: Option<&[u8]>, place: ProblemSite) {
        let (start, end) = (key.objectid.get(), key.objectid.get().saturating_add(key.offset));
        let fits = self.open.as_ref().is_some_and(|open| {
            let (from, to) = (open.key.objectid.get(), open.key.objectid.get() + open.key.offset);
            open.bitmaps == bitmap.is_some() && start >= from && end <= to
        });
        let Some(open) = self.open.as_mut().filter(|_| fits) else {
            return self.sink.add(Problem::FreeSpaceForm, place, "");
        };
        let Some(bits) = bitmap else {
            open.extents += 1;
            open.free.push((start, end));
            return;
        };
        let sectors = key.offset / self.sector_size;
        if sectors.div_ceil(8) != bits.len() as u64 {
            let message = format!("bitmap of {} bytes, expected {}", bits.len(), sectors.div_ceil(8));
            return self.sink.add(Problem::FreeSpaceForm, place, message);
        }
        for sector in 0..sectors {
            let byte = usize::try_from(sector / 8).unwrap_or(usize::MAX);
            if bits.get(byte).is_some_and(|bits| bits >> (sector % 8) & 1 == 1) {
                let from = start + sector * self.sector_size;
                match open.free.last_mut() {
                    Some(last) if last.1 == from => last.1 = from + self.sector_size,
                    _ => open.free.push((from, from + self.sector_size)),
                }
            }
        }
    }

    /// Ends the open group and compares its list.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let (Some(group), false) = (open.group, open.torn) else { return };
        let place = ProblemSite::key(TreeId::FREE_SPACE, open.key);
        let count = if open.bitmaps { open.free.len() as u64 } else { open.extents };
        if count != u64::from(open.want_count) {
            let message = format!("expected {count}, found {}", open.want_count);
            self.sink.add(Problem::FreeSpaceCount, place.clone(), message);
        }
        let (start, end) = (group.start, group.start.saturating_add(group.len));
        let listed = Ranges::from_unsorted(open.free);
        let taken: Vec<_> =
            self.used.within(start, end).chain(self.chunks.superblock_ranges(start)).collect();
        let taken = Ranges::from_unsorted(taken);
        for (from, to) in taken.gaps(start, end) {
            if let Some(gap) = listed.first_gap(from, to) {
                let message = format!("[{}, {})", gap.0, gap.1);
                self.sink.add(Problem::FreeSpaceMissing, place.clone(), message);
                break;
            }
        }
        for (from, to) in listed.iter() {
            let doubly = self.used.within(from, to).next();
            if let Some((from, to)) = doubly {
                self.sink.add(Problem::FreeSpaceUsed, place.clone(), format!("[{from}, {to})"));
                break;
            }
        }
    }
}

impl Sequence<Vec<u8>> for FreeSpaceSequence<'_> {
    fn leaf(&mut self, meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            let place = || ProblemSite::slot(TreeId::FREE_SPACE, meta.logical, slot, key);
            match key.kind {
                KeyType::FREE_SPACE_INFO => self.info(key, data),
                KeyType::FREE_SPACE_EXTENT => self.free(key, None, place()),
                KeyType::FREE_SPACE_BITMAP => self.free(key, Some(data), place()),
                _ => {}
            }
        }
    }

    fn hole(&mut self) {
        if let Some(open) = &mut self.open {
            open.torn = true;
        }
    }
}
