//! The waiting gate: every primitive that can wait passes here and says what it waits for.
//!
//! A caller that passes [`Wait::No`] is promised that nothing below it waits. The promise is checked by counting:
//! [`waits_of_this_thread`] grows by one for every wait that really happened, and tests demand that it stood
//! still.
//!
//! A lock of a long rank that another thread has is such a wait, however it is asked for ([`Reason::Lock`] where the caller says no
//! better). Short locks are exempt: their holders wait for nothing (LOCK-2), so a thread that finds one taken waits for work in
//! memory alone. So are the locks of the process ([`ProcessMutex`](crate::lock::ProcessMutex)), and
//! [`RankedCondvar::wait_while`](crate::lock::RankedCondvar::wait_while), with which threads wait for work.
//! A lock that is free does not come here, and costs no count.
//!
//! A simulator has several threads of which one runs at a time. Those that it has take turns here ([`take_turns`]): who passes
//! the gate or takes a lock may let others run, and who finds a lock taken must ([`until`]), for its holder cannot give it back otherwise. So
//! what runs when follows from the simulator's seed, and a deadlock is found instead of hung in. Turns that are had for a lock are
//! one wait, counted as that of any other thread.
//!
//! # Invariants
//! - GATE-1: code that was given `Wait::No` never calls [`passing`]; it returns
//!   [`ErrorKind::WouldBlock`](crate::ErrorKind::WouldBlock) and leaves no trace.
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
    /// Delayed data to be written back.
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
    /// A lock is about to be taken: there are very many of these.
    Lock,
    /// Something is asked of a device, or an operation begins or ends.
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
    /// A place where others may run first, if the simulator likes.
    fn may_turn(&self, chance: Chance);

    /// Lets another run, who may have what this thread waits for. False when there is nobody.
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

/// Whether any thread of this process ever took turns. Every lock asks, and mostly none did.
static SIMULATED: AtomicBool = AtomicBool::new(false);

/// The simulator that has this thread.
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

/// Attempts again and again, after each turn of others. None at once when this thread takes no turns: it may wait itself.
///
/// # Panics
/// When nobody is left who could run: a deadlock.
pub fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let turns = turns()?;
    loop {
        assert!(turns.must_turn(), "a deadlock: nobody can run (TURNS-1)");
        if let Some(got) = attempt() {
            return Some(got);
        }
    }
}

/// A place where a simulator may let others run.
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

/// Lets another run, if this thread takes turns and there is one.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn must_turn() -> bool {
    turns().is_some_and(|turns| turns.must_turn())
}

/// Runs `wait`, which is about to wait for `reason`, and counts it. Our own bug, found in debug builds, when this thread holds a short
/// lock (LOCK-2).
pub fn passing<T>(reason: Reason, wait: impl FnOnce() -> T) -> T {
    check_short_locks(0);
    pass(reason, wait)
}

/// Does what [`passing`] does, for a wait that gives the lock of a rank back meanwhile.
pub(crate) fn giving_back<T>(is_short: bool, reason: Reason, wait: impl FnOnce() -> T) -> T {
    check_short_locks(u32::from(is_short));
    pass(reason, wait)
}

/// Waits for a lock that was found taken: `attempt` takes it in turns, `wait` without them. Counts one wait if it has a reason.
/// Counts the contended rank, if the lock has one. No turn is offered before that, for whoever finds a lock taken must have others run anyway.
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

/// Our own bug when this thread holds other short locks than so many.
fn check_short_locks(given_back: u32) {
    #[cfg(all(debug_assertions, not(feature = "shuttle")))]
    SHORT_LOCKS.with(|locks| assert!(locks.get() <= given_back, "LOCK-2: waits with a short lock held"));
    // A test's scheduler has threads of its own, and none before and after its runs.
    #[cfg(any(not(debug_assertions), feature = "shuttle"))]
    let _ = given_back;
}

/// This thread has taken a short lock.
#[cfg(debug_assertions)]
pub(crate) fn note_short_lock() {
    #[cfg(not(feature = "shuttle"))]
    SHORT_LOCKS.with(|locks| locks.set(locks.get() + 1));
}

/// This thread has given a short lock back.
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

/// How often this thread has waited so far, all reasons together.
#[must_use]
pub fn waits_of_this_thread() -> u64 {
    WAITS.with(|waits| waits.iter().map(Cell::get).sum())
}
