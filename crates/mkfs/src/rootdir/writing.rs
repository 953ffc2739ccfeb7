//! Names the source file in an error.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery_base::Error;

/// Adds to an error the source file that could not be copied into the image.
pub(super) fn writing(path: &[u8]) -> impl FnOnce(Error) -> Error + use<> {
    let path = path.to_vec();
    move |error| {
        let path = Path::new(std::ffi::OsStr::from_bytes(if path.is_empty() { b"." } else { &path }));
        error.context(format!("writing '{}'", path.display()))
    }
}
