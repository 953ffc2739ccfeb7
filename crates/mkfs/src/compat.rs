//! Versions of Linux, and the features that each can write.

use std::fmt;
use std::str::FromStr;

use creamery_base::{Error, Result};

/// A version of Linux, for example 5.15. Numbers behind the second one change no format.
///
/// ```
/// use creamery_mkfs::LinuxVersion;
/// let old: LinuxVersion = "5.15.149".parse()?;
/// assert!(old < "6.1".parse()? && old.to_string() == "5.15");
/// assert!("latest".parse::<LinuxVersion>().is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinuxVersion {
    major: u16,
    minor: u16,
}

impl LinuxVersion {
    /// This version.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { major, minor }
    }

    /// Refuses `what` if this version is older than `since`.
    pub(crate) fn check(self, what: impl fmt::Display, since: Self) -> Result<()> {
        if self >= since {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "Linux {self} cannot write {what}, expected {since} or later: leave it out, or give a later version"
        )))
    }
}

impl fmt::Display for LinuxVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for LinuxVersion {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            Error::invalid(format!("invalid Linux version \"{text}\": expected one such as 5.15 or 6.1.38"))
        };
        // Rust's parser would accept a plus sign.
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let mut numbers = text.split('.').map(|number| match is_number(number) {
            true => number.parse::<u16>().ok(),
            false => None,
        });
        let (major, minor) = (numbers.next(), numbers.next());
        let is_version = numbers.next().is_none_or(|number| number.is_some()) && numbers.next().is_none();
        match (major, minor) {
            (Some(Some(major)), Some(Some(minor))) if is_version => Ok(Self { major, minor }),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::LinuxVersion;

    #[test]
    fn versions_have_two_or_three_numbers() {
        for (text, wanted) in [("5.15", Some((5, 15))), ("6.1.38", Some((6, 1))), ("6.18.0", Some((6, 18)))] {
            assert_eq!(text.parse().ok(), wanted.map(|(major, minor)| LinuxVersion::new(major, minor)));
        }
        for text in [
            "", "6", "6.", ".1", "6.1.", "6.1.x", "6.1.2.3", "v6.1", "-1.2", "+6.1", "6.+1", "6.99999",
            "latest",
        ] {
            assert!(text.parse::<LinuxVersion>().is_err(), "{text}");
        }
    }
}
