//! Points in time as Btrfs stores them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// Seconds since 1970 (negative before) and nanoseconds within the second.
///
/// ```
/// use creamery_base::Timespec;
/// let before_1970 = Timespec { sec: -1, nsec: 500_000_000 };
/// assert!(before_1970 < Timespec::default());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
pub struct Timespec {
    /// Whole seconds, rounded down.
    pub sec: i64,
    /// Nanoseconds on top, below 1,000,000,000.
    pub nsec: u32,
}

impl From<Timespec> for SystemTime {
    /// Converts to the time of `std`. A damaged disk may have nanoseconds beyond a second, which are cut off, or a time beyond the range of
    /// `std`, which becomes the start of 1970.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime, UNIX_EPOCH};
    /// use creamery_base::Timespec;
    /// let half_before = SystemTime::from(Timespec { sec: -1, nsec: 500_000_000 });
    /// assert_eq!(half_before, UNIX_EPOCH - Duration::from_millis(500));
    /// ```
    fn from(time: Timespec) -> Self {
        let whole = Duration::from_secs(time.sec.unsigned_abs());
        let second = if time.sec < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
        let rest = Duration::from_nanos(time.nsec.min(NANOS_MAX).into());
        second.and_then(|second| second.checked_add(rest)).unwrap_or(UNIX_EPOCH)
    }
}

impl From<SystemTime> for Timespec {
    /// Converts from the time of `std`; times beyond 292 billion years are cut off.
    ///
    /// ```
    /// use std::time::{Duration, UNIX_EPOCH};
    /// use creamery_base::Timespec;
    /// let half_before = Timespec::from(UNIX_EPOCH - Duration::from_millis(500));
    /// assert_eq!(half_before, Timespec { sec: -1, nsec: 500_000_000 });
    /// ```
    fn from(time: SystemTime) -> Self {
        match time.duration_since(UNIX_EPOCH) {
            Ok(since) => {
                Self { sec: since.as_secs().try_into().unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
            }
            Err(before) => {
                let before = before.duration();
                let sec = i64::try_from(before.as_secs()).map_or(i64::MIN, |sec| -sec);
                match before.subsec_nanos() {
                    0 => Self { sec, nsec: 0 },
                    nsec => Self { sec: sec.saturating_sub(1), nsec: NANOS_MAX + 1 - nsec },
                }
            }
        }
    }
}

/// The last nanosecond of a second.
const NANOS_MAX: u32 = 999_999_999;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_time_of_a_disk_becomes_one_of_std_and_comes_back() {
        for sec in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX] {
            for nsec in [0, 1, NANOS_MAX, NANOS_MAX + 1, u32::MAX] {
                let cut = Timespec { sec, nsec: nsec.min(NANOS_MAX) };
                assert_eq!(Timespec::from(SystemTime::from(Timespec { sec, nsec })), cut);
            }
        }
    }
}
