//! The extent maps of a file: its ranges of data, prealloc and holes, in order and without gaps.
//!
//! Reading, seeking and truncation all look at a file through here, so there is one place that knows that a hole
//! may be an item (disk_bytenr 0) or the absence of one, that an inline extent reaches to the end of its sector,
//! and that two items must not overlap. [`ExtentItems`] yields the items of the tree, [`ExtentMaps`] fills the gaps between.
//!
//! # Invariants
//! - MAP-1: maps come in order, each begins where the last one ended, and together they are exactly the range
//!   asked for.
//! - MAP-2: items that overlap are damage, never two answers for one byte.
//!   Shown by `items_that_overlap_are_damage_and_change_nothing`.
//!
//! # Locking
//! Both hold one leaf between calls, locked if it may still change: no I/O of data and no change of the tree while one exists.
//! The caller's inode guard keeps the maps true, meanwhile and after that.

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_format::file_extent::{Extent, FileExtentItem};
use creamery_format::{Compression, KeyType};
use creamery_tree::{Bookmark, Cursor, ReadAhead, Tree, Walk};

use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::keys::extent_data;

/// The EXTENT_DATA items that overlap a range.
pub(crate) struct ExtentItems<'t> {
    cursor: Cursor<'t>,
    ino: ObjectId,
    sector: u64,
    started: bool,
    start: u64,
    end: u64,
    /// The end of the last item.
    covered: u64,
}

/// One item of a file with its range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExtentItem<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) extent: FileExtentItem<'a>,
}

impl<'t> ExtentItems<'t> {
    /// The items of `ino` that overlap `[start, end)`.
    pub(crate) fn new(
        tree: &'t Tree,
        ino: ObjectId,
        range: (u64, u64),
        sector: u64,
        wait: Wait,
    ) -> Result<Self> {
        let walk = Walk::new(wait, ReadAhead::Forward).within(ino);
        let cursor = tree.cursor_at_or_before(&extent_data(ino, range.0), walk)?;
        Ok(Self::from_cursor(cursor, ino, range, sector))
    }

    #[inline]
    fn from_cursor(cursor: Cursor<'t>, ino: ObjectId, (start, end): (u64, u64), sector: u64) -> Self {
        Self { cursor, ino, sector, started: false, start, end, covered: 0 }
    }

    /// The next item.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<ExtentItem<'_>>> {
        if self.started {
            self.cursor.advance()?;
        } else {
            self.started = true;
            self.skip_what_is_before()?;
        }
        let Some(item) = here(&self.cursor, self.ino, self.sector)?.filter(|item| item.start < self.end)
        else {
            return Ok(None);
        };
        if item.start < self.covered {
            let key = extent_data(self.ino, item.start);
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("file extent {key}: overlaps the previous one"),
            ));
        }
        self.covered = item.end;
        Ok(Some(item))
    }

    /// Skips items before the range. The cursor began at the last item not behind `start`: that may be another item than an extent
    /// of the file, or end before `start`.
    fn skip_what_is_before(&mut self) -> Result<()> {
        let first = extent_data(self.ino, 0);
        if self.cursor.item().is_some_and(|(key, _)| key < first) {
            self.cursor.advance()?;
        }
        if self.here()?.is_some_and(|item| item.end <= self.start) {
            self.cursor.advance()?;
        }
        Ok(())
    }

    /// The item that `next` returned last.
    fn here(&self) -> Result<Option<ExtentItem<'_>>> {
        here(&self.cursor, self.ino, self.sector)
    }
}

/// The extent of `ino` at `cursor`; `None` where that is another item.
#[inline(always)] // else the result, which is large, goes through memory several times
fn here<'c>(cursor: &'c Cursor<'_>, ino: ObjectId, sector: u64) -> Result<Option<ExtentItem<'c>>> {
    let Some((key, data)) = cursor.item() else { return Ok(None) };
    if key.objectid != ino || key.kind != KeyType::EXTENT_DATA {
        return Ok(None);
    }
    let extent = FileExtentItem::check(&key, data, sector)?;
    Ok(Some(ExtentItem { start: key.offset, end: key.offset + extent.len(sector), extent }))
}

/// The kind of a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)] // a tag in a byte of a field would have that field copied in pieces
pub(crate) enum ExtentKind {
    /// Zeros without space.
    Hole,
    /// Zeros with space.
    Prealloc,
    /// Bytes in the item: see [`ExtentMaps::inline`].
    Inline,
    /// Bytes at this address.
    Data(Logical),
    /// Bytes in a compressed extent, from its `offset` on.
    Compressed(Extent),
}

/// The kind of `[start, end)` of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ExtentMap {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) kind: ExtentKind,
}

/// The extent maps of a range.
pub(crate) struct ExtentMaps<'t> {
    items: ExtentItems<'t>,
    at: u64,
    end: u64,
    /// The map behind the gap that was returned last.
    behind: Option<ExtentMap>,
}

impl<'t> ExtentMaps<'t> {
    /// The maps of `ino` that make up `[start, end)`, two multiples of the sector size.
    pub(crate) fn new(
        tree: &'t Tree,
        ino: ObjectId,
        range: (u64, u64),
        sector: u64,
        wait: Wait,
    ) -> Result<Self> {
        Ok(Self::of(ExtentItems::new(tree, ino, range, sector, wait)?))
    }

    /// The maps of `ino` for a caller that has a cursor at the last item at or before the key of `start`.
    #[inline]
    pub(crate) fn from_cursor(cursor: Cursor<'t>, ino: ObjectId, range: (u64, u64), sector: u64) -> Self {
        Self::of(ExtentItems::from_cursor(cursor, ino, range, sector))
    }

    #[inline]
    const fn of(items: ExtentItems<'t>) -> Self {
        Self { at: items.start, end: items.end, items, behind: None }
    }

    /// The place of the walk; `None` when it has left the file's tree behind.
    pub(crate) fn bookmark(&self) -> Option<Bookmark> {
        self.items.cursor.bookmark()
    }

    /// Moves a bookmark to the place of the walk; false when that is not possible.
    pub(crate) fn move_bookmark(&self, bookmark: &mut Bookmark) -> bool {
        self.items.cursor.move_bookmark(bookmark)
    }

    /// The next map.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<ExtentMap>> {
        if self.at >= self.end {
            return Ok(None);
        }
        let map = match self.behind.take() {
            Some(map) => map,
            None => self.look()?,
        };
        assert!(map.start == self.at && map.end <= self.end, "MAP-1: maps leave no gap");
        self.at = map.end;
        Ok(Some(map))
    }

    /// The map at `at`; when that is a gap, the item found behind it is kept.
    #[inline]
    fn look(&mut self) -> Result<ExtentMap> {
        let (at, limit) = (self.at, self.end);
        let Some(item) = self.items.next()? else {
            return Ok(ExtentMap { start: at, end: limit, kind: ExtentKind::Hole });
        };
        let start = item.start.max(at);
        let cut = start - item.start;
        let kind = match item.extent {
            FileExtentItem::Hole { .. } => ExtentKind::Hole,
            FileExtentItem::Prealloc(_) => ExtentKind::Prealloc,
            FileExtentItem::Inline { .. } => ExtentKind::Inline,
            FileExtentItem::Regular(extent) if extent.compression == Compression::None => {
                ExtentKind::Data(extent.disk_bytenr + extent.offset + cut)
            }
            FileExtentItem::Regular(extent) => ExtentKind::Compressed(extent.without_front(cut)),
        };
        let map = ExtentMap { start, end: item.end.min(limit), kind };
        if start == at {
            return Ok(map);
        }
        self.behind = Some(map);
        Ok(ExtentMap { start: at, end: start, kind: ExtentKind::Hole })
    }

    /// The number of leaves visited.
    pub(crate) const fn leaves(&self) -> u64 {
        self.items.cursor.leaves()
    }

    /// The inline extent that `next` returned last: its bytes, its unpacked length and its compression.
    pub(crate) fn inline(&self) -> Result<(&[u8], u64, Compression)> {
        match self.items.here()? {
            Some(ExtentItem { extent: FileExtentItem::Inline { ram_bytes, compression, data }, .. }) => {
                Ok((data, ram_bytes, compression))
            }
            _ => unreachable!("asked for after an inline map, which is never behind a gap"),
        }
    }
}

/// Whether a file has, or may have, space set aside for data to come.
pub(crate) fn has_prealloc(item: &InodeItem) -> bool {
    item.flags.contains(InodeFlags::PREALLOC)
}

/// The holes of `range`, whole sectors.
pub(crate) fn holes_of(inode: &Inode, range: (u64, u64)) -> Result<Vec<(u64, u64)>> {
    let sector = u64::from(inode.engine().sector_size());
    let _still = inode.hold_extents(Wait::Yes)?;
    let mut maps = ExtentMaps::new(inode.tree(), inode.id.ino, range, sector, Wait::Yes)?;
    let mut holes = Vec::new();
    while let Some(map) = maps.next()? {
        if map.kind == ExtentKind::Hole {
            holes.push((map.start, map.end));
        }
    }
    Ok(holes)
}

/// The items of a file that refer to extents, preallocated ones too: the position of each in the file, and its extent.
pub(crate) fn extents_of(inode: &Inode) -> Result<Vec<(u64, Extent)>> {
    let sector = u64::from(inode.engine().sector_size());
    let _still = inode.hold_extents(Wait::Yes)?;
    let mut items = ExtentItems::new(inode.tree(), inode.id.ino, (0, u64::MAX), sector, Wait::Yes)?;
    let mut extents = Vec::new();
    while let Some(item) = items.next()? {
        if let FileExtentItem::Regular(extent) | FileExtentItem::Prealloc(extent) = item.extent {
            extents.push((item.start, extent));
        }
    }
    Ok(extents)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::tests::support::{SECTOR, assert_noticed, new_file};
    use crate::inode::InodeFlags;

    #[test]
    fn a_map_that_leaves_a_gap_is_a_bug() {
        assert_noticed("MAP-1", |engine| {
            let file = new_file(&engine, 300, InodeFlags::default());
            let range = (0, 4 * SECTOR);
            let mut maps =
                ExtentMaps::new(file.tree(), file.id.ino, range, SECTOR, Wait::Yes).expect("a readable tree");
            maps.behind = Some(ExtentMap { start: SECTOR, end: 4 * SECTOR, kind: ExtentKind::Hole });
            let _ = maps.next();
        });
    }
}
