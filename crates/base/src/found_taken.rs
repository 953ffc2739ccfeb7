//! How often threads found a lock taken, by the number of its rank; `lock::contention` is about the whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_COUNTED: AtomicBool = AtomicBool::new(false);
static FOUND_TAKEN: [AtomicU64; 1 << u8::BITS] = [const { AtomicU64::new(0) }; 1 << u8::BITS];

/// Counts from now on, until the process ends.
pub(crate) fn count() {
    IS_COUNTED.store(true, Ordering::Relaxed);
}

/// Whether they are counted.
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) fn is_counted() -> bool {
    IS_COUNTED.load(Ordering::Relaxed)
}

/// A thread has found a lock of this rank taken, and waits for it.
#[cold]
pub(crate) fn note(rank: u8) {
    if IS_COUNTED.load(Ordering::Relaxed) {
        FOUND_TAKEN[usize::from(rank)].fetch_add(1, Ordering::Relaxed);
    }
}

/// How many there were so far.
pub(crate) fn of(rank: u8) -> u64 {
    FOUND_TAKEN[usize::from(rank)].load(Ordering::Relaxed)
}
