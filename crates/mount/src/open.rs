//! Opening an image for a mount.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{Error, Result};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_fs::{Filesystem, FsOptions};
use creamery_txn::Engine;
use creamery_volume::{Mode, Volume};

/// Opens the filesystem in the image file or on the block device at `path`. It is ours alone until it is dropped.
/// Errors: no filesystem; damage; a state that does not allow writing; somebody else has it open.
pub fn open(path: &Path, read_only: bool) -> Result<Arc<Filesystem>> {
    open_parts(path, read_only).map_err(|error| named(error, path))
}

fn open_parts(path: &Path, read_only: bool) -> Result<Arc<Filesystem>> {
    let (access, mode) = match read_only {
        true => (Access::ReadOnly, Mode::ReadOnly),
        false => (Access::ReadWrite, Mode::ReadWrite),
    };
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(path, access)?);
    let volume = Volume::open(vec![device], mode)?;
    let options = creamery_txn::Options { read_only, ..creamery_txn::Options::default() };
    Filesystem::open(Engine::open(volume, options)?, FsOptions::default())
}

/// Puts the image's path in front of a message that does not say it yet.
fn named(error: Error, path: &Path) -> Error {
    let shown = path.display().to_string();
    if error.to_string().contains(&shown) { error } else { error.context(shown) }
}
