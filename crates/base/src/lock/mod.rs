//! Locks that know their place: one list for the whole program, outer first ([`rank`]), and an order within a rank where
//! several of a kind are held together. Waiting for a lock while one of the same or a later place is held panics in debug
//! builds, so an inversion is found by the first test that walks over it, not by the first deadlock.
//!
//! Every lock of the engine, the mount and the tools has a rank; `cargo xtask tidy` counts those that have none. What a thread
//! holds is the thread's: no guard can be sent to another one.
//!
//! What a request carries that outlives its call is no thread's. It is taken with a thread's locks, in their order; from the moment in
//! which it is carried only the end of the request gives it back, on any thread. Who waits for that holds nothing that ending a
//! request takes, and who ends one holds nothing that such a waiter has: both are at [`rank::WRITEBACK`].
//!
//! # Invariants
//! - LOCK-1: who waits for a lock holds none of the same or a later place. Trying is exempt, since it cannot wait, but what
//!   was got by trying is held like the rest.
//! - LOCK-2: from [`rank::SHORT`] on, nothing waits for a device, a commit or another thread's work. The gate looks
//!   ([`gate::passing`](crate::gate::passing)). A condition variable gives back the one lock that it waits with.
//!   Shown by `waiting_for_a_device_with_a_short_lock_is_a_bug` of the devices.

mod condvar;
mod guard;
mod held;
mod mutex;
mod process;
pub mod rank;
mod rw_lock;

pub use condvar::RankedCondvar;
pub use guard::Ranked;
pub use held::{Held, Place};
pub use mutex::{RankedGuard, RankedMutex};
pub use process::{ProcessCondvar, ProcessMutex, ProcessRead, ProcessRwLock};
pub use rw_lock::{RankedRead, RankedRwLock, RankedWrite};
