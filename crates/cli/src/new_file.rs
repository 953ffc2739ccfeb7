//! Files that a command makes on its way.

use std::path::Path;

use creamery::{Error, Filesystem};

/// Does `change`, which may make the file at `path`. Where it fails, a file that was not there before is removed again; what a
/// symbolic link leads to stays.
pub(crate) fn or_remove<T>(
    fs: &Filesystem,
    path: &Path,
    change: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    let is_there = fs.symlink_metadata(path).is_ok();
    change().inspect_err(|_| {
        if !is_there {
            // The reason is what counts, and it may have made nothing.
            let _ = fs.remove_file(path);
        }
    })
}
