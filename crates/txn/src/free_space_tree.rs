//! The free space tree: what is free in each block group, on disk.
//!
//! # On disk
//! Per block group `(start FREE_SPACE_INFO length)`: extent count u32, flags u32 (1 = bitmaps). Then either
//! `(start FREE_SPACE_EXTENT length)` items without data, or `(start FREE_SPACE_BITMAP length)` items, one bit
//! per sector, least significant bit first, at most 256 bytes each. A group changes to bitmaps when its extent
//! items would take more room than its bitmaps, and back when they would take clearly less (section "free space
//! tree" of the on-disk format documentation).
//!
//! Superblock copies that lie in a group count as free here; whoever hands out space leaves them out.
//!
//! The tree changes when delayed refs run, never when space is handed out or unpinned; between two commits it
//! therefore says what the last commit says.
//!
//! # Invariants
//! - FREE-1: two free extents of a group never touch; the info item counts them.

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_format::{
    FREE_SPACE_BITMAP_SIZE, FREE_SPACE_USING_BITMAPS, ITEM_LEN, Key, KeyType, RawFreeSpaceInfo,
};
use creamery_tree::{CowHost, Tree};
use zerocopy::{FromBytes, IntoBytes};

use crate::block_group::BlockGroup;
use crate::engine::Engine;

const BITMAP_BYTES: u64 = FREE_SPACE_BITMAP_SIZE as u64;
/// Extents below the upper threshold at which a group goes back to extent items.
const THRESHOLD_GAP: u64 = 100;

/// A checked info item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Info {
    extents: u32,
    flags: u32,
}

impl Info {
    fn parse(group: GroupRange, data: &[u8]) -> Result<Self> {
        let raw = RawFreeSpaceInfo::read_from_bytes(data)
            .map_err(|_| damaged(group, "info item has a wrong size"))?;
        Ok(Self { extents: raw.extent_count.get(), flags: raw.flags.get() })
    }

    fn to_raw(self) -> RawFreeSpaceInfo {
        RawFreeSpaceInfo { extent_count: self.extents.into(), flags: self.flags.into() }
    }

    fn uses_bitmaps(self) -> bool {
        self.to_raw().uses_bitmaps()
    }
}

fn damaged(group: GroupRange, what: &str) -> Error {
    let message = format!("free space tree of block group {}: {what}", group.start);
    Error::new(ErrorKind::Corrupt, message)
}

fn info_key(group: GroupRange) -> Key {
    Key::new(ObjectId::new(group.start.get()), KeyType::FREE_SPACE_INFO, group.len)
}

fn extent_key(start: u64, len: u64) -> Key {
    Key::new(ObjectId::new(start), KeyType::FREE_SPACE_EXTENT, len)
}

/// The free space of one group in the tree, with what changing it needs.
pub(crate) struct GroupFreeSpace<'a> {
    tree: &'a Tree,
    group: GroupRange,
    sector: u64,
}

/// Where a group lies.
#[derive(Clone, Copy)]
struct GroupRange {
    start: Logical,
    len: u64,
}

impl GroupRange {
    fn end(self) -> Logical {
        self.start + self.len
    }
}

impl Engine {
    /// The free space tree's view of `group`; none when the filesystem has no such tree.
    pub(crate) fn group_free_space(&self, group: &BlockGroup) -> Option<GroupFreeSpace<'_>> {
        let tree = self.free_space_tree.as_deref()?;
        Some(GroupFreeSpace::new(tree, group.start, group.len, self.sector_size()))
    }
}

impl<'a> GroupFreeSpace<'a> {
    pub(crate) fn new(tree: &'a Tree, start: Logical, len: u64, sector_size: u32) -> Self {
        Self { tree, group: GroupRange { start, len }, sector: u64::from(sector_size) }
    }

    fn info(&self) -> Result<Info> {
        match self.tree.get(&info_key(self.group), Wait::Yes, |data| Info::parse(self.group, data))? {
            Some(info) => info,
            None => Err(damaged(self.group, "info item is missing")),
        }
    }

    fn set_info(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        self.tree.upsert(host, &info_key(self.group), info.to_raw().as_bytes())
    }

    /// Bytes of data that one bitmap item covers at most.
    fn bitmap_span(&self) -> u64 {
        BITMAP_BYTES * 8 * self.sector
    }

    /// Number of extents above which bitmaps take less room.
    fn bitmap_threshold(&self) -> u64 {
        let bitmaps = self.group.len.div_ceil(self.bitmap_span());
        bitmaps * (ITEM_LEN as u64 + BITMAP_BYTES) / ITEM_LEN as u64
    }

    /// Records a new group, all of it free.
    pub(crate) fn create(&self, host: &dyn CowHost) -> Result<()> {
        self.set_info(host, Info { extents: 1, flags: 0 })?;
        self.tree.insert(host, &extent_key(self.group.start.get(), self.group.len), &[])
    }

    /// Removes all items of a group.
    pub(crate) fn delete(&self, host: &dyn CowHost) -> Result<()> {
        let first = Key::new(ObjectId::new(self.group.start.get()), KeyType::new(0), 0);
        let last = Key::new(ObjectId::new(self.group.end().get() - 1), KeyType::new(255), u64::MAX);
        self.tree.remove_range(host, &first, &last, &mut |_, _| Ok(()))?;
        Ok(())
    }

    /// Visits all free extents, in order; no more than the info item counts. Errors: damage.
    pub(crate) fn each_extent(&self, visit: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let info = self.info()?;
        let (mut open, mut found): (Option<(u64, u64)>, u64) = (None, 0);
        let mut end_extent = |extent: Option<(u64, u64)>| {
            let Some((start, len)) = extent else { return Ok(()) };
            found += 1;
            if found > u64::from(info.extents) {
                let message = format!("more than {} extents, which the info item counts", info.extents);
                return Err(damaged(self.group, &message));
            }
            visit(start, len);
            Ok(())
        };
        self.each_piece(info, &mut |start, len| match &mut open {
            Some((open, open_len)) if *open + *open_len == start => {
                *open_len += len;
                Ok(())
            }
            _ => end_extent(open.replace((start, len))),
        })?;
        end_extent(open)?;
        if found != u64::from(info.extents) {
            return Err(damaged(self.group, &format!("{found} extents, info says {}", info.extents)));
        }
        Ok(())
    }

    /// Visits what the items list, in order: extents, or the set bits of bitmaps one by one.
    fn each_piece(&self, info: Info, visit: &mut dyn FnMut(u64, u64) -> Result<()>) -> Result<()> {
        let (start, end) = (self.group.start.get(), self.group.end().get());
        let mut cursor =
            self.tree.cursor(&Key::new(ObjectId::new(start), KeyType::FREE_SPACE_EXTENT, 0), Wait::Yes)?;
        let mut at = start;
        while let Some((key, data)) = cursor.item() {
            if key.objectid.get() >= end {
                break;
            }
            let item_end = self.item_end(&key, at)?;
            if key.kind == KeyType::FREE_SPACE_EXTENT && !info.uses_bitmaps() {
                visit(key.objectid.get(), key.offset)?;
            } else if key.kind == KeyType::FREE_SPACE_BITMAP && info.uses_bitmaps() {
                let bits = key.offset / self.sector;
                if data.len() as u64 != bits.div_ceil(8) {
                    return Err(damaged(self.group, "a bitmap has a wrong size"));
                }
                let mut set = (0..bits).filter(|&bit| bit_at(data, bit));
                set.try_for_each(|bit| visit(key.objectid.get() + bit * self.sector, self.sector))?;
            } else if key.kind != KeyType::FREE_SPACE_INFO {
                return Err(damaged(self.group, "an item does not fit the group's form"));
            }
            at = item_end.max(at);
            cursor.advance()?;
        }
        Ok(())
    }

    /// Where an item ends that begins at `at` or behind it.
    fn item_end(&self, key: &Key, at: u64) -> Result<u64> {
        let start = key.objectid.get();
        let aligned = key.offset.is_multiple_of(self.sector)
            && start >= at
            && (start - self.group.start.get()).is_multiple_of(self.sector);
        let listed = key.kind == KeyType::FREE_SPACE_INFO || key.offset > 0;
        let end = end_of(key).filter(|&end| aligned && listed && end <= self.group.end().get());
        end.ok_or_else(|| damaged(self.group, "items overlap or leave the group"))
    }

    fn extents(&self) -> Result<Vec<(u64, u64)>> {
        let mut free = Vec::new();
        self.each_extent(&mut |start, len| free.push((start, len)))?;
        Ok(free)
    }

    /// Takes a range, which is free as a whole, out.
    pub(crate) fn remove(&self, host: &dyn CowHost, start: Logical, len: u64) -> Result<()> {
        let mut info = self.info()?;
        if info.uses_bitmaps() {
            return self.change_bits(host, info, start.get(), len, false);
        }
        let last = extent_key(start.get(), u64::MAX);
        let found = self.tree.cursor_at_or_before(&last, Wait::Yes)?.item().map(|(key, _)| key);
        let end = start.get() + len;
        let found = found.filter(|key| {
            key.kind == KeyType::FREE_SPACE_EXTENT
                && (self.group.start..=start).contains(&Logical::new(key.objectid.get()))
                && end_of(key).is_some_and(|key_end| (end..=self.group.end().get()).contains(&key_end))
        });
        let Some(found) = found else {
            return Err(damaged(
                self.group,
                &format!("{start} of {len} bytes is to be used and is not free"),
            ));
        };
        let (free_start, free_end) = (found.objectid.get(), found.objectid.get() + found.offset);
        self.tree.remove(host, &found)?;
        info.extents = self.counted(info.extents, 1)?;
        if free_start < start.get() {
            self.tree.insert(host, &extent_key(free_start, start.get() - free_start), &[])?;
            info.extents += 1;
        }
        if end < free_end {
            self.tree.insert(host, &extent_key(end, free_end - end), &[])?;
            info.extents += 1;
        }
        self.finish(host, info)
    }

    /// Puts a range, none of which is free, in.
    pub(crate) fn add(&self, host: &dyn CowHost, start: Logical, len: u64) -> Result<()> {
        let mut info = self.info()?;
        if info.uses_bitmaps() {
            return self.change_bits(host, info, start.get(), len, true);
        }
        let (mut from, mut to) = (start.get(), start.get() + len);
        let is_extent = |key: &Key| key.kind == KeyType::FREE_SPACE_EXTENT;
        let before = extent_key(from, u64::MAX);
        let before = self.tree.cursor_at_or_before(&before, Wait::Yes)?.item().map(|(key, _)| key);
        let reaches = |key: &Key| end_of(key).is_some_and(|end| end >= from);
        if let Some(key) = before.filter(|key| is_extent(key) && reaches(key)) {
            if end_of(&key) > Some(from) && key.objectid.get() < to {
                return Err(damaged(
                    self.group,
                    &format!("{start} of {len} bytes is freed and is free already"),
                ));
            }
            if key.objectid.get() >= self.group.start.get() && end_of(&key) == Some(from) {
                self.tree.remove(host, &key)?;
                from = key.objectid.get();
                info.extents = self.counted(info.extents, 1)?;
            }
        }
        let behind = self.tree.cursor(&extent_key(to, 0), Wait::Yes)?.item().map(|(key, _)| key);
        let in_group = to < self.group.end().get();
        if let Some(key) = behind.filter(|key| in_group && is_extent(key) && key.objectid.get() == to) {
            self.tree.remove(host, &key)?;
            to = end_of(&key).ok_or_else(|| damaged(self.group, "an extent has no end"))?;
            info.extents = self.counted(info.extents, 1)?;
        }
        self.tree.insert(host, &extent_key(from, to - from), &[])?;
        info.extents += 1;
        self.finish(host, info)
    }

    /// So many extents less than the info item says.
    fn counted(&self, extents: u32, less: u32) -> Result<u32> {
        extents.checked_sub(less).ok_or_else(|| damaged(self.group, "the info item counts too few extents"))
    }

    /// Writes the info item and changes the group's form where that is due.
    fn finish(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        self.set_info(host, info)?;
        let threshold = self.bitmap_threshold();
        if !info.uses_bitmaps() && u64::from(info.extents) > threshold {
            self.convert_to_bitmaps(host, info)
        } else if info.uses_bitmaps() && u64::from(info.extents) < threshold.saturating_sub(THRESHOLD_GAP) {
            self.convert_to_extents(host, info)
        } else {
            Ok(())
        }
    }

    fn convert_to_bitmaps(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        let free = self.extents()?;
        self.delete(host)?;
        self.set_info(host, Info { flags: info.flags | FREE_SPACE_USING_BITMAPS, ..info })?;
        let mut extents = free.iter().peekable();
        let mut at = self.group.start.get();
        while at < self.group.end().get() {
            let span = self.bitmap_span().min(self.group.end().get() - at);
            let bits = span / self.sector;
            let mut bitmap = vec![0; usize::try_from(bits.div_ceil(8)).expect("at most 256")];
            while let Some(&&(start, len)) = extents.peek() {
                if start >= at + span {
                    break;
                }
                let first = start.max(at) - at;
                let last = (start + len).min(at + span) - at;
                for bit in first / self.sector..last / self.sector {
                    set_bit(&mut bitmap, bit, true);
                }
                if start + len > at + span {
                    break;
                }
                extents.next();
            }
            let key = Key::new(ObjectId::new(at), KeyType::FREE_SPACE_BITMAP, span);
            self.tree.insert(host, &key, &bitmap)?;
            at += span;
        }
        Ok(())
    }

    fn convert_to_extents(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        let free = self.extents()?;
        self.delete(host)?;
        self.set_info(host, Info { flags: info.flags & !FREE_SPACE_USING_BITMAPS, ..info })?;
        for (start, len) in free {
            self.tree.insert(host, &extent_key(start, len), &[])?;
        }
        Ok(())
    }

    fn bitmap_key(&self, at: u64) -> Key {
        let index = (at - self.group.start.get()) / self.bitmap_span();
        let start = self.group.start.get() + index * self.bitmap_span();
        let span = self.bitmap_span().min(self.group.end().get() - start);
        Key::new(ObjectId::new(start), KeyType::FREE_SPACE_BITMAP, span)
    }

    /// Whether the sector at `at` is free; false outside the group.
    fn is_free(&self, at: Option<u64>) -> Result<bool> {
        let Some(at) = at.filter(|&at| at >= self.group.start.get() && at < self.group.end().get()) else {
            return Ok(false);
        };
        let key = self.bitmap_key(at);
        let bit = (at - key.objectid.get()) / self.sector;
        let found = self
            .tree
            .get(&key, Wait::Yes, |data| ((bit / 8) < data.len() as u64).then(|| bit_at(data, bit)))?;
        found.flatten().ok_or_else(|| damaged(self.group, "a bitmap is missing"))
    }

    fn change_bits(
        &self,
        host: &dyn CowHost,
        mut info: Info,
        start: u64,
        len: u64,
        free: bool,
    ) -> Result<()> {
        let before = self.is_free(start.checked_sub(self.sector))?;
        let behind = self.is_free(start.checked_add(len))?;
        let mut at = start;
        while at < start + len {
            let key = self.bitmap_key(at);
            let item_end = key.objectid.get() + key.offset;
            let end = item_end.min(start + len);
            let range = (at - key.objectid.get()) / self.sector..(end - key.objectid.get()) / self.sector;
            let changed = self.tree.update(host, &key, |data| {
                let fits = range.end.div_ceil(8) <= data.len() as u64;
                let expected = fits && range.clone().all(|bit| bit_at(data, bit) != free);
                if expected {
                    range.clone().for_each(|bit| set_bit(data, bit, free));
                }
                expected
            })?;
            if changed != Some(true) {
                let want = if free { "freed and is free already" } else { "to be used and is not free" };
                return Err(damaged(self.group, &format!("{at} is {want}")));
            }
            at = end;
        }
        // A range that becomes free joins the runs beside it; one that becomes used cuts a run apart.
        let neighbours = u32::from(before) + u32::from(behind);
        info.extents = match free {
            true => self.counted(info.extents.saturating_add(1), neighbours)?,
            false => self.counted(info.extents.saturating_add(neighbours), 1)?,
        };
        self.finish(host, info)
    }
}

/// Where the extent of an item ends.
fn end_of(key: &Key) -> Option<u64> {
    key.objectid.get().checked_add(key.offset)
}

fn bit_at(data: &[u8], bit: u64) -> bool {
    let byte = usize::try_from(bit / 8).expect("a bitmap's bit");
    data[byte] & (1 << (bit % 8)) != 0
}

fn set_bit(data: &mut [u8], bit: u64, on: bool) {
    let byte = usize::try_from(bit / 8).expect("a bitmap's bit");
    if on {
        data[byte] |= 1 << (bit % 8);
    } else {
        data[byte] &= !(1 << (bit % 8));
    }
}
