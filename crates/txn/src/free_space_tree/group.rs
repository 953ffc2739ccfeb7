//! The items of one group.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_format::{FREE_SPACE_BITMAP_SIZE, ITEM_LEN, Key, KeyType, RawFreeSpaceInfo};
use creamery_tree::{CowHost, Tree};
use zerocopy::{FromBytes, IntoBytes};

use super::bits::bit_at;
use crate::space_info::BlockGroup;

pub(super) const BITMAP_BYTES: u64 = FREE_SPACE_BITMAP_SIZE as u64;
/// Extents below the upper threshold at which a group goes back to extent items.
pub(super) const THRESHOLD_GAP: u64 = 100;

/// A checked info item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Info {
    pub(super) extents: u32,
    pub(super) flags: u32,
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

    pub(super) fn uses_bitmaps(self) -> bool {
        self.to_raw().uses_bitmaps()
    }
}

pub(super) fn damaged(group: GroupRange, what: &str) -> Error {
    let message = format!("free space tree of block group {}: {what}", group.start);
    Error::new(ErrorKind::Corrupt, message)
}

fn info_key(group: GroupRange) -> Key {
    Key::new(ObjectId::new(group.start.get()), KeyType::FREE_SPACE_INFO, group.len)
}

pub(super) fn extent_key(start: u64, len: u64) -> Key {
    Key::new(ObjectId::new(start), KeyType::FREE_SPACE_EXTENT, len)
}

/// The free space of one group in the tree, with the values that changing it needs.
pub(crate) struct GroupFreeSpace {
    pub(super) tree: Arc<Tree>,
    pub(super) group: GroupRange,
    pub(super) sector: u64,
}

/// The address range of a group.
#[derive(Clone, Copy)]
pub(super) struct GroupRange {
    pub(super) start: Logical,
    pub(super) len: u64,
}

impl GroupRange {
    pub(super) fn end(self) -> Logical {
        self.start + self.len
    }
}

/// The free space tree, if the filesystem has one. It may get one later.
pub(crate) struct FreeSpaceTree {
    tree: ArcSwapOption<Tree>,
    sector_size: u32,
}

impl FreeSpaceTree {
    pub(crate) fn new(tree: Option<Arc<Tree>>, sector_size: u32) -> Self {
        Self { tree: ArcSwapOption::new(tree), sector_size }
    }

    /// The tree, for operations on any tree.
    pub(crate) fn tree(&self) -> Option<Arc<Tree>> {
        self.tree.load_full()
    }

    /// A guard of the tree, for a short look at it.
    pub(crate) fn loaded(&self) -> arc_swap::Guard<Option<Arc<Tree>>> {
        self.tree.load()
    }

    /// Sets the tree, from now on.
    pub(crate) fn set(&self, tree: Arc<Tree>) {
        self.tree.store(Some(tree));
    }

    /// The free space of `group` in the tree; `None` when the filesystem has no such tree.
    pub(crate) fn of_group(&self, group: &BlockGroup) -> Option<GroupFreeSpace> {
        self.tree().map(|tree| GroupFreeSpace::new(tree, group.start, group.len, self.sector_size))
    }
}

impl GroupFreeSpace {
    pub(crate) fn new(tree: Arc<Tree>, start: Logical, len: u64, sector_size: u32) -> Self {
        Self { tree, group: GroupRange { start, len }, sector: u64::from(sector_size) }
    }

    pub(super) fn info(&self) -> Result<Info> {
        match self.tree.get(&info_key(self.group), Wait::Yes, |data| Info::parse(self.group, data))? {
            Some(info) => info,
            None => Err(damaged(self.group, "info item is missing")),
        }
    }

    pub(super) fn set_info(&self, host: &dyn CowHost, info: Info) -> Result<()> {
        self.tree.upsert(host, &info_key(self.group), info.to_raw().as_bytes())
    }

    /// Bytes of data that one bitmap item covers at most.
    pub(super) fn bitmap_span(&self) -> u64 {
        BITMAP_BYTES * 8 * self.sector
    }

    /// Number of extents above which bitmaps take less room.
    pub(super) fn bitmap_threshold(&self) -> u64 {
        Self::bytes_at_most(self.group.len, self.sector) / ITEM_LEN as u64
    }

    /// The most bytes in leaves of a group of so many bytes, without its info item: those of its bitmaps.
    pub(crate) fn bytes_at_most(len: u64, sector: u64) -> u64 {
        let bitmaps = len.div_ceil(BITMAP_BYTES * 8 * sector);
        bitmaps * (ITEM_LEN as u64 + BITMAP_BYTES)
    }

    /// Writes the items of a group with these free extents, which follow each other and never touch.
    pub(crate) fn fill(&self, host: &dyn CowHost, free: &[(u64, u64)]) -> Result<()> {
        let extents = u32::try_from(free.len()).map_err(|_| damaged(self.group, "too many free extents"))?;
        let info = Info { extents, flags: 0 };
        if u64::from(extents) > self.bitmap_threshold() {
            return self.insert_bitmaps(host, info, free);
        }
        self.set_info(host, info)?;
        free.iter().try_for_each(|&(start, len)| self.tree.insert(host, &extent_key(start, len), &[]))
    }

    /// Writes the items of a new group, all of it free.
    pub(crate) fn create(&self, host: &dyn CowHost) -> Result<()> {
        self.fill(host, &[(self.group.start.get(), self.group.len)])
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
                let message = format!("expected {} extents, found more", info.extents);
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
            return Err(damaged(self.group, &format!("found {found} extents, expected {}", info.extents)));
        }
        Ok(())
    }

    /// Visits the contents of the items, in order: extents, or the set bits of bitmaps one by one.
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

    /// The end of an item that begins at `at` or behind it.
    fn item_end(&self, key: &Key, at: u64) -> Result<u64> {
        let start = key.objectid.get();
        let aligned = key.offset.is_multiple_of(self.sector)
            && start >= at
            && (start - self.group.start.get()).is_multiple_of(self.sector);
        let listed = key.kind == KeyType::FREE_SPACE_INFO || key.offset > 0;
        let end = end_of(key).filter(|&end| aligned && listed && end <= self.group.end().get());
        end.ok_or_else(|| damaged(self.group, "items overlap or leave the group"))
    }

    pub(super) fn extents(&self) -> Result<Vec<(u64, u64)>> {
        let mut free = Vec::new();
        self.each_extent(&mut |start, len| free.push((start, len)))?;
        Ok(free)
    }
}

/// The end of an item's extent.
pub(super) fn end_of(key: &Key) -> Option<u64> {
    key.objectid.get().checked_add(key.offset)
}
