//! A histogram of durations, for finding out where time goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Bucket n takes durations below 2^n nanoseconds that no earlier bucket takes; the last one takes the rest, from
/// about two minutes on.
const BUCKETS: usize = 38;

/// Durations by powers of two, in nanoseconds. Any number of threads may add at once.
///
/// ```
/// use std::time::Duration;
/// let waits = creamery_base::Histogram::default();
/// (0..99).for_each(|_| waits.add(Duration::from_nanos(100)));
/// waits.add(Duration::from_millis(1));
/// let seen = waits.summary();
/// assert_eq!((seen.count, seen.p50_ns, seen.max_ns), (100, 128, 1_000_000));
/// ```
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    max: AtomicU64,
}

/// What a [`Histogram`] holds, in brief. Quantiles are rounded up to the power of two that bounds them.
///
/// ```
/// assert_eq!(creamery_base::Histogram::default().summary(), creamery_base::DurationSummary::default());
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DurationSummary {
    /// How many durations were added.
    pub count: u64,
    /// Half of them were below this many nanoseconds.
    pub p50_ns: u64,
    /// 99 of 100 were below this many nanoseconds.
    pub p99_ns: u64,
    /// The longest, exactly.
    pub max_ns: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [const { AtomicU64::new(0) }; BUCKETS], max: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Adds one duration.
    pub fn add(&self, duration: Duration) {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - nanoseconds.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        if self.max.load(Ordering::Relaxed) < nanoseconds {
            self.max.fetch_max(nanoseconds, Ordering::Relaxed);
        }
    }

    /// What was added so far.
    #[must_use]
    pub fn summary(&self) -> DurationSummary {
        let counts = self.buckets.each_ref().map(|bucket| bucket.load(Ordering::Relaxed));
        let (count, max_ns) = (counts.iter().sum(), self.max.load(Ordering::Relaxed));
        let quantile = |percent: u64| {
            let mut below = 0;
            let bucket = counts.iter().position(|in_bucket| {
                below += in_bucket;
                below > 0 && below * 100 >= count * percent
            });
            bucket.map_or(0, |bucket| if bucket == BUCKETS - 1 { max_ns } else { 1 << bucket })
        };
        DurationSummary { count, p50_ns: quantile(50), p99_ns: quantile(99), max_ns }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_bound_what_was_added() {
        let histogram = Histogram::default();
        for nanoseconds in 0..1000 {
            histogram.add(Duration::from_nanos(nanoseconds));
        }
        let seen = histogram.summary();
        assert_eq!(seen, DurationSummary { count: 1000, p50_ns: 512, p99_ns: 1024, max_ns: 999 });
    }

    #[test]
    fn the_longest_durations_have_a_bucket() {
        let histogram = Histogram::default();
        histogram.add(Duration::MAX);
        histogram.add(Duration::ZERO);
        let seen = histogram.summary();
        assert_eq!(seen, DurationSummary { count: 2, p50_ns: 1, p99_ns: u64::MAX, max_ns: u64::MAX });
    }
}
