//! A caller that waits, or polls, for the answer to its own request (DIRECT-15).

use std::sync::Arc;
use std::task::Waker;

use creamery_base::InodeId;

use super::{Helps, InFlight, RequestInFlight};

/// A caller that polls for an answer to a request about an inode, until this value drops.
#[must_use]
pub(crate) struct Poller {
    in_flight: Arc<InFlight>,
    id: InodeId,
    number: u64,
}

impl Poller {
    /// Waits until `is_answered` returns true, and calls it again after each answer. Completes requests of the inode as they land.
    pub(crate) fn wait(&self, is_answered: impl Fn() -> bool) {
        self.in_flight.wait_until(|request| request.id == self.id, Helps::Syncs, |_| is_answered());
    }

    /// Ends as many requests of the inode as have landed or owe a sync by now. Does not wait for requests that come later.
    pub(crate) fn end_those_there(&self) {
        let there = {
            let requests = self.in_flight.requests.lock();
            requests.landed.len() + requests.owed.len()
        };
        // A request that has landed may owe a sync afterwards.
        for _ in 0..2 * there {
            if !self.in_flight.help_with(|request| request.id == self.id, Helps::Syncs) {
                return;
            }
        }
    }

    /// Completes the requests of the inode that have landed, unless background threads do that. `waker` is woken when there may be
    /// something to complete again (DIRECT-15).
    pub(crate) fn poll(&self, waker: &Waker, has_background: impl Fn() -> bool) {
        let wanted = |request: &RequestInFlight| request.id == self.id;
        // Wakers run foreign code, so none is cloned or dropped with the lock held.
        let mut waker = Some(waker.clone());
        loop {
            let mut requests = self.in_flight.requests.lock();
            if has_background() || !requests.has_work(wanted, Helps::Syncs) {
                let known = waker.take().map(|waker| (self.id, waker));
                let before = known.and_then(|known| requests.pollers.insert(self.number, known));
                drop(requests);
                drop(before);
                return;
            }
            drop(requests);
            self.in_flight.help_with(wanted, Helps::Syncs);
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        let known = self.in_flight.requests.lock().pollers.remove(&self.number);
        drop(known);
    }
}

impl InFlight {
    /// Registers a poller for an answer to a request about the inode `id`.
    pub(crate) fn poller(self: &Arc<Self>, id: InodeId) -> Poller {
        let mut requests = self.requests.lock();
        let number = requests.next_poller;
        requests.next_poller += 1;
        Poller { in_flight: Arc::clone(self), id, number }
    }
}
