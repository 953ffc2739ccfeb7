//! Writes a file of the host as a whole.

use std::fs::File;
use std::io::{self, Seek as _};
use std::path::Path;

use creamery_base::{Error, Result};
use creamery_device::NewFile;

use super::{HostPath, InPlace, is_no_place};
use crate::copy::{refuse_file_as_directory, refuse_part};
use crate::progress::Progress;

/// Writes the file that the user calls `to` with `write`. The new file gets its name when it is whole; until then an existing regular file
/// keeps it, and passes on its rights. Written in place: a pipe, a device, an open file (`/dev/stdout`), a file with several names, a file
/// of another user, and one in a directory that takes no new name from this user.
///
/// # Errors
/// `AlreadyExists` for an image, unless `replaces_images`; the name of a partition that does not exist; the errors of `write`; the host's.
pub(crate) fn write_whole_file(
    to: &Path,
    replaces_images: bool,
    progress: &dyn Progress,
    write: &dyn Fn(&File) -> Result<()>,
) -> Result<()> {
    let host = |error: io::Error| Error::from(error).on_host(to);
    refuse_file_as_directory(to)?;
    refuse_part(to)?;
    let mut place = HostPath::find(to)?;
    // An image that is open elsewhere is reported first, because no option helps there.
    place.hold()?;
    if !replaces_images {
        place.refuse_image()?;
    }
    let write_over = |to_there: InPlace, write: &dyn Fn(&File) -> Result<()>| {
        progress.in_place(to.as_os_str().as_encoded_bytes());
        to_there.cut().map_err(host)?;
        write(to_there.file())?;
        to_there.finish().map_err(host)
    };
    if let Some(file) = place.in_place(false, replaces_images)? {
        return write_over(file, write);
    }
    let there = place.metadata()?;
    let held = place.hold()?; // Like copies out (SINK-5).
    let new = match NewFile::within(place.dir(), if there.is_some() { 0o600 } else { 0o666 }) {
        Err(error) if there.is_some() && is_no_place(&error) => {
            drop(held);
            return write_over(place.write()?, write);
        }
        new => new.map_err(host)?,
    };
    if !place.gives_owner(new.file())? {
        drop(held);
        return write_over(place.write()?, write);
    }
    place.keep_flags(new.file());
    place.keep_rights(new.file())?;
    write(new.file())?;
    let mut whole = new.file().try_clone().map_err(host)?;
    match new.publish(place.name(), place.taken()) {
        Err(error) if there.is_some() && is_no_place(&error) => {
            drop(held);
            whole.rewind().map_err(host)?;
            write_over(place.write()?, &|mut to| io::copy(&mut &whole, &mut to).map(drop).map_err(host))
        }
        outcome => outcome.map_err(host),
    }
}
