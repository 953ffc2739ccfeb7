//! A subvolume in use: its tree, its inode numbers, and whether it may be changed.
//!
//! `subvolumes` has all that are in use; `root_ref` is how they hang in one another; `info` tells of them; `uuid` makes their UUIDs; `ino_allocator` gives out
//! numbers; `change_gate` keeps changes out of one that is read-only, `in_place` writes in place out of one that is snapshotted.
//!
//! # Locking
//! `rename` is held while a directory moves to another one, so that the chain of its parents stands still; it is taken before
//! inode locks.

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
use creamery_base::{Error, ErrorKind, Near, ObjectId, Result};
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
    /// Copied by whoever is to write into the tree later and has no inode of it then.
    later: Later,
    rename: RankedMutex<(), { rank::DIRECTORY_RENAME }>,
    in_place: InPlaceWriters,
}

/// A reference to a subvolume. Every inode has one.
pub(crate) type SubvolumeRef = Near<Subvolume>;

/// The witness that no directory of a subvolume moves to another one.
pub(crate) type Still<'a> = RankedGuard<'a, (), { rank::DIRECTORY_RENAME }>;

/// An operation that changes something in a subvolume, which is not made read-only before this goes (RDONLY-1).
#[must_use]
pub(crate) struct Change {
    subvolume: SubvolumeRef,
    /// It ends on the thread that began it (RDONLY-2).
    on_this_thread: PhantomData<*const ()>,
}

impl Change {
    /// Begins a change. Errors: the subvolume is read-only, or about to be.
    pub(crate) fn begin(subvolume: &SubvolumeRef) -> Result<Self> {
        subvolume.change_gate.enter().map_err(|error| subvolume.named(error))?;
        Ok(Self { subvolume: subvolume.clone(), on_this_thread: PhantomData })
    }
}

/// A change that is carried by a request to whichever thread that ends on.
#[must_use]
pub(crate) struct OwnedChange(SubvolumeRef);

impl OwnedChange {
    /// Carries the change of a thread, which has it no more.
    pub(crate) fn carry(change: Change) -> Self {
        let owned = Self(change.subvolume.clone());
        if !owned.context().has(Fault::ChangeNotCarried) {
            owned.0.change_gate.carry();
        }
        drop(change);
        owned
    }

    /// The filesystem's.
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

impl Drop for Change {
    fn drop(&mut self) {
        self.subvolume.change_gate.leave();
    }
}

/// Somebody writes in place in a subvolume, or looks whether he may; no snapshot of it is taken before this goes (NOCOW-3).
#[must_use]
pub(crate) struct InPlaceWriter {
    subvolume: SubvolumeRef,
    /// What is written to.
    ino: ObjectId,
}

impl InPlaceWriter {
    /// Of the inode `ino`. None while a snapshot is taken: what is written goes to new space.
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
    /// What one takes in memory beside itself, bytes; its tree is the engine's.
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

    /// The right to write into the tree later.
    pub(crate) fn later(&self) -> Later {
        self.later.clone()
    }

    /// Whether somebody has that right. Who has no inode of the subvolume gets none.
    fn is_written_later(&self) -> bool {
        !self.later.is_alone()
    }

    pub(crate) const fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    pub(crate) const fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// It was deleted.
    pub(crate) fn set_dead(&self) {
        self.dead.store(true, Ordering::Release);
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Refuses something new in a subvolume that was deleted: nobody would find it.
    pub(crate) fn check_not_dead(&self) -> Result<()> {
        if self.is_dead() {
            return Err(Error::new(ErrorKind::NotFound, format!("subvolume {} is deleted", self.tree.id())));
        }
        Ok(())
    }

    /// Refuses early what would change a subvolume that is read-only, or about to be; a change is a [`Change`] besides.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.change_gate.check_open().map_err(|error| self.named(error))
    }

    fn named(&self, error: Error) -> Error {
        error.context(format_args!("subvolume {}", self.tree.id()))
    }

    /// What keeps changes out of it while it is read-only.
    pub(crate) const fn change_gate(&self) -> &ChangeGate {
        &self.change_gate
    }

    /// Holds the chain of every directory's parents still: no directory moves to another one meanwhile.
    pub(crate) fn hold_still(&self) -> Still<'_> {
        self.rename.lock_for(Reason::InodeLock)
    }

    /// Keeps changes out, and waits until there are none (RDONLY-1).
    pub(crate) fn close_to_changes(&self) -> Closed<'_> {
        self.change_gate.close(self.awaited())
    }

    /// Keeps out what writes in place, and waits until nobody does (NOCOW-3). Errors: interrupted, when who waits gives up.
    pub(crate) fn bar_writes_in_place(&self, gives_up: GivesUp<'_>) -> Result<InPlaceBarred<'_>> {
        self.in_place.bar(self.awaited(), gives_up).map_err(|ino| {
            let id = self.tree.id();
            let what = format!(
                "a snapshot of subvolume {id} waits for a write in place to inode {ino}, which has not ended"
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

    /// A request landed that changes something here: who waits for that may complete it.
    pub(crate) fn wake_those_who_wait(&self) {
        self.change_gate.wake();
        self.in_place.wake();
    }

    /// How many operations and requests change something here.
    #[cfg(feature = "faults")]
    pub(crate) fn changes(&self) -> u64 {
        self.change_gate.len()
    }

    /// How many write in place here.
    #[cfg(feature = "faults")]
    pub(crate) fn writers_in_place(&self) -> usize {
        self.in_place.len()
    }

    /// A number for a new inode.
    pub(crate) fn allocate_ino(&self) -> Result<ObjectId> {
        self.numbers.allocate().ok_or_else(|| {
            let text = format!("inode numbers of subvolume {} are used up", self.tree.id());
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
