//! The read rate of a device: a limit in bytes a second.

use std::time::Duration;

/// The time at which a device may be read next. The reader notes the bytes it has read; a pause does not allow a higher rate later. A
/// changed limit holds at once, also for bytes read before.
///
/// ```
/// use std::time::Duration;
/// use creamery_maint::scrub::Pace;
/// let mut pace = Pace::default();
/// pace.read(Duration::ZERO, 1 << 20, 4 << 20);
/// assert_eq!(pace.wait(Duration::ZERO, 4 << 20), Duration::from_millis(250));
/// assert_eq!(pace.wait(Duration::ZERO, 8 << 20), Duration::from_millis(125));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    /// The time of the last read, or its due time, and its bytes.
    since: Duration,
    bytes: u64,
}

impl Pace {
    fn ready(&self, limit: u64) -> Duration {
        let nanos = u128::from(self.bytes) * 1_000_000_000 / u128::from(limit.max(1));
        self.since.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// The time to wait from `now` on, at `limit` bytes a second.
    #[must_use]
    pub fn wait(&self, now: Duration, limit: u64) -> Duration {
        self.ready(limit).saturating_sub(now)
    }

    /// Notes `bytes` read at `limit` bytes a second, from `now` on.
    pub fn read(&mut self, now: Duration, bytes: u64, limit: u64) {
        *self = Self { since: self.ready(limit).max(now), bytes };
    }

    /// The bytes that a step may read at `limit` bytes a second: those of an eighth of a second.
    #[must_use]
    pub fn step(limit: u64) -> u64 {
        (limit / 8).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_bytes_take_so_much_time() {
        let (mut pace, mut now) = (Pace::default(), Duration::from_secs(100));
        let begun = now;
        for _ in 0..80 {
            now += pace.wait(now, 4 << 20);
            pace.read(now, 512 << 10, 4 << 20);
        }
        now += pace.wait(now, 4 << 20);
        assert_eq!(now - begun, Duration::from_secs(10));
        // The pause does not allow a higher rate.
        now += Duration::from_secs(50);
        pace.read(now, 4 << 20, 4 << 20);
        assert_eq!(pace.wait(now, 4 << 20), Duration::from_secs(1));
        pace.read(now, u64::MAX, 0);
        assert!(pace.wait(now, 0) > Duration::from_secs(1 << 30));
    }

    #[test]
    fn a_limit_that_is_taken_back_holds_for_what_was_read() {
        let mut pace = Pace::default();
        pace.read(Duration::ZERO, 512 << 10, 1);
        assert!(pace.wait(Duration::ZERO, 1) > Duration::from_secs(500_000));
        assert_eq!(pace.wait(Duration::from_secs(1), 512 << 10), Duration::ZERO);
    }
}
