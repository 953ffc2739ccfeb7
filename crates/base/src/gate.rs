//! The waiting gate: every primitive that can wait passes here and names its reason.
//!
//! A caller that passes [`Wait::No`] is promised that nothing below it waits. Counts check the promise:
//! [`waits_of_this_thread`] grows by one for every wait that really happened, and tests demand that it did not
//! change.
//!
//! Waiting for a lock of a long rank that another thread holds is such a wait, whichever function takes the lock ([`Reason::Lock`] unless the
//! caller gives a better reason). Short locks are exempt: their holders wait for nothing (LOCK-2), so a thread that finds one taken waits only for
//! work in memory. Also exempt are the locks of the process ([`ProcessMutex`](crate::lock::ProcessMutex)) and
//! [`RankedCondvar::wait_while`](crate::lock::RankedCondvar::wait_while), with which threads wait for work.
//! A lock that is free does not come here, and costs no count.
//!
//! A simulator runs one of its threads at a time. They take turns here ([`take_turns`]): a thread that passes
//! the gate or takes a lock may let others run, and a thread that finds a lock taken must ([`until`]), or its holder could never release it. So
//! the simulator's seed decides the order, and a deadlock is found instead of a hang. The turns for one lock are
//! one wait, counted like that of any other thread.
//!
//! # Invariants
//! - GATE-1: code that was given `Wait::No` never calls [`passing`]; it returns
//!   [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock) and leaves no trace.
//!   Shown by `what_is_refused_leaves_no_trace_and_is_carried_out_by_a_thread_that_waits`, and by `cold` and `locked` of the tests of
//!   names.
//! - TURNS-1: a thread that takes turns waits for nothing but its turn.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::found_taken;

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
    /// Must not wait: the call returns "would block" instead.
    No,
}

impl Wait {
    /// Whether waiting is allowed.
    #[must_use]
    pub const fn allowed(self) -> bool {
        matches!(self, Self::Yes)
    }
}

/// The reason of a wait.
///
/// ```
/// use creamery_base::gate::Reason;
/// assert_ne!(Reason::NodeLock, Reason::Device);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Another thread's lock on a tree block.
    NodeLock,
    /// An inode's lock or range lock.
    InodeLock,
    /// The answer of a device.
    Device,
    /// Metadata or data space.
    Reservation,
    /// The start of a transaction, or the end of a commit.
    Commit,
    /// The writeback of delayed data.
    Writeback,
    /// Another lock that may be held for long.
    Lock,
}

const REASONS: usize = 7;

/// A place where a simulator may let others run.
///
/// ```
/// use creamery_base::gate::Chance;
/// assert_ne!(Chance::Lock, Chance::Request);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chance {
    /// A thread is about to take a lock: there are very many of these.
    Lock,
    /// A thread sends a request to a device, or begins or ends an operation.
    Request,
}

/// A simulator's threads, of which one runs at a time.
///
/// ```
/// use creamery_base::gate::{Chance, Turns, take_turns};
/// struct Alone;
/// impl Turns for Alone {
///     fn may_turn(&self, _: Chance) {}
///     fn must_turn(&self) -> bool { false }
/// }
/// assert_eq!(take_turns(std::rc::Rc::new(Alone), || 7), 7);
/// ```
pub trait Turns {
    /// Called at a place where the simulator may run other threads first.
    fn may_turn(&self, chance: Chance);

    /// Runs another thread, which may end this thread's wait. Returns false if no other thread can run.
    fn must_turn(&self) -> bool;
}

thread_local! {
    static WAITS: [Cell<u64>; REASONS] = const { [const { Cell::new(0) }; REASONS] };
    static TURNS: RefCell<Option<Rc<dyn Turns>>> = const { RefCell::new(None) };
}

#[cfg(all(debug_assertions, not(feature = "shuttle")))]
thread_local! {
    /// Short locks that this thread holds.
    static SHORT_LOCKS: Cell<u32> = const { Cell::new(0) };
}

/// Whether any thread of this process ever took turns. Every lock asks, and in most processes none did.
static SIMULATED: AtomicBool = AtomicBool::new(false);

/// Returns the simulator of this thread.
fn turns() -> Option<Rc<dyn Turns>> {
    if !SIMULATED.load(Ordering::Relaxed) {
        return None;
    }
    TURNS.with(|turns| turns.borrow().clone())
}

/// Runs `work` on this thread as one of `turns`.
pub fn take_turns<T>(turns: Rc<dyn Turns>, work: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            TURNS.with(|turns| turns.take());
        }
    }
    SIMULATED.store(true, Ordering::Relaxed);
    TURNS.with(|mine| *mine.borrow_mut() = Some(turns));
    let _reset = Reset;
    work()
}

/// Repeats `attempt` until it succeeds, and lets other threads run before each try. `None` at once if this thread takes no turns: it may wait by itself.
///
/// # Panics
/// If no thread is left that could run: a deadlock.
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let turns = turns()?;
    loop {
        assert!(turns.must_turn(), "a deadlock: nobody can run (TURNS-1)");
        if let Some(got) = attempt() {
            return Some(got);
        }
    }
}

/// Marks a place where a simulator may run other threads.
pub fn may_turn(chance: Chance) {
    if let Some(turns) = turns() {
        turns.may_turn(chance);
    }
}

/// Whether this thread takes turns.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn takes_turns() -> bool {
    turns().is_some()
}

/// Runs another thread, if this thread takes turns and there is one. Returns whether one ran.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn must_turn() -> bool {
    turns().is_some_and(|turns| turns.must_turn())
}

/// Runs `wait`, which is about to wait for `reason`, and counts it. Panics in debug builds, as a bug of the caller, if this thread holds
/// a short lock (LOCK-2).
pub fn passing<T>(reason: Reason, wait: impl FnOnce() -> T) -> T {
    check_short_locks(0);
    pass(reason, wait)
}

/// Runs and counts `wait` like [`passing`], for a wait that releases one lock meanwhile: a short one if `is_short`.
pub(crate) fn giving_back<T>(is_short: bool, reason: Reason, wait: impl FnOnce() -> T) -> T {
    check_short_locks(u32::from(is_short));
    pass(reason, wait)
}

/// Waits for a lock that was found taken: a thread that takes turns repeats `attempt`, another one runs `wait`. Counts one wait if it has a reason,
/// and the contended rank, if the lock has one. Offers no turn before that, because a thread that finds a lock taken must let others run anyway.
#[cold]
pub(crate) fn lock<T>(
    rank: Option<u8>,
    reason: Option<Reason>,
    attempt: impl FnMut() -> Option<T>,
    wait: impl FnOnce() -> T,
) -> T {
    rank.into_iter().for_each(found_taken::note);
    if let Some(reason) = reason {
        check_short_locks(0);
        count(reason);
    }
    until(attempt).unwrap_or_else(wait)
}

/// Panics, as a bug of the caller, if this thread holds short locks besides the `given_back` ones that the wait releases (LOCK-2).
fn check_short_locks(given_back: u32) {
    #[cfg(all(debug_assertions, not(feature = "shuttle")))]
    SHORT_LOCKS.with(|locks| assert!(locks.get() <= given_back, "LOCK-2: waits with a short lock held"));
    // A test's scheduler has its own threads, and none before and after its runs.
    #[cfg(any(not(debug_assertions), feature = "shuttle"))]
    let _ = given_back;
}

/// Notes that this thread has taken a short lock.
#[cfg(debug_assertions)]
pub(crate) fn note_short_lock() {
    #[cfg(not(feature = "shuttle"))]
    SHORT_LOCKS.with(|locks| locks.set(locks.get() + 1));
}

/// Notes that this thread has released a short lock.
#[cfg(debug_assertions)]
pub(crate) fn forget_short_lock() {
    #[cfg(not(feature = "shuttle"))]
    SHORT_LOCKS.with(|locks| locks.set(locks.get() - 1));
}

fn pass<T>(reason: Reason, wait: impl FnOnce() -> T) -> T {
    count(reason);
    may_turn(Chance::Request);
    wait()
}

fn count(reason: Reason) {
    WAITS.with(|waits| {
        let count = &waits[reason as usize];
        count.set(count.get() + 1);
    });
}

/// Returns how often this thread has waited so far, all reasons together.
#[must_use]
pub fn waits_of_this_thread() -> u64 {
    WAITS.with(|waits| waits.iter().map(Cell::get).sum())
}
