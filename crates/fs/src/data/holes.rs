//! Explicit holes: without the NO_HOLES feature every hole below the file's size is an item.
//!
//! When a file grows, the range between its old end and the new data gets hole items where nothing is yet.
//! Usually that is one gap and one item; preallocated extents past the old end can make it several.

use creamery_base::{ObjectId, Result, Wait};
use creamery_format::{Incompat, file_extent};
use creamery_tree::Tree;
use creamery_txn::Handle;
use smallvec::SmallVec;

use super::extent_map::ExtentItems;
use super::reserve::HOLES_MAX;
use crate::inode::Inode;
use crate::keys::extent_data;

/// Gaps that have to be filled.
#[derive(Debug)]
pub(crate) struct HolePlan {
    gaps: SmallVec<[(u64, u64); 2]>,
    /// Up to here no gap remains after the plan is carried out.
    pub(crate) stop: u64,
}

impl HolePlan {
    /// Plans for the gaps of `[start, end)`, two multiples of the sector size.
    pub(crate) fn new(inode: &Inode, start: u64, end: u64) -> Result<Self> {
        let engine = inode.engine();
        let mut plan = Self { gaps: SmallVec::new(), stop: end };
        if start >= end || engine.incompat().contains(Incompat::NO_HOLES) {
            return Ok(plan);
        }
        let mut at = start;
        let sector = u64::from(engine.sector_size());
        let mut items = ExtentItems::new(inode.tree(), inode.id.ino, (start, end), sector, Wait::Yes)?;
        while let Some(item) = items.next()? {
            if item.start > at && !plan.add(at, item.start) {
                return Ok(plan);
            }
            at = item.end;
        }
        if at < end {
            plan.add(at, end);
        }
        Ok(plan)
    }

    /// Plans for no gap.
    pub(crate) fn nothing() -> Self {
        Self { gaps: SmallVec::new(), stop: u64::MAX }
    }

    fn add(&mut self, start: u64, end: u64) -> bool {
        assert!(start < end, "DATA-1: a hole item stands for something");
        let room = self.gaps.len() < HOLES_MAX;
        if room {
            self.gaps.push((start, end));
        } else {
            self.stop = start;
        }
        room
    }

    /// The number of items that it inserts.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.gaps.len()).expect("bounded by HOLES_MAX")
    }

    /// Inserts the items. Any error is one after the first change: the caller aborts.
    pub(crate) fn insert(&self, handle: &Handle<'_>, tree: &Tree, ino: ObjectId) -> Result<()> {
        for (start, end) in &self.gaps {
            let bytes = file_extent::encode_hole(handle.generation(), end - start);
            tree.insert(handle, &extent_data(ino, *start), &bytes)?;
        }
        Ok(())
    }
}
