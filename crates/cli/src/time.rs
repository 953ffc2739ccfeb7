//! Points in time as people read them, always in UTC: an image has no time zone. And spans of time.

use std::fmt;
use std::time::Duration;

use creamery::Timespec;

const DAY: i64 = 86400;

/// Year, month and day of a day counted from 1970-01-01 (proleptic Gregorian calendar).
fn civil(days: i64) -> (i64, u32, u32) {
    // Counted from 0000-03-01, so that leap days end the 400-year eras.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let small = |n: i64| u32::try_from(n).expect("a month or a day");
    (year, small(month), small(day))
}

/// `2026-11-21 04:45:06`, with `T`, nanoseconds and `Z` in the alternate form.
pub(crate) struct Utc(pub(crate) Timespec);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Timespec { sec, nsec } = self.0;
        let (year, month, day) = civil(sec.div_euclid(DAY));
        let of_day = sec.rem_euclid(DAY);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        if f.alternate() {
            write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nsec:09}Z")
        } else {
            write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}")
        }
    }
}

/// Three digits or so of a span: `870us`, `1.53ms`, `42.1s`, `3h 05min`.
pub(crate) struct Span(pub(crate) Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (micros, seconds) = (self.0.as_micros(), self.0.as_secs());
        let text = match micros {
            0..1_000 => format!("{micros}us"),
            1_000..1_000_000 => format!("{}.{:02}ms", micros / 1_000, micros % 1_000 / 10),
            1_000_000..60_000_000 => format!("{seconds}.{}s", micros % 1_000_000 / 100_000),
            60_000_000..3_600_000_000 => format!("{}min {:02}s", seconds / 60, seconds % 60),
            _ => format!("{}h {:02}min", seconds / 3600, seconds / 60 % 60),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_on_both_sides_of_1970() {
        for (sec, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_236_306, "2026-11-21 04:45:06"),
            (-1, "1969-12-31 23:59:59"),
            (-62_135_596_800, "0001-01-01 00:00:00"),
            (253_402_300_800, "10000-01-01 00:00:00"),
        ] {
            assert_eq!(Utc(Timespec { sec, nsec: 0 }).to_string(), text);
        }
        assert_eq!(format!("{:#}", Utc(Timespec { sec: 0, nsec: 5 })), "1970-01-01T00:00:00.000000005Z");
    }
    #[test]
    fn spans_are_short_to_read() {
        for (micros, text) in [
            (0, "0us"),
            (999, "999us"),
            (1_539, "1.53ms"),
            (42_160_000, "42.1s"),
            (61_000_000, "1min 01s"),
            (11_100_000_000, "3h 05min"),
        ] {
            assert_eq!(Span(Duration::from_micros(micros)).to_string(), text);
        }
    }
}
