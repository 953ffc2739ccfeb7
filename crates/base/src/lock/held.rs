//! The locks that a thread holds, noted in debug builds and checked before the thread waits for more.

use core::marker::PhantomData;

use crate::gate::Wait;

/// A lock's place in the order of all locks.
///
/// ```
/// use creamery_base::lock::{LockPosition, rank};
/// assert!(LockPosition::of(rank::INODE) < LockPosition::within(rank::INODE, 257));
/// assert!(LockPosition::within(rank::INODE, u128::MAX) < LockPosition::of(rank::LEAF));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LockPosition {
    rank: u8,
    within: u128,
}

impl LockPosition {
    /// The place of the only lock of a rank, or of one of several of which a thread holds one at most.
    #[must_use]
    pub const fn of(rank: u8) -> Self {
        Self { rank, within: 0 }
    }

    /// The place of one of several locks of a rank that are taken together, in the order of `within`.
    #[must_use]
    pub const fn within(rank: u8, within: u128) -> Self {
        Self { rank, within }
    }
}

/// The note that this thread holds a lock: for guards of locks outside this module. It stays with the thread,
/// and costs nothing in release builds.
///
/// ```
/// use creamery_base::lock::{HeldNote, LockPosition, rank};
/// let outer = HeldNote::wait(LockPosition::of(rank::INODE));
/// let inner = HeldNote::wait(LockPosition::of(rank::LEAF));
/// drop((outer, inner));
/// ```
///
/// ```compile_fail
/// use creamery_base::lock::{HeldNote, LockPosition, rank};
/// let held = HeldNote::wait(LockPosition::of(rank::INODE));
/// std::thread::spawn(move || drop(held));
/// ```
#[must_use]
pub struct HeldNote {
    /// `None` if nothing is noted.
    #[cfg(debug_assertions)]
    place: Option<LockPosition>,
    thread: PhantomData<*const ()>,
}

#[cfg(debug_assertions)]
mod noted {
    use std::cell::RefCell;

    use super::{HeldNote, LockPosition, PhantomData};
    use crate::gate;
    use crate::lock::rank;

    #[cfg(feature = "shuttle")]
    use crate::sync::shuttle::thread_local;

    thread_local! {
        static HELD: RefCell<Vec<LockPosition>> = const { RefCell::new(Vec::new()) };
    }

    impl HeldNote {
        /// Notes a lock before waiting for it. Panics, as a bug of the caller, if this thread holds a lock at the same or a later place.
        pub fn wait(place: LockPosition) -> Self {
            HELD.with(|held| {
                if let Some(last) = held.borrow().iter().max() {
                    assert!(place > *last, "LOCK-1: waits for the lock at {place:?} with {last:?} held");
                }
            });
            Self::tried(place)
        }

        /// Notes a lock taken by trying, or one that no other thread knows yet.
        pub fn tried(place: LockPosition) -> Self {
            HELD.with(|held| held.borrow_mut().push(place));
            if place.rank >= rank::SHORT {
                gate::note_short_lock();
            }
            Self { place: Some(place), thread: PhantomData }
        }

        /// Panics with the message `what`, as a bug of the caller, if this thread holds a lock of a rank.
        pub fn none_of(rank: u8, what: &str) {
            HELD.with(|held| assert!(held.borrow().iter().all(|place| place.rank != rank), "{what}"));
        }

        /// Notes nothing: for locks that outlive a run of a test's scheduler, which has no threads before and after.
        pub(in super::super) const fn nothing() -> Self {
            Self { place: None, thread: PhantomData }
        }
    }

    impl Drop for HeldNote {
        fn drop(&mut self) {
            let Some(noted) = self.place else { return };
            HELD.with(|held| {
                let mut held = held.borrow_mut();
                let at = held.iter().rposition(|place| *place == noted);
                held.swap_remove(at.expect("what is held is in the list"));
            });
            if noted.rank >= rank::SHORT {
                gate::forget_short_lock();
            }
        }
    }
}

#[cfg(not(debug_assertions))]
impl HeldNote {
    /// Notes nothing.
    pub const fn wait(_: LockPosition) -> Self {
        Self { thread: PhantomData }
    }

    /// Notes nothing.
    pub const fn tried(_: LockPosition) -> Self {
        Self { thread: PhantomData }
    }

    /// Checks nothing.
    pub const fn none_of(_: u8, _: &str) {}

    pub(super) const fn nothing() -> Self {
        Self { thread: PhantomData }
    }
}

impl HeldNote {
    /// Notes a lock at `place` before taking it, by waiting or by trying.
    pub fn before(place: LockPosition, wait: Wait) -> Self {
        match wait {
            Wait::Yes => Self::wait(place),
            Wait::No => Self::tried(place),
        }
    }
}

#[cfg(all(test, debug_assertions, not(feature = "shuttle")))]
mod tests {
    use super::{HeldNote, LockPosition};
    use crate::lock::rank;

    fn inode(ino: u128) -> LockPosition {
        LockPosition::within(rank::INODE, ino)
    }

    #[test]
    fn locks_of_a_rank_are_waited_for_in_their_order() {
        let first = HeldNote::wait(inode(300));
        let second = HeldNote::wait(inode(301));
        let tried = HeldNote::tried(inode(257));
        drop((second, first));
        drop(HeldNote::wait(inode(258)));
        drop(tried);
        drop(HeldNote::wait(inode(256)));
    }

    #[test]
    #[should_panic(expected = "LOCK-1")]
    fn waiting_for_an_earlier_place_is_a_bug() {
        let _later = HeldNote::wait(inode(301));
        let _earlier = HeldNote::wait(inode(300));
    }

    #[test]
    #[should_panic(expected = "LOCK-1")]
    fn waiting_for_the_same_place_twice_is_a_bug() {
        let _once = HeldNote::tried(inode(300));
        let _twice = HeldNote::wait(inode(300));
    }

    #[test]
    #[should_panic(expected = "LOCK-1")]
    fn what_was_got_by_trying_counts() {
        let _inner = HeldNote::tried(LockPosition::of(rank::LEAF));
        let _outer = HeldNote::wait(inode(300));
    }
}
