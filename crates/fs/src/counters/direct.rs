//! Direct reads and writes, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What direct reads and writes came to.
#[derive(Default)]
pub(crate) struct Direct {
    pub(crate) reads: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) in_place_bytes: AtomicU64,
    pub(crate) to_new_space_bytes: AtomicU64,
    pub(crate) at_once: AtomicU64,
    pub(crate) times_later: AtomicU64,
    pub(crate) ended_at_once: AtomicU64,
    pub(crate) durable: AtomicU64,
    pub(crate) submitted: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) buffered_misaligned: AtomicU64,
    pub(crate) buffered_inline: AtomicU64,
    pub(crate) buffered_compressed: AtomicU64,
    pub(crate) buffered_verity: AtomicU64,
}

/// The numbers of [`Direct`] at one moment.
#[derive(Clone, Copy)]
pub(crate) struct DirectCounters {
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    pub(crate) write_bytes: u64,
    pub(crate) in_place_bytes: u64,
    pub(crate) to_new_space_bytes: u64,
    pub(crate) at_once: u64,
    pub(crate) times_later: u64,
    pub(crate) ended_at_once: u64,
    pub(crate) durable: u64,
    pub(crate) submitted: u64,
    pub(crate) failed: u64,
    pub(crate) buffered_misaligned: u64,
    pub(crate) buffered_inline: u64,
    pub(crate) buffered_compressed: u64,
    pub(crate) buffered_verity: u64,
}

impl Direct {
    pub(crate) fn count(what: &AtomicU64) {
        Self::add(what, 1);
    }

    pub(crate) fn add(what: &AtomicU64, count: u64) {
        what.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> DirectCounters {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DirectCounters {
            reads: of(&self.reads),
            read_bytes: of(&self.read_bytes),
            writes: of(&self.writes),
            write_bytes: of(&self.write_bytes),
            in_place_bytes: of(&self.in_place_bytes),
            to_new_space_bytes: of(&self.to_new_space_bytes),
            at_once: of(&self.at_once),
            times_later: of(&self.times_later),
            ended_at_once: of(&self.ended_at_once),
            durable: of(&self.durable),
            submitted: of(&self.submitted),
            failed: of(&self.failed),
            buffered_misaligned: of(&self.buffered_misaligned),
            buffered_inline: of(&self.buffered_inline),
            buffered_compressed: of(&self.buffered_compressed),
            buffered_verity: of(&self.buffered_verity),
        }
    }
}
