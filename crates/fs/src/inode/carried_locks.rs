//! A count of the requests that carry the lock of operations of an inode (`carried`), and waits for them.

use std::sync::atomic::{AtomicU32, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{ErrorKind, Result, Wait};

use crate::in_flight::Awaited;

/// How an inode is locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lock {
    /// Together with others.
    Shared,
    /// Alone.
    Alone,
}

/// The locks of operations of one inode that requests carry.
#[derive(Default)]
pub(super) struct CarriedLocks {
    /// How many there are, for a cheap first look. It rises with the lock of operations held, so the next holder of that lock
    /// sees it.
    any: AtomicU32,
    locks: RankedMutex<Locks, { rank::LEAF }>,
    given_back: RankedCondvar,
}

#[derive(Default)]
struct Locks {
    shared: u32,
    alone: u32,
}

impl Locks {
    const fn of(&mut self, lock: Lock) -> &mut u32 {
        match lock {
            Lock::Shared => &mut self.shared,
            Lock::Alone => &mut self.alone,
        }
    }

    const fn keep_out(&self, lock: Lock) -> bool {
        match lock {
            Lock::Shared => self.alone > 0,
            Lock::Alone => self.alone > 0 || self.shared > 0,
        }
    }
}

impl CarriedLocks {
    /// Adds a request. The caller has the lock of operations as `lock` says.
    pub(super) fn carry(&self, lock: Lock) {
        let mut locks = self.locks.lock();
        assert!(!locks.keep_out(lock), "INODE-7: it is locked beside a request that keeps others out");
        *locks.of(lock) += 1;
        self.any.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn give_back(&self, lock: Lock) {
        let mut locks = self.locks.lock();
        let count = locks.of(lock);
        *count = count.checked_sub(1).expect("DIRECT-1: what is carried is given back once");
        self.any.fetch_sub(1, Ordering::Release);
        drop(locks);
        self.given_back.notify_all();
    }

    /// Waits, and completes the requests that are `awaited` meanwhile, until no request carries a lock that conflicts with `lock`. The
    /// caller has got that one.
    /// Errors: would block.
    pub(super) fn pass(&self, lock: Lock, wait: Wait, awaited: Awaited<'_>) -> Result<()> {
        if self.any.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        if !self.locks.lock().keep_out(lock) {
            return Ok(());
        }
        if wait == Wait::No {
            return Err(ErrorKind::WouldBlock.into());
        }
        let waits = |locks: &mut Locks| locks.keep_out(lock);
        awaited.wait(Reason::InodeLock, (&self.locks, &self.given_back), waits);
        Ok(())
    }

    /// Wakes waiters: a request that carries a lock landed, and a waiter may complete it.
    pub(super) fn wake(&self) {
        drop(self.locks.lock());
        self.given_back.notify_all();
    }

    /// Asserts that no request carries a lock. The caller has the inode alone.
    pub(super) fn assert_alone(&self) {
        assert!(self.any.load(Ordering::Acquire) == 0, "INODE-7: a request shares what somebody has alone");
    }
}
