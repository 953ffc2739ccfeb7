//! The limit of open files: a copy to the host keeps each directory on its path open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to the maximum for this process. The default limit is low for programs with select(2).
pub(crate) fn allow_all() {
    let limit = getrlimit(Resource::Nofile);
    // If that fails, deep trees end with an error that names the limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
