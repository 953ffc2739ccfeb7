//! How fast a device is read: so many bytes a second at most.

use std::time::Duration;

/// When a device may be read next. The reader notes how many bytes it has read; a pause is not made up for.
///
/// ```
/// use std::time::Duration;
/// use creamery_maint::scrub::Pace;
/// let mut pace = Pace::default();
/// pace.read(Duration::ZERO, 1 << 20, 4 << 20);
/// assert_eq!(pace.wait(Duration::ZERO), Duration::from_millis(250));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pace {
    ready: Duration,
}

impl Pace {
    /// How long to wait from `now` on.
    #[must_use]
    pub fn wait(&self, now: Duration) -> Duration {
        self.ready.saturating_sub(now)
    }

    /// Bytes were read at `limit` bytes a second, from `now` on.
    pub fn read(&mut self, now: Duration, bytes: u64, limit: u64) {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(limit.max(1));
        let took = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        self.ready = self.ready.max(now).saturating_add(took);
    }

    /// How many bytes a step may read at `limit` bytes a second: an eighth of a second's.
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
            now += pace.wait(now);
            pace.read(now, 512 << 10, 4 << 20);
        }
        now += pace.wait(now);
        assert_eq!(now - begun, Duration::from_secs(10));
        // A pause is not made up for.
        now += Duration::from_secs(50);
        pace.read(now, 4 << 20, 4 << 20);
        assert_eq!(pace.wait(now), Duration::from_secs(1));
        pace.read(now, u64::MAX, 0);
        assert!(pace.wait(now) > Duration::from_secs(1 << 30));
    }
}
