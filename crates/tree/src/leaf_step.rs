//! The last step of a search for modification: the slot in the leaf, and room there.
//!
//! An insertion unlocks the leaf's parents here, before it searches (see `search`). [`LeafSteps`](crate::LeafSteps) counts
//! every outcome. Other counters show events that must never happen: a search under a locked parent that was not needed,
//! a comparison with slot 0 after that slot was ruled out, and the unlocking of parents that had to stay locked.

use std::cmp::Ordering;

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::{BlockRef, Key};

use crate::host::CowHost;
use crate::path::Path;
use crate::read::position;
use crate::search::Intent;
use crate::tree::Tree;

/// The case of an insertion, known before it searches its leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InsertCase {
    Hit,
    SlotZero,
    Exact,
    NoSpace,
    RootLeaf,
    Keep,
}

impl Tree {
    /// Finishes a search at the leaf: unlocks the parents early if that is safe, finds the slot, makes room.
    pub(crate) fn leaf_step(
        &self,
        host: &dyn CowHost,
        key: &Key,
        intent: Intent,
        path: &mut Path,
    ) -> Result<bool> {
        let free = path.block(0).free_space();
        let (slot, found) = match intent.room() {
            0 => position(path.block(0), key, 0),
            room => self.insertion_slot(key, free >= room, path)?,
        };
        path.slots[0] = slot;
        let room = match (intent, found) {
            (Intent::Insert(bytes), false) | (Intent::Extend(bytes), true) => bytes,
            _ => 0,
        };
        if found && path.block(0).item_size(slot) + room > self.max_item_size() {
            let message = format!("tree {} item {key} would grow past what a leaf can hold", self.id());
            return Err(Error::new(ErrorKind::Range, message));
        }
        if free < room {
            self.make_room(host, path, key, room, found)?;
        }
        let lowers = intent == Intent::Rekey || path.is_below_low_key(key);
        path.unlock_up(0, intent.lowest_unlock(), lowers);
        Ok(found)
    }

    /// Returns the slot of an insertion, and whether the key is there.
    fn insertion_slot(&self, key: &Key, fits: bool, path: &mut Path) -> Result<(usize, bool)> {
        let keep = !self.early_unlock();
        let way = self.way(path, key, fits, keep)?;
        if matches!(way, InsertCase::Hit | InsertCase::Exact)
            || way == InsertCase::SlotZero && !path.is_below_low_key(key)
        {
            path.release_from(1);
            if keep {
                self.count(|counters| &counters.keep_violations);
            }
        }
        self.observe(key, path.holds(1));
        let leaf = path.block(0);
        if path.holds(1) && fits && leaf.first_key().is_some_and(|first| first < *key) {
            self.count(|counters| &counters.searched_under_parent);
        }
        Ok(match way {
            InsertCase::Hit => self.search_above_slot_zero(leaf, key),
            InsertCase::Exact => (0, true),
            InsertCase::SlotZero => (0, false),
            InsertCase::NoSpace | InsertCase::RootLeaf | InsertCase::Keep => position(leaf, key, 0),
        })
    }

    /// Decides which way an insertion goes, and counts it.
    fn way(&self, path: &Path, key: &Key, fits: bool, keep: bool) -> Result<InsertCase> {
        let leaf = path.block(0);
        if !path.holds(1) {
            self.count(|counters| &counters.root_leaf);
            return Ok(InsertCase::RootLeaf);
        }
        let Some(first) = leaf.first_key() else {
            let (id, at) = (self.id(), leaf.logical());
            let message = format!("corrupt leaf: tree={id} logical={at}, it is empty and not the root");
            return Err(Error::new(ErrorKind::Corrupt, message));
        };
        if !fits {
            self.count(|counters| &counters.no_space);
            return Ok(InsertCase::NoSpace);
        }
        if keep {
            self.count(|counters| &counters.keep);
            return Ok(InsertCase::Keep);
        }
        Ok(match first.cmp(key) {
            Ordering::Less => {
                self.count(|counters| &counters.hit);
                InsertCase::Hit
            }
            Ordering::Equal => {
                self.count(|counters| &counters.exact);
                InsertCase::Exact
            }
            Ordering::Greater => {
                self.count(|counters| &counters.slot0);
                InsertCase::SlotZero
            }
        })
    }

    /// Searches the leaf from slot 1. The first key is known to be smaller and no parent is needed, so slot 0 is not compared again.
    pub(crate) fn search_above_slot_zero(&self, leaf: BlockRef<'_>, key: &Key) -> (usize, bool) {
        let mut at_slot_zero = false;
        let found = leaf.search_probing(key, 1, |slot| at_slot_zero |= slot == 0);
        if at_slot_zero {
            self.count(|counters| &counters.compared_at_slot0);
        }
        match found {
            Ok(slot) => (slot, true),
            Err(slot) => (slot, false),
        }
    }
}
