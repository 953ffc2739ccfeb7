//! SEEK_DATA and SEEK_HOLE: where a file has bytes, and where it has none.
//!
//! Inline and regular extents are data, and so is all delayed data: dirty pages, and the run in flight. Preallocated space and
//! holes of both kinds, items and gaps, are holes; the end of the file is one more. So an answer is the requested offset, the end
//! of the file, or the beginning of a sector.
//!
//! A program that copies a sparse file asks for data and holes in turn, each time from the last answer on. So the cost of one call
//! must not grow with the part of the file past its answer:
//! - The items are walked from the offset on, with one search of the tree (`extent_map`), and each leaf is visited once.
//! - The delayed ranges (`delayed`) say which data lies over a hole. They return the first range behind a place; one answer is good
//!   for all holes up to it, and "nothing behind this" for all later ones. A file without delayed data is not asked at all. Pages
//!   that cover the hole are enough; the run in flight is looked at only when they do not.
//! - Delayed data at the beginning of the search is passed over before the tree is searched: it is data, whatever the tree says.
//! - The open file remembers the leaf of the last answer, and dirty ranges behind it (`cursor`), so that neither the tree nor the map
//!   is descended for each call.
//!
//! The inode item is no shortcut: a file with as many bytes on disk as in it may still have preallocated ones among them. fallocate
//! sets the flag PREALLOC; where Linux clones such space the target does not get it.
//!
//! # Invariants
//! - SEEK-1: the same content gives the same answers whether it is dirty, in flight, in the tree, or read after the next mount.
//!   Shown by `answers_are_those_of_a_model_in_five_states`.
//! - SEEK-2: asked in turn, data and holes are the whole file, without gap or overlap; no answer lies before the offset or behind the
//!   end. Shown by `answers_are_those_of_a_model_in_five_states`.
//! - SEEK-3: neither seeking nor reading leaves anything in memory but the memory of an open file, which keeps no leaf there.
//!   Shown by `who_reads_and_seeks_in_a_sparse_file_leaves_nothing_behind`.
//! - SEEK-4: the memory of an open file makes an answer cheaper, never another one.
//!
//! # Locking
//! The caller has the range from the offset to the end, shared: no thread writes there. The inode's item is held for reading during
//! the walk, so no run in flight becomes complete: pages that stop being dirty are in flight and stay there, items in the tree stay
//! as they are, and both layers and the tree are one picture. (A run that fails is lost meanwhile: then the answer is the one from
//! before.) The delayed data's own lock is taken for each look, one after the other, also with a leaf held. The cursor's is only
//! tried: a search that finds it taken does without.

mod cursor;
mod delayed;
#[cfg(test)]
mod tests;

use creamery_base::{ErrorKind, Result, Wait};
use creamery_tree::{Bookmark, ReadAhead, Walk};

pub(crate) use cursor::SeekCursor;

use crate::counters::SeekCounters;
use crate::data::extent_map::{ExtentKind, ExtentMaps};
use crate::inode::FileInode;
use crate::inode::file_state::ExtentsSeen;
use crate::inode::lock::HeldExtents;
use crate::keys::extent_data;
use cursor::{Range, Remembered};
use delayed::{DelayedRanges, DirtyMemory};

/// Items and ranges that are visited before `is_interrupted` is called again.
const STEPS_PER_ASKING: u64 = 256;

/// The kind of place that a search looks for.
///
/// ```
/// assert_ne!(creamery_fs::SeekTarget::Data, creamery_fs::SeekTarget::Hole);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SeekTarget {
    /// Bytes that were written, also zeros.
    Data,
    /// A range that was never written, or given back; the end of the file.
    Hole,
}

/// One search.
struct SeekSearch<'a> {
    inode: &'a FileInode<'a>,
    want: SeekTarget,
    delayed: DelayedRanges<'a>,
    memory: &'a mut Remembered,
    /// Whether the memory is the open file's.
    has_cursor: bool,
    cost: SeekCounters,
    is_interrupted: &'a dyn Fn() -> bool,
    steps: u64,
}

/// The first place at or behind `offset` that is data, or a hole; `None` when there is none before the end, or the offset is not in
/// the file. The end itself is a hole. `cursor` is that of the open file, if it is to remember.
/// Errors: device errors; damage; interrupted; the inode was deleted.
pub(crate) fn seek(
    inode: &FileInode<'_>,
    place: (u64, SeekTarget),
    cursor: Option<&SeekCursor>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Option<u64>> {
    let held = inode.hold_extents(Wait::Yes)?;
    let size = inode.size_beside(&held)?;
    seek_within(inode, &held, size, place, cursor, is_interrupted)
}

/// Searches like [`seek`], in a file of `size` bytes whose extents are held.
pub(crate) fn seek_within(
    inode: &FileInode<'_>,
    _held: &HeldExtents<'_>,
    size: u64,
    (offset, want): (u64, SeekTarget),
    cursor: Option<&SeekCursor>,
    is_interrupted: &dyn Fn() -> bool,
) -> Result<Option<u64>> {
    if offset >= size {
        return Ok(None);
    }
    let lent = cursor.map(SeekCursor::try_use);
    let is_contended = matches!(lent, Some(None));
    let (mut kept, mut own) = (lent.flatten(), None);
    let has_cursor = kept.is_some();
    let (memory, untold) = match &mut kept {
        Some(kept) => {
            let kept = kept.get_or_insert_default();
            (&mut kept.remembered, Some(&mut kept.untold))
        }
        None => (own.insert(Remembered::default()), None),
    };
    let mut search = SeekSearch {
        inode,
        want,
        delayed: DelayedRanges::new(inode.delalloc()),
        memory,
        has_cursor,
        cost: SeekCounters { calls: 1, cursor_contended: u64::from(is_contended), ..SeekCounters::default() },
        is_interrupted,
        steps: 0,
    };
    let found = search.run(offset, size);
    let seeks = &inode.context().counters().seeks;
    match untold {
        Some(untold) => untold.add(&search.cost, seeks),
        None => seeks.add(&search.cost),
    }
    let found = found?;
    let found = found.or((want == SeekTarget::Hole).then_some(size));
    search.memory.answer = found;
    assert!(
        found.is_none_or(|at| offset <= at && at <= size),
        "SEEK-2: an answer lies where it was looked for"
    );
    Ok(found)
}

impl<'a> SeekSearch<'a> {
    /// The answer, or `None` when the end is reached.
    fn run(&mut self, offset: u64, size: u64) -> Result<Option<u64>> {
        let Some(at) = self.pass_delayed(offset, size)? else { return Ok(None) };
        if self.want == SeekTarget::Data && at > offset {
            return Ok(Some(offset));
        }
        let seen = self.inode.extents_seen();
        let mut maps = self.maps(seen, (at, size), self.memory.answer == Some(offset))?;
        let found = self.find(&mut maps, at, size)?;
        if self.has_cursor {
            let is_there =
                |(then, leaf): &mut (ExtentsSeen, Bookmark)| *then == seen && maps.move_bookmark(leaf);
            if !self.memory.leaf.as_mut().is_some_and(is_there) {
                self.memory.leaf = maps.bookmark().map(|leaf| (seen, leaf));
            }
        }
        Ok(found)
    }

    /// The extent maps of a range, from the leaf where the last search ended, or from the root. A caller that goes through the file
    /// gets the next leaves read ahead.
    #[inline]
    fn maps(&mut self, seen: ExtentsSeen, (at, size): Range, goes_through: bool) -> Result<ExtentMaps<'a>> {
        let inode = self.inode;
        let sector = u64::from(inode.engine().sector_size());
        let within = sector - 1; // a power of two: a division would add to the cost of a call
        let range = (at & !within, (size + within) & !within);
        let (tree, ino) = (inode.tree(), inode.id.ino);
        let first = extent_data(ino, range.0);
        let ahead = if goes_through { ReadAhead::ForwardAlways } else { ReadAhead::Forward };
        let walk = Walk::new(Wait::Yes, ahead).within(ino);
        if let Some((then, leaf)) = &self.memory.leaf
            && *then == seen
            && let Some(cursor) = tree.cursor_at_bookmark(leaf, &first, walk)?
        {
            self.cost.bookmarks_used += 1;
            return Ok(ExtentMaps::from_cursor(cursor, ino, range, sector));
        }
        self.cost.tree_searches += 1;
        Ok(ExtentMaps::from_cursor(tree.cursor_at_or_before(&first, walk)?, ino, range, sector))
    }

    fn find(&mut self, maps: &mut ExtentMaps<'_>, at: u64, size: u64) -> Result<Option<u64>> {
        let mut leaves = 0;
        while let Some(map) = maps.next()? {
            self.cost.items += 1;
            self.cost.leaves += maps.leaves() - leaves;
            self.step(maps.leaves() > leaves)?;
            leaves = maps.leaves();
            let start = map.start.max(at);
            let found = match map.kind {
                ExtentKind::Hole | ExtentKind::Prealloc => self.in_hole(start, map.end)?,
                ExtentKind::Inline | ExtentKind::Data(_) | ExtentKind::Compressed(_) => {
                    (self.want == SeekTarget::Data).then_some(start)
                }
            };
            if found.is_some() {
                return Ok(found.filter(|at| *at < size));
            }
        }
        Ok(None)
    }

    /// The end of the delayed data at `offset`, in a file of `size` bytes; `None` when that is the end of the file and a hole is
    /// wanted.
    fn pass_delayed(&mut self, offset: u64, size: u64) -> Result<Option<u64>> {
        let mut at = offset;
        while let Some(range) = self.first_delayed(at, size).filter(|range| range.0 <= at) {
            at = range.1;
            if self.want == SeekTarget::Data {
                break;
            }
            if at >= size {
                return Ok(None);
            }
            self.step(false)?;
        }
        Ok(Some(at))
    }

    /// The wanted place in `[start, end)`, a hole in the tree that delayed data may cover.
    fn in_hole(&mut self, start: u64, end: u64) -> Result<Option<u64>> {
        let mut at = start;
        while at < end {
            let range = self.first_delayed(at, end).filter(|range| range.0 < end);
            match (self.want, range) {
                (SeekTarget::Data, range) => return Ok(range.map(|range| range.0.max(start))),
                (SeekTarget::Hole, Some(range)) if range.0 <= at => at = range.1,
                (SeekTarget::Hole, _) => return Ok(Some(at)),
            }
            self.step(false)?;
        }
        Ok(None)
    }

    /// The first delayed range that ends behind `at`, for a search in `[at, end)`.
    fn first_delayed(&mut self, at: u64, end: u64) -> Option<Range> {
        let mut memory = DirtyMemory { batch: &mut self.memory.dirty, is_cursor: self.has_cursor };
        self.delayed.first(&mut memory, (at, end), &mut self.cost)
    }

    /// Counts one more item or range. Errors: the caller gave up.
    fn step(&mut self, is_new_leaf: bool) -> Result<()> {
        self.steps += 1;
        let is_time = is_new_leaf && self.steps > 1 || self.steps.is_multiple_of(STEPS_PER_ASKING);
        if is_time && (self.is_interrupted)() {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(())
    }
}
