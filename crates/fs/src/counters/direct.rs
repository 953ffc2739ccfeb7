//! Direct reads and writes, counted ([`DirectStatistics`](crate::DirectStatistics)).

use std::sync::atomic::{AtomicU64, Ordering};

use super::declare::counters;

counters! {
    /// Counters of direct reads and writes.
    live Direct,
    /// Their values at one moment.
    values DirectCounters
    {
        reads,
        read_bytes,
        writes,
        write_bytes,
        in_place_bytes,
        to_new_space_bytes,
        at_once,
        times_later,
        ended_at_once,
        durable,
        submitted,
        failed,
        buffered_misaligned,
        buffered_inline,
        buffered_compressed,
        buffered_verity,
    }
}

impl Direct {
    /// Adds `count` to a counter.
    pub(crate) fn add(counter: &AtomicU64, count: u64) {
        counter.fetch_add(count, Ordering::Relaxed);
    }
}
