//! Files that a command makes in between.

use std::path::Path;

use creamery::{Error, Filesystem};

/// Runs `change`, which may make the file at `path`. If it fails, a file that did not exist before is removed again; the target of a
/// symbolic link stays.
pub(crate) fn or_remove<T>(
    fs: &Filesystem,
    path: &Path,
    change: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let is_there = fs.symlink_metadata(path).is_ok();
    change().inspect_err(|_| {
        if !is_there {
            // The first error counts, and there may be no file to remove.
            let _ = fs.remove_file(path);
        }
    })
}
