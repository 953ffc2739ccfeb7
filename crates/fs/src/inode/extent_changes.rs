//! Notes of the changed ranges of a file: its log gets these and no more.
//!
//! Notes begin with the first change of an inode in a transaction. Each change of extents adds one with the item locked, so a holder
//! of the item finds them complete. After a log was written they begin anew. A file without notes, because its inode was not in
//! memory all the time, is compared with the last commit as a whole. The one extent of a symbolic link, which never changes, is
//! compared each time.

use creamery_base::Generation;
use creamery_base::lock::{RankedMutex, rank};

use super::log_turn::LogGuard;
use crate::items::InodeItem;

/// The most ranges that are kept apart. With more, the bytes between two of them count as changed, too.
const RANGES_MAX: usize = 256;

/// The start of a set of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Since {
    /// Since the last commit.
    Commit,
    /// Since the log got the file with this count of changes.
    Put(u64),
}

/// The changed parts of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Changes {
    pub(crate) since: Since,
    /// In order and apart.
    pub(crate) ranges: Vec<(u64, u64)>,
}

struct Notes {
    generation: Generation,
    /// The size of the file at the start of the notes.
    size: u64,
    changes: Changes,
}

/// The notes of a file's changes, if there are any.
#[derive(Default)]
pub(crate) struct ExtentChanges {
    notes: RankedMutex<Option<Box<Notes>>, { rank::LEAF }>,
}

impl ExtentChanges {
    /// Begins notes with the inode's first change in transaction `generation`. Notes of this transaction go on; without them, nothing is
    /// known after a later change. `before` is the item before the change, which is locked for writing.
    pub(crate) fn begin(&self, generation: Generation, before: &InodeItem) {
        let mut notes = self.notes.lock();
        if notes.as_ref().is_some_and(|notes| notes.generation == generation) {
            return;
        }
        let is_first = before.transid < generation;
        *notes = is_first.then(|| Notes::new(generation, before.size, Since::Commit));
    }

    /// Notes that `[start, end)` of the file changed.
    pub(crate) fn add(&self, start: u64, end: u64) {
        if let Some(notes) = &mut *self.notes.lock() {
            notes.changes.add(start, end);
        }
    }

    /// Takes the changes of a file that is `item` now, if they are known, and begins new notes. A caller that does not put the file
    /// into the log has to [`forget`](Self::forget) these.
    pub(crate) fn take(
        &self,
        _: &LogGuard<'_>,
        generation: Generation,
        item: &InodeItem,
        sector: u64,
    ) -> Option<Changes> {
        let next = Notes::new(generation, item.size, Since::Put(item.sequence));
        let mut notes = self.notes.lock().replace(next).filter(|notes| notes.generation == generation)?;
        if notes.size != item.size {
            let end = notes.size.min(item.size);
            notes.changes.add(end - end % sector, u64::MAX);
        }
        Some(notes.changes)
    }

    /// Drops the notes: from here on nothing is known.
    pub(crate) fn forget(&self) {
        *self.notes.lock() = None;
    }
}

impl Notes {
    fn new(generation: Generation, size: u64, since: Since) -> Box<Self> {
        Box::new(Self { generation, size, changes: Changes { since, ranges: Vec::new() } })
    }
}

impl Changes {
    /// Adds a range, and joins it with the ranges that it touches.
    pub(crate) fn add(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        let first = self.ranges.partition_point(|range| range.1 < start);
        let behind = first + self.ranges[first..].partition_point(|range| range.0 <= end);
        let touched = &self.ranges[first..behind];
        let from = touched.first().map_or(start, |range| range.0.min(start));
        let to = touched.last().map_or(end, |range| range.1.max(end));
        self.ranges.splice(first..behind, [(from, to)]);
        if self.ranges.len() > RANGES_MAX {
            self.ranges = vec![(self.ranges[0].0, self.ranges[RANGES_MAX].1)];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::log_turn::LogTurn;

    fn changes(ranges: &[(u64, u64)]) -> Changes {
        let mut changes = Changes { since: Since::Commit, ranges: Vec::new() };
        ranges.iter().for_each(|(start, end)| changes.add(*start, *end));
        changes
    }

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(changes(&[(10, 20), (30, 40), (20, 21), (29, 30)]).ranges, [(10, 21), (29, 40)]);
        assert_eq!(changes(&[(10, 20), (30, 40), (0, 50)]).ranges, [(0, 50)]);
        assert_eq!(changes(&[(10, 20), (12, 14), (0, 0), (7, 7)]).ranges, [(10, 20)]);
        assert_eq!(changes(&[(10, 20), (30, 40), (20, 30)]).ranges, [(10, 40)]);
        assert_eq!(changes(&[(5, u64::MAX), (1, 2)]).ranges, [(1, 2), (5, u64::MAX)]);
    }

    #[test]
    fn too_many_ranges_become_one() {
        let mut many = changes(&[]);
        for index in (0..=RANGES_MAX as u64).rev() {
            many.add(4 * index, 4 * index + 1);
        }
        assert_eq!(many.ranges, [(0, 4 * RANGES_MAX as u64 + 1)]);
    }

    #[test]
    fn notes_are_of_one_transaction_and_complete() {
        let at = |transid: u64, size: u64| InodeItem {
            transid: Generation::new(transid),
            size,
            sequence: size,
            ..InodeItem::default()
        };
        let (changes, seven) = (ExtentChanges::default(), Generation::new(7));
        let turns = LogTurn::default();
        let turn = turns.take();
        // Another thread has changed the inode in the same transaction before it came to memory.
        changes.begin(seven, &at(7, 100));
        changes.add(0, 4096);
        assert_eq!(changes.take(&turn, seven, &at(7, 100), 4096), None);
        // It was put into the log, and has grown since.
        changes.begin(seven, &at(7, 100));
        changes.add(8192, 12288);
        let taken = changes.take(&turn, seven, &at(7, 12288), 4096).unwrap();
        assert_eq!(taken, Changes { since: Since::Put(100), ranges: vec![(0, u64::MAX)] });
        changes.forget();
        assert_eq!(changes.take(&turn, seven, &at(7, 100), 4096), None);
        // The next transaction.
        let eight = Generation::new(8);
        changes.begin(eight, &at(7, 100));
        changes.add(0, 4096);
        changes.begin(eight, &at(8, 100));
        let taken = changes.take(&turn, eight, &at(8, 100), 4096).unwrap();
        assert_eq!(taken, Changes { since: Since::Commit, ranges: vec![(0, 4096)] });
    }
}
