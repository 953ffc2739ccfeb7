//! Making room when there is none.
//!
//! Who finds no room - for data before a handle begins, or for what a handle is to be promised - has the reclaimers take some
//! steps and commits, so that what they freed can be handed out, and tries again. A commit leaves block groups in which nothing
//! lives any more; the next one gives them back, so that who waits for a chunk of another kind gets their place. Only when there
//! is nothing left of all that and a commit did not help either, the thread waits, once, for work that is on its way and gives back room when
//! it ends. The thread claims the room that comes back, so no other thread keeps room for later meanwhile. If that does not help either, the operation fails with "no space". Before all that, who has free space in his hands to discard it is waited for; at last, for a moment, those are who read what a commit has freed.
//!
//! # Invariants
//! - RECLAIM-2: nobody who holds a handle reclaims or waits for one who does.
//! - RECLAIM-3: who finds no room asks a bounded number of times: a group that was made for him and is idle still is none that
//!   he has removed, and what is on its way is waited for once. Shown by `clones_until_the_filesystem_is_full`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::Result;
use creamery_base::gate::{self, Reason};

use super::Engine;
use crate::flush_policy::FlushPolicy;
use crate::held;
use crate::reclaim::{Reclaimer, RoomClaim};
use crate::space_info::SpaceKind;

/// How long a reader of what was freed is waited for that does not yield: a read of a device, and more.
const READS_MAX: Duration = Duration::from_millis(200);

/// What somebody who finds no room has tried already.
#[derive(Default)]
pub(super) struct Tried {
    committed: bool,
    /// What was on its way was waited for, and what comes back of that is claimed (RECLAIM-4).
    awaited: Option<RoomClaim>,
    /// Whoever discarded something has given it back.
    discarded: bool,
    /// Whoever reads what a commit freed was waited for.
    waited: bool,
    /// A commit to have groups removed, when so many chunks had been.
    for_removal: Option<u64>,
}

impl Engine {
    /// Asks `reclaimer` for its work when there is no room, as long as somebody has it.
    pub fn register_reclaimer(&self, reclaimer: &Arc<impl Reclaimer + 'static>) {
        let reclaimer: Weak<dyn Reclaimer> = Arc::downgrade(&(Arc::clone(reclaimer) as Arc<dyn Reclaimer>));
        self.reclaimers.register(reclaimer);
    }

    /// Has others free something, and commits, so that it can be handed out. False when neither can help: there is nothing to
    /// free and no block group of another kind to give back, and whoever asks, for space of this `kind`, has committed already; or
    /// `policy` goes not so far.
    pub(super) fn make_room(&self, tried: &mut Tried, policy: FlushPolicy, kind: SpaceKind) -> Result<bool> {
        held::assert_none("RECLAIM-2: nobody who holds a handle reclaims");
        if !policy.commits() || self.log_waits() {
            return Ok(false);
        }
        if !std::mem::replace(&mut tried.discarded, true) {
            drop(self.discards.take_turn()); // DISCARD-3
            return Ok(true);
        }
        let freed = policy.reclaims() && self.reclaimers.reclaim();
        // What a commit has emptied goes with the next one. It is no use to ask for that again when nothing went.
        let removed = self.chunks.removed();
        let empty = tried.for_removal != Some(removed) && self.want_idle_groups_removed(kind);
        if tried.committed && !freed && !empty {
            if policy.reclaims() && tried.awaited.is_none() {
                tried.awaited = Some(self.room_claims.make());
                if self.reclaimers.wait() {
                    gate::passing(Reason::Reservation, || self.commit_running())?;
                }
                // Also what ended just before is looked for.
                return Ok(true);
            }
            if std::mem::replace(&mut tried.waited, true) || !self.pipeline.roots.keeps_any() {
                return Ok(false);
            }
            self.store.forget_read_ahead();
            self.store.readers().wait(READS_MAX);
            self.store.forget_read_ahead(); // what a walker queued in the meantime
            // There may be nothing left to commit.
            self.release(&self.pipeline.roots.take_releasable())?;
        }
        gate::passing(Reason::Reservation, || self.commit_running())?;
        tried.committed = true;
        tried.for_removal = empty.then_some(removed).or(tried.for_removal);
        Ok(true)
    }
}
