//! `SOURCE_DATE_EPOCH`, the time of reproducible builds (reproducible-builds.org): with it the same commands on the same image make the same
//! bytes. The clock stands still at that time, and random ids follow from what is done.

use std::sync::Arc;

use creamery::{Env, Error, FixedEnv, SystemEnv, Timespec};

/// The time that it names, if it is set.
///
/// # Errors
/// It is no number of seconds.
pub(crate) fn epoch() -> Result<Option<Timespec>, Error> {
    let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let sec = text.to_str().and_then(|text| text.parse().ok());
    let wrong = || Error::invalid(format!("SOURCE_DATE_EPOCH is {text:?}, want seconds since 1970"));
    Ok(Some(Timespec { sec: sec.ok_or_else(wrong)?, nsec: 0 }))
}

/// Clock and randomness for an image that is written and not mounted.
///
/// # Errors
/// As [`epoch`].
pub(crate) fn env() -> Result<Arc<dyn Env>, Error> {
    Ok(match epoch()? {
        Some(epoch) => Arc::new(FixedEnv::reproducible(epoch, 0)),
        None => Arc::new(SystemEnv),
    })
}
