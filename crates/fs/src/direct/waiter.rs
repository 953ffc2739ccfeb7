//! Waiting for the answer to a direct request that was submitted, and polling for it.

use std::sync::{Arc, Weak};
use std::task::Waker;

use creamery_txn::Engine;

use crate::in_flight::Poller;
use crate::inode::Inode;

/// A caller that waits for an answer to a direct request about a file, or polls for it. It keeps no filesystem alive: if the last
/// user of the filesystem goes, the answer is an error, and comes all the same.
///
/// ```no_run
/// use std::sync::{Arc, OnceLock};
/// use creamery_device::AlignedBuffer;
/// use creamery_fs::{DirectDone, DirectRequest, OpenFile};
/// fn first_page(file: &OpenFile) -> DirectDone {
///     let (waiter, answer) = (file.direct_waiter(), Arc::new(OnceLock::new()));
///     let request = DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(4096) };
///     let own = Arc::clone(&answer);
///     file.submit_direct(request, Box::new(move |done| own.set(done).expect("it is answered once")));
///     waiter.wait(|| answer.get().is_some());
///     Arc::into_inner(answer).and_then(OnceLock::into_inner).expect("it is answered")
/// }
/// ```
#[must_use]
pub struct DirectWaiter {
    poller: Poller,
    engine: Weak<Engine>,
}

impl DirectWaiter {
    pub(crate) fn new(inode: &Inode) -> Self {
        let context = inode.context();
        Self { poller: context.in_flight().poller(inode.id), engine: Arc::downgrade(context.engine()) }
    }

    /// Waits until `is_answered` returns true. It is called again after each answer, with locks held: it must wait for nothing, and
    /// call nothing of the filesystem. This thread completes requests about the file that land meanwhile, so it needs no background
    /// thread. The caller holds nothing of the filesystem.
    pub fn wait(&self, is_answered: impl Fn() -> bool) {
        self.poller.wait(is_answered);
        let engine = self.engine.upgrade();
        // Without background threads, requests without a waiting caller end here.
        if !engine.is_some_and(|engine| engine.background().has_threads()) {
            self.poller.end_those_there();
        }
    }

    /// Completes requests about the file that have landed, where no background threads do, which may take as long as any operation.
    /// Afterwards the caller checks whether its request was answered. If not, one of two things wakes it: its completion, where the
    /// background or a device ends the request, or `waker`, where it has to poll again.
    pub fn poll(&self, waker: &Waker) {
        // It may be the last reference, and the engine's end waits for devices: it goes when no lock is held.
        let engine = self.engine.upgrade();
        self.poller.poll(waker, || engine.as_ref().is_some_and(|engine| engine.background().has_threads()));
    }
}
