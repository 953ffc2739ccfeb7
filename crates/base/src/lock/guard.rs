//! The guard type of all locks of this module.

use core::ops::{Deref, DerefMut};

use super::HeldNote;

/// The witness that a lock of rank `RANK` is locked: its guard, and the note of its place.
///
/// ```
/// use creamery_base::lock::{rank, RankedMutex};
/// let opened: RankedMutex<u64, { rank::LEAF }> = RankedMutex::new(0);
/// let mut guard = opened.lock();
/// *guard += 1;
/// ```
#[must_use]
pub struct Ranked<G, const RANK: u8> {
    // Dropped first: the lock is released before its place is.
    pub(super) guard: G,
    pub(super) held: HeldNote,
}

impl<G: Deref, const RANK: u8> Deref for Ranked<G, RANK> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut, const RANK: u8> DerefMut for Ranked<G, RANK> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}
