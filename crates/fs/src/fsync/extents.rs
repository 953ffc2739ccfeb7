//! Extents: what differs from the last commit, as items that take the place of what is there.

use creamery_base::Result;
use creamery_format::{Compression, KeyType};
use creamery_txn::{InodeLog, LogBase};

use super::items::{Item, items};
use crate::data::file_extent::{self, Extent, FileExtent};
use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::keys::extent_data;

/// Items that are compared at most. With more a commit costs less than looking at all of them each time.
const COMPARED_MAX: usize = 4096;
/// Items of one inode that a log has at most: each fsync looks at all of them again.
const LOGGED_MAX: usize = 256;

/// A part of a file that an item says something of.
struct Piece {
    start: u64,
    end: u64,
    /// Whether it is a hole.
    is_hole: bool,
}

/// Adds the extents that differ. False when they are too many.
pub(super) fn look(inode: &Inode, item: &InodeItem, base: &LogBase, log: &mut InodeLog) -> Result<bool> {
    let (ino, sector) = (inode.id.ino, u64::from(inode.engine().sector_size()));
    let (first, last) = (extent_data(ino, 0), extent_data(ino, u64::MAX));
    let Some(now) = items(inode.tree(), &first, &last, COMPARED_MAX)? else { return Ok(false) };
    let Some(before) = items(base.tree(), &first, &last, COMPARED_MAX)? else { return Ok(false) };
    let end_of_file = item.size.next_multiple_of(sector);
    let mut logged = Vec::new();
    let mut gaps = Gaps { pieces: pieces(&before, sector)?, logged_in: base.generation(), from: 0 };
    for (key, data) in now {
        let extent = FileExtent::check(&key, &data, sector)?;
        let end = key.offset + extent.len(sector);
        logged.extend(gaps.before(key.offset.min(end_of_file), ino));
        gaps.from = gaps.from.max(end);
        let is_known =
            before.binary_search_by(|(other, _)| other.cmp(&key)).is_ok_and(|at| before[at].1 == data);
        if is_known && end <= end_of_file {
            continue;
        }
        if let FileExtent::Regular(extent) = extent
            && !item.flags.contains(InodeFlags::NODATASUM)
        {
            log.data.push(read_of(&extent));
        }
        logged.push((key, data));
    }
    logged.extend(gaps.before(end_of_file, ino));
    let fits = logged.len() <= LOGGED_MAX;
    log.items.append(&mut logged);
    Ok(fits)
}

/// What has to be read of an extent to read what an item shows of it.
fn read_of(extent: &Extent) -> (creamery_base::Logical, u64) {
    match extent.compression {
        Compression::None => (extent.disk_bytenr + extent.offset, extent.num_bytes),
        _ => (extent.disk_bytenr, extent.disk_num_bytes),
    }
}

fn pieces(items: &[Item], sector: u64) -> Result<Vec<Piece>> {
    let piece = |(key, data): &Item| {
        debug_assert!(key.kind == KeyType::EXTENT_DATA);
        let extent = FileExtent::check(key, data, sector)?;
        let is_hole = matches!(extent, FileExtent::Hole { .. });
        Ok(Piece { start: key.offset, end: key.offset + extent.len(sector), is_hole })
    };
    items.iter().map(piece).collect()
}

/// Finds where the file has nothing now and had something at the last commit.
struct Gaps {
    pieces: Vec<Piece>,
    logged_in: creamery_base::Generation,
    /// Where the last item ended.
    from: u64,
}

impl Gaps {
    /// A hole from there to `to`, if there was something.
    fn before(&self, to: u64, ino: creamery_base::ObjectId) -> Option<Item> {
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
