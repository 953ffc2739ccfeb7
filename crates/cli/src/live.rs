//! Places on live mounts of Btrfs, the kernel's and ours, for commands that treat both alike.

use std::ffi::OsStr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use creamery::{Error, Image};
use creamery_mount::LiveBtrfs;

use crate::failure::Failure;
use crate::path_in_image::{End, is_image, is_no_image, mount_of};
use crate::view::refuse_on_mount;

/// Whether the path is a block device of the host.
pub(crate) fn is_block_device(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device())
}

/// The place that `text` names on a live mount of Btrfs; `None` if it is, or can only be, an image.
/// Errors: a directory on no such mount; a pipe, a socket or a device that is no disk; an option that is about an image.
pub(crate) fn live_btrfs(command: &'static str, text: &OsStr) -> Result<Option<LiveBtrfs>, Failure> {
    let live = find(command, text)?;
    if let Some(live) = &live {
        refuse_on_mount(live.path()).map_err(|error| Failure::new(command, error))?;
    }
    Ok(live)
}

fn find(command: &'static str, text: &OsStr) -> Result<Option<LiveBtrfs>, Failure> {
    let End::Host(path) = End::parse(text) else { return Ok(None) };
    let meta = match std::fs::metadata(&path) {
        Ok(meta) => meta,
        // On a mount of ours it is no image either.
        Err(error) if mount_of(&path).is_some() && !is_image(&path) => {
            return Err(Failure::new(command, Error::from(error).context(path.display())));
        }
        Err(_) => return Ok(None),
    };
    if meta.file_type().is_block_device() {
        return Ok(None);
    }
    if !meta.is_file() {
        return at(command, &path).map(Some);
    }
    // Opening the path as an image gives the error.
    let Some(live) = LiveBtrfs::at(&path).ok().flatten() else { return Ok(None) };
    match Image::open(&path) {
        Err(error) if is_no_image(&error) => Ok(Some(live)),
        _ => Ok(None),
    }
}

/// The place `path` on a live mount of Btrfs.
/// Errors: it is on none; an option that is about an image.
pub(crate) fn live_at(command: &'static str, path: &Path) -> Result<LiveBtrfs, Failure> {
    refuse_on_mount(path).map_err(|error| Failure::new(command, error))?;
    at(command, path)
}

fn at(command: &'static str, path: &Path) -> Result<LiveBtrfs, Failure> {
    let live = LiveBtrfs::at(path).map_err(|error| Failure::new(command, error))?;
    live.ok_or_else(|| {
        let text = format!("{} is not on a Btrfs mount", path.display());
        let advice = "name a path on a live mount, or IMAGE:/PATH in an image that is not mounted";
        Failure::new(command, Error::unsupported(text)).advise(advice)
    })
}
