//! Counters that many threads add to without sharing a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;

/// Copies of what is striped. More threads than this share.
const STRIPES: usize = 16;

/// A value in several copies, each with cache lines of its own. A thread always meets the same copy; who wants to
/// know looks at all of them.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// let reads: creamery_base::Striped<AtomicU64> = creamery_base::Striped::default();
/// reads.mine().fetch_add(1, Ordering::Relaxed);
/// assert_eq!(reads.all().map(|count| count.load(Ordering::Relaxed)).sum::<u64>(), 1);
/// ```
#[derive(Default, Debug)]
pub struct Striped<T> {
    stripes: [CachePadded<T>; STRIPES],
}

impl<T> Striped<T> {
    /// This thread's copy.
    #[must_use]
    pub fn mine(&self) -> &T {
        &self.stripes[number_of_this_thread() % STRIPES]
    }

    /// All copies.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.stripes.iter().map(|stripe| &**stripe)
    }
}

/// Threads are numbered in the order in which they first ask.
fn number_of_this_thread() -> usize {
    const NONE: usize = usize::MAX;
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(NONE) };
    }
    NUMBER.with(|number| {
        if number.get() == NONE {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nothing_is_lost_with_more_threads_than_stripes() {
        let counter: Striped<AtomicU64> = Striped::default();
        std::thread::scope(|scope| {
            for _ in 0..3 * STRIPES {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counter.mine().fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        let sum: u64 = counter.all().map(|count| count.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 3 * STRIPES as u64 * 100);
    }

    #[test]
    fn neighbours_share_no_cache_line() {
        let counter: Striped<AtomicU64> = Striped::default();
        let places: Vec<usize> = counter.all().map(|count| std::ptr::from_ref(count).addr()).collect();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= 128), "{places:?}");
    }
}
