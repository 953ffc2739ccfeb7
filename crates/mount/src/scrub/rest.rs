//! Rests of a scrub, in favour of the mount's users.
//!
//! A scrub reads as fast as processors can compute checksums, so an fsync beside it waits for a processor. With a scrub on all processors, 99 of
//! 100 fsyncs took seven times as long, and half as many files were made. A lower priority helps little: a scheduler that shares processors out between
//! sessions lets even the last thread of one session run before the first one of another. So a scrub rests many times as long as it made processors work.
//! With fewer processors the rests are longer, because a step delays more of the requests. A step of a few milliseconds delays one fsync, and the next hundreds meet no
//! scrub. A scrub that waits for a slow device makes processors work little, and reads on nearly as fast as alone. It rests as long as requests
//! come, and some seconds longer, because the next one may be on its way. A scrub with `--limit 0` never rests.

use std::num::NonZero;
use std::time::Duration;

use creamery_fuse::RequestCounts;

/// With one processor a scrub rests this many times as long as the processor worked for it.
const TIMES: usize = 80;
/// A scrub rests at least this many times as long.
const TIMES_MIN: usize = 5;
/// Time after a request in which the mount counts as in use.
const IN_USE: Duration = Duration::from_secs(5);

/// Decides when a scrub goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rest {
    times: u32,
    /// Requests so far, and the end of the time in which the sender of the last one may still be active.
    requests: u64,
    in_use: Duration,
    until: Duration,
}

impl Rest {
    /// For a host with this number of processors.
    pub(super) fn among(processors: NonZero<usize>) -> Self {
        let times = u32::try_from((TIMES / processors).max(TIMES_MIN)).unwrap_or(u32::MAX);
        Self { times, requests: 0, in_use: Duration::ZERO, until: Duration::ZERO }
    }

    /// A step has ended at `now`, in which processors worked for `worked`. The mount has had `requests` requests so far.
    pub(super) fn after_step(&mut self, now: Duration, worked: Duration, requests: u64) {
        if requests > self.requests {
            (self.requests, self.in_use) = (requests, now.saturating_add(IN_USE));
        }
        if now < self.in_use {
            self.until = now.saturating_add(worked.saturating_mul(self.times));
        }
    }

    /// The rest of the pause from `now` on.
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }
}

/// The number of requests, without the `about_scrub` requests about the scrub itself.
pub(super) fn of_users(counts: &RequestCounts, about_scrub: u64) -> u64 {
    let all: u64 = counts.all().map(|(_, seen)| seen.count).sum();
    all.saturating_sub(about_scrub)
}

/// The number of processors that this process may use.
pub(super) fn processors() -> NonZero<usize> {
    std::thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrub_rests_where_somebody_uses_the_mount_as_long_as_it_cost() {
        let (now, worked) = (Duration::from_secs(100), Duration::from_millis(2));
        let mut rest = Rest::among(NonZero::new(2).unwrap());
        let whole = worked * 40;
        rest.after_step(now, worked, 0);
        assert_eq!(rest.left(now), Duration::ZERO, "nobody has asked for anything");
        rest.after_step(now, worked, 7);
        assert_eq!((rest.left(now), rest.left(now + whole)), (whole, Duration::ZERO));
        rest.after_step(now + whole, worked, 7);
        assert_eq!(rest.left(now + whole), whole, "the last request may not have ended");
        rest.after_step(now + IN_USE, worked, 7);
        assert_eq!(rest.left(now + IN_USE), Duration::ZERO, "nobody has asked since");
        rest.after_step(Duration::MAX, Duration::MAX, 8);
        assert_eq!(rest.left(Duration::MAX), Duration::ZERO);
        let mut rest = Rest::among(NonZero::new(64).unwrap());
        rest.after_step(now, worked, 1);
        assert_eq!(rest.left(now), worked * 5);
    }
}
