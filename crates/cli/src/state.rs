//! The place of this program's persistent state.

use std::path::PathBuf;

use creamery::Error;

/// The directory for the status of scrubs: `$XDG_STATE_HOME/creamery`; else `/var/lib/creamery` for root, and `~/.local/state/creamery` for
/// others.
/// Errors: no such place is known.
pub(crate) fn dir() -> Result<PathBuf, Error> {
    let of = |variable: &str, below: &str| {
        let dir = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
        dir.map(|dir| dir.join(below))
    };
    let lasting = match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/lib/creamery")),
        false => of("HOME", ".local/state/creamery"),
    };
    of("XDG_STATE_HOME", "creamery").or(lasting).ok_or_else(|| {
        let what = "no directory for the scrub status: neither XDG_STATE_HOME nor HOME is an absolute path";
        Error::invalid(what).advise("set XDG_STATE_HOME")
    })
}
