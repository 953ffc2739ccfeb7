//! Making room when there is none.
//!
//! A thread may find no room, for data before a handle begins or for a handle's reservation. It tries again after each of these:
//!
//! 1. It waits for a thread that holds free space in order to discard it.
//! 2. The reclaimers take some steps, and a commit makes the freed space available. A commit leaves empty block groups; the next one
//!    removes them, so that their place is there for chunks of another kind.
//! 3. When all that frees nothing more, it waits, once, for running work that gives back room when it ends. The thread claims that room,
//!    so no other thread keeps room for later meanwhile.
//! 4. It waits, up to `READS_MAX`, for readers of space that a commit freed.
//!
//! If nothing helps, the operation fails with "no space".
//!
//! # Invariants
//! - RECLAIM-2: a thread that holds a handle neither reclaims nor waits for a thread that does.
//! - RECLAIM-3: a thread that finds no room asks a bounded number of times: a group that was made for it and is still idle does not count
//!   as removed, and it waits once for running work. Shown by `clones_until_the_filesystem_is_full`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::Result;
use creamery_base::gate::{self, Reason};

use super::Engine;
use crate::flush_policy::FlushPolicy;
use crate::held;
use crate::reclaim::{Reclaimer, RoomClaim};
use crate::space_info::SpaceKind;

/// Longest wait for a reader of freed space that does not yield: a read of a device, and more.
const READS_MAX: Duration = Duration::from_millis(200);

/// The steps that a thread without room has tried already.
#[derive(Default)]
pub(super) struct Tried {
    committed: bool,
    /// It waited for running work, and claims the room that comes back (RECLAIM-4).
    awaited: Option<RoomClaim>,
    /// It waited for the thread that discards.
    discarded: bool,
    /// It waited for readers of freed space.
    waited: bool,
    /// The count of removed chunks when it last committed to have groups removed.
    for_removal: Option<u64>,
}

impl Engine {
    /// Registers `reclaimer`: the engine asks it to free space when there is no room, as long as the `Arc` lives.
    pub fn register_reclaimer(&self, reclaimer: &Arc<impl Reclaimer + 'static>) {
        let reclaimer: Weak<dyn Reclaimer> = Arc::downgrade(&(Arc::clone(reclaimer) as Arc<dyn Reclaimer>));
        self.reclaimers.register(reclaimer);
    }

    /// Runs the reclaimers, and commits, so that the freed space is available. Returns false when neither can help: nothing is left to
    /// free, no block group of a kind other than `kind` can go, and the caller has committed already; or
    /// `policy` does not go that far.
    pub(super) fn make_room(&self, tried: &mut Tried, policy: FlushPolicy, kind: SpaceKind) -> Result<bool> {
        held::assert_none("RECLAIM-2: nobody who holds a handle reclaims");
        if !policy.commits() || self.logs.is_replay_due() {
            return Ok(false);
        }
        if !std::mem::replace(&mut tried.discarded, true) {
            drop(self.discards.take_turn()); // DISCARD-3
            return Ok(true);
        }
        let freed = policy.reclaims() && self.reclaimers.reclaim();
        // The next commit removes groups that this one empties. Asking again is of no use when none was removed.
        let removed = self.chunks.removed();
        let empty = tried.for_removal != Some(removed) && self.idle_groups().want_removal_for(kind);
        if tried.committed && !freed && !empty {
            if policy.reclaims() && tried.awaited.is_none() {
                tried.awaited = Some(self.room_claims.make());
                if self.reclaimers.wait() {
                    gate::passing(Reason::Reservation, || self.commit_running())?;
                }
                // This also finds room of work that ended just before.
                return Ok(true);
            }
            if std::mem::replace(&mut tried.waited, true) || !self.pipeline.roots.keeps_any() {
                return Ok(false);
            }
            self.store.forget_read_ahead();
            self.store.readers().wait(READS_MAX);
            self.store.forget_read_ahead(); // a walker may have queued more in the meantime
            // There may be nothing left to commit.
            self.discarder().release(&self.pipeline.roots.take_releasable())?;
        }
        gate::passing(Reason::Reservation, || self.commit_running())?;
        tried.committed = true;
        tried.for_removal = empty.then_some(removed).or(tried.for_removal);
        Ok(true)
    }
}
