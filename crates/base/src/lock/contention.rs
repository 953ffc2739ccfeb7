//! How often threads found a lock taken, by rank: where many threads contend.
//!
//! The counts are those of the process, of all its filesystems together: a lock knows its rank, but not its filesystem. A lock that is
//! free counts nothing. A lock that is taken checks one more switch, which is off until [`count`] is called.

use super::rank;
use crate::found_taken;

/// Locks of a rank that threads found taken.
///
/// ```
/// use creamery_base::lock::contention;
/// contention::count();
/// for contended in contention::so_far() {
///     println!("{}: {} times", contended.rank, contended.count);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contended {
    /// The name of the rank, as [`rank`] has it.
    pub rank: &'static str,
    /// How often a thread asked for such a lock while another thread had it, and waited. `try_lock` is not counted.
    pub count: u64,
}

/// Starts counting, until the process ends.
pub fn count() {
    found_taken::count();
}

/// Returns the counts so far, outer ranks first, without the ranks that no thread found taken.
#[must_use]
pub fn so_far() -> Vec<Contended> {
    let of = |&(number, rank): &(u8, &'static str)| Contended { rank, count: found_taken::of(number) };
    rank::ALL.iter().map(of).filter(|contended| contended.count > 0).collect()
}

/// Notes that a thread has found a lock of this rank taken, and waits for it. For locks outside this module.
#[cold]
pub fn note(rank: u8) {
    found_taken::note(rank);
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;
    use crate::lock::RankedMutex;

    fn jobs_found_taken() -> u64 {
        so_far().iter().find(|contended| contended.rank == "JOBS").map_or(0, |contended| contended.count)
    }

    /// No other test of this crate takes a lock of this rank.
    #[test]
    fn a_lock_that_is_found_taken_is_counted_once_it_is_asked_for() {
        let lock: RankedMutex<(), { rank::JOBS }> = RankedMutex::new(());
        let waited = || {
            let (is_held, free) = (Barrier::new(2), lock.lock());
            thread::scope(|scope| {
                scope.spawn(|| {
                    is_held.wait();
                    // The holder releases the lock once this wait was counted, or at once if nothing is counted.
                    drop(lock.lock());
                });
                is_held.wait();
                while found_taken::is_counted() && jobs_found_taken() == 0 {
                    thread::yield_now();
                }
                drop(free);
            });
        };
        drop(lock.lock());
        waited();
        assert_eq!(jobs_found_taken(), 0, "nobody asked for it");
        count();
        drop(lock.lock());
        assert_eq!(jobs_found_taken(), 0, "it was free");
        waited();
        assert_eq!(jobs_found_taken(), 1);
        assert!(rank::ALL.is_sorted_by_key(|(number, _)| *number));
    }
}
