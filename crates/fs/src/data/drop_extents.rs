//! Making room in a file: the items that overlap a range are removed, trimmed or split.
//!
//! It happens in two steps. A [`DropPlan`] is computed from the tree without changing anything, before there is a
//! transaction handle, so damage is found while turning back costs nothing and the number of changes is known
//! exactly when it is reserved. [`DropPlan::apply`] then carries it out, with the inode's item locked and nothing changed between
//! the two (DATA-5).
//!
//! ```text
//!   item        |--------|        |--------|        |--------------|        |----|
//!   range    |--------|              |--------|         |------|          |--------|
//!            front trim           back trim         split                 remove
//!            (the key moves)                        (one more reference)  (one reference less)
//! ```
//!
//! An extent's reference is known by (subvolume, inode, file offset minus offset in the extent). Trimming moves
//! both by as much, so only removing and splitting touch references.
//!
//! # Invariants
//! - DROP-1: after a plan for `[start, end)` that stopped at `stop` was applied, no item overlaps `[start, stop)`
//!   and every byte outside reads as before. Shown by `a_range_is_removed_trimmed_or_split_and_the_rest_stays`.
//! - DROP-2: a plan has at most the requested number of edits plus one (the split makes two of one item), however many items the
//!   range has; `stop` is its end. Shown by `a_plan_stops_at_its_bound_and_says_where`.
//! - DROP-3: `bytes` is exactly the share of the dropped parts in the inode's nbytes.
//!   Shown by `a_range_is_removed_trimmed_or_split_and_the_rest_stays`.

use creamery_base::{Error, ErrorKind, Generation, InodeId, Logical, ObjectId, Result, Wait};
use creamery_format::file_extent::{self, Extent, FileExtentItem};
use creamery_tree::Tree;
use creamery_txn::Handle;
use smallvec::SmallVec;

use super::extent_map::{ExtentItem, ExtentItems};
use crate::keys::extent_data;

/// A plan to make room in a file.
#[derive(Debug)]
pub(crate) struct DropPlan {
    edits: SmallVec<[Edit; 4]>,
    /// Everything in `[start, stop)` goes; in a plan from the end of the file `start` moves instead.
    pub(crate) start: u64,
    pub(crate) stop: u64,
    /// The bytes by which the inode's nbytes falls.
    pub(crate) bytes: u64,
}

/// A reference that a file extent item holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reference {
    start: Logical,
    len: u64,
    /// Key offset minus offset in the extent, wrapping.
    offset: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Edit {
    /// The item at `at` goes.
    Remove { at: u64, reference: Option<Reference> },
    /// The item at `at` keeps its first `keep` bytes.
    TrimBack { at: u64, keep: u64 },
    /// The item at `at` loses its first `cut` bytes.
    TrimFront { at: u64, cut: u64 },
    /// The item at `at` keeps its first `keep` bytes; `rest` is the remainder, which begins at `from`.
    Split { at: u64, keep: u64, from: u64, rest: Rest },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    Extent {
        extent: Extent,
        prealloc: bool,
        reference: Reference,
    },
    /// A hole, as old as the one that it was cut from.
    Hole {
        generation: Generation,
        num_bytes: u64,
    },
}

impl Reference {
    const fn of(at: u64, extent: &Extent) -> Self {
        Self { start: extent.disk_bytenr, len: extent.disk_num_bytes, offset: at.wrapping_sub(extent.offset) }
    }
}

impl DropPlan {
    /// Plans for `[start, end)` from its front, at most `edits_max` items. Both are multiples of the sector size.
    pub(crate) fn from_front(
        tree: &Tree,
        ino: ObjectId,
        range: (u64, u64),
        edits_max: usize,
        sector: u64,
    ) -> Result<Self> {
        let (start, end) = range;
        assert!(start < end);
        assert!(edits_max > 0);
        let mut plan = Self { edits: SmallVec::new(), start, stop: end, bytes: 0 };
        let mut items = ExtentItems::new(tree, ino, range, sector, Wait::Yes)?;
        while let Some(item) = items.next()? {
            if plan.edits.len() == edits_max {
                plan.stop = item.start;
                break;
            }
            plan.add(&item, end)?;
        }
        assert!(plan.start < plan.stop, "DROP-1: some of the range becomes free");
        assert!(plan.changes().0 <= edits_max + 1, "DROP-2");
        Ok(plan)
    }

    /// Plans for everything from `start` on, beginning at the end of the file: `start` of the plan says how far
    /// down it reaches.
    pub(crate) fn from_back(
        tree: &Tree,
        ino: ObjectId,
        start: u64,
        edits_max: usize,
        sector: u64,
    ) -> Result<Self> {
        assert!(edits_max > 0);
        let mut plan = Self { edits: SmallVec::new(), start, stop: u64::MAX, bytes: 0 };
        let first = extent_data(ino, 0);
        let mut cursor = tree.cursor_at_or_before(&extent_data(ino, u64::MAX), Wait::Yes)?;
        let mut above = u64::MAX;
        while let Some((key, data)) = cursor.item() {
            if key.objectid != first.objectid || key.kind != first.kind {
                break;
            }
            let extent = FileExtentItem::check(&key, data, sector)?;
            let end = key.offset + extent.len(sector);
            if end > above {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("file extent {key}: overlaps the next one"),
                ));
            }
            above = key.offset;
            if end <= start && key.offset < start {
                break;
            }
            if plan.edits.len() == edits_max {
                plan.start = end;
                break;
            }
            plan.add(&ExtentItem { start: key.offset, end, extent }, u64::MAX)?;
            if !cursor.retreat()? {
                break;
            }
        }
        plan.edits.reverse();
        assert!(plan.changes().0 <= edits_max, "DROP-2: nothing is split at the end of a file");
        Ok(plan)
    }

    fn add(&mut self, item: &ExtentItem<'_>, end: u64) -> Result<()> {
        let at = item.start;
        let before = self.start.saturating_sub(at);
        let after = item.end.saturating_sub(end);
        if let FileExtentItem::Inline { ram_bytes, .. } = item.extent {
            // It is at offset 0, and is valid if it is a sector at most.
            if before > 0 || after > 0 {
                return Err(Error::new(
                    ErrorKind::Corrupt,
                    format!("inline extent of {ram_bytes} bytes, expected at most a sector"),
                ));
            }
            self.bytes += ram_bytes;
            self.edits.push(Edit::Remove { at, reference: None });
            return Ok(());
        }
        let (extent, prealloc) = match item.extent {
            FileExtentItem::Regular(extent) => (Some(extent), false),
            FileExtentItem::Prealloc(extent) => (Some(extent), true),
            FileExtentItem::Hole { .. } | FileExtentItem::Inline { .. } => (None, false),
        };
        if extent.is_some() {
            self.bytes += item.end - at - before - after;
        }
        let reference = extent.map(|extent| Reference::of(at, &extent));
        self.edits.push(match (before, after) {
            (0, 0) => Edit::Remove { at, reference },
            (keep, 0) => Edit::TrimBack { at, keep },
            (0, _) => Edit::TrimFront { at, cut: end - at },
            (keep, num_bytes) => {
                let rest = match (extent, reference, item.extent) {
                    (Some(extent), Some(reference), _) => {
                        Rest::Extent { extent: extent.without_front(end - at), prealloc, reference }
                    }
                    (.., FileExtentItem::Hole { generation, .. }) => Rest::Hole { generation, num_bytes },
                    _ => unreachable!("an inline extent goes as a whole"),
                };
                Edit::Split { at, keep, from: end, rest }
            }
        });
        Ok(())
    }

    /// Whether nothing has to be done.
    pub(crate) fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// The number of items of the subvolume's tree that change, and of references of extents.
    pub(crate) fn changes(&self) -> (usize, usize) {
        let mut items = 0;
        let mut references = 0;
        for edit in &self.edits {
            let (more_items, more_references) = match edit {
                Edit::Remove { reference, .. } => (1, usize::from(reference.is_some())),
                Edit::TrimBack { .. } | Edit::TrimFront { .. } => (1, 0),
                Edit::Split { rest: Rest::Hole { .. }, .. } => (2, 0),
                Edit::Split { rest: Rest::Extent { .. }, .. } => (2, 1),
            };
            items += more_items;
            references += more_references;
        }
        (items, references)
    }

    /// Carries the plan out. The item at `replaced`, if it is one to be removed, stays in the tree and the caller
    /// overwrites it in the same handle; that saves a search each way.
    /// Any error is one after the first change: the caller aborts.
    pub(crate) fn apply(
        &self,
        handle: &Handle<'_>,
        tree: &Tree,
        owner: InodeId,
        replaced: Option<u64>,
    ) -> Result<()> {
        let mut run: Option<(u64, u64, u64)> = None;
        for edit in &self.edits {
            if let Edit::Remove { at, reference } = *edit {
                if let Some(dropped) = reference {
                    handle.drop_data_ref(dropped.start, dropped.len, owner, dropped.offset);
                }
                if replaced != Some(at) {
                    run = Some(run.map_or((at, at, 1), |(first, _, count)| (first, at, count + 1)));
                }
                continue;
            }
            remove_run(handle, tree, owner.ino, run.take())?;
            edit.trim(handle, tree, owner)?;
        }
        remove_run(handle, tree, owner.ino, run)
    }
}

impl Edit {
    fn trim(&self, handle: &Handle<'_>, tree: &Tree, owner: InodeId) -> Result<()> {
        match *self {
            Self::Remove { .. } => unreachable!("removed in runs"),
            Self::TrimBack { at, keep } => shorten(handle, tree, owner.ino, at, keep),
            Self::TrimFront { at, cut } => {
                let (key, new) = (extent_data(owner.ino, at), extent_data(owner.ino, at + cut));
                let found = tree.rekey(handle, &key, &new, |data| file_extent::cut_front(data, cut))?;
                expect_found(found, owner.ino, at)
            }
            Self::Split { at, keep, from, rest } => {
                shorten(handle, tree, owner.ino, at, keep)?;
                let bytes = match rest {
                    Rest::Extent { extent, prealloc, .. } if prealloc => extent.encode_prealloc(),
                    Rest::Extent { extent, .. } => extent.encode(),
                    Rest::Hole { generation, num_bytes } => file_extent::encode_hole(generation, num_bytes),
                };
                tree.insert(handle, &extent_data(owner.ino, from), &bytes)?;
                match rest {
                    Rest::Extent { reference, .. } => {
                        handle.add_data_ref(reference.start, reference.len, owner, reference.offset)
                    }
                    Rest::Hole { .. } => Ok(()),
                }
            }
        }
    }
}

fn shorten(handle: &Handle<'_>, tree: &Tree, ino: ObjectId, at: u64, keep: u64) -> Result<()> {
    let edited = tree.update(handle, &extent_data(ino, at), |data| file_extent::set_num_bytes(data, keep))?;
    expect_found(edited.is_some(), ino, at)
}

/// Removes the `count` items from `first` to `last`, which are all items there.
fn remove_run(handle: &Handle<'_>, tree: &Tree, ino: ObjectId, run: Option<(u64, u64, u64)>) -> Result<()> {
    let Some((first, last, count)) = run else { return Ok(()) };
    let removed = if count == 1 {
        u64::from(tree.remove(handle, &extent_data(ino, first))?)
    } else {
        tree.remove_range(handle, &extent_data(ino, first), &extent_data(ino, last), &mut |_, _| Ok(()))?
    };
    expect_found(removed == count, ino, first)
}

/// Fails unless `found`. Nothing changed since the plan was made (DATA-5), so a bug took a missing item.
pub(super) fn expect_found(found: bool, ino: ObjectId, at: u64) -> Result<()> {
    if found {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, format!("file extent {}: vanished", extent_data(ino, at))))
}
