//! How many requests of each kind came.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::protocol::Opcode;

/// Above the largest number of an [`Opcode`].
const NUMBERS: usize = 64;

/// The requests that a session got, also those that await no answer, and malformed ones by what they claim to be. Ask
/// [`Session::requests`](crate::Session::requests) for it.
///
/// ```
/// use creamery_fuse::{RequestCounts, protocol::Opcode};
/// let counts = RequestCounts::default();
/// assert_eq!(counts.of(Opcode::Lookup), 0);
/// assert_eq!(counts.all().count(), 0);
/// ```
#[derive(Debug)]
pub struct RequestCounts {
    by_number: [AtomicU64; NUMBERS],
}

impl Default for RequestCounts {
    fn default() -> Self {
        Self { by_number: [const { AtomicU64::new(0) }; NUMBERS] }
    }
}

impl RequestCounts {
    pub(crate) fn count(&self, number: u32) {
        if let Some(count) = self.by_number.get(number as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many there were of one kind.
    #[must_use]
    pub fn of(&self, opcode: Opcode) -> u64 {
        self.by_number[opcode as usize].load(Ordering::Relaxed)
    }

    /// All kinds that came, by their numbers.
    pub fn all(&self) -> impl Iterator<Item = (Opcode, u64)> {
        Opcode::ALL.iter().map(|opcode| (*opcode, self.of(*opcode))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_has_a_counter_and_unknown_numbers_have_none() {
        let counts = RequestCounts::default();
        for opcode in Opcode::ALL {
            counts.count(*opcode as u32);
            counts.count(*opcode as u32);
        }
        [0, 7, 63, 64, u32::MAX].into_iter().for_each(|number| counts.count(number));
        assert!(counts.all().all(|(_, count)| count == 2));
        assert_eq!(counts.all().count(), Opcode::ALL.len());
    }
}
