//! Work of the layers above that frees space and was put off: a thread that finds no room takes some steps of it.
//!
//! # Invariants
//! - RECLAIM-4: as long as a thread has a [`RoomClaim`] no thread keeps room for later. The room that comes back goes to the thread with the claim, and to operations that
//!   end by themselves. Shown by `room_that_comes_back_is_not_kept_by_those_who_come_later`.
//! - RECLAIM-1: reclaiming never starts reclaiming: its own handles begin with [`ReserveItems::reclaiming`](crate::ReserveItems::reclaiming).
//!
//! # Locking
//! A thread that looks for room may hold inode and range locks. So a reclaimer takes no lock of the layers above that such a thread
//! could hold.

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

/// A component with work that frees space and was put off.
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
    /// Does one bounded step of the work. False when there was nothing to do. Its handles begin with
    /// [`ReserveItems::reclaiming`](crate::ReserveItems::reclaiming), and it takes no lock that a thread may hold when it begins a handle.
    /// An error means that it cannot go on for now.
    fn reclaim_step(&self) -> Result<bool>;

    /// Whether steps, on any thread, freed something that is not committed yet.
    fn has_freed(&self) -> bool;

    /// Waits for running work that began before the call, ends by itself, and frees something at its end. False for a reclaimer that never has such work: then
    /// no commit is needed afterwards. It takes no lock that a step does not take.
    fn wait_for_work(&self) -> bool {
        false
    }
}

#[derive(Default)]
pub(crate) struct Reclaimers(RankedRwLock<Vec<Weak<dyn Reclaimer>>, { rank::LEAF }>);

/// Counts the threads that have found no room, have waited for all running work, and look once more.
#[derive(Default)]
pub(crate) struct RoomClaims(Arc<AtomicUsize>);

/// The claim of one such thread, which ends when this is dropped.
pub(crate) struct RoomClaim(Arc<AtomicUsize>);

impl RoomClaims {
    pub(crate) fn make(&self) -> RoomClaim {
        self.0.fetch_add(1, Ordering::SeqCst);
        RoomClaim(Arc::clone(&self.0))
    }

    /// Whether any thread has a claim (RECLAIM-4).
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

    /// Plants a fault: no reclaimer is asked any more.
    #[cfg(feature = "faults")]
    pub(crate) fn forget(&self) {
        self.0.write().clear();
    }

    /// Runs steps of the reclaimers. Returns whether a commit gives back space that these, or others since the last one, freed.
    pub(crate) fn reclaim(&self) -> bool {
        self.ask(|reclaimer| {
            // The caller does not need the reason that one cannot go on.
            let step = || reclaimer.reclaim_step().unwrap_or(false);
            let _ = (0..STEPS_PER_COMMIT).all(|_| step());
            reclaimer.has_freed()
        })
    }

    /// Waits for running work of the reclaimers. Returns whether a commit may give back space that it freed.
    pub(crate) fn wait(&self) -> bool {
        self.ask(Reclaimer::wait_for_work)
    }

    /// Calls `ask` for all of them. Returns whether any answer is true.
    fn ask(&self, mut ask: impl FnMut(&(dyn Reclaimer + 'static)) -> bool) -> bool {
        /// Ends this thread's reclaiming, also when a step panics.
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
        // Each of them, whatever the answers before.
        let answers: Vec<_> = reclaimers.iter().map(|reclaimer| ask(&**reclaimer)).collect();
        answers.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reclaimer with `left` steps; the last one starts reclaiming if it is `greedy`.
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
