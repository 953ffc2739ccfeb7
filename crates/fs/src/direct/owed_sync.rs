//! The end of a direct write that was asked for as durable: its data is in the file, and a sync is owed before the answer.
//!
//! A sync locks inodes, and waits for devices. A thread that completes a request in the midst of an operation holds locks. So the
//! background syncs, or a thread that waits for nothing but the request (`in_flight`). The request has given its carried resources
//! back before, and one log takes several writes that sync at once (`fsync`).

use std::sync::{Arc, Weak};

use creamery_base::panics;

use super::DirectPart;
use super::answer::{Answer, dropped};
use crate::counters::Direct;
use crate::fsync::fsync;
use crate::in_flight::{Begun, Submitted};
use crate::inode::{Inode, Inodes};

/// A write that has ended, and has to be durable before it is answered. The fields drop in order.
pub(super) struct OwedSync {
    pub(super) answer: Answer,
    pub(super) part: DirectPart,
    pub(super) inode: Arc<Inode>,
    pub(super) inodes: Weak<Inodes>,
    /// The request is known until it is answered.
    pub(super) begun: Begun,
}

impl OwedSync {
    /// Queues the write for a thread that makes it durable.
    pub(super) fn owe(self) {
        let in_flight = Arc::clone(self.inode.context().in_flight());
        let ticket = self.begun.ticket();
        in_flight.owe(ticket, Box::new(self));
    }
}

impl Submitted for OwedSync {
    fn wake(&self) {
        self.inode.engine().background().wake();
    }

    fn has_background(&self) -> bool {
        self.inode.engine().background().has_threads()
    }

    fn complete_at_once(self: Box<Self>) -> Option<Box<dyn Submitted>> {
        Some(self)
    }

    fn complete(self: Box<Self>) {
        let Self { answer, part, inode, inodes, begun: _begun } = *self;
        let ended = panics::catch(|| {
            let synced = inodes.upgrade().ok_or_else(dropped).and_then(|inodes| fsync(&inodes, &inode));
            if synced.is_ok() {
                Direct::count(&inode.context().counters().direct.durable);
            }
            answer.give(synced.map(|()| part));
        });
        if let Err(panic) = ended {
            inode.engine().abort_after_panic(&panic);
        }
    }

    fn abandon(self: Box<Self>) {
        let Self { answer, inode, begun, .. } = *self;
        // No caller is left to report a panic to.
        let _ = panics::catch(|| drop((inode, begun)));
        let _ = panics::catch(|| answer.give(Err(dropped())));
    }
}
