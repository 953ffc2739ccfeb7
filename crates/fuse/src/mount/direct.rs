//! Mounts with mount(2), as root.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use creamery_base::{Error, ErrorKind};
use rustix::io::Errno;

use super::{MountOptions, open_path};
use crate::transport::{Device, cannot_be_opened};

pub(super) enum Failure {
    NotPermitted,
    Other(Error),
}

fn failed(what: &str, errno: Errno) -> Failure {
    Failure::Other(Error::from(std::io::Error::from(errno)).context(what))
}

/// Mounts at `point`, which is open.
pub(super) fn mount(point: &File, options: &MountOptions) -> Result<Device, Failure> {
    let stat = rustix::fs::fstat(point).map_err(|errno| failed("looking at the mount point", errno))?;
    let device = Device::open().map_err(|errno| match errno {
        Errno::ACCESS | Errno::PERM => Failure::NotPermitted,
        errno => Failure::Other(cannot_be_opened(errno)),
    })?;
    let data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}{}",
        device.as_fd().as_raw_fd(),
        stat.st_mode & 0o170_000,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        options.kernel_words(),
    );
    let data = CString::new(data).expect("our own words hold no NUL");
    let source = word("fsname", options.source())?;
    let kind = word("subtype", &options.kind())?;
    let point = open_path(point);
    match rustix::mount::mount(source.as_c_str(), point, kind.as_c_str(), options.flags, data.as_c_str()) {
        Ok(()) => Ok(device),
        Err(Errno::PERM) => Err(Failure::NotPermitted),
        Err(Errno::NODEV) => {
            Err(Failure::Other(Error::new(ErrorKind::Unsupported, "the kernel has no FUSE")))
        }
        Err(errno) => Err(failed("mount(2)", errno)),
    }
}

fn word(name: &str, value: &str) -> Result<CString, Failure> {
    CString::new(value)
        .map_err(|_| Failure::Other(Error::invalid(format!("mount option {name} contains a NUL"))))
}

/// Gives the mount at `point`, a path that leads exactly to its root directory, the flags of `options`; the kernel's FUSE options cannot
/// change any more.
pub(super) fn remount(point: &Path, options: &MountOptions) -> creamery_base::Result<()> {
    match rustix::mount::mount_remount(point, options.flags, c"") {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(ErrorKind::Busy.into()),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}
