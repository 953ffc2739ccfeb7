//! Words, bytes and times.

use std::fmt;

use crate::items::time::RawTimespec;

/// The largest length of a name or value that is shown.
const SHOWN_MAX: usize = 255;

/// Bytes of a name or value, with everything but plain characters escaped.
pub(super) struct Escaped<'a>(pub(super) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0.iter().take(SHOWN_MAX) {
            match byte {
                0x07 => f.write_str("\\a")?,
                0x08 => f.write_str("\\b")?,
                b'\t' => f.write_str("\\t")?,
                b'\n' => f.write_str("\\n")?,
                0x0b => f.write_str("\\v")?,
                0x0c => f.write_str("\\f")?,
                b'\r' => f.write_str("\\r")?,
                0x1b => f.write_str("\\e")?,
                b' ' => f.write_str("\\ ")?,
                b'\\' => f.write_str("\\\\")?,
                b'!'..=b'~' => f.write_str(char::from(byte).encode_utf8(&mut [0; 4]))?,
                _ => write!(f, "\\{byte:03o}")?,
            }
        }
        Ok(())
    }
}

/// Bytes unchanged, up to the first zero.
pub(super) struct Plain<'a>(pub(super) &'a [u8]);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(self.0.len());
        f.write_str(&String::from_utf8_lossy(&self.0[..end]))
    }
}

/// Date and time of day in the civil calendar: `2026-11-21 05:12:29`.
pub(super) struct Civil(pub(super) i64);

impl fmt::Display for Civil {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DAY: i64 = 86400;
        let (days, second) = (self.0.div_euclid(DAY), self.0.rem_euclid(DAY));
        // Years that begin in March put the leap day last; 400 of them are an era of 146,097 days.
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute) = (second / 3600, second / 60 % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}", second % 60)
    }
}

/// Local time of a point in time.
pub(super) fn civil(seconds: i64, utc_offset: fn(i64) -> i64) -> Civil {
    Civil(seconds.saturating_add(utc_offset(seconds)))
}

/// One line with a time: `\t\tctime 5.7 (1970-01-01 00:00:05)`.
pub(super) fn time(
    w: &mut dyn fmt::Write,
    name: &str,
    time: RawTimespec,
    utc_offset: fn(i64) -> i64,
) -> fmt::Result {
    let seconds = time.sec.get();
    // Seconds before 1970 are shown as unsigned numbers.
    let unsigned = seconds.cast_unsigned();
    writeln!(w, "\t\t{name} {unsigned}.{} ({})", time.nsec, civil(seconds, utc_offset))
}
