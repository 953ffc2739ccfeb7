//! Layers above have work that frees space and was put off: who finds no room has them take some steps of it.
//!
//! # Invariants
//! - RECLAIM-4: as long as a thread has a [`RoomClaim`] no thread keeps room for later. The room that comes back goes to the thread with the claim, and to operations that
//!   end by themselves. Shown by `room_that_comes_back_is_not_kept_by_those_who_come_later`.
//! - RECLAIM-1: reclaiming asks for no reclaiming: its own handles begin with [`Units::reclaiming`](crate::Units::reclaiming).
//!
//! # Locking
//! Who asks may hold inode and range locks. So a reclaimer locks nothing of the layers above that somebody who may ask for
//! room could hold.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use creamery_base::Result;
use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::sync::thread_local;

/// Steps that all reclaimers take between two commits at most: a commit for each would cost more than it frees.
const STEPS_PER_COMMIT: usize = 128;

thread_local! {
    static RECLAIMING: Cell<bool> = const { Cell::new(false) };
}

/// Somebody who has put off work that frees space.
///
/// ```
/// use creamery_txn::Reclaimer;
/// struct Nothing;
/// impl Reclaimer for Nothing {
///     fn reclaim_step(&self) -> creamery_base::Result<bool> {
///         Ok(false)
///     }
///     fn has_freed(&self) -> bool {
///         false
///     }
/// }
/// ```
pub trait Reclaimer: Send + Sync {
    /// Does one bounded step of it. False when there was nothing to do. Its handles begin with
    /// [`Units::reclaiming`](crate::Units::reclaiming), and it takes no lock that somebody may hold who begins a handle.
    /// An error says that it cannot go on for now.
    fn reclaim_step(&self) -> Result<bool>;

    /// Whether steps, taken by whomever, freed something that is not committed yet.
    fn has_freed(&self) -> bool;

    /// Waits for the work that began before, is on its way of itself, and frees something when it ends. False when it never has any: then
    /// no commit is needed for what that freed. It takes no lock that a step does not take.
    fn wait_for_work(&self) -> bool {
        false
    }
}

#[derive(Default)]
pub(crate) struct Reclaimers(RankedRwLock<Vec<Weak<dyn Reclaimer>>, { rank::LEAF }>);

/// The threads that have found no room, have waited for all that was on its way, and look once more.
#[derive(Default)]
pub(crate) struct RoomClaims(Arc<AtomicUsize>);

/// A thread of these, until this goes.
pub(crate) struct RoomClaim(Arc<AtomicUsize>);

impl RoomClaims {
    pub(crate) fn make(&self) -> RoomClaim {
        self.0.fetch_add(1, Ordering::SeqCst);
        RoomClaim(Arc::clone(&self.0))
    }

    /// Whether there are any (RECLAIM-4).
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

impl Drop for RoomClaim {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Reclaimers {
    pub(crate) fn register(&self, reclaimer: Weak<dyn Reclaimer>) {
        self.0.write().push(reclaimer);
    }

    /// Plants a fault: nobody is asked any more.
    #[cfg(feature = "faults")]
    pub(crate) fn forget(&self) {
        self.0.write().clear();
    }

    /// Lets reclaimers take their steps. Whether a commit gives back what was freed by these, or by others since the last one.
    pub(crate) fn reclaim(&self) -> bool {
        self.ask(|reclaimer| {
            // Why one cannot go on is not what the asker wants to know.
            let step = || reclaimer.reclaim_step().unwrap_or(false);
            let _ = (0..STEPS_PER_COMMIT).all(|_| step());
            reclaimer.has_freed()
        })
    }

    /// Waits for the work of reclaimers that is on its way. Whether a commit may give back what that freed.
    pub(crate) fn wait(&self) -> bool {
        self.ask(Reclaimer::wait_for_work)
    }

    /// Asks all of them. Whether any says yes.
    fn ask(&self, mut ask: impl FnMut(&(dyn Reclaimer + 'static)) -> bool) -> bool {
        /// This thread reclaims no more, also when a step panics.
        struct Ends;
        impl Drop for Ends {
            fn drop(&mut self) {
                RECLAIMING.with(|reclaiming| reclaiming.set(false));
            }
        }
        assert!(
            !RECLAIMING.with(|reclaiming| reclaiming.replace(true)),
            "RECLAIM-1: a reclaimer asks for reclaiming"
        );
        let _ends = Ends;
        let reclaimers: Vec<_> = self.0.read().iter().filter_map(Weak::upgrade).collect();
        // Each of them, whatever those before it say.
        let answers: Vec<_> = reclaimers.iter().map(|reclaimer| ask(&**reclaimer)).collect();
        answers.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Has so many steps to take; the last one asks for reclaiming if it is `greedy`.
    struct Steps {
        left: AtomicUsize,
        greedy: bool,
        reclaimers: Arc<Reclaimers>,
    }

    impl Reclaimer for Steps {
        fn reclaim_step(&self) -> Result<bool> {
            let left = self.left.load(Ordering::Relaxed);
            self.left.store(left.saturating_sub(1), Ordering::Relaxed);
            if left == 1 && self.greedy {
                self.reclaimers.reclaim();
            }
            Ok(left > 0)
        }

        fn has_freed(&self) -> bool {
            self.left.load(Ordering::Relaxed) == 0
        }
    }

    fn reclaimers(left: usize, greedy: bool) -> (Arc<Reclaimers>, Arc<Steps>) {
        let reclaimers = Arc::<Reclaimers>::default();
        let steps = Arc::new(Steps { left: left.into(), greedy, reclaimers: Arc::clone(&reclaimers) });
        reclaimers.register(Arc::downgrade(&(Arc::clone(&steps) as Arc<dyn Reclaimer>)));
        (reclaimers, steps)
    }

    #[test]
    fn a_bounded_number_of_steps_is_taken_between_commits() {
        let (reclaimers, steps) = reclaimers(STEPS_PER_COMMIT + 1, false);
        assert!(!reclaimers.reclaim());
        assert_eq!(steps.left.load(Ordering::Relaxed), 1);
        assert!(reclaimers.reclaim());
    }

    #[test]
    #[should_panic(expected = "RECLAIM-1")]
    fn a_reclaimer_that_asks_for_reclaiming_is_a_bug() {
        let (reclaimers, _steps) = reclaimers(1, true);
        reclaimers.reclaim();
    }
}
