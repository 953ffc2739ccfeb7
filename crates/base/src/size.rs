//! Sizes as people write and read them: powers of 1024, as in btrfs-progs.

use std::fmt;

use crate::{Error, Result};

/// Parses a size into bytes: digits, then nothing or one of K, M, G, T, P, E in either case (with or without "B" or "iB").
///
/// ```
/// use creamery_base::parse_size;
/// assert_eq!(parse_size("16MiB")?, 16 << 20);
/// assert!(parse_size("16 acres").is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
///
/// # Errors
/// The text is no size, or one of 16 EiB or more.
pub fn parse_size(text: &str) -> Result<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    if number.is_empty() {
        return Err(Error::invalid(format!("invalid size '{text}': expected a number, such as 512M")));
    }
    let unit = unit.to_ascii_lowercase();
    let unit = unit.strip_suffix("ib").or_else(|| unit.strip_suffix('b')).unwrap_or(&unit);
    let shift = match unit {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        "e" => 60,
        _ => {
            let what = format!("invalid unit in '{text}': expected K, M, G, T, P or E");
            return Err(Error::invalid(what));
        }
    };
    let number: Option<u64> = number.parse().ok();
    let bytes = number.and_then(|number| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| Error::invalid(format!("size '{text}' is 16 EiB or more")))
}

/// Shows bytes as "1.50GiB".
///
/// ```
/// assert_eq!(creamery_base::HumanSize(3 << 29).to_string(), "1.50GiB");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HumanSize(pub u64);

impl fmt::Display for HumanSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{}.00B", self.0));
        }
        let power = self.0.ilog2() / 10;
        // Hundredths, rounded, in integers: exact at any size.
        let hundredths = (u128::from(self.0) * 100 + (1 << (power * 10 - 1))) >> (power * 10);
        let unit = UNITS[power as usize - 1];
        f.pad(&format!("{}.{:02}{unit}", hundredths / 100, hundredths % 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_units_of_1024() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("16k", 16384),
            ("1G", 1 << 30),
            ("2MiB", 2 << 20),
            ("3tb", 3 << 40),
            ("15E", 15 << 60),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_size(text).ok(), Some(bytes), "{text}");
        }
        for bad in ["", "G", "1.5G", "12X", "-1", "16E", "1KK", "18446744073709551616"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_are_shown_as_btrfs_shows_them() {
        for (bytes, text) in [
            (0, "0.00B"),
            (1023, "1023.00B"),
            (1024, "1.00KiB"),
            (53_673_984, "51.19MiB"),
            (u64::MAX, "16.00EiB"),
        ] {
            assert_eq!(HumanSize(bytes).to_string(), text);
        }
    }
}
