//! Counters of the engine's work.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use creamery_base::{Histogram, HistogramSnapshot};

#[derive(Default)]
pub(crate) struct Counters {
    commits: AtomicU64,
    blocks_written: AtomicU64,
    commit_micros: Histogram,
    gate_closed_micros: Histogram,
    log_writes: AtomicU64,
    log_blocks_written: AtomicU64,
    log_micros: Histogram,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Counters {
    pub(crate) fn committed(&self, blocks: usize, took: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.blocks_written.fetch_add(blocks as u64, Ordering::Relaxed);
        self.commit_micros.record(micros(took));
    }

    pub(crate) fn gate_closed(&self, took: Duration) {
        self.gate_closed_micros.record(micros(took));
    }

    pub(crate) fn logged(&self, blocks: usize, took: Duration) {
        self.log_writes.fetch_add(1, Ordering::Relaxed);
        self.log_blocks_written.fetch_add(blocks as u64, Ordering::Relaxed);
        self.log_micros.record(micros(took));
    }

    /// Number of log writes, tree blocks written by them, and their times.
    pub(crate) fn logs(&self) -> (u64, u64, HistogramSnapshot) {
        let [writes, blocks] =
            [&self.log_writes, &self.log_blocks_written].map(|counter| counter.load(Ordering::Relaxed));
        (writes, blocks, self.log_micros.snapshot())
    }

    /// Transactions made durable, and tree blocks written by them.
    pub(crate) fn commits(&self) -> (u64, u64) {
        (self.commits.load(Ordering::Relaxed), self.blocks_written.load(Ordering::Relaxed))
    }

    /// How long commits took, and how long they kept handles from beginning.
    pub(crate) fn times(&self) -> (HistogramSnapshot, HistogramSnapshot) {
        (self.commit_micros.snapshot(), self.gate_closed_micros.snapshot())
    }
}
