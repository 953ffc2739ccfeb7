//! The cleaner: deletes inodes that have neither a name nor a user any more, one bounded step at a time.
//!
//! Dropping the last reference to an inode only records its id ([`DeadInodes`]). The work is cut into steps of one transaction handle each. Three kinds of threads
//! take them:
//! - the background, until nothing is left;
//! - an embedder, with [`Filesystem::clean_step`](crate::Filesystem::clean_step);
//! - an operation, [so many](crate::FsOptions::cleaning_steps) for others.
//!
//! A reservation that finds no space takes steps until there is some ([`Reclaimer`]).
//!
//! # Invariants
//! - CLEAN-1: a step deletes a bounded number of items of one inode in one handle. The next step, or one after a crash, can go on from the rest (ORPHAN-2).
//!   Shown by `a_file_in_pieces_leaves_a_device_that_is_full_of_names`.
//! - CLEAN-2: one thread takes a step at a time, so that no two threads delete one inode.
//!
//! # Locking
//! The turn comes after all inode locks: a thread that waits for space may hold those. Under the turn a step locks no inode that another thread can have. It waits
//! for a commit, but never for another thread's handle.

use std::sync::Arc;

use creamery_base::{ErrorKind, InodeId, Result};
use creamery_txn::{Engine, Reclaimer};

use crate::context::{DeadInodes, DeadInodesGuard};
use crate::inode::Inodes;
use crate::operation::is_lasting;
use crate::ops::eviction::{self, DeletionProgress};
use crate::subvolume::dead::DeadSubvolumes;

/// Whether the cleaner has more to do after a step.
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
    /// Nothing is left that can be deleted now.
    Idle,
}

/// Deletes dead inodes and drops deleted subvolumes.
pub(crate) struct Cleaner {
    inodes: Arc<Inodes>,
    /// The largest number of steps that an operation takes for others.
    steps_for_others: usize,
}

impl Cleaner {
    pub(crate) const fn new(inodes: Arc<Inodes>, steps_for_others: usize) -> Self {
        Self { inodes, steps_for_others }
    }

    pub(crate) fn engine(&self) -> &Engine {
        self.inodes.engine()
    }

    /// Whether a dead inode or a deleted subvolume waits.
    pub(crate) fn has_dead(&self) -> bool {
        !self.dead().is_empty() || self.dead_subvolumes().any()
    }

    fn dead_subvolumes(&self) -> &DeadSubvolumes {
        self.inodes.subvolumes().dead()
    }

    fn dead(&self) -> &DeadInodes {
        self.inodes.context().dead()
    }

    /// Takes one step. If another thread takes a step, this waits for it.
    /// Errors: no space, and a later step tries the inode again; aborted; damage, and then the inode is left to the next time the filesystem is opened.
    pub(crate) fn step(&self) -> Result<Cleaning> {
        self.take_step(&self.dead().take_turn())
    }

    /// Takes steps until all inodes that waited at the start are gone. Later unlinks do not prolong the call.
    pub(crate) fn clean(&self) {
        let mark = self.dead().mark();
        while !self.dead().has_passed(mark) && self.reclaim_step().unwrap_or(false) {}
    }

    /// Whether items were deleted since the last commit: their space can only be used after the next one.
    pub(crate) fn has_deleted(&self) -> bool {
        self.dead().deleted_in() > self.engine().volume().superblock().generation()
    }

    /// Takes the steps that an operation takes for others. A failed step does not fail the operation.
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

    fn take_step(&self, turn: &DeadInodesGuard<'_>) -> Result<Cleaning> {
        let dead = self.dead();
        let Some(id) = dead.first() else { return self.drop_some() };
        self.engine().check_writable()?;
        match self.delete_some(id) {
            Ok(DeletionProgress::Partly { nbytes }) => dead.leave_first(turn, id, Some(nbytes)),
            Ok(DeletionProgress::Wholly) => dead.leave_first(turn, id, None),
            Err(error) => {
                if !is_lasting(&error) {
                    dead.leave_first(turn, id, None);
                }
                // An inode that shares its leaves with a deleted snapshot can be deleted when the snapshot is dropped.
                let dropped =
                    if error.kind() == ErrorKind::NoSpace { self.drop_some()? } else { Cleaning::Idle };
                return if dropped == Cleaning::More { Ok(dropped) } else { Err(error) };
            }
        }
        Ok(if self.has_dead() { Cleaning::More } else { Cleaning::Idle })
    }

    /// Takes a step of dropping a deleted subvolume.
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

    fn delete_some(&self, id: InodeId) -> Result<DeletionProgress> {
        let Some(subvolume) = self.inodes.subvolumes().in_use(id.subvolume) else {
            return Ok(DeletionProgress::Wholly); // deleted with all of its subvolume
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
