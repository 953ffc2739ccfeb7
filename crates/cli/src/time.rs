//! Points in time for people, always in UTC, as an image has no time zone. And spans of time.

use std::fmt;
use std::time::{Duration, SystemTime};

use creamery::attributes::Timespec;

const DAY: i64 = 86400;
/// The last year whose seconds fit the type.
const YEAR_MAX: i64 = 200_000_000_000;

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

/// The day of a date, counted from 1970-01-01; `None` for an invalid date.
fn day_of(year: i64, month: u32, day: u32) -> Option<i64> {
    if year > YEAR_MAX {
        return None;
    }
    let (m, d) = (i64::from(month), i64::from(day));
    // Years begin in March, so that leap days end them.
    let year_of_march = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year_of_march.div_euclid(400), year_of_march.rem_euclid(400));
    let of_year = (153 * (m + if month > 2 { -3 } else { 9 }) + 2) / 5 + d - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    (civil(days) == (year, month, day)).then_some(days)
}

/// Parses a number that consists of digits only.
fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The nanoseconds of a fraction's digits; digits beyond nine are cut off.
fn nanoseconds(text: &str) -> Option<u32> {
    digits::<u128>(text)?;
    digits(&format!("{text:0<9}")[..9])
}

/// Seconds of a day.
fn of_day(hour: u32, minute: u32, second: u32) -> Option<i64> {
    (hour < 24 && minute < 60 && second <= 60).then(|| i64::from(hour * 3600 + minute * 60 + second))
}

/// Parses `@SECONDS[.FRACTION]`, or a date with a time: `2026-11-25T18:00:00.5+01:00`, in which everything behind the day may be missing.
pub(crate) fn parse_time(text: &str) -> Result<Timespec, String> {
    let read = if let Some(seconds) = text.strip_prefix('@') { of_seconds(seconds) } else { of_date(text) };
    read.ok_or_else(|| {
        format!("invalid time '{text}': expected @SECONDS or a date such as 2026-11-25T18:00:00Z")
    })
}

fn of_seconds(text: &str) -> Option<Timespec> {
    let (number, negative) = match text.strip_prefix('-') {
        Some(number) => (number, true),
        None => (text, false),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let (whole, nsec) = (digits::<i64>(whole)?, nanoseconds(fraction)?);
    Some(match (negative, nsec) {
        (false, _) => Timespec { sec: whole, nsec },
        (true, 0) => Timespec { sec: -whole, nsec },
        // A fraction counts forwards, also before 1970.
        (true, _) => Timespec { sec: -whole - 1, nsec: 1_000_000_000 - nsec },
    })
}

fn of_date(text: &str) -> Option<Timespec> {
    let (date, clock) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], &text[at + 1..]),
        None => (text, "00:00:00Z"),
    };
    let mut parts = date.splitn(3, '-');
    let (year, month, day) = (digits(parts.next()?)?, digits(parts.next()?)?, digits(parts.next()?)?);
    let zone = clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len());
    let (clock, zone) = clock.split_at(zone);
    let (clock, nsec) = match clock.split_once('.') {
        Some((clock, fraction)) => (clock, nanoseconds(fraction)?),
        None => (clock, 0),
    };
    let mut parts = clock.splitn(3, ':');
    let (hour, minute) = (digits(parts.next()?)?, digits(parts.next()?)?);
    let second = parts.next().map_or(Some(0), digits)?;
    let offset = match zone {
        "" | "Z" | "z" => 0,
        zone => {
            let (hour, minute) = zone[1..].split_once(':')?;
            let ahead = of_day(digits(hour)?, digits(minute)?, 0)?;
            if zone.starts_with('-') { -ahead } else { ahead }
        }
    };
    let day = day_of(year, month, day)?.checked_mul(DAY)?;
    Some(Timespec { sec: day + of_day(hour, minute, second)? - offset, nsec })
}

/// Parses `[[CC]YY]MMDDhhmm[.ss]` in UTC, as touch(1) does; the default year is that of `now`.
pub(crate) fn parse_stamp(text: &str, now: SystemTime) -> Result<Timespec, String> {
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (this_year, ..) = civil(i64::try_from(seconds).unwrap_or(0).div_euclid(DAY));
    of_stamp(text, this_year).ok_or_else(|| format!("invalid stamp '{text}': expected [[CC]YY]MMDDhhmm[.ss]"))
}

fn of_stamp(text: &str, this_year: i64) -> Option<Timespec> {
    let (digits_of, second) = match text.split_once('.') {
        Some((digits_of, second)) if second.len() == 2 => (digits_of, digits(second)?),
        Some(_) => return None,
        None => (text, 0),
    };
    digits::<u64>(digits_of)?;
    let (year, rest) = match digits_of.len() {
        8 => (this_year, digits_of),
        10 => {
            let year: i64 = digits(&digits_of[..2])?;
            (if year < 69 { 2000 + year } else { 1900 + year }, &digits_of[2..])
        }
        12 => (digits(&digits_of[..4])?, &digits_of[4..]),
        _ => return None,
    };
    let pair = |at: usize| digits::<u32>(&rest[at..at + 2]);
    let day = day_of(year, pair(0)?, pair(2)?)?;
    Some(Timespec { sec: day * DAY + of_day(pair(4)?, pair(6)?, second)?, nsec: 0 })
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

/// Shows about three digits of a span: `870us`, `1.53ms`, `42.1s`, `3h 05min`.
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
    fn times_are_read_as_they_are_written() {
        for (text, sec, nsec) in [
            ("@0", 0, 0),
            ("@1700000000.5", 1_700_000_000, 500_000_000),
            ("@-1", -1, 0),
            ("@-1.25", -2, 750_000_000),
            ("@1.123456789999", 1, 123_456_789),
            ("1970-01-01", 0, 0),
            ("2026-11-21T04:45:06Z", 1_795_236_306, 0),
            ("2026-11-21 05:45:06.5+01:00", 1_795_236_306, 500_000_000),
            ("2026-11-21T04:45", 1_795_236_300, 0),
            ("1969-12-31T23:59:59-00:00", -1, 0),
            ("0001-01-01", -62_135_596_800, 0),
            ("10000-01-01", 253_402_300_800, 0),
        ] {
            assert_eq!(parse_time(text), Ok(Timespec { sec, nsec }), "{text}");
        }
        for text in ["", "@", "@x", "@1.", "@--1", "2026-02-29", "2026-13-01", "2026-11-21T25:00:00Z", "now"]
        {
            assert!(parse_time(text).is_err(), "{text}");
        }
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_236_306);
        for (text, sec) in [
            ("202611210445.06", 1_795_236_306),
            ("2611210445.06", 1_795_236_306),
            ("11210445.06", 1_795_236_306),
            ("6901010000", -31_536_000),
        ] {
            assert_eq!(parse_stamp(text, now), Ok(Timespec { sec, nsec: 0 }), "{text}");
        }
        for text in ["", "1", "113104456", "202602290000", "11210445.6"] {
            assert!(parse_stamp(text, now).is_err(), "{text}");
        }
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
