//! Locks that know their place: one list for the whole program, outer first ([`rank`]), and an order within a rank where
//! several of a kind are held together. Waiting for a lock while one of the same or a later place is held panics in debug
//! builds, so an inversion is found by the first test that walks over it, not by the first deadlock.
//!
//! Every lock of the engine, the mount and the tools has a rank; `cargo xtask tidy` counts those that have none. What a thread
//! holds is the thread's: no guard can be sent to another one.
//!
//! A request may outlive the call that began it. The thread that calls takes the locks, in their order, and then has the request carry
//! them: no thread has them any more, and the end of the request gives them back, on any thread. A thread that waits for one of
//! them holds no lock that the end of a request takes, and a thread that ends a request holds none that such a waiter
//! has: both are at [`rank::WRITEBACK`].
//!
//! # Invariants
//! - LOCK-1: who waits for a lock holds none of the same or a later place. Trying is exempt, since it cannot wait, but what
//!   was got by trying is held like the rest.
//! - LOCK-2: from [`rank::SHORT`] on, nothing waits for a device, a commit or another thread's work. The gate looks
//!   ([`gate::passing`](crate::gate::passing)). A condition variable gives back the one lock that it waits with.
//!   Shown by `waiting_for_a_device_with_a_short_lock_is_a_bug` of the devices.

mod condvar;
pub mod contention;
#[cfg(all(test, not(feature = "shuttle")))]
mod counted_tests;
mod guard;
mod held;
mod mutex;
mod process;
mod queued_rw_lock;
pub mod rank;
mod rw_lock;

pub use condvar::RankedCondvar;
pub use guard::Ranked;
pub use held::{Held, Place};
pub use mutex::{RankedGuard, RankedMutex};
pub use process::{ProcessCondvar, ProcessMutex, ProcessRead, ProcessRwLock, ProcessWrite};
pub use queued_rw_lock::QueuedRwLock;
pub use rw_lock::{RankedRead, RankedRwLock, RankedWrite};

use crate::gate::Reason;

/// What the gate counts a wait for a lock of this rank as, unless the caller says: a short one is exempt (LOCK-2).
const fn reason_of(rank: u8) -> Option<Reason> {
    if rank < rank::SHORT { Some(Reason::Lock) } else { None }
}
