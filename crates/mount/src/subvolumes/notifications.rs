//! Notifies the kernel of names that did not come and go through it.
//!
//! The kernel caches names for a while, also negative entries, and it caches listings. It does not see the changes of a control, so the server
//! notifies it. A separate thread does that: the notification may have to lock the directory, and the thread that holds the lock may wait for the server.
//!
//! # Invariants
//! - TOLD-1: of the threads that answer, at most one waits until the kernel is notified, and not for long: the notification may
//!   need an answer of the other threads.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use creamery_fuse::{NodeId, Notice, NotifyQueue};

/// Longest wait of a thread that could answer other requests.
const PATIENCE: Duration = Duration::from_millis(200);

/// The queue of notifications to the kernel.
#[derive(Default)]
pub(crate) struct NotificationQueue {
    queue: OnceLock<NotifyQueue>,
    is_awaited: AtomicBool,
}

impl NotificationQueue {
    /// Begins with the queue of the mount.
    pub(crate) fn begin(&self, queue: NotifyQueue) {
        assert!(self.queue.set(queue).is_ok(), "one mount has one queue");
    }

    /// Notifies that `name` in `parent` has changed; `child` is the old inode, if it is gone.
    pub(super) fn name_changed(&self, parent: NodeId, name: &[u8], child: Option<NodeId>) {
        let Some(queue) = self.queue.get() else { return };
        let name = name.to_vec();
        queue.send(match child {
            Some(child) => Notice::Deleted { parent, child, name },
            None => Notice::Entry { parent, name },
        });
        // Without a cached name, the kernel has dropped nothing so far: neither attributes nor listing.
        queue.send(Notice::Inode { node: parent, offset: 0, len: 0 });
    }

    /// Notifies the kernel to forget `name` in `parent`.
    pub(super) fn forget_name(&self, parent: NodeId, name: &[u8]) {
        if let Some(queue) = self.queue.get() {
            queue.send(Notice::Entry { parent, name: name.to_vec() });
        }
    }

    /// Waits until the kernel was notified of everything; false if that takes long, or another thread waits already.
    pub(super) fn wait(&self) -> bool {
        let Some(queue) = self.queue.get() else { return true };
        let mark = queue.mark();
        if mark.is_reached_within(Duration::ZERO) {
            return true;
        }
        if self.is_awaited.swap(true, Ordering::Acquire) {
            return false;
        }
        let is_told = mark.is_reached_within(PATIENCE);
        self.is_awaited.store(false, Ordering::Release);
        is_told
    }
}
