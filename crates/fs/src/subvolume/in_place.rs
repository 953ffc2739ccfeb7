//! Writing in place and taking snapshots of one subvolume: never both at once.
//!
//! A snapshot shows what the subvolume showed, so nothing that it shows may be overwritten. From its commit on that is known: what
//! a file had before is older than the last snapshot, and whatever is older goes to new space. But who found out before the commit that
//! an extent is his alone may be about to write. So whoever writes in place says so before he looks, and who takes a snapshot
//! first bars that, waits for those who are on the way, and lets the transaction close. Who finds it barred takes
//! new space: nobody who writes waits for a snapshot.
//!
//! A snapshot waits for what was begun: a request that its caller still has, or that stands in line, has looked at nothing yet. What was begun ends
//! when its devices answer, and these may never do that. So who takes a snapshot may give up: nothing is barred from then on, and he hears which
//! file is written to.
//!
//! # Invariants
//! - NOCOW-3: from the moment in which a snapshot begins to wait until its transaction is closed nobody begins to write in place
//!   in its source, and nobody is still at it when the transaction closes.
//!   Shown by `who_writes_in_place_and_who_takes_a_snapshot_keep_each_other_out`,
//!   `what_a_snapshot_shows_stays_while_others_write_in_place`, `a_snapshot_that_is_given_up_bars_nobody`.

use creamery_base::ObjectId;
use creamery_base::gate::Reason;
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};
use smallvec::SmallVec;

use crate::in_flight::{Awaited, GivesUp};

/// Who writes in place in a subvolume, and who bars that.
#[derive(Default)]
pub(crate) struct InPlaceWriters {
    state: RankedMutex<State, { rank::LEAF }>,
    nobody_left: RankedCondvar,
}

#[derive(Default)]
struct State {
    /// The files that are written to, once for each write, in the order in which these began.
    writers: SmallVec<[ObjectId; 4]>,
    snapshots: u32,
}

/// Nobody writes in place.
#[must_use]
pub(crate) struct InPlaceBarred<'w> {
    writers: &'w InPlaceWriters,
    _held: Held,
}

impl InPlaceWriters {
    /// False while a snapshot is taken; otherwise somebody writes to the inode `ino` until he leaves.
    pub(super) fn enter(&self, ino: ObjectId) -> bool {
        let mut state = self.state.lock();
        let may = state.snapshots == 0;
        if may {
            state.writers.push(ino);
        }
        may
    }

    /// Somebody writes to the inode `ino` no more.
    pub(super) fn leave(&self, ino: ObjectId) {
        let mut state = self.state.lock();
        let at = state.writers.iter().position(|writer| *writer == ino);
        state.writers.remove(at.expect("NOCOW-3: who leaves has entered"));
        let is_last = state.writers.is_empty();
        drop(state);
        if is_last {
            self.nobody_left.notify_all();
        }
    }

    /// How many write.
    #[cfg(feature = "faults")]
    pub(super) fn len(&self) -> usize {
        self.state.lock().writers.len()
    }

    /// Lets nobody begin, and waits until nobody is left, completing those that are `awaited` meanwhile. The caller has no inode.
    /// Fails when he gives up, with an inode that is written to; nothing is barred then.
    pub(crate) fn bar(
        &self,
        awaited: Awaited<'_>,
        gives_up: GivesUp<'_>,
    ) -> Result<InPlaceBarred<'_>, ObjectId> {
        let held = Held::wait(Place::of(rank::IN_PLACE));
        self.state.lock().snapshots += 1;
        let barred = InPlaceBarred { writers: self, _held: held };
        let waits = |state: &mut State| !state.writers.is_empty();
        awaited.wait_unless(gives_up, Reason::Writeback, (&self.state, &self.nobody_left), waits);
        // Nobody has entered since, so none is none.
        let still_writes = self.state.lock().writers.first().copied();
        still_writes.map_or(Ok(barred), Err)
    }

    /// A request landed that writes in place: who waits may complete it.
    pub(super) fn wake(&self) {
        drop(self.state.lock());
        self.nobody_left.notify_all();
    }
}

impl Drop for InPlaceBarred<'_> {
    fn drop(&mut self) {
        self.writers.state.lock().snapshots -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicBool, Ordering};

    use creamery_base::TreeId;

    use super::*;
    use crate::in_flight::{Carried, InFlight};

    const HERE: Carried = Carried::OfSubvolume(TreeId::FS);
    const FILE: ObjectId = ObjectId::new(300);

    #[test]
    fn who_writes_in_place_and_who_takes_a_snapshot_keep_each_other_out() {
        let writers = InPlaceWriters::default();
        assert!(writers.enter(FILE) && writers.enter(FILE), "no snapshot");
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let snapshot = scope.spawn(|| {
                let barred = writers.bar(InFlight::default().awaited(HERE), GivesUp::Never);
                assert!(is_over.load(Ordering::SeqCst), "NOCOW-3: somebody was still writing");
                assert!(!writers.enter(FILE), "NOCOW-3");
                drop(barred);
            });
            while writers.enter(FILE) {
                writers.leave(FILE);
                std::thread::yield_now();
            }
            writers.leave(FILE);
            is_over.store(true, Ordering::SeqCst);
            writers.leave(FILE);
            snapshot.join().expect("it ends well");
        });
        let barred = writers.bar(InFlight::default().awaited(HERE), GivesUp::Never);
        assert!(barred.is_ok() && !writers.enter(FILE));
        drop(barred);
        assert!(writers.enter(FILE));
    }

    #[test]
    fn a_snapshot_that_is_given_up_bars_nobody() {
        let (writers, in_flight, other) =
            (InPlaceWriters::default(), InFlight::default(), ObjectId::new(301));
        assert!(writers.enter(FILE) && writers.enter(other) && writers.enter(FILE));
        writers.leave(FILE);
        let asked = Cell::new(0);
        let is_interrupted = || {
            assert!(!writers.enter(FILE), "NOCOW-3: it waits still");
            asked.set(asked.get() + 1);
            asked.get() == 3
        };
        let given_up = writers.bar(in_flight.awaited(HERE), GivesUp::When(&is_interrupted));
        assert_eq!((given_up.err(), asked.get()), (Some(other), 3), "who began first");
        assert!(writers.enter(FILE), "nothing is barred");
        [FILE, FILE, other].into_iter().for_each(|ino| writers.leave(ino));
        let never = || panic!("there is nothing to wait for");
        let barred = writers.bar(in_flight.awaited(HERE), GivesUp::When(&never));
        assert!(barred.is_ok() && !writers.enter(FILE), "NOCOW-3");
    }
}
