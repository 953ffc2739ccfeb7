//! Durations or sizes, counted in powers of two.
//!
//! Many threads write a histogram at once, and any thread reads it. Recording is three atomic operations
//! and takes no lock, so it may be done anywhere, under any lock. The owner defines the unit: a field's name or
//! documentation says whether it holds microseconds, nanoseconds or bytes.
//!
//! # Invariants
//! - HISTOGRAM-1: recorded values stay. Counts only grow, and sums of differences over time are exact.
//!   Shown by `what_threads_record_at_once_is_all_there`.
//! - HISTOGRAM-2: a value is in the maximum and in the sum before it is in its bucket, and a snapshot reads them the other way
//!   round. So even during writes, no value that a snapshot counts is larger than its maximum.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bucket `k` holds values from `2^k` to `2^(k+1) - 1`; the first holds 0, too.
const BUCKETS: usize = 64;

fn bucket_of(value: u64) -> usize {
    value.max(1).ilog2() as usize
}

/// The largest value of a bucket.
fn upper_bound(bucket: usize) -> u64 {
    u64::MAX >> (BUCKETS - 1 - bucket)
}

/// A histogram that threads fill.
///
/// ```
/// use creamery_base::Histogram;
/// static MICROSECONDS: Histogram = Histogram::new();
/// MICROSECONDS.record(300);
/// MICROSECONDS.record(1_200);
/// let seen = MICROSECONDS.snapshot();
/// assert_eq!((seen.count(), seen.max()), (2, 1_200));
/// ```
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    /// Creates an empty histogram.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
            max: AtomicU64::new(0),
        }
    }

    /// Counts `value`.
    pub fn record(&self, value: u64) {
        // Looking first keeps the line shared between writers once the largest values are in.
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.buckets[bucket_of(value)].fetch_add(1, Ordering::Release); // HISTOGRAM-2
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut snapshot = HistogramSnapshot::default();
        for (seen, bucket) in snapshot.buckets.iter_mut().zip(&self.buckets) {
            *seen = bucket.load(Ordering::Acquire); // HISTOGRAM-2
        }
        snapshot.sum = self.sum.load(Ordering::Relaxed);
        snapshot.max = self.max.load(Ordering::Relaxed);
        snapshot
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// The content of a histogram at one time.
///
/// ```
/// let empty = creamery_base::HistogramSnapshot::default();
/// assert_eq!((empty.count(), empty.percentile(50), empty.max()), (0, 0, 0));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistogramSnapshot {
    buckets: [u64; BUCKETS],
    sum: u64,
    max: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl HistogramSnapshot {
    /// Returns the number of values.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all values; past 2^64 it starts again at 0.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }

    /// Returns the largest value, exactly; 0 if there is none.
    #[must_use]
    pub const fn max(&self) -> u64 {
        self.max
    }

    /// Returns a value that `percent` of all values do not exceed: the upper end of that value's bucket, at most the
    /// largest value. So it is never too small, and less than twice too large. 0 if there is no value.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> u64 {
        let wanted = (u128::from(self.count()) * u128::from(percent.min(100))).div_ceil(100).max(1);
        let mut passed = 0;
        for (bucket, count) in self.buckets.iter().enumerate() {
            passed += u128::from(*count);
            if passed >= wanted {
                return upper_bound(bucket).min(self.max);
            }
        }
        0
    }

    /// Returns the non-empty buckets, smallest values first: the largest value that the bucket can hold, and the number of values
    /// in it.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.buckets.iter().enumerate();
        all.filter(|(_, count)| **count > 0).map(|(bucket, count)| (upper_bound(bucket), *count))
    }

    /// Adds up the values of both snapshots.
    #[must_use]
    pub fn merged(mut self, other: &Self) -> Self {
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += theirs;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: impl IntoIterator<Item = u64>) -> HistogramSnapshot {
        let histogram = Histogram::new();
        values.into_iter().for_each(|value| histogram.record(value));
        histogram.snapshot()
    }

    #[test]
    fn every_value_lies_in_the_bucket_that_names_it() {
        for (value, upper) in
            [(0, 1), (1, 1), (2, 3), (3, 3), (4, 7), (1023, 1023), (1024, 2047), (u64::MAX, u64::MAX)]
        {
            assert_eq!(of([value]).buckets().collect::<Vec<_>>(), [(upper, 1)], "{value}");
        }
    }

    #[test]
    fn a_percentile_is_never_below_the_exact_one_and_less_than_twice_above() {
        let mut values: Vec<u64> = (0..1_000_u64).map(|n| n * n % 7_919 + 1).collect();
        let seen = of(values.iter().copied());
        values.sort_unstable();
        for percent in [1, 10, 50, 90, 99, 100] {
            let exact = values[usize::from(percent) * 10 - 1];
            let shown = seen.percentile(percent);
            assert!(exact <= shown && shown < 2 * exact, "{percent} %: {shown} for {exact}");
        }
        assert_eq!(seen.percentile(100), seen.max());
        assert_eq!(seen.percentile(200), seen.max());
    }

    #[test]
    fn one_value_is_every_percentile_of_itself() {
        let seen = of([300]);
        assert_eq!([0, 50, 99, 100].map(|percent| seen.percentile(percent)), [300; 4]);
    }

    #[test]
    fn what_threads_record_at_once_is_all_there() {
        let histogram = Histogram::new();
        std::thread::scope(|scope| {
            for thread in 0..4_u64 {
                let histogram = &histogram;
                scope.spawn(move || (0..10_000).for_each(|n| histogram.record(4 * n + thread)));
            }
        });
        let seen = histogram.snapshot();
        assert_eq!((seen.count(), seen.max(), seen.sum()), (40_000, 39_999, 39_999 * 40_000 / 2));
    }

    #[test]
    fn merging_is_counting_together() {
        let (few, many) = (vec![1, 5, 70], vec![0, 5, 1 << 40, u64::MAX]);
        let both = of(few.iter().chain(&many).copied());
        assert_eq!(of(few).merged(&of(many)), both);
    }
}
