//! Rests of a scrub, for those who use the mount.
//!
//! A scrub reads as fast as processors can compute checksums, and whoever waits for an fsync beside it waits for a processor. With all of them at it, 99 of
//! 100 fsyncs took seven times as long, and half as many files were made. A lower priority helps little: a scheduler that shares processors out between
//! sessions lets even the last thread of one session run before the first one of another. So a scrub rests, many times as long as it made processors work:
//! the fewer processors there are, the more of those who wait meet it. A step of a few milliseconds delays one fsync, and then some hundred of them meet no
//! scrub. One that waits for a slow device makes processors work little, and reads on nearly as fast as alone. Where nobody asks the mount for anything it does
//! not rest, and neither does one that was begun with `--limit 0`.

use std::num::NonZero;
use std::time::Duration;

use creamery_fuse::RequestCounts;
use creamery_fuse::protocol::Opcode;

/// With one processor a scrub rests so many times as long as that has worked for it.
const TIMES: usize = 80;
/// It rests so many times as long at least.
const TIMES_MIN: usize = 5;

/// When a scrub goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rest {
    times: u32,
    /// Requests that came before the last step.
    requests: u64,
    until: Duration,
}

impl Rest {
    /// On a host with so many processors.
    pub(super) fn among(processors: NonZero<usize>) -> Self {
        let times = u32::try_from((TIMES / processors).max(TIMES_MIN)).unwrap_or(u32::MAX);
        Self { times, requests: 0, until: Duration::ZERO }
    }

    /// A step has ended at `now`, for which processors have worked so long. So many requests have come to the mount.
    pub(super) fn after_step(&mut self, now: Duration, worked: Duration, requests: u64) {
        if std::mem::replace(&mut self.requests, requests) != requests {
            self.until = now.saturating_add(worked.saturating_mul(self.times));
        }
    }

    /// How long it rests from `now` on.
    pub(super) fn left(&self, now: Duration) -> Duration {
        self.until.saturating_sub(now)
    }
}

/// How many requests of users have come. Those to the server itself, as for the status of the scrub, are none.
pub(super) fn of_users(counts: &RequestCounts) -> u64 {
    counts.all().filter(|(opcode, _)| *opcode != Opcode::Ioctl).map(|(_, seen)| seen.count).sum()
}

/// How many processors the host has for this process.
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
        assert_eq!(rest.left(now + whole), Duration::ZERO, "nobody has asked since");
        rest.after_step(Duration::MAX, Duration::MAX, 8);
        assert_eq!(rest.left(Duration::MAX), Duration::ZERO);
        let mut rest = Rest::among(NonZero::new(64).unwrap());
        rest.after_step(now, worked, 1);
        assert_eq!(rest.left(now), worked * 5);
    }
}
