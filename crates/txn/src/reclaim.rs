//! Making room when there is none: layers above have work that frees space and was put off.
//!
//! Who finds no room - for data before a handle begins, or for what a handle is to be promised - has the reclaimers take some
//! steps and commits, so that what they freed can be handed out, and tries again. Only when they have nothing left
//! and a commit did not help either, the answer is "no space".
//!
//! # Invariants
//! - RECLAIM-1: reclaiming asks for no reclaiming: its own handles begin with [`Units::reclaiming`](crate::Units::reclaiming).
//! - RECLAIM-2: nobody who holds a handle reclaims or waits for one who does.
//!
//! # Locking
//! Who asks may hold inode and range locks. So a reclaimer locks nothing of the layers above that somebody who may ask for
//! room could hold.

use std::sync::{Arc, Weak};

use creamery_base::Result;
use creamery_base::gate::{self, Reason};
use creamery_base::lock::{RankedRwLock, rank};

use crate::engine::Engine;

/// Steps that all reclaimers take between two commits at most: a commit for each would cost more than it frees.
const STEPS_PER_COMMIT: usize = 128;

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
}

#[derive(Default)]
pub(crate) struct Reclaimers(RankedRwLock<Vec<Weak<dyn Reclaimer>>, { rank::LEAF }>);

#[cfg(feature = "faults")]
impl Reclaimers {
    /// Plants a fault: nobody is asked any more.
    pub(crate) fn forget(&self) {
        self.0.write().clear();
    }
}

impl Engine {
    /// Asks `reclaimer` for its work when there is no room, as long as somebody has it.
    pub fn register_reclaimer(&self, reclaimer: &Arc<impl Reclaimer + 'static>) {
        let reclaimer: Weak<dyn Reclaimer> = Arc::downgrade(&(Arc::clone(reclaimer) as Arc<dyn Reclaimer>));
        self.reclaimers.0.write().push(reclaimer);
    }

    /// Has others free something, and commits, so that it can be handed out. False when neither can help: there is nothing to
    /// free, and whoever asks has committed already.
    pub(crate) fn make_room(&self, committed: bool, reclaiming: bool) -> Result<bool> {
        let freed = !reclaiming && self.reclaim();
        if committed && !freed {
            return Ok(false);
        }
        gate::passing(Reason::Reservation, || self.commit())?;
        Ok(true)
    }

    /// Lets reclaimers take their steps. Whether a commit gives back what was freed by these, or by others since the last one.
    fn reclaim(&self) -> bool {
        let reclaimers: Vec<_> = self.reclaimers.0.read().iter().filter_map(Weak::upgrade).collect();
        let mut any = false;
        for reclaimer in reclaimers {
            // Why one cannot go on is not what the asker wants to know.
            let step = || reclaimer.reclaim_step().unwrap_or(false);
            let _ = (0..STEPS_PER_COMMIT).all(|_| step());
            any |= reclaimer.has_freed();
        }
        any
    }
}
