//! Locks that know their place: one list for the whole program, outer first ([`rank`]), and an order within a rank for locks
//! that are held together. Waiting for a lock while one of the same or a later place is held panics in debug
//! builds, so the first test that reaches an inversion finds it, not the first deadlock.
//!
//! Every lock of the engine, the mount and the tools has a rank; `cargo xtask tidy` counts those without one. A thread
//! keeps its locks: no guard can be sent to another thread.
//!
//! A request may outlive the call that began it. The calling thread takes the locks, in their order, and then moves them into the
//! request: no thread holds them any more, and the end of the request releases them, on any thread. A thread that waits for one of
//! them holds no lock that the end of a request takes, and a thread that ends a request holds none that such a waiter
//! holds: both are at [`rank::WRITEBACK`].
//!
//! # Invariants
//! - LOCK-1: a thread that waits for a lock holds none of the same or a later place. Trying is exempt, since it cannot wait, but
//!   a lock taken by trying is held like the others.
//! - LOCK-2: from [`rank::SHORT`] on, a thread waits for no device, no commit and no other thread's work. The gate checks this
//!   ([`gate::passing`](crate::gate::passing)). A condition variable releases the one lock that it waits with.
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
pub use held::{HeldNote, LockPosition};
pub use mutex::{RankedGuard, RankedMutex};
pub use process::{ProcessCondvar, ProcessMutex, ProcessRead, ProcessRwLock, ProcessWrite};
pub use queued_rw_lock::QueuedRwLock;
pub use rw_lock::{RankedRead, RankedRwLock, RankedWrite};

use crate::gate::Reason;

/// The reason under which the gate counts a wait for a lock of this rank, unless the caller gives one. Short locks are exempt (LOCK-2).
const fn reason_of(rank: u8) -> Option<Reason> {
    if rank < rank::SHORT { Some(Reason::Lock) } else { None }
}
