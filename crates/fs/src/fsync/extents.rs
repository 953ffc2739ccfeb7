//! Extents: the parts that differ from the last commit, as items that replace those of the last commit in a replay.

use creamery_base::{ObjectId, Result};
use creamery_format::file_extent::{self, Extent, FileExtentItem};
use creamery_format::{Compression, KeyType};
use creamery_txn::{InodeLog, LogBase, LogScope};

use super::items::{LogItem, drop_others, end_of, extents_over};
use crate::inode::extent_changes::{Changes, Since};
use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::keys::extent_data;

/// Upper bound of the items that are compared. With more a commit costs less than comparing all of them each time.
const COMPARED_MAX: usize = 4096;
/// Upper bound of the items that are put at once.
const PUT_MAX: usize = 256;

/// A part of a file that one item covers.
struct ItemSlice {
    start: u64,
    end: u64,
    /// Whether it is a hole.
    is_hole: bool,
}

/// Adds the extents that differ, among the `changes` where these are known. False when they are too many.
pub(super) fn look(
    inode: &Inode,
    item: &InodeItem,
    base: &LogBase,
    changes: Option<Changes>,
    log: &mut InodeLog,
) -> Result<bool> {
    let sector = u64::from(inode.engine().sector_size());
    let mut changes =
        changes.unwrap_or_else(|| Changes { since: Since::Commit, ranges: vec![(0, u64::MAX)] });
    if changes.since == Since::Commit {
        // A replay cuts off extents past the end, changed or not.
        changes.add(item.size.next_multiple_of(sector), u64::MAX);
    }
    let mut whole = Changes { since: changes.since, ranges: Vec::new() };
    for range in changes.ranges {
        let Some((start, end)) = whole_items(inode, base, range, sector)? else { return Ok(false) };
        whole.add(start, end);
    }
    let before = log.items.len();
    for range in &whole.ranges {
        if !look_at(inode, item, base, *range, log)? || log.items.len() - before > PUT_MAX {
            return Ok(false);
        }
    }
    log.scope = match whole.since {
        Since::Commit => LogScope::All,
        Since::Put(sequence) => LogScope::Extents { since: sequence, ranges: whole.ranges },
    };
    Ok(true)
}

/// A range grown until it cuts no item of the file or of its log in two. `None` when there are too many of them.
fn whole_items(
    inode: &Inode,
    base: &LogBase,
    mut range: (u64, u64),
    sector: u64,
) -> Result<Option<(u64, u64)>> {
    let (engine, ino) = (inode.engine(), inode.id.ino);
    loop {
        let was = range;
        let Some(now) = extents_over(inode.tree(), ino, range, sector, COMPARED_MAX)? else {
            return Ok(None);
        };
        let (first, last) = (extent_data(ino, range.0), extent_data(ino, range.1 - 1));
        let mut logged = engine.logs().items(base, &first, &last)?;
        drop_others(&mut logged, ino, range.0, sector)?;
        for items in [now, logged] {
            if let Some((key, _)) = items.first() {
                range.0 = range.0.min(key.offset);
            }
            if let Some((key, data)) = items.last() {
                range.1 = range.1.max(end_of(key, data, sector)?);
            }
        }
        if range == was {
            return Ok(Some(range));
        }
    }
}

/// Adds the extents that differ in a range. False when they are too many.
fn look_at(
    inode: &Inode,
    item: &InodeItem,
    base: &LogBase,
    range: (u64, u64),
    log: &mut InodeLog,
) -> Result<bool> {
    let (ino, sector) = (inode.id.ino, u64::from(inode.engine().sector_size()));
    let over = |tree| extents_over(tree, ino, range, sector, COMPARED_MAX);
    let (Some(now), Some(before)) = (over(inode.tree())?, over(base.tree())?) else { return Ok(false) };
    let end_of_file = item.size.next_multiple_of(sector);
    let mut gaps = Gaps { pieces: pieces(&before, sector)?, logged_in: base.generation(), from: range.0 };
    for (key, data) in now {
        let extent = FileExtentItem::check(&key, &data, sector)?;
        let end = key.offset + extent.len(sector);
        log.items.extend(gaps.before(key.offset.min(end_of_file), ino));
        gaps.from = gaps.from.max(end);
        let is_known =
            before.binary_search_by(|(other, _)| other.cmp(&key)).is_ok_and(|at| before[at].1 == data);
        if is_known && end <= end_of_file {
            continue;
        }
        if let FileExtentItem::Regular(extent) = extent
            && !item.flags.contains(InodeFlags::NODATASUM)
        {
            log.data.push(read_of(&extent));
        }
        log.items.push((key, data));
    }
    log.items.extend(gaps.before(end_of_file.min(range.1), ino));
    Ok(true)
}

/// The range of an extent that a read of an item's part needs.
fn read_of(extent: &Extent) -> (creamery_base::Logical, u64) {
    match extent.compression {
        Compression::None => (extent.disk_bytenr + extent.offset, extent.num_bytes),
        _ => (extent.disk_bytenr, extent.disk_num_bytes),
    }
}

fn pieces(items: &[LogItem], sector: u64) -> Result<Vec<ItemSlice>> {
    let piece = |(key, data): &LogItem| {
        debug_assert!(key.kind == KeyType::EXTENT_DATA);
        let extent = FileExtentItem::check(key, data, sector)?;
        let is_hole = matches!(extent, FileExtentItem::Hole { .. });
        Ok(ItemSlice { start: key.offset, end: key.offset + extent.len(sector), is_hole })
    };
    items.iter().map(piece).collect()
}

/// Finds ranges that are holes now and had data at the last commit.
struct Gaps {
    pieces: Vec<ItemSlice>,
    logged_in: creamery_base::Generation,
    /// The end of the last item.
    from: u64,
}

impl Gaps {
    /// A hole from the end of the last item to `to`, if the last commit has data there.
    fn before(&self, to: u64, ino: ObjectId) -> Option<LogItem> {
        let from = self.from;
        if from >= to {
            return None;
        }
        let first = self.pieces.partition_point(|piece| piece.end <= from);
        let mut there = self.pieces[first..].iter().take_while(|piece| piece.start < to);
        let hole = || file_extent::encode_hole(self.logged_in, to - from).to_vec();
        there.any(|piece| !piece.is_hole).then(|| (extent_data(ino, from), hole()))
    }
}
