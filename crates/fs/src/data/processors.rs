//! The same work for each of several things, on all processors.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

/// Does `work` for each of `0..count`, at once where that is possible; what came of each, in order. Small work is done by the caller
/// alone: each other thread is to have `each` of them at least.
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
                // Without it the others do all.
                let _ = thread::Builder::new().name("beside".to_owned()).spawn_scoped(scope, go_on);
            }
            go_on();
        });
    }
    done.into_iter().map(|one| one.into_inner().expect("all were done")).collect()
}

fn processors() -> usize {
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    *PROCESSORS.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

#[cfg(test)]
mod tests {
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
}
