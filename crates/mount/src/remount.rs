//! `mount -o remount`: new flags for a live mount.

use std::path::Path;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Access, FileDevice};

use crate::options::Options;
use crate::table::{MountedImage, mounted_at};

/// Gives the mount at `dir` the flags of `options` (`ro`, `rw`, `noatime`, ...). Everything is durable before the flags change.
/// What only the server could change (`subvol=`, `commit=`, owners) stays as it is.
/// Errors: nothing of ours is mounted there; not root; files are open for writing and it is to become read-only; it is
/// to become writable, but was mounted from an image opened read-only.
pub fn remount(dir: &Path, options: &Options) -> Result<()> {
    let MountedImage { point, image, .. } = mounted_at(dir)?;
    let nothing_to_write = served_read_only(&image);
    if nothing_to_write && !options.transport.read_only() {
        let message = format!(
            "{}: it was mounted read-only, and {} is open only for reading: unmount it and mount it read-write",
            dir.display(),
            image.display()
        );
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    if !nothing_to_write {
        std::fs::File::open(&point)?.sync_all()?;
    }
    let remounted = creamery_fuse::remount(&point, &options.transport);
    remounted.map_err(|error| error.context(format_args!("remounting {}", dir.display())))
}

/// A server that writes has the image for itself; beside one that only reads others may read.
fn served_read_only(image: &Path) -> bool {
    FileDevice::open(image, Access::ReadOnly).is_ok()
}
