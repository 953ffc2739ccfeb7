//! Deleted subvolumes that are not dropped yet.
//!
//! A deleted subvolume has no entry any more, but a reader that has a file of it open may go on reading. So the tree is dropped when two conditions hold: its last
//! user is gone, and the transaction that deleted the subvolume is durable. Before that, a crash brings the subvolume back. After a crash or a close, the notes in
//! the root tree name the subvolumes that are still to be dropped (`creamery_txn::SubvolumeDrop`).
//!
//! # Invariants
//! - DEADSUB-1: a tree is dropped only when no other user has an object of its subvolume, and so no inode of it. Shown by
//!   `what_is_open_in_a_deleted_subvolume_can_be_read` of the library.
//! - DEADSUB-2: a tree is not dropped while a delayed write for an inode of it is outstanding. Shown by
//!   `what_was_put_off_in_a_deleted_subvolume_is_not_written_into_what_was_dropped`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Generation, Result, TreeId};
use creamery_txn::{Dropping, Engine, SubvolumeDrop};

use super::Subvolume;
use crate::operation::is_lasting;

/// A deleted subvolume that waits to be dropped.
pub(crate) struct DeadSubvolume {
    pub(crate) id: TreeId,
    /// Its object, if it was in use.
    pub(crate) subvolume: Option<Arc<Subvolume>>,
    /// The transaction that deleted it.
    pub(crate) deleted_in: Generation,
    /// The progress of the drop.
    drop: Option<SubvolumeDrop>,
}

/// The deleted subvolumes of a filesystem.
#[derive(Default)]
pub(crate) struct DeadSubvolumes(RankedMutex<Dead, { rank::LEAF }>);

#[derive(Default)]
struct Dead {
    /// In the order of their deletion.
    waiting: VecDeque<DeadSubvolume>,
    /// The subvolume that a step of dropping works on.
    taken: Option<TreeId>,
    /// All that were deleted since the filesystem was opened, or were not dropped by then: no new subvolume gets such an id.
    deleted: BTreeSet<TreeId>,
}

impl DeadSubvolume {
    pub(crate) fn new(id: TreeId, subvolume: Option<Arc<Subvolume>>, deleted_in: Generation) -> Self {
        Self { id, subvolume, deleted_in, drop: None }
    }

    /// Whether the subvolume may be dropped: no user can come back to it any more (DEADSUB-1). `doom` makes the table of inodes hold the objects of a subvolume by
    /// weak references.
    fn is_ready(&self, engine: &Engine, doom: &dyn Fn(TreeId)) -> bool {
        if self.deleted_in > engine.volume().superblock().generation() {
            return false;
        }
        let Some(subvolume) = &self.subvolume else { return true };
        doom(self.id);
        Arc::strong_count(subvolume) == 1 && !subvolume.is_written_later()
    }

    fn step(&mut self, engine: &Engine) -> Result<Dropping> {
        let drop = match &mut self.drop {
            Some(drop) => drop,
            none => none.insert(engine.begin_drop(self.id)?),
        };
        let users = self.subvolume.take().map_or(0, |subvolume| Arc::strong_count(&subvolume) - 1);
        assert_eq!(users, 0, "DEADSUB-1: subvolume {} is dropped, and somebody uses it", self.id);
        engine.drop_step(drop)
    }
}

impl DeadSubvolumes {
    /// Adds a deleted subvolume.
    pub(crate) fn push(&self, dead: DeadSubvolume) {
        let mut all = self.0.lock();
        all.deleted.insert(dead.id);
        all.waiting.push_back(dead);
    }

    /// Whether the subvolume `id` was deleted: since the filesystem was opened, or before and not dropped by then.
    pub(crate) fn has(&self, id: TreeId) -> bool {
        self.0.lock().deleted.contains(&id)
    }

    /// The highest id of the deleted subvolumes; zero if there are none.
    pub(crate) fn highest(&self) -> TreeId {
        self.0.lock().deleted.last().copied().unwrap_or(TreeId::new(0))
    }

    /// The ids of all that wait to be dropped, and of the one that a step works on.
    pub(crate) fn ids(&self) -> Vec<TreeId> {
        let all = self.0.lock();
        all.taken.into_iter().chain(all.waiting.iter().map(|dead| dead.id)).collect()
    }

    /// Whether any wait to be dropped.
    pub(crate) fn any(&self) -> bool {
        !self.0.lock().waiting.is_empty()
    }

    /// Takes the first that may be dropped out of the list; `doom` is that of [`step`](Self::step).
    pub(crate) fn take_ready(&self, engine: &Engine, doom: &dyn Fn(TreeId)) -> Option<DeadSubvolume> {
        for id in self.ids() {
            let dead = {
                let mut all = self.0.lock();
                let at = all.waiting.iter().position(|dead| dead.id == id)?;
                all.taken = Some(id);
                all.waiting.remove(at)?
            };
            if dead.drop.is_some() || dead.is_ready(engine, doom) {
                return Some(dead);
            }
            self.put_back(Some(dead));
        }
        None
    }

    /// Ends a turn that [`DeadSubvolumes::take_ready`] began. A subvolume that is given waits again.
    fn put_back(&self, dead: Option<DeadSubvolume>) {
        let mut all = self.0.lock();
        all.taken = None;
        if let Some(dead) = dead {
            all.waiting.push_front(dead);
        }
    }

    /// Takes one step of dropping the first subvolume that may be dropped, if there is one. The caller has the cleaner's turn. `doom` makes the table of inodes hold
    /// the objects of a subvolume by weak references.
    /// Errors: no space, and a later call tries again; damage, and the drop is left to the next time the filesystem is opened; aborted.
    pub(crate) fn step(&self, engine: &Engine, doom: &dyn Fn(TreeId)) -> Result<Option<Dropping>> {
        let Some(mut dead) = self.take_ready(engine, doom) else { return Ok(None) };
        let stepped = dead.step(engine);
        let again = match &stepped {
            Ok(dropping) => *dropping == Dropping::More,
            Err(error) => is_lasting(error),
        };
        self.put_back(again.then_some(dead));
        stepped.map(Some)
    }
}
