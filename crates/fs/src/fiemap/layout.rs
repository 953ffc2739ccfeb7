//! How a part of a file is laid out at one moment: entries of a batch, before it is known who shares them.

use creamery_base::{Logical, Result, Wait};
use creamery_format::Compression;
use creamery_format::file_extent::{Extent, FileExtentItem};

use super::delayed::DelayedInRange;
use super::extent::{FiemapExtent, FiemapFlags};
use crate::data::extent_map::{ExtentItem, ExtentItems};
use crate::inode::FileInode;

/// Entries of a batch, at most.
pub(super) const ENTRIES_MAX: usize = 128;
/// Items that are looked at for a batch, at most: those of holes make no entries.
const ITEMS_MAX: usize = 4096;

/// An entry, and the extent that it shows, where it shows one.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayoutEntry {
    pub(super) entry: FiemapExtent,
    /// Where the extent begins on the device, and where it would in the file, in 64 bits.
    pub(super) extent: Option<(Logical, u64)>,
}

/// Where a batch begins.
#[derive(Clone, Copy, Debug)]
pub(super) enum BatchStart {
    /// A listing begins: an extent that begins before is listed whole.
    Anew(u64),
    /// Where another batch ended.
    Behind(u64),
}

impl BatchStart {
    pub(super) const fn offset(self) -> u64 {
        match self {
            Self::Anew(at) | Self::Behind(at) => at,
        }
    }
}

/// What was found.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) pieces: Vec<LayoutEntry>,
    /// Where to go on, when it is not all.
    pub(super) next: Option<u64>,
    /// When it is all: whether nothing lies behind it in the file.
    pub(super) ends_file: bool,
}

/// There is no room for more in this batch, which ends before this place.
pub(super) struct Full(u64);

pub(super) type Room = std::result::Result<(), Full>;

impl Layout {
    /// The layout of `inode` up to `end`, a multiple of the sector size, in one moment; the caller has locked the range.
    /// Errors: device errors; damage.
    pub(super) fn of(inode: &FileInode<'_>, from: BatchStart, end: u64) -> Result<Self> {
        let sector = u64::from(inode.engine().sector_size());
        let start = from.offset() - from.offset() % sector;
        let _still = inode.hold_extents(Wait::Yes)?;
        let items = ExtentItems::new(inode.tree(), inode.id.ino, (start, u64::MAX), sector, Wait::Yes)?;
        let delayed = DelayedInRange(inode.delalloc());
        let cut = if let BatchStart::Behind(_) = from { start } else { 0 };
        Walk { delayed, cut, end, layout: Self::empty() }.run(items, start)
    }

    pub(super) const fn empty() -> Self {
        Self { pieces: Vec::new(), next: None, ends_file: true }
    }

    pub(super) fn push(&mut self, piece: LayoutEntry) -> Room {
        let last = self.pieces.last().map_or(0, |piece| piece.entry.end());
        assert!(piece.entry.logical >= last, "FIEMAP-1: entries come in order and do not overlap");
        if self.pieces.len() == ENTRIES_MAX {
            return Err(Full(piece.entry.logical));
        }
        self.pieces.push(piece);
        Ok(())
    }

    /// It is not all: another batch goes on from `next`.
    pub(super) fn stopped(mut self, next: u64) -> Self {
        assert!(self.pieces.len() <= ENTRIES_MAX, "FIEMAP-4: a batch has no more than so many entries");
        (self.next, self.ends_file) = (Some(next), false);
        self
    }
}

/// Going through the items, with what is delayed between them.
struct Walk<'a> {
    delayed: DelayedInRange<'a>,
    /// Nothing is listed that lies before.
    cut: u64,
    end: u64,
    layout: Layout,
}

impl Walk<'_> {
    fn run(mut self, mut items: ExtentItems<'_>, start: u64) -> Result<Layout> {
        let mut at = start;
        for _ in 0..ITEMS_MAX {
            let item = items.next()?;
            let gap_end = item.as_ref().map_or(u64::MAX, |item| item.start);
            let listed = self.gap(at, gap_end.min(self.end));
            if let Err(Full(next)) = listed.and_then(|()| item.as_ref().map_or(Ok(()), |it| self.item(it))) {
                return Ok(self.layout.stopped(next));
            }
            if self.delayed.first_in(at.max(self.end), gap_end).is_some() {
                self.layout.ends_file = false;
            }
            let Some(item) = item else { return Ok(self.layout) };
            let is_hole = matches!(item.extent, FileExtentItem::Hole { .. });
            if item.start >= self.end && !is_hole {
                self.layout.ends_file = false;
            }
            if !self.layout.ends_file {
                return Ok(self.layout);
            }
            // What is delayed over the item of a hole comes before the next item.
            at = if is_hole { at.max(item.start) } else { item.end };
        }
        // Entries may have come up to here.
        let last = self.layout.pieces.last().map_or(0, |piece| piece.entry.end());
        Ok(self.layout.stopped(at.max(last)))
    }

    /// What is delayed in a hole.
    fn gap(&mut self, start: u64, end: u64) -> Room {
        let mut at = start;
        while let Some((first, last)) = self.delayed.first_in(at, end) {
            let entry = FiemapExtent::new(first, 0, last - first, FiemapFlags::DELAYED);
            self.layout.push(LayoutEntry { entry, extent: None })?;
            at = last;
        }
        Ok(())
    }

    /// What an item shows, whole, if it begins before the end.
    fn item(&mut self, item: &ExtentItem<'_>) -> Room {
        if item.start >= self.end {
            return Ok(());
        }
        let (start, end) = (item.start.max(self.cut), item.end);
        match item.extent {
            FileExtentItem::Hole { .. } => Ok(()),
            FileExtentItem::Inline { compression, .. } => {
                let flags = FiemapFlags::INLINE | encoded(compression);
                let entry = FiemapExtent::new(start, 0, end - start, flags);
                self.layout.push(LayoutEntry { entry, extent: None })
            }
            FileExtentItem::Regular(extent) => {
                self.show(item.start, &extent, (start, end), FiemapFlags::empty())
            }
            FileExtentItem::Prealloc(extent) => {
                let mut at = start;
                while at < end {
                    let (first, last) = self.delayed.first_in(at, end).unwrap_or((end, end));
                    if at < first {
                        self.show(item.start, &extent, (at, first), FiemapFlags::UNWRITTEN)?;
                    }
                    self.gap(first, last)?;
                    at = last;
                }
                Ok(())
            }
        }
    }

    /// A part of what an item at `item_start` shows of an extent.
    fn show(
        &mut self,
        item_start: u64,
        extent: &Extent,
        (start, end): (u64, u64),
        flags: FiemapFlags,
    ) -> Room {
        let flags = flags | encoded(extent.compression);
        let into = extent.offset + (start - item_start);
        let into = if flags.contains(FiemapFlags::ENCODED) { 0 } else { into };
        let entry = FiemapExtent::new(start, (extent.disk_bytenr + into).get(), end - start, flags);
        let base = item_start.wrapping_sub(extent.offset);
        self.layout.push(LayoutEntry { entry, extent: Some((extent.disk_bytenr, base)) })
    }
}

fn encoded(compression: Compression) -> FiemapFlags {
    match compression {
        Compression::None => FiemapFlags::empty(),
        _ => FiemapFlags::ENCODED,
    }
}
