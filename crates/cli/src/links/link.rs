//! The result of a call under another name.

use std::ffi::OsString;
use std::process::ExitCode;

/// The meaning of a call under the name of another program.
#[derive(Debug)]
pub(crate) enum Link {
    /// Words for this program.
    Words(Vec<OsString>),
    /// The call is complete.
    Done(ExitCode),
}
