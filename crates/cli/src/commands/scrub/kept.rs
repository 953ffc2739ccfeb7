//! The place of the status of an image's scrub.

use std::path::Path;

use creamery::Error;
use creamery::check::scrub::{Scrub, StatusFile};

use crate::state;
use crate::view::DeviceArgs;

/// The file with the status of the last scrub of an image.
pub(super) fn status_file(image: &Path, set: &DeviceArgs) -> Result<StatusFile, Error> {
    Scrub::status_file(set.of(image), &state::dir()?)
}
