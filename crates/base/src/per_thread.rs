//! Values in several copies, so that threads which run at once share no cache line.
//!
//! A thread has a number as long as it lives: the smallest that no other thread has. The number selects its copy of each striped value. There are twice as many copies as
//! the machine has processors, and [`PLACES_MIN`] at least. With at most that many live threads, each has its own copy. A program that begins and ends
//! many threads uses the same numbers again and again.
//!
//! # Invariants
//! - STRIPED-1: no two live threads have the same number. Shown by `threads_that_live_have_numbers_of_their_own`.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

/// Copies of a striped value, on machines with few processors.
const PLACES_MIN: usize = 16;
/// Copies of a striped value, on machines with many processors: a reader of the sum visits every copy.
const PLACES_MAX: usize = 256;

/// A value in several copies, each with cache lines of its own. A thread always uses the same copy; a reader of the total
/// visits all of them.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// let reads: creamery_base::PerThread<AtomicU64> = creamery_base::PerThread::default();
/// reads.mine().fetch_add(1, Ordering::Relaxed);
/// assert_eq!(reads.all().map(|count| count.load(Ordering::Relaxed)).sum::<u64>(), 1);
/// ```
#[derive(Debug)]
pub struct PerThread<T> {
    /// A power of two.
    stripes: Box<[CachePadded<T>]>,
}

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self { stripes: (0..places()).map(|_| CachePadded::default()).collect() }
    }
}

impl<T> PerThread<T> {
    /// Returns this thread's copy.
    #[must_use]
    pub fn mine(&self) -> &T {
        &self.stripes[number_of_this_thread() & (self.stripes.len() - 1)]
    }

    /// Returns all copies.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|stripe| &**stripe)
    }

    /// Returns the memory of all copies of one such value, bytes, without anything that they point to.
    #[must_use]
    pub fn memory() -> u64 {
        (places() * size_of::<CachePadded<T>>()) as u64
    }
}

/// Returns the number of copies of a striped value.
fn places() -> usize {
    static PLACES: OnceLock<usize> = OnceLock::new();
    *PLACES.get_or_init(|| {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        (2 * processors).next_power_of_two().clamp(PLACES_MIN, PLACES_MAX)
    })
}

/// The largest number of threads with numbers of their own. Further threads share the first copy.
const THREADS_MAX: usize = 4096;

/// The numbers in use, a bit each. No lock: a thread asks with any lock held, and also while it ends.
static TAKEN: [AtomicU64; THREADS_MAX / 64] = [const { AtomicU64::new(0) }; THREADS_MAX / 64];

/// A number that is given back when its thread ends.
struct Lent(usize);

impl Lent {
    /// Takes the smallest number that no thread has. `None` if all are taken.
    fn new() -> Option<Self> {
        TAKEN.iter().enumerate().find_map(|(word, taken)| {
            let take = |bits: u64| (bits != u64::MAX).then(|| bits | (bits + 1));
            let bits = taken.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).ok()?;
            Some(Self(64 * word + bits.trailing_ones() as usize))
        })
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let bit = 1 << (self.0 % 64);
        let before = TAKEN[self.0 / 64].fetch_and(!bit, Ordering::AcqRel);
        assert!(before & bit != 0, "STRIPED-1: the number is this thread's");
    }
}

/// Returns this thread's number. Thread-local destructors that run after the number is given back still use it, and may share a copy with another thread.
fn number_of_this_thread() -> usize {
    const NONE: usize = usize::MAX;
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(NONE) };
        static LENT: Option<Lent> = Lent::new();
    }
    let number = NUMBER.get();
    if number != NONE {
        return number;
    }
    // A thread whose first call comes while it ends gets the first copy, too.
    let number = LENT.try_with(|lent| lent.as_ref().map_or(0, |lent| lent.0)).unwrap_or(0);
    NUMBER.set(number);
    number
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn nothing_is_lost_with_more_threads_than_stripes() {
        let counter: PerThread<AtomicU64> = PerThread::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * places() {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counter.mine().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let sum: u64 = counter.all().map(|count| count.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 3 * places() as u64 * 100);
    }

    #[test]
    fn threads_that_live_have_numbers_of_their_own() {
        let (count, all_ask) = (3 * places(), std::sync::Barrier::new(3 * places()));
        let numbers: BTreeSet<usize> = thread::scope(|scope| {
            let asks = || {
                let number = number_of_this_thread();
                all_ask.wait();
                number
            };
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(asks)).collect();
            threads.into_iter().map(|thread| thread.join().expect("it has a number")).collect()
        });
        assert_eq!(numbers.len(), count, "STRIPED-1");
    }

    #[test]
    fn a_number_is_had_again_when_its_thread_has_ended() {
        let number = || thread::spawn(number_of_this_thread).join().expect("it has a number");
        let seen: BTreeSet<usize> = (0..10 * places()).map(|_| number()).collect();
        // Other tests run threads meanwhile.
        assert!(seen.len() < 10 * places(), "{seen:?}");
    }

    #[test]
    fn neighbours_share_no_cache_line() {
        let counter: PerThread<AtomicU64> = PerThread::default();
        let places: Vec<usize> = counter.all().map(|count| std::ptr::from_ref(count).addr()).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{places:?}");
    }
}
