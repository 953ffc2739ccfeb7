//! One function applied to several items, on all processors.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread::{self, available_parallelism};

use creamery_base::Result;
use creamery_base::lock::{RankedMutex, rank};

/// Calls `work` for each of `0..count`, at once where that is possible. Returns the results in order. The caller does small work
/// alone: each other thread has to get `each` of them at least.
pub(super) fn on_all_processors<T: Send + Sync>(
    count: usize,
    each: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let done: Vec<OnceLock<T>> = (0..count).map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let go_on = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(place) = done.get(at) else { break };
            assert!(place.set(work(at)).is_ok(), "each is done once");
        }
    };
    let threads = processors().min(count / each);
    if threads <= 1 {
        go_on();
    } else {
        thread::scope(|scope| {
            for _ in 1..threads {
                // If no thread can start, the others do all.
                let _ = thread::Builder::new().name("beside".to_owned()).spawn_scoped(scope, go_on);
            }
            go_on();
        });
    }
    done.into_iter().map(|one| one.into_inner().expect("all were done")).collect()
}

/// Makes jobs one after the other, and runs each while the next ones are made. Returns the results in order. The jobs are always
/// made in the same order; the first that cannot be made ends it.
pub(super) fn as_they_come<J: Send, T: Send + Sync>(
    count: usize,
    each: usize,
    mut make: impl FnMut(usize) -> Result<J>,
    work: impl Fn(J) -> T + Sync,
) -> Result<Vec<T>> {
    let threads = processors().min(count / each);
    if threads <= 1 {
        return (0..count).map(|at| make(at).map(&work)).collect();
    }
    let done: Vec<OnceLock<T>> = (0..count).map(|_| OnceLock::new()).collect();
    let (give, given) = mpsc::channel();
    // A thread that waits for the next job holds this lock, and the others wait for it: one of them gets the job.
    let given: RankedMutex<_, { rank::LEAF }> = RankedMutex::new(given);
    let go_on = || {
        loop {
            let next: Result<(usize, J), _> = given.lock().recv();
            let Ok((at, job)) = next else { break };
            assert!(done[at].set(work(job)).is_ok(), "each is done once");
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // If no thread can start, the others do all.
            let _ = thread::Builder::new().name("beside".to_owned()).spawn_scoped(scope, go_on);
        }
        let all_made: Result<()> = (0..count).try_for_each(|at| {
            let job = make(at)?;
            give.send((at, job)).unwrap_or_else(|_| unreachable!("what takes it is here"));
            Ok(())
        });
        drop(give);
        go_on();
        all_made
    })?;
    Ok(done.into_iter().map(|one| one.into_inner().expect("all were done")).collect())
}

fn processors() -> usize {
    if cfg!(feature = "shuttle") {
        return 1; // its threads are not these
    }
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
    use creamery_base::ErrorKind;

    use super::*;

    #[test]
    fn each_is_done_once_and_told_in_order() {
        for (count, each) in [(0, 1), (1, 1), (1, 2), (7, 2), (1000, 1)] {
            let calls = AtomicUsize::new(0);
            let told = on_all_processors(count, each, |at| {
                calls.fetch_add(1, Ordering::Relaxed);
                3 * at
            });
            assert_eq!(told, (0..count).map(|at| 3 * at).collect::<Vec<_>>());
            assert_eq!(calls.into_inner(), count);
        }
    }

    #[test]
    fn jobs_are_made_in_order_and_the_first_that_cannot_be_made_ends_it() {
        for (count, each) in [(0, 1), (1, 1), (7, 2), (300, 1)] {
            let mut made = Vec::new();
            let make = |at| {
                made.push(at);
                Ok(at)
            };
            let told = as_they_come(count, each, make, |at| 3 * at).expect("all are made");
            assert_eq!(told, (0..count).map(|at| 3 * at).collect::<Vec<_>>());
            assert_eq!(made, (0..count).collect::<Vec<_>>());
        }
        let done = AtomicUsize::new(0);
        let make = |at| if at < 100 { Ok(at) } else { Err(ErrorKind::NoSpace.into()) };
        let told = as_they_come(300, 1, make, |_| done.fetch_add(1, Ordering::Relaxed));
        assert_eq!(told.map_err(|error| error.kind()), Err(ErrorKind::NoSpace));
        assert_eq!(done.into_inner(), 100, "what was made is done");
    }
}
