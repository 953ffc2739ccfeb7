//! A subvolume in use: its tree, its inode numbers, and whether it may be changed.
//!
//! `subvolumes` has all subvolumes in use; `root_ref` links them to one another; `info` lists their properties; `uuid` makes their UUIDs; `ino_allocator` allocates
//! inode numbers; `change_gate` keeps changes out of a read-only subvolume, `in_place` keeps writes in place out of one that a snapshot is taken of.
//!
//! # Locking
//! A thread holds `rename` while it moves a directory to another one, so that no chain of parents changes; it takes `rename` before inode locks.

mod at_close;
mod change_gate;
pub(crate) mod dead;
mod find_new;
mod in_place;
mod info;
mod ino_allocator;
pub(crate) mod orphan_item;
#[cfg(test)]
mod read_only_tests;
mod root_ref;
mod subvolumes;
mod table;
mod uuid;

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, ObjectId, Result, ShardedArc};
use creamery_tree::Tree;

pub use find_new::{NewExtent, NewExtents};
pub use info::{ListedSubvolume, SubvolumeInfo};
pub(crate) use root_ref::SubvolumeEntry;
pub(crate) use subvolumes::{Changing, Subvolumes};
pub use table::SubvolumeTable;

use crate::context::Context;
use crate::delayed::Later;
use crate::fault::Fault;
use crate::in_flight::{Awaited, Carried, GivesUp};
use change_gate::{ChangeGate, Closed};
use in_place::{InPlaceBarred, InPlaceWriters};
use ino_allocator::InoAllocator;

/// A subvolume in use.
pub(crate) struct Subvolume {
    tree: Arc<Tree>,
    context: Arc<Context>,
    numbers: InoAllocator,
    change_gate: ChangeGate,
    dead: AtomicBool,
    /// Each holder of a copy is to write into the tree later, when it has no inode of it.
    later: Later,
    rename: RankedMutex<(), { rank::DIRECTORY_RENAME }>,
    in_place: InPlaceWriters,
}

/// A reference to a subvolume. Every inode has one.
pub(crate) type SubvolumeRef = ShardedArc<Subvolume>;

/// The witness that no directory of a subvolume moves to another directory.
pub(crate) type RenameGuard<'a> = RankedGuard<'a, (), { rank::DIRECTORY_RENAME }>;

/// An operation that changes a subvolume. The subvolume does not become read-only before this is dropped (RDONLY-1).
#[must_use]
pub(crate) struct SubvolumeChange {
    subvolume: SubvolumeRef,
    /// A change ends on the thread that began it (RDONLY-2).
    on_this_thread: PhantomData<*const ()>,
}

impl SubvolumeChange {
    /// Begins a change. Errors: the subvolume is read-only, or about to be.
    pub(crate) fn begin(subvolume: &SubvolumeRef) -> Result<Self> {
        subvolume.change_gate.enter().map_err(|error| subvolume.named(error))?;
        Ok(Self { subvolume: subvolume.clone(), on_this_thread: PhantomData })
    }
}

/// A change that a request carries to the thread on which it ends.
#[must_use]
pub(crate) struct OwnedChange(SubvolumeRef);

impl OwnedChange {
    /// Moves the change of a thread into a request.
    pub(crate) fn carry(change: SubvolumeChange) -> Self {
        let owned = Self(change.subvolume.clone());
        if !owned.context().has(Fault::ChangeNotCarried) {
            owned.0.change_gate.carry();
        }
        drop(change);
        owned
    }

    /// The context of the filesystem.
    pub(crate) fn context(&self) -> &Context {
        self.0.context()
    }
}

impl Drop for OwnedChange {
    fn drop(&mut self) {
        if !self.context().has(Fault::ChangeNotCarried) {
            self.0.change_gate.leave_carried();
        }
    }
}

impl Drop for SubvolumeChange {
    fn drop(&mut self) {
        self.subvolume.change_gate.leave();
    }
}

/// A writer in place in a subvolume, from before it checks whether it may. No snapshot of the subvolume is taken before this is dropped (NOCOW-3).
#[must_use]
pub(crate) struct InPlaceWriter {
    subvolume: SubvolumeRef,
    /// The inode that is written to.
    ino: ObjectId,
}

impl InPlaceWriter {
    /// Begins a write in place to the inode `ino`. Returns `None` while a snapshot is taken: the data goes to new space then.
    pub(crate) fn begin(subvolume: &SubvolumeRef, ino: ObjectId) -> Option<Self> {
        subvolume.in_place.enter(ino).then(|| Self { subvolume: subvolume.clone(), ino })
    }
}

impl Drop for InPlaceWriter {
    fn drop(&mut self) {
        self.subvolume.in_place.leave(self.ino);
    }
}

impl Subvolume {
    /// Bytes of memory that one subvolume takes beside itself; the engine counts its tree.
    fn striped_memory() -> u64 {
        InoAllocator::striped_memory() + ChangeGate::striped_memory()
    }

    /// A subvolume whose highest inode number in use is `last_ino`.
    pub(crate) fn new(tree: Arc<Tree>, context: Arc<Context>, last_ino: ObjectId, read_only: bool) -> Self {
        assert!(
            last_ino.get() + 1 >= ObjectId::FIRST_FREE.get(),
            "SUBVOL-2: numbers below the first are taken"
        );
        Self {
            tree,
            context,
            numbers: InoAllocator::behind(last_ino),
            change_gate: ChangeGate::new(read_only),
            dead: AtomicBool::new(false),
            later: Later::default(),
            rename: RankedMutex::new(()),
            in_place: InPlaceWriters::default(),
        }
    }

    /// Permission to write into the tree later.
    pub(crate) fn later(&self) -> Later {
        self.later.clone()
    }

    /// Whether a copy of [`later`](Self::later) exists. Only a thread that has an inode of the subvolume gets one.
    fn is_written_later(&self) -> bool {
        !self.later.is_alone()
    }

    pub(crate) const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Marks the subvolume as deleted.
    pub(crate) fn set_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Refuses a new entry or inode in a deleted subvolume: no path leads to it.
    pub(crate) fn check_not_dead(&self) -> Result<()> {
        if self.is_dead() {
            return Err(Error::new(ErrorKind::NotFound, format!("subvolume {} is deleted", self.tree.id())));
        }
        Ok(())
    }

    /// Refuses a change early if the subvolume is read-only, or about to be. A change needs a [`SubvolumeChange`] besides.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.change_gate.check_open().map_err(|error| self.named(error))
    }

    fn named(&self, error: Error) -> Error {
        error
            .context(format_args!("subvolume {}", self.tree.id()))
            .advise("`creamery property set PATH ro false` makes it writable")
    }

    /// The gate that keeps changes out while the subvolume is read-only.
    pub(crate) const fn change_gate(&self) -> &ChangeGate {
        &self.change_gate
    }

    /// Keeps every directory's chain of parents as it is: no directory moves to another one meanwhile.
    pub(crate) fn hold_still(&self) -> RenameGuard<'_> {
        self.rename.lock_for(Reason::InodeLock)
    }

    /// Keeps new changes out, and waits until those under way have ended (RDONLY-1).
    pub(crate) fn close_to_changes(&self) -> Closed<'_> {
        self.change_gate.close(self.awaited())
    }

    /// Bars new writes in place, and waits until none is under way (NOCOW-3). Errors: interrupted, if `gives_up` ends the wait.
    pub(crate) fn bar_writes_in_place(&self, gives_up: GivesUp<'_>) -> Result<InPlaceBarred<'_>> {
        self.in_place.bar(self.awaited(), gives_up).map_err(|ino| {
            let id = self.tree.id();
            let what = format!(
                "a snapshot of subvolume {id} waits for an unfinished in-place write to inode {ino}"
            );
            Error::new(ErrorKind::Interrupted, what).advise(format!(
                "`creamery inspect-internal inode-resolve {ino} SUBVOLUME` names the file; take the snapshot again when its devices answer"
            ))
        })
    }

    /// The requests that may carry a change here.
    fn awaited(&self) -> Awaited<'_> {
        self.context.in_flight().awaited(Carried::OfSubvolume(self.tree.id()))
    }

    /// Wakes threads that wait for changes to end: a request landed that changes the subvolume, and a waiter may complete it.
    pub(crate) fn wake_those_who_wait(&self) {
        self.change_gate.wake();
        self.in_place.wake();
    }

    /// The number of operations and requests that change the subvolume.
    #[cfg(feature = "faults")]
    pub(crate) fn changes(&self) -> u64 {
        self.change_gate.len()
    }

    /// The number of writers in place in the subvolume.
    #[cfg(feature = "faults")]
    pub(crate) fn writers_in_place(&self) -> usize {
        self.in_place.len()
    }

    /// Allocates a number for a new inode. Errors: no space, when all are used up.
    pub(crate) fn allocate_ino(&self) -> Result<ObjectId> {
        self.numbers.allocate().ok_or_else(|| {
            let text = format!("no free inode number in subvolume {}", self.tree.id());
            Error::new(ErrorKind::NoSpace, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::TreeId;

    use super::*;
    use crate::data::tests::support::assert_noticed;
    use crate::options::FsOptions;

    #[test]
    fn numbers_that_begin_before_the_first_are_a_bug() {
        assert_noticed("SUBVOL-2", |engine| {
            let tree = engine.tree(TreeId::FS).expect("the top level");
            Subvolume::new(
                tree,
                Context::new(Arc::clone(&engine), &FsOptions::default()),
                ObjectId::new(7),
                false,
            );
        });
    }
}
