//! `SOURCE_DATE_EPOCH`, the time of reproducible builds (reproducible-builds.org): with it equal commands on equal images make equal bytes.
//! The clock stops at that time, and random ids follow from the work.

use std::ffi::OsStr;
use std::sync::Arc;

use creamery::Error;
use creamery::attributes::Timespec;
use creamery::env::{Env, FixedEnv, SystemEnv};
use creamery::error::Escaped;

/// The time that the variable gives. An empty variable counts as unset, as for gcc.
///
/// # Errors
/// It is no number of seconds since 1970, or one that no time of a Btrfs can be.
pub(crate) fn epoch() -> Result<Option<Timespec>, Error> {
    let text = std::env::var_os("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty());
    text.map(|text| parse(&text)).transpose()
}

fn parse(text: &OsStr) -> Result<Timespec, Error> {
    // Rust's parser would accept a sign.
    let digits = text.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let wrong = || {
        let shown = Escaped(text.as_encoded_bytes());
        let most = i64::MAX;
        Error::invalid(format!(
            "SOURCE_DATE_EPOCH: expected seconds since 1970, 0 to {most}, found '{shown}'"
        ))
    };
    let sec = digits.and_then(|text| text.parse().ok()).ok_or_else(wrong)?;
    Ok(Timespec { sec, nsec: 0 })
}

/// Clock and randomness for writing an image that is not mounted.
///
/// # Errors
/// Those of [`epoch`].
pub(crate) fn env() -> Result<Arc<dyn Env>, Error> {
    Ok(match epoch()? {
        Some(epoch) => Arc::new(FixedEnv::reproducible(epoch, 0)),
        None => Arc::new(SystemEnv),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_without_a_sign_that_a_filesystem_can_hold() {
        let sec = |text: &str| parse(text.as_ref()).map(|time| time.sec).ok();
        let rows = [
            ("0", Some(0)),
            ("1700000000", Some(1_700_000_000)),
            ("9223372036854775807", Some(i64::MAX)),
            ("9223372036854775808", None),
            ("-1", None),
            ("+1", None),
            (" 1", None),
            ("1.5", None),
            ("yesterday", None),
        ];
        for (text, want) in rows {
            assert_eq!(sec(text), want, "{text}");
        }
    }
}
