//! What an error says of the file of the source that it is about.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery_base::Error;

/// Says which file of the source could not be put into the image.
pub(super) fn writing(path: &[u8]) -> impl FnOnce(Error) -> Error + use<> {
    let path = path.to_vec();
    move |error| {
        let path = Path::new(std::ffi::OsStr::from_bytes(if path.is_empty() { b"." } else { &path }));
        error.context(format!("writing '{}'", path.display()))
    }
}
