//! The waiting gate: every primitive that can wait passes here and says what it waits for.
//!
//! A caller that passes [`Wait::No`] is promised that nothing below it waits. The promise is checked by counting:
//! [`waits_of_this_thread`] grows by one for every wait that really happened, and tests demand that it stood
//! still.
//!
//! # Invariants
//! - GATE-1: code that was given `Wait::No` never calls [`passing`]; it returns
//!   [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock) and leaves no trace.

use std::cell::Cell;

/// Whether a call may wait for locks, devices or space.
///
/// ```
/// use creamery_base::Wait;
/// assert!(Wait::Yes.allowed() && !Wait::No.allowed());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// May wait.
    Yes,
    /// Must not wait; "would block" is the answer instead.
    No,
}

impl Wait {
    /// Whether waiting is allowed.
    #[must_use]
    pub const fn allowed(self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// What a wait is for.
///
/// ```
/// use creamery_base::gate::Reason;
/// assert_ne!(Reason::NodeLock, Reason::Device);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A tree block's lock held by another.
    NodeLock,
    /// An inode's lock or range lock.
    InodeLock,
    /// A device to answer.
    Device,
    /// Metadata or data space.
    Reservation,
    /// A transaction to begin, or a commit to end.
    Commit,
}

const REASONS: usize = 5;

thread_local! {
    static WAITS: [Cell<u64>; REASONS] = const { [const { Cell::new(0) }; REASONS] };
}

/// Runs `wait`, which is about to wait for `reason`, and counts it.
pub fn passing<T>(reason: Reason, wait: impl FnOnce() -> T) -> T {
    WAITS.with(|waits| {
        let count = &waits[reason as usize];
        count.set(count.get() + 1);
    });
    wait()
}

/// How often this thread has waited so far, all reasons together.
#[must_use]
pub fn waits_of_this_thread() -> u64 {
    WAITS.with(|waits| waits.iter().map(Cell::get).sum())
}
