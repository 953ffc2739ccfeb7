//! Discarding: the devices learn which bytes are not needed any more, so that an image file gives the host its space back and a
//! disk need not keep them.
//!
//! The space of a freed extent can be discarded when it can be handed out again: no superblock that is on the device, and no
//! reader of an old root, needs it (PIN-1). It is discarded
//!
//! - as part of the commit that frees it, before it can be handed out ([`DiscardPolicy::Sync`]);
//! - by the background, which withholds the part that is still free, and gives it back afterwards
//!   ([`DiscardPolicy::Async`]);
//! - with all other free space by [`Engine::trim`](crate::Engine::trim), in the same way, and with unallocated
//!   space.
//!
//! A device that fails to discard loses no data that is in use: the failure is counted, and a caller of `trim` gets it.
//!
//! # Invariants
//! - DISCARD-1: space is never handed out while it is discarded. Shown by `what_is_being_discarded_is_handed_to_nobody`.
//! - DISCARD-2: promised room stays available: of metadata space, discards take only the part that is not promised.
//!   Shown by `what_was_committed_survives_every_power_cut`, with discards among the requests that a cut interrupts.
//! - DISCARD-3: a discard never causes "no space": a thread without room waits until it is over and looks again.
//!   Shown by `who_finds_no_room_waits_for_what_is_being_discarded`.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Logical, memory};

/// Whether and when freed space is discarded.
///
/// ```
/// assert_eq!(creamery_txn::DiscardPolicy::default(), creamery_txn::DiscardPolicy::Off);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum DiscardPolicy {
    /// Freed space is not discarded.
    #[default]
    Off,
    /// After the commit that frees it, in the background.
    Async,
    /// By the commit that frees it.
    Sync,
}

/// The result of a [`trim`](crate::Engine::trim).
///
/// ```
/// assert_eq!(creamery_txn::Trimmed::default().bytes, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Trimmed {
    /// Free bytes that the devices discarded, each copy counted.
    pub bytes: u64,
}

/// Extents that wait to be discarded, and the turn to discard.
#[derive(Default)]
pub(crate) struct Discards {
    policy: AtomicU8,
    /// Freed, and perhaps still free.
    queue: RankedMutex<VecDeque<(Logical, u64)>, { rank::LEAF }>,
    turn: RankedMutex<(), { rank::DISCARD }>,
}

/// The witness that no other thread withholds free space.
pub(crate) type DiscardGuard<'a> = RankedGuard<'a, (), { rank::DISCARD }>;

impl Discards {
    pub(crate) fn policy(&self) -> DiscardPolicy {
        match self.policy.load(Ordering::Relaxed) {
            1 => DiscardPolicy::Async,
            2 => DiscardPolicy::Sync,
            _ => DiscardPolicy::Off,
        }
    }

    pub(crate) fn set_policy(&self, policy: DiscardPolicy) {
        let number = match policy {
            DiscardPolicy::Off => 0,
            DiscardPolicy::Async => 1,
            DiscardPolicy::Sync => 2,
        };
        self.policy.store(number, Ordering::Relaxed);
    }

    /// Waits for the turn.
    pub(crate) fn take_turn(&self) -> DiscardGuard<'_> {
        self.turn.lock_for(Reason::Reservation)
    }

    /// Adds extents that can be handed out again.
    pub(crate) fn push(&self, extents: Vec<(Logical, u64)>) {
        self.queue.lock().extend(extents);
    }

    /// Takes the extent that waits longest.
    pub(crate) fn pop(&self) -> Option<(Logical, u64)> {
        self.queue.lock().pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Memory of the queue, bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory::vec::<(Logical, u64)>(self.queue.lock().capacity())
    }
}

/// Joins extents that touch and for which `together` holds. Returns them in order of their addresses.
pub(crate) fn joined(
    extents: &[(Logical, u64)],
    together: impl Fn(Logical, Logical) -> bool,
) -> Vec<(Logical, u64)> {
    let mut sorted = extents.to_vec();
    sorted.sort_unstable();
    let mut joined: Vec<(Logical, u64)> = Vec::new();
    for (at, len) in sorted {
        match joined.last_mut() {
            Some((start, before)) if *start + *before == at && together(*start, at) => *before += len,
            _ => joined.push((at, len)),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extents_that_touch_are_one_within_a_group() {
        let at = Logical::new;
        let extents = [(at(40), 10), (at(0), 10), (at(10), 20), (at(30), 10), (at(100), 1)];
        let together = |before: Logical, behind: Logical| before.get() / 40 == behind.get() / 40;
        assert_eq!(joined(&extents, together), [(at(0), 40), (at(40), 10), (at(100), 1)]);
    }
}
