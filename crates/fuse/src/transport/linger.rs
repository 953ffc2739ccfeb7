//! Lingering: a worker looks for the next request a moment longer before it sleeps.
//!
//! A client that waits for each answer sends its next request some ten microseconds after it. If the worker sleeps
//! meanwhile, its processor goes idle, and waking that takes longer than most requests do, above all on a virtual machine, where an
//! idle processor is given back to the host. Measured on one with two processors, a single client made files two and a half
//! times as fast with lingering, and two clients a fifth faster. While it lingers, a worker yields to every thread that can
//! run, so on a busy processor it costs next to nothing: two system calls for each request.
//!
//! Lingering does not help if requests are rare. A worker that lingered in vain several times in a row stops, and only tries
//! again now and then.

use std::time::{Duration, Instant};

/// Time to linger.
const MOMENT: Duration = Duration::from_micros(30);
/// Times in vain in a row after which it stops.
const VAIN_MAX: u32 = 8;
/// Requests until it tries again.
const PAUSE: u32 = 64;

/// State of one worker's lingering.
#[derive(Default)]
pub(crate) struct Linger {
    /// Number of times in a row without a request.
    vain: u32,
    /// Requests left without lingering.
    pause: u32,
}

impl Linger {
    /// Returns when `ready` reports a request, or after a moment.
    ///
    /// Calls `ready` once more after the moment: a request may have come while another thread had the processor.
    pub(crate) fn until(&mut self, ready: impl Fn() -> bool) {
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let begun = Instant::now();
        loop {
            let is_over = begun.elapsed() >= MOMENT;
            if ready() {
                self.vain = 0;
                return;
            }
            if is_over {
                break;
            }
            std::thread::yield_now();
        }
        self.vain += 1;
        if self.vain >= VAIN_MAX {
            // After the next time in vain it stops again at once.
            (self.vain, self.pause) = (VAIN_MAX - 1, PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The number of checks in `times` calls.
    fn looks(linger: &mut Linger, times: u32, ready: bool) -> Vec<bool> {
        let looked = Cell::new(false);
        let once = |linger: &mut Linger| {
            looked.set(false);
            linger.until(|| {
                looked.set(true);
                ready
            });
            looked.get()
        };
        (0..times).map(|_| once(linger)).collect()
    }

    #[test]
    fn it_goes_on_while_requests_come() {
        assert!(looks(&mut Linger::default(), 1000, true).iter().all(|looked| *looked));
    }

    #[test]
    fn it_stops_when_none_come_and_tries_again_now_and_then() {
        let mut linger = Linger::default();
        let looked = looks(&mut linger, VAIN_MAX + 2 * (PAUSE + 1), false);
        assert_eq!(looked.iter().filter(|looked| **looked).count(), VAIN_MAX as usize + 2);
        let after = looks(&mut linger, PAUSE + 10, true);
        assert!(after[PAUSE as usize..].iter().all(|looked| *looked), "one that comes is enough to go on");
    }
}
