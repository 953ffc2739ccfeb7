//! Reserving metadata before a handle begins, so that "no space" comes early and never in the middle of a
//! commit.
//!
//! [`Headroom`](crate::headroom::Headroom) reckons whether a promise fits. If it does not, a chunk is allocated. If there is no room for one, the thread waits until
//! other handles have ended, reclaimers free space and a commit frees pinned space (`make_room`). If that does not help, the answer is
//! "no space" and nothing has changed. [`Reservations`](crate::space_info::Reservations) has the sum of all promises and the line of
//! waiting threads.
//!
//! A promise is for the transaction in which it was given and no other (RESERVE-5): a thread that joins and finds that another
//! transaction runs reserves again, and so does a thread with an advance.
//!
//! # Invariants
//! - RESERVE-5: a handle is of the transaction in which its promise was given. Shown by
//!   `what_another_transaction_promised_is_not_taken_in_this_one`.
//! - RESERVE-2: chunks are allocated here and in data allocation only, never under a node lock.

use creamery_base::Result;

use super::Engine;
use super::make_room::Tried;
use crate::reserve_items::ReserveItems;
use crate::space_info::{SpaceKind, Ticket};

/// How often an operation that frees space begins anew because other such operations took all the room that came back.
const PASSED_MAX: u32 = 1000;

impl Engine {
    /// Reserves metadata for `units`. If it has to, it allocates a chunk, waits for its turn, runs reclaimers or commits.
    pub(super) fn promise(&self, units: ReserveItems) -> Result<Ticket<'_>> {
        let headroom = self.headroom();
        let (mut tried, mut was_called_in) = (Tried::default(), false);
        let (mut others, mut passed) = (self.reservations.freeing_tickets(), 0);
        loop {
            let chunks = self.chunks.made();
            if let Some(ticket) = headroom.ticket_at_once(units) {
                return Ok(ticket);
            }
            // A thread that can stand in line does this once, for only the line keeps other threads from new advances.
            if !(was_called_in && units.policy.stands_in_line()) && self.reservations.call_in() {
                was_called_in = true;
                continue;
            }
            // A chunk is no help where only room that is kept for delayed data is missing.
            if headroom.lacks_blocks_for(units) && self.allocate_chunk(SpaceKind::Metadata, chunks)? {
                continue;
            }
            if let Some(ticket) = headroom.ticket_in_turn(units) {
                return Ok(ticket);
            }
            if !self.make_room(&mut tried, units.policy, SpaceKind::Metadata)? {
                let now = self.reservations.freeing_tickets();
                if !units.policy.frees() || now == others || passed == PASSED_MAX {
                    return Err(headroom.no_room_for(units));
                }
                // Other operations that free space took the room that came back. They bring more of it.
                (tried, others, passed) = (Tried::default(), now, passed + 1);
            }
            was_called_in = false;
        }
    }
}
