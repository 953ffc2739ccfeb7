//! The cleaner: deletes inodes that have neither a name nor a user any more, one bounded step at a time.
//!
//! Letting go of an inode only notes its id ([`Doomed`]): `Drop` does no I/O, and an inode may have a million items. The work is
//! cut into steps of one transaction handle each. Whoever has time takes them: a thread of the mount until nothing is
//! left, an embedder with [`Filesystem::clean_step`], and otherwise the operations, each
//! [so many](crate::FsOptions::cleaning_steps) on behalf of others. Who finds no space has steps taken until there is some
//! ([`Reclaimer`]).
//!
//! # Invariants
//! - CLEAN-1: a step deletes a bounded number of items of one inode in one handle, and what it leaves can be gone on from
//!   (ORPHAN-2), by the next step or after a crash.
//! - CLEAN-2: one thread takes a step at a time, so that an inode is not deleted by two.
//!
//! # Locking
//! The turn comes after all inode locks: who waits for space may hold those. Under it a step locks no inode that somebody
//! else can have, and it waits for a commit but never for whoever has a handle.

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{ErrorKind, Generation, InodeId, Result};
use creamery_txn::Reclaimer;

use crate::filesystem::Filesystem;
use crate::orphan::Deleted;

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

/// The witness that nobody else cleans.
type Turn<'a> = RankedGuard<'a, (), { rank::CLEANER }>;

type Waker = Box<dyn Fn() + Send + Sync>;

/// Inodes whose last user is gone and that have no name: their items are waiting to be deleted.
#[derive(Default)]
pub(crate) struct Doomed {
    /// Each with the bytes that its items still hold.
    inodes: RankedMutex<VecDeque<(InodeId, u64)>, { rank::LEAF }>,
    /// How many.
    count: AtomicU64,
    /// How many have left, from the beginning.
    left: AtomicU64,
    /// The sum of their bytes, wrapping.
    bytes: AtomicU64,
    /// Whoever deletes has it (CLEAN-2).
    turn: RankedMutex<(), { rank::CLEANER }>,
    /// The transaction in which something was deleted last.
    deleted_in: AtomicU64,
    waker: OnceLock<Waker>,
}

impl Doomed {
    /// Adds an inode, whose items hold `nbytes` bytes of data.
    pub(crate) fn push(&self, id: InodeId, nbytes: u64) {
        let mut inodes = self.inodes.lock();
        inodes.push_back((id, nbytes));
        self.count.store(inodes.len() as u64, Ordering::Release);
        self.bytes.fetch_add(nbytes, Ordering::Relaxed);
        drop(inodes);
        if let Some(wake) = self.waker.get() {
            wake();
        }
    }

    /// How many will have left when all that wait now are gone: they go in the order in which they came.
    fn mark(&self) -> u64 {
        let inodes = self.inodes.lock();
        self.left.load(Ordering::Relaxed) + inodes.len() as u64
    }

    /// The one that waits longest.
    fn first(&self) -> Option<InodeId> {
        if self.is_empty() { None } else { self.inodes.lock().front().map(|&(id, _)| id) }
    }

    /// What is left of the one that waits longest, when its turn is over: `nbytes`, or nothing.
    fn leave_first(&self, _turn: &Turn<'_>, nbytes: Option<u64>) {
        let mut inodes = self.inodes.lock();
        let Some((_, before)) = inodes.front_mut() else { return };
        let went = before.wrapping_sub(nbytes.unwrap_or(0));
        match nbytes {
            Some(nbytes) => *before = nbytes,
            None => {
                inodes.pop_front();
                self.left.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.count.store(inodes.len() as u64, Ordering::Release);
        self.bytes.fetch_sub(went, Ordering::Relaxed);
    }

    /// Bytes of data that the items of all of them hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Notes that items were deleted in transaction `generation`.
    pub(crate) fn note_deleted(&self, generation: Generation) {
        // Mostly it says so already, and everybody who unlinks comes here.
        if self.deleted_in.load(Ordering::Relaxed) < generation.get() {
            // Somebody else may know of a later one meanwhile.
            self.deleted_in.fetch_max(generation.get(), Ordering::Release);
        }
    }

    fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }
}

impl Filesystem {
    /// Takes one step of the cleaner: deletes a bounded number of items of one inode that has neither a name nor a user.
    /// When somebody else takes one, it waits for that.
    /// Errors: no space, and the inode is tried again later; aborted; damage, and then the inode is left to the next
    /// time the filesystem is opened.
    pub fn clean_step(&self) -> Result<Cleaning> {
        self.take_step(&self.cleaners_turn())
    }

    fn cleaners_turn(&self) -> Turn<'_> {
        self.deferred.doomed.turn.lock_for(Reason::Reservation)
    }

    /// Takes steps until nothing is left of what waited when it began, as an unmount does; whoever goes on unlinking does not
    /// keep it. What cannot be deleted is left to the next time the filesystem is opened.
    pub fn clean(&self) {
        let doomed = &self.deferred.doomed;
        let mark = doomed.mark();
        while doomed.left.load(Ordering::Relaxed) < mark && self.reclaim_step().unwrap_or(false) {}
    }

    /// Whether something waits for the cleaner.
    #[must_use]
    pub fn has_cleaning(&self) -> bool {
        // Under the lock: who told a waker before that it sleeps either sees the inode here, or is woken for it.
        !self.deferred.doomed.inodes.lock().is_empty()
    }

    /// Whether something was deleted whose space can only be used after a commit.
    #[must_use]
    pub fn has_deleted(&self) -> bool {
        let durable = self.engine.volume().superblock().generation();
        self.deferred.doomed.deleted_in.load(Ordering::Acquire) > durable.get()
    }

    /// Has `wake` called whenever there is something new for the cleaner. It must not wait for anything nor call the
    /// filesystem. The first one stays.
    pub fn wake_cleaner_with(&self, wake: impl Fn() + Send + Sync + 'static) {
        // A second cleaner has what the first one leaves, which is nothing.
        let _ = self.deferred.doomed.waker.set(Box::new(wake));
    }

    /// The steps that an operation takes on behalf of others. What fails is no fault of the operation.
    pub(crate) fn clean_for_others(&self) {
        for _ in 0..self.cleaning_steps {
            if self.deferred.doomed.is_empty() {
                return;
            }
            let Some(turn) = self.deferred.doomed.turn.try_lock() else { return };
            if !matches!(self.take_step(&turn), Ok(Cleaning::More)) {
                return;
            }
        }
    }

    fn take_step(&self, turn: &Turn<'_>) -> Result<Cleaning> {
        let doomed = &self.deferred.doomed;
        let Some(id) = doomed.first() else { return Ok(Cleaning::Idle) };
        self.engine.check_writable()?;
        match self.delete_some(id) {
            Ok(Deleted::Partly { nbytes }) => doomed.leave_first(turn, Some(nbytes)),
            Ok(Deleted::Wholly) => doomed.leave_first(turn, None),
            Err(error) => {
                if !is_lasting(&error) {
                    doomed.leave_first(turn, None);
                }
                return Err(error);
            }
        }
        Ok(if doomed.is_empty() { Cleaning::Idle } else { Cleaning::More })
    }
}

/// Whether the next inode would meet the same.
fn is_lasting(error: &creamery_base::Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Aborted)
}

impl Reclaimer for Filesystem {
    fn reclaim_step(&self) -> Result<bool> {
        let turn = self.cleaners_turn();
        if self.deferred.doomed.is_empty() {
            return Ok(false);
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
