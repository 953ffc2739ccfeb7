//! Makes the kernel hand over pages that a shared mapping changed.
//!
//! Such pages are in the kernel's page cache, and the server does not know of them before they are written back (see `handles`). If an
//! answer depends on them, the server notifies the kernel that its cache of that part of the file is invalid: the kernel writes dirty pages back,
//! waits for that, and drops the pages. Then the file has all changes from before the question.
//!
//! During that notification the kernel waits for the server's answers to the writes, and to reads of pages by other
//! processes. So a separate thread sends it, and some of the threads that answer are always left for those requests.
//!
//! # Invariants
//! - MAPPED-1: of the threads that answer two never wait here, and no thread waits here for long. (One of the two may wait for
//!   another notification of the kernel: TOLD-1.) Shown by `some_threads_never_wait`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use creamery_fuse::{NodeId, Notice, NotifyQueue};

/// Threads that never wait here.
const KEPT: usize = 2;
/// How long a thread waits for one range, in rounds. Between rounds `gives_up` may end the wait.
const ROUND: Duration = Duration::from_millis(100);
const ROUNDS: u32 = 100;

/// The queue of notifications to the kernel.
#[derive(Default)]
pub(crate) struct MappedPages {
    way: OnceLock<NotifyRoute>,
    waiting: AtomicUsize,
}

struct NotifyRoute {
    queue: NotifyQueue,
    /// Number of threads that may wait.
    may_wait: usize,
}

impl MappedPages {
    /// Begins with the queue of the mount, on which `workers` threads answer.
    pub(crate) fn begin(&self, queue: NotifyQueue, workers: usize) {
        let way = NotifyRoute { queue, may_wait: workers.saturating_sub(KEPT) };
        assert!(self.way.set(way).is_ok(), "one mount has one queue");
    }

    /// Makes the kernel write back the pages of `start..end` of a file that mappings changed, and drop them. False if this is not
    /// certain: it takes long, too many threads wait, or `gives_up` returns true.
    pub(crate) fn hand_over(
        &self,
        node: NodeId,
        (start, end): (u64, u64),
        gives_up: &dyn Fn() -> bool,
    ) -> bool {
        let Some(way) = self.way.get() else { return false };
        let (Ok(offset), Ok(len)) = (i64::try_from(start), i64::try_from(end.saturating_sub(start))) else {
            return false;
        };
        if len == 0 {
            return true; // the kernel would take this length for the whole file
        }
        let Some(_waiting) = self.wait(way.may_wait) else { return false };
        way.queue.send(Notice::Inode { node, offset, len });
        let mark = way.queue.mark();
        (0..ROUNDS).any(|_| mark.is_reached_within(ROUND) || gives_up()) && !gives_up()
    }

    /// Makes the kernel hand over all pages of a file that mappings changed, like [`MappedPages::hand_over`]. Before the mount is established
    /// no process has mapped anything.
    pub(crate) fn hand_over_all(&self, node: NodeId, gives_up: &dyn Fn() -> bool) -> bool {
        self.way.get().is_none() || self.hand_over(node, (0, i64::MAX.unsigned_abs()), gives_up)
    }

    /// Makes the kernel drop the pages of `len` bytes from `start`, which it could not write back, after its request is answered.
    pub(crate) fn drop_lost(&self, node: NodeId, (start, len): (u64, u64)) {
        if let (Some(way), Ok(offset), Ok(len)) = (self.way.get(), i64::try_from(start), i64::try_from(len)) {
            way.queue.send(Notice::Inode { node, offset, len });
        }
    }

    /// The permission to wait, one of `most`.
    fn wait(&self, most: usize) -> Option<Waiting<'_>> {
        let more = |waiting| (waiting < most).then_some(waiting + 1);
        self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Waiting(self))
    }
}

/// A thread that waits.
struct Waiting<'a>(&'a MappedPages);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_threads_never_wait() {
        let pages = MappedPages::default();
        for (workers, most) in [(1_usize, 0), (2, 0), (3, 1), (4, 2), (16, 14)] {
            let may_wait = workers.saturating_sub(KEPT);
            let waiting: Vec<_> = std::iter::from_fn(|| pages.wait(may_wait)).collect();
            assert_eq!(waiting.len(), most, "of {workers}");
        }
        assert_eq!(pages.waiting.into_inner(), 0);
    }

    #[test]
    fn without_a_mount_nobody_says_that_pages_were_handed_over() {
        assert!(!MappedPages::default().hand_over(NodeId::ROOT, (0, 4096), &|| false));
    }
}
