//! How many files may be open: a copy onto the host holds each directory that it is in.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// As many from now on as the system lets this process have. The usual limit is a low one for the sake of programs with select(2).
pub(crate) fn allow_all() {
    let limit = getrlimit(Resource::Nofile);
    // Where that cannot be had, deep trees end with an error that says so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
