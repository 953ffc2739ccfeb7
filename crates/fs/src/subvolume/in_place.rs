//! Writing in place and taking snapshots of one subvolume: never both at once.
//!
//! A snapshot shows the subvolume as it was, so nothing that it shows may be overwritten. From the snapshot's commit on, generations ensure that: extents older than
//! the last snapshot are not overwritten in place. But a writer that found an extent unshared before the commit may be about to write. So a writer registers before
//! it checks the extent. A snapshot first bars new writers, waits for the registered ones, and then lets the transaction close. A writer that is barred writes to
//! new space: no writer waits for a snapshot.
//!
//! A snapshot waits only for writes that were begun: a request that its caller still has, or that waits in a queue, has checked nothing yet. A begun write ends when
//! its devices answer, and they may never do that. So the thread that takes a snapshot may give up: then nothing is barred any more, and the error names the file
//! that is written to.
//!
//! # Invariants
//! - NOCOW-3: from the moment when a snapshot begins to wait until its transaction is closed, no write in place begins in its source, and none is under way when the
//!   transaction closes.
//!   Shown by `who_writes_in_place_and_who_takes_a_snapshot_keep_each_other_out`, `what_a_snapshot_shows_stays_while_others_write_in_place`,
//!   `a_snapshot_that_is_given_up_bars_nobody`.

use creamery_base::ObjectId;
use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use smallvec::SmallVec;

use crate::in_flight::{Awaited, GivesUp};

/// The writers in place of a subvolume, and the snapshots that bar them.
#[derive(Default)]
pub(crate) struct InPlaceWriters {
    state: RankedMutex<InPlaceState, { rank::LEAF }>,
    nobody_left: RankedCondvar,
}

#[derive(Default)]
struct InPlaceState {
    /// The file of each write in place, in the order in which the writes began.
    writers: SmallVec<[ObjectId; 4]>,
    snapshots: u32,
}

/// The witness that nothing writes in place.
#[must_use]
pub(crate) struct InPlaceBarred<'w> {
    writers: &'w InPlaceWriters,
    _held: HeldNote,
}

impl InPlaceWriters {
    /// Registers a writer in place to the inode `ino`, until it leaves. Returns false while a snapshot is taken.
    pub(super) fn enter(&self, ino: ObjectId) -> bool {
        let mut state = self.state.lock();
        let may = state.snapshots == 0;
        if may {
            state.writers.push(ino);
        }
        may
    }

    /// Unregisters a writer to the inode `ino`.
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

    /// The number of registered writers.
    #[cfg(feature = "faults")]
    pub(super) fn len(&self) -> usize {
        self.state.lock().writers.len()
    }

    /// Bars new writers and waits until none is registered, completing the `awaited` requests meanwhile. The caller has no inode locked. If `gives_up` ends the
    /// wait, it returns an inode that is still written to, and nothing is barred.
    pub(crate) fn bar(
        &self,
        awaited: Awaited<'_>,
        gives_up: GivesUp<'_>,
    ) -> Result<InPlaceBarred<'_>, ObjectId> {
        let held = HeldNote::wait(LockPosition::of(rank::IN_PLACE));
        self.state.lock().snapshots += 1;
        let barred = InPlaceBarred { writers: self, _held: held };
        let waits = |state: &mut InPlaceState| !state.writers.is_empty();
        awaited.wait_unless(gives_up, Reason::Writeback, (&self.state, &self.nobody_left), waits);
        // No writer has entered since, so an empty list stays empty.
        let still_writes = self.state.lock().writers.first().copied();
        still_writes.map_or(Ok(barred), Err)
    }

    /// Makes a waiting snapshot check again: a request that writes in place landed, and the snapshot's thread may complete it.
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
