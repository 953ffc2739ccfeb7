//! The line of submitted requests: how many bytes of them may be in flight, and which request is next (DIRECT-13).

use std::sync::Arc;

use super::{Helps, InFlight, Requests};

/// The bytes of a submitted request, which count until this value drops.
#[must_use]
pub(crate) struct BytesInFlight {
    in_flight: Arc<InFlight>,
    bytes: u64,
}

impl Drop for BytesInFlight {
    fn drop(&mut self) {
        let all = &mut self.in_flight.requests.lock().bytes;
        *all = all.checked_sub(self.bytes).expect("DIRECT-1: what is counted is forgotten once");
        self.in_flight.changed.notify_all();
    }
}

impl BytesInFlight {
    /// The table of requests among which they count.
    pub(crate) fn in_flight(&self) -> Arc<InFlight> {
        Arc::clone(&self.in_flight)
    }
}

/// A request's place in the line, until this value drops.
struct PlaceInLine {
    in_flight: Arc<InFlight>,
    number: u64,
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        self.in_flight.requests.lock().line.retain(|number| *number != self.number);
        self.in_flight.changed.notify_all();
    }
}

impl Requests {
    /// Whether `bytes` more fit within `most` bytes in flight. One request may exceed the limit alone.
    fn fit(&self, bytes: u64, most: u64) -> bool {
        self.bytes == 0 || self.bytes.saturating_add(bytes) <= most
    }
}

impl InFlight {
    /// Waits in line until `bytes` more may be in flight. Completes requests as they land (DIRECT-13). The caller holds nothing.
    pub(crate) fn make_room(self: &Arc<Self>, bytes: u64) -> BytesInFlight {
        let turn = self.take_turn();
        let is_next = |requests: &Requests| {
            requests.fit(bytes, self.most) && requests.line.front() == Some(&turn.number)
        };
        self.wait_until(|_| true, Helps::Syncs, is_next);
        // Only the first in line adds to it.
        let mut requests = self.requests.lock();
        requests.bytes = requests.bytes.saturating_add(bytes);
        BytesInFlight { in_flight: Arc::clone(self), bytes }
    }

    /// How many bytes of submitted requests are in flight.
    #[cfg(feature = "faults")]
    pub(crate) fn bytes(&self) -> u64 {
        self.requests.lock().bytes
    }

    /// Takes `bytes` for a caller that must not wait. Returns `None` where [`make_room`](Self::make_room) would wait.
    pub(crate) fn try_make_room(self: &Arc<Self>, bytes: u64) -> Option<BytesInFlight> {
        let mut requests = self.requests.lock();
        if !requests.line.is_empty() || !requests.fit(bytes, self.most) {
            return None;
        }
        requests.bytes = requests.bytes.saturating_add(bytes);
        Some(BytesInFlight { in_flight: Arc::clone(self), bytes })
    }

    fn take_turn(self: &Arc<Self>) -> PlaceInLine {
        let mut requests = self.requests.lock();
        let number = requests.next_turn;
        requests.next_turn += 1;
        requests.line.push_back(number);
        PlaceInLine { in_flight: Arc::clone(self), number }
    }
}
