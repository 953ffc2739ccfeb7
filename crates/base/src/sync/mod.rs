//! The primitives under every lock of the trees and of transactions, in one place, so that a test can exchange them: with the feature
//! `shuttle` they belong to a scheduler that runs threads one at a time and in an order that follows from a
//! seed.
//!
//! [`OwnedLock`] is a reader-writer lock whose guards own the value that contains the lock.

mod owned;

#[cfg(not(feature = "shuttle"))]
mod real;
#[cfg(feature = "shuttle")]
mod scheduled;

#[cfg(not(feature = "shuttle"))]
use real as primitives;
#[cfg(feature = "shuttle")]
use scheduled as primitives;

pub use owned::{HasLock, OwnedLock, OwnedRead, OwnedWrite};
pub(crate) use primitives::lock_by;
pub use primitives::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, thread_local};
/// The scheduler, for the tests that run under it.
#[cfg(feature = "shuttle")]
pub use shuttle;
