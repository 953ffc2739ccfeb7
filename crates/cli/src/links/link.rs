//! What comes of being called by another name.

use std::ffi::OsString;
use std::process::ExitCode;

/// What is asked for by the name of another program.
#[derive(Debug)]
pub(crate) enum Link {
    /// Words for this one.
    Words(Vec<OsString>),
    /// All is done.
    Done(ExitCode),
}
