//! How often threads found a lock taken, by the number of its rank; `lock::contention` explains the whole.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static IS_COUNTED: AtomicBool = AtomicBool::new(false);
static FOUND_TAKEN: [AtomicU64; 1 << u8::BITS] = [const { AtomicU64::new(0) }; 1 << u8::BITS];

/// Starts counting, until the process ends.
pub(crate) fn count() {
    IS_COUNTED.store(true, Ordering::Relaxed);
}

/// Whether counting has started.
#[cfg(all(test, not(feature = "shuttle")))]
pub(crate) fn is_counted() -> bool {
    IS_COUNTED.load(Ordering::Relaxed)
}

/// Notes that a thread has found a lock of this rank taken, and waits for it.
#[cold]
pub(crate) fn note(rank: u8) {
    if IS_COUNTED.load(Ordering::Relaxed) {
        FOUND_TAKEN[usize::from(rank)].fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the count of a rank so far.
pub(crate) fn of(rank: u8) -> u64 {
    FOUND_TAKEN[usize::from(rank)].load(Ordering::Relaxed)
}
