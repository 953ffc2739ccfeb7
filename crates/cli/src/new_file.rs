//! Files that a command makes on its way.

use std::fs::File;
use std::path::Path;

use creamery::partitions::ImageName;
use creamery::{Error, ErrorKind, Filesystem};

use crate::place::is_image;

/// Makes a file of the host for what a command has to say; what is there goes.
/// Errors: it is an image, or the name of a partition that does not exist; the host's.
pub(crate) fn make_file(path: &Path) -> Result<File, Error> {
    if is_image(path) {
        let what = "it holds a filesystem, which would be lost";
        return Err(Error::new(ErrorKind::AlreadyExists, what).on_host(path).advise("name another file"));
    }
    ImageName::refuse_part(path).map_err(|error| error.on_host(path))?;
    File::create(path).map_err(|error| Error::from(error).on_host(path))
}

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
