//! The cleaner: deletes inodes that have neither a name nor a user any more, one bounded step at a time.
//!
//! Letting go of an inode only notes its id ([`DeadInodes`]). The work is cut into steps
//! of one transaction handle each. Whoever has time takes them: the background until nothing is left, an embedder with
//! [`Filesystem::clean_step`](crate::Filesystem::clean_step), and otherwise the operations, each
//! [so many](crate::FsOptions::cleaning_steps) on behalf of others. Who finds no space has steps taken until there is some
//! ([`Reclaimer`]).
//!
//! # Invariants
//! - CLEAN-1: a step deletes a bounded number of items of one inode in one handle. What it leaves can be gone on from
//!   (ORPHAN-2), by the next step or after a crash.
//!   Shown by `a_file_in_pieces_leaves_a_device_that_is_full_of_names`.
//! - CLEAN-2: one thread takes a step at a time, so that an inode is not deleted by two.
//!
//! # Locking
//! The turn comes after all inode locks: who waits for space may hold those. Under it a step locks no inode that somebody
//! else can have, and it waits for a commit but never for whoever has a handle.

use std::sync::Arc;

use creamery_base::{ErrorKind, InodeId, Result};
use creamery_txn::{Engine, Reclaimer};

use crate::context::{DeadInodes, Turn};
use crate::inode::Inodes;
use crate::operation::is_lasting;
use crate::ops::eviction::{self, Deleted};
use crate::subvolume::dead::DeadSubvolumes;

/// What is left for the cleaner after a step.
///
/// ```
/// # fn clean(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// use creamery_fs::Cleaning;
/// while fs.clean_step()? == Cleaning::More {}
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cleaning {
    /// Another step has something to do.
    More,
    /// Nothing is left.
    Idle,
}

/// Deletes what is dead.
pub(crate) struct Cleaner {
    inodes: Arc<Inodes>,
    /// How many steps an operation takes on behalf of others at most.
    steps_for_others: usize,
}

impl Cleaner {
    pub(crate) const fn new(inodes: Arc<Inodes>, steps_for_others: usize) -> Self {
        Self { inodes, steps_for_others }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.inodes.engine()
    }

    /// Whether something waits for it.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead().is_empty() || self.dead_subvolumes().any()
    }

    fn dead_subvolumes(&self) -> &DeadSubvolumes {
        self.inodes.subvolumes().dead()
    }

    fn dead(&self) -> &DeadInodes {
        self.inodes.context().dead()
    }

    /// Takes one step. When somebody else takes one, it waits for that.
    /// Errors: no space, and the inode is tried again later; aborted; damage, and then the inode is left to the next
    /// time the filesystem is opened.
    pub(crate) fn step(&self) -> Result<Cleaning> {
        self.take_step(&self.dead().take_turn())
    }

    /// Takes steps until nothing is left of what waited when it began. Whoever goes on unlinking does not keep it.
    pub(crate) fn clean(&self) {
        let mark = self.dead().mark();
        while !self.dead().has_passed(mark) && self.reclaim_step().unwrap_or(false) {}
    }

    /// Whether something was deleted whose space can only be used after a commit.
    pub(crate) fn has_deleted(&self) -> bool {
        self.dead().deleted_in() > self.engine().volume().superblock().generation()
    }

    /// The steps that an operation takes on behalf of others. What fails is no fault of the operation.
    pub(crate) fn help(&self) {
        for _ in 0..self.steps_for_others {
            if self.dead().is_empty() || !self.engine().has_changes() {
                return;
            }
            let Some(turn) = self.dead().try_take_turn() else { return };
            if !matches!(self.take_step(&turn), Ok(Cleaning::More)) {
                return;
            }
        }
    }

    fn take_step(&self, turn: &Turn<'_>) -> Result<Cleaning> {
        let dead = self.dead();
        let Some(id) = dead.first() else { return self.drop_some() };
        self.engine().check_writable()?;
        match self.delete_some(id) {
            Ok(Deleted::Partly { nbytes }) => dead.leave_first(turn, id, Some(nbytes)),
            Ok(Deleted::Wholly) => dead.leave_first(turn, id, None),
            Err(error) => {
                if !is_lasting(&error) {
                    dead.leave_first(turn, id, None);
                }
                // What shares its leaves with a snapshot is deleted when that is.
                let dropped =
                    if error.kind() == ErrorKind::NoSpace { self.drop_some()? } else { Cleaning::Idle };
                return if dropped == Cleaning::More { Ok(dropped) } else { Err(error) };
            }
        }
        Ok(if self.has_dead() { Cleaning::More } else { Cleaning::Idle })
    }

    /// Drops some of a subvolume that was deleted.
    fn drop_some(&self) -> Result<Cleaning> {
        if !self.dead_subvolumes().any() {
            return Ok(Cleaning::Idle);
        }
        self.engine().check_writable()?;
        let table = self.inodes.table();
        let dropping = self.dead_subvolumes().step(self.engine(), &|id| table.doom_subvolume(id))?;
        if dropping.is_some() {
            self.inodes.context().note_deleted(self.engine().generation());
        }
        Ok(if dropping.is_some() && self.has_dead() { Cleaning::More } else { Cleaning::Idle })
    }

    fn delete_some(&self, id: InodeId) -> Result<Deleted> {
        let Some(subvolume) = self.inodes.subvolumes().in_use(id.subvolume) else {
            return Ok(Deleted::Wholly); // with all of its subvolume
        };
        self.inodes.table().forget_dead(id);
        eviction::evict_some(&subvolume, id)
    }
}

impl Reclaimer for Cleaner {
    fn reclaim_step(&self) -> Result<bool> {
        let turn = self.dead().take_turn();
        if self.dead().is_empty() {
            return self.drop_some().map(|cleaning| cleaning == Cleaning::More);
        }
        match self.take_step(&turn) {
            Err(error) if is_lasting(&error) => Err(error),
            _ => Ok(true), // an inode that cannot be deleted stays; others may go
        }
    }

    fn has_freed(&self) -> bool {
        self.has_deleted()
    }
}
