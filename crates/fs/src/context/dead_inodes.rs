//! Inodes that wait for the cleaner: they have no name and no user any more.
//!
//! Dropping the last reference to an inode only records its id here: `Drop` does no I/O, and an inode may have a million items.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Generation, InodeId, memory};

/// The witness that no other thread cleans.
pub(crate) type DeadInodesGuard<'a> = RankedGuard<'a, (), { rank::CLEANER }>;

/// Inodes that have no name and no user: their items wait to be deleted.
#[derive(Default)]
pub(crate) struct DeadInodes {
    /// Each inode with the bytes of data that its items still hold.
    inodes: RankedMutex<VecDeque<(InodeId, u64)>, { rank::LEAF }>,
    /// The length of `inodes`.
    count: AtomicU64,
    /// The number of inodes that have left since the filesystem was opened.
    left: AtomicU64,
    /// The sum of the inodes' bytes, wrapping.
    bytes: AtomicU64,
    /// The thread that deletes holds it (CLEAN-2).
    turn: RankedMutex<(), { rank::CLEANER }>,
    /// The last transaction in which items were deleted.
    deleted_in: AtomicU64,
}

impl DeadInodes {
    /// Adds an inode, whose items hold `nbytes` bytes of data. Returns whether the list was empty: then the caller wakes the background thread, which itself looks
    /// for further inodes.
    pub(crate) fn push(&self, id: InodeId, nbytes: u64) -> bool {
        let mut inodes = self.inodes.lock();
        let first = inodes.is_empty();
        inodes.push_back((id, nbytes));
        self.count.store(inodes.len() as u64, Ordering::Release);
        self.bytes.fetch_add(nbytes, Ordering::Relaxed);
        first
    }

    /// The value of `left` at which all inodes that wait now are gone: they leave in the order in which they came.
    pub(crate) fn mark(&self) -> u64 {
        let inodes = self.inodes.lock();
        self.left.load(Ordering::Relaxed) + inodes.len() as u64
    }

    /// The inode that waits longest.
    pub(crate) fn first(&self) -> Option<InodeId> {
        if self.is_empty() { None } else { self.inodes.lock().front().map(|&(id, _)| id) }
    }

    /// Ends a turn for the first inode, `id`. `nbytes` is the bytes of data that its items still hold; `None` removes it from the list.
    pub(crate) fn leave_first(&self, _turn: &DeadInodesGuard<'_>, id: InodeId, nbytes: Option<u64>) {
        let mut inodes = self.inodes.lock();
        let (first, before) = inodes.front_mut().expect("CLEAN-2: only who has the turn takes it away");
        assert_eq!(*first, id, "CLEAN-2: it stays at the front for a turn");
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

    /// Bytes of data that the items of all waiting inodes hold.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the list takes.
    pub(crate) fn memory(&self) -> u64 {
        memory::vec::<(InodeId, u64)>(self.inodes.lock().capacity())
    }

    /// Notes that items were deleted in transaction `generation`. Returns whether they are the first in it.
    pub(crate) fn note_deleted(&self, generation: Generation) -> bool {
        // Usually it is noted already, and every unlink comes here.
        self.deleted_in.load(Ordering::Relaxed) < generation.get()
            // Another thread may have noted a later one meanwhile.
            && self.deleted_in.fetch_max(generation.get(), Ordering::Release) < generation.get()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// Waits for the cleaner's turn.
    pub(crate) fn take_turn(&self) -> DeadInodesGuard<'_> {
        self.turn.lock_for(Reason::Reservation)
    }

    /// The cleaner's turn, if no thread has it.
    pub(crate) fn try_take_turn(&self) -> Option<DeadInodesGuard<'_>> {
        self.turn.try_lock()
    }

    /// Whether all inodes that waited at [`mark`](Self::mark) have left.
    pub(crate) fn has_passed(&self, mark: u64) -> bool {
        self.left.load(Ordering::Relaxed) >= mark
    }

    /// The last transaction in which items were deleted.
    pub(crate) fn deleted_in(&self) -> Generation {
        Generation::new(self.deleted_in.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};

    use super::*;

    fn id(ino: u64) -> InodeId {
        InodeId::new(TreeId::FS, ObjectId::new(ino))
    }

    #[test]
    fn the_one_that_waits_longest_goes_first_and_counts_until_it_is_gone() {
        let dead = DeadInodes::default();
        dead.push(id(257), 10);
        dead.push(id(256), 5);
        let mark = dead.mark();
        let turn = dead.take_turn();
        assert_eq!((dead.first(), dead.bytes()), (Some(id(257)), 15));
        dead.leave_first(&turn, id(257), Some(4));
        assert_eq!((dead.first(), dead.bytes()), (Some(id(257)), 9));
        dead.leave_first(&turn, id(257), None);
        assert_eq!((dead.first(), dead.bytes(), dead.has_passed(mark)), (Some(id(256)), 5, false));
        dead.leave_first(&turn, id(256), None);
        assert!(dead.is_empty() && dead.has_passed(mark));
    }

    #[test]
    #[should_panic(expected = "CLEAN-2")]
    fn nobody_takes_away_what_another_deletes() {
        let dead = DeadInodes::default();
        dead.push(id(257), 0);
        let turn = dead.take_turn();
        dead.leave_first(&turn, id(256), None);
    }
}
