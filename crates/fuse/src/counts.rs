//! Counts the requests of each kind, and the time of their operations.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::protocol::Opcode;

/// Larger than the largest number of an [`Opcode`].
const NUMBERS: usize = 64;

/// The requests that a session answered, also those that await no answer, and malformed ones by the number that they contain.
/// [`Session::requests`](crate::Session::requests) returns it.
///
/// ```
/// use creamery_fuse::{RequestCounts, protocol::Opcode};
/// let counts = RequestCounts::default();
/// assert_eq!(counts.of(Opcode::Lookup).count, 0);
/// assert_eq!(counts.all().count(), 0);
/// ```
#[derive(Debug)]
pub struct RequestCounts {
    by_number: [Counter; NUMBERS],
}

#[derive(Default, Debug)]
struct Counter {
    count: AtomicU64,
    nanos: AtomicU64,
}

/// Requests of one kind.
///
/// ```
/// assert_eq!(creamery_fuse::RequestCount::default().time, std::time::Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct RequestCount {
    /// Number of requests.
    pub count: u64,
    /// Total time of their operations: from the request in memory to its answer there, without the way to the kernel and
    /// back.
    pub time: Duration,
}

impl Default for RequestCounts {
    fn default() -> Self {
        Self { by_number: std::array::from_fn(|_| Counter::default()) }
    }
}

impl RequestCounts {
    pub(crate) fn count(&self, number: u32, took: Duration) {
        if let Some(counter) = self.by_number.get(number as usize) {
            counter.count.fetch_add(1, Ordering::Relaxed);
            counter.nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Returns the count of one kind.
    #[must_use]
    pub fn of(&self, opcode: Opcode) -> RequestCount {
        let counter = &self.by_number[opcode as usize];
        let nanos = counter.nanos.load(Ordering::Relaxed);
        RequestCount { count: counter.count.load(Ordering::Relaxed), time: Duration::from_nanos(nanos) }
    }

    /// Returns all kinds with requests, by their numbers.
    pub fn all(&self) -> impl Iterator<Item = (Opcode, RequestCount)> {
        Opcode::ALL.iter().map(|opcode| (*opcode, self.of(*opcode))).filter(|(_, seen)| seen.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_counter_and_unknown_numbers_have_none() {
        let counts = RequestCounts::default();
        for opcode in Opcode::ALL {
            counts.count(*opcode as u32, Duration::from_micros(3));
            counts.count(*opcode as u32, Duration::from_micros(4));
        }
        [0, 7, 63, 64, u32::MAX].into_iter().for_each(|number| counts.count(number, Duration::MAX));
        let twice = RequestCount { count: 2, time: Duration::from_micros(7) };
        assert!(counts.all().all(|(_, seen)| seen == twice));
        assert_eq!(counts.all().count(), Opcode::ALL.len());
    }
}
