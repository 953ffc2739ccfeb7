//! Telling the kernel of names that did not come and go through it.
//!
//! It keeps names for a while, also that there is none of a name, and it keeps listings. What a control changes it does not see, so it
//! is told; by a thread of its own, for it may have to lock the directory, and whoever has that locked may wait for us.
//!
//! # Invariants
//! - TOLD-1: of the threads that answer one at most waits until the kernel is told, and not for long: what it waits for may
//!   take an answer of the others.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use creamery_fuse::{NodeId, Notice, NotifyQueue};

/// As long as a thread waits that could answer others.
const PATIENCE: Duration = Duration::from_millis(200);

/// The way to the kernel.
#[derive(Default)]
pub(crate) struct Told {
    queue: OnceLock<NotifyQueue>,
    is_awaited: AtomicBool,
}

impl Told {
    /// The mount is there.
    pub(crate) fn begin(&self, queue: NotifyQueue) {
        assert!(self.queue.set(queue).is_ok(), "one mount has one queue");
    }

    /// `name` in `parent` is not what it was; it was `child`, where that is gone.
    pub(super) fn name_changed(&self, parent: NodeId, name: &[u8], child: Option<NodeId>) {
        let Some(queue) = self.queue.get() else { return };
        let name = name.to_vec();
        queue.send(match child {
            Some(child) => Notice::Deleted { parent, child, name },
            None => Notice::Entry { parent, name },
        });
        // Where it has no such name it has dropped nothing so far: neither attributes nor listing.
        queue.send(Notice::Inode { node: parent, offset: 0, len: 0 });
    }

    /// `name` in `parent` is not to be remembered.
    pub(super) fn forget_name(&self, parent: NodeId, name: &[u8]) {
        if let Some(queue) = self.queue.get() {
            queue.send(Notice::Entry { parent, name: name.to_vec() });
        }
    }

    /// Waits until the kernel has been told all; false where that takes long, or somebody else waits already.
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
