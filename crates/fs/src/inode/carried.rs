//! The locks that a request carries from its call to its completion: a range of bytes, and the lock of operations.
//!
//! A lock guard belongs to a thread, but a request may outlive its call. Such a request takes its locks with guards, in the order of
//! all locks, and then *carries* them: the guards go, and the locks stay with the request, on whichever thread it ends.
//!
//! ```text
//!   thread   lock_shared --> lock_range --> look, allocate --> carry --> submit, and off it goes
//!   request                                                    [ range, lock, change, space ]---- device ----> complete, drop
//! ```
//! A carried range stays a line in the table of ranges (`range_lock`). For the lock of operations there is a count beside it
//! (`carried_locks`): a thread that gets the lock waits until no request carries a conflicting one. So a request that shares the inode
//! keeps out threads that want it alone, and a request that has it alone keeps out all threads, as the thread that began it would.
//!
//! # Invariants
//! - INODE-7: no thread or request has an inode alone while a request shares it, and none shares it while a request has it alone.
//!   Shown by `who_wants_an_inode_waits_for_what_requests_carry`.
//! - DIRECT-1: a request gives back each carried lock once, whatever a device does.
//!   Shown by `what_is_carried_is_given_back_once`, `what_a_direct_write_carries_is_given_back_whatever_the_device_does`.
//!
//! # Locking
//! A thread that waits for a carried lock completes requests that have landed (`in_flight`). It has the lock of operations, and maybe
//! other inodes, and nothing that a completion takes: rank WRITEBACK. A completion takes handles, commits, items and nodes. Their
//! holders wait for no lock of operations, no range and no carried lock, so the wait ends.

use std::sync::Arc;

use super::carried_locks::Lock;
use super::lock::{ExclusiveInode, SharedInode};
use super::range_lock::RangeGuard;
use super::{FileInode, Inode};

/// The lock of operations of an inode, carried by a request. It keeps the inode alive.
#[must_use]
pub(crate) struct OwnedOperations {
    inode: Arc<Inode>,
    lock: Lock,
}

impl OwnedOperations {
    /// Carries the share of a thread, which gives it up.
    pub(crate) fn of_shared(inode: &Arc<Inode>, shared: SharedInode<'_>) -> Self {
        Self::carry(inode, Lock::Shared, shared)
    }

    /// Carries the exclusive lock of a thread, which gives it up.
    pub(crate) fn of_exclusive(inode: &Arc<Inode>, exclusive: ExclusiveInode<'_>) -> Self {
        Self::carry(inode, Lock::Alone, exclusive)
    }

    /// Carries the lock of `guard`.
    fn carry<G>(inode: &Arc<Inode>, lock: Lock, guard: G) -> Self {
        let file = inode.as_file().expect("only what is done to data carries locks");
        file.carried().carry(lock);
        let owned = Self { inode: Arc::clone(inode), lock };
        drop(guard);
        owned
    }

    /// Whether the request shares the inode.
    pub(crate) fn is_shared(&self) -> bool {
        self.lock == Lock::Shared
    }

    /// Wakes threads that may wait for the locks of the request that carries this one.
    pub(crate) fn wake_those_who_wait(&self) {
        let file = self.file();
        file.ranges().wake();
        file.carried().wake();
        self.inode.subvolume().wake_those_who_wait();
    }

    /// The inode.
    pub(crate) const fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// The file.
    pub(crate) fn file(&self) -> FileInode<'_> {
        self.inode.as_file().expect("only what is done to data carries locks")
    }
}

impl Drop for OwnedOperations {
    fn drop(&mut self) {
        self.file().carried().give_back(self.lock);
    }
}

/// A range of bytes of a file, carried by a request. It keeps the inode alive.
#[must_use]
pub(crate) struct OwnedRange {
    inode: Arc<Inode>,
    ticket: u64,
}

impl OwnedRange {
    /// Carries the range of a thread, which gives it up.
    pub(crate) fn carry(inode: &Arc<Inode>, range: RangeGuard<'_>) -> Self {
        Self { inode: Arc::clone(inode), ticket: range.carry() }
    }

    /// The file.
    pub(crate) fn file(&self) -> FileInode<'_> {
        self.inode.as_file().expect("it has ranges")
    }

    /// The inode.
    pub(crate) const fn inode(&self) -> &Arc<Inode> {
        &self.inode
    }

    /// Wakes threads that may wait for the request that carries this range and nothing else.
    pub(crate) fn wake_those_who_wait(&self) {
        self.file().ranges().wake();
    }
}

impl Drop for OwnedRange {
    fn drop(&mut self) {
        self.file().ranges().give_back(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use creamery_base::Wait;

    use super::*;
    use crate::data::tests::support::{Kind, SECTOR, assert_noticed, fixture, new_file};
    use crate::inode::InodeFlags;

    #[test]
    fn who_wants_an_inode_waits_for_what_requests_carry() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let inode = Arc::new(new_file(&fixture, 300, InodeFlags::default()));
        let shared = OwnedOperations::of_shared(&inode, inode.lock_shared(Wait::Yes).expect("it lives"));
        let another = OwnedOperations::of_shared(&inode, inode.lock_shared(Wait::No).expect("it is shared"));
        assert!(inode.try_lock_exclusive().expect("it lives").is_none(), "INODE-7");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let alone = scope.spawn(|| {
                let alone = inode.lock_exclusive().expect("it lives");
                assert!(is_over.load(Ordering::SeqCst), "INODE-7: requests share it");
                alone.size
            });
            drop(shared);
            while inode.lock_shared(Wait::No).is_ok() {
                std::thread::yield_now();
            }
            is_over.store(true, Ordering::SeqCst);
            drop(another);
            alone.join().expect("it ends well");
        });
        let alone = OwnedOperations::of_exclusive(&inode, inode.lock_exclusive().expect("it lives"));
        assert!(inode.lock_shared(Wait::No).is_err(), "INODE-7: a request has it alone");
        assert!(inode.try_lock_exclusive().expect("it lives").is_none(), "INODE-7");
        is_over.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let shares = scope.spawn(|| {
                let _shared = inode.lock_shared(Wait::Yes).expect("it lives");
                assert!(is_over.load(Ordering::SeqCst), "INODE-7: a request has it alone");
            });
            is_over.store(true, Ordering::SeqCst);
            drop(alone);
            shares.join().expect("it ends well");
        });
        assert!(inode.try_lock_exclusive().expect("it lives").is_some());
    }

    #[test]
    fn a_range_that_is_carried_is_locked_until_it_is_given_back() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let inode = Arc::new(new_file(&fixture, 300, InodeFlags::default()));
        let range = inode.file().lock_range(0, SECTOR, Wait::Yes).expect("nobody has it");
        let range = OwnedRange::carry(&inode, range);
        assert!(inode.file().lock_range_shared(0, 1, Wait::No).is_err());
        std::thread::scope(|scope| {
            scope.spawn(|| drop(range)).join().expect("it is no thread's");
        });
        assert!(inode.file().lock_range_shared(0, 1, Wait::No).is_ok());
    }

    #[test]
    fn what_is_carried_is_given_back_once() {
        assert_noticed("DIRECT-1", |engine| {
            let inode = Arc::new(new_file(&engine, 300, InodeFlags::default()));
            let lock = OwnedOperations::of_shared(&inode, inode.lock_shared(Wait::Yes).expect("it lives"));
            inode.file().carried().give_back(Lock::Shared);
            drop(lock);
        });
        assert_noticed("DIRECT-1", |engine| {
            let inode = Arc::new(new_file(&engine, 300, InodeFlags::default()));
            let range = inode.file().lock_range(0, SECTOR, Wait::Yes).expect("nobody has it");
            let range = OwnedRange::carry(&inode, range);
            inode.file().ranges().give_back(range.ticket);
            drop(range);
        });
    }

    #[test]
    fn a_lock_that_is_carried_beside_one_that_keeps_it_out_is_a_bug() {
        assert_noticed("INODE-7", |engine| {
            let inode = Arc::new(new_file(&engine, 300, InodeFlags::default()));
            let _lock = OwnedOperations::of_shared(&inode, inode.lock_shared(Wait::Yes).expect("it lives"));
            inode.file().carried().carry(Lock::Alone);
        });
    }
}
