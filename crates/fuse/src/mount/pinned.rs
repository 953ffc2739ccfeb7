//! A mount point whose directory is open.
//!
//! Root unmounts and remounts paths below directories of other users. Between reading the mount table and the system call such a user can
//! replace a directory on the way with a symbolic link, and the path then leads to another mount. So the directory is opened once, the
//! mount on the name in it is identified by its number, and umount(2) goes through the open directory. The kernel does not rename or remove
//! a name that is a mount point in this namespace, so the name leads to the same mount until the unmount.
//!
//! # Invariants
//! - PINNED-1: umount(2) is called for a mount with the expected number, and follows no link at the end of its path.
//!   Shown by `an_exchanged_directory_leads_to_no_other_mount`, `the_next_mount_with_the_number_of_one_that_is_gone_stays`.
//! - PINNED-2: mount(2) changes the flags of a mount with the expected number, by a descriptor of its root directory.
//!   Shown by `an_exchanged_directory_has_no_other_mount_remounted`.

use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags, open, openat};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::held::HeldMount;
use super::number::MountNumber;
use super::{MountOptions, Unmount, direct, open_path};

/// A name in an open directory that is a mount point.
///
/// ```no_run
/// use creamery_fuse::{PinnedPoint, Unmount};
/// let point = PinnedPoint::open("/mnt".as_ref())?;
/// let mount = point.number()?;
/// point.unmount(mount, Unmount::WhenIdle)?;
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Debug)]
pub struct PinnedPoint {
    dir: OwnedFd,
    name: OsString,
}

fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

fn another() -> Error {
    Error::new(ErrorKind::NotFound, "another mount took its place")
}

impl PinnedPoint {
    /// Opens the directory of `point`, a resolved path.
    ///
    /// # Errors
    /// A path without a name at its end; a directory that cannot be opened.
    pub fn open(point: &Path) -> Result<Self> {
        let (Some(parent), Some(name)) = (point.parent(), point.file_name()) else {
            return Err(Error::invalid("expected a mount point, found /"));
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = open(parent, flags, Mode::empty()).map_err(error)?;
        Ok(Self { dir, name: name.to_owned() })
    }

    /// The number of the mount on top at the name. Does not ask its server, so this works for a dead one.
    ///
    /// # Errors
    /// The name does not exist; `/proc` is missing.
    pub fn number(&self) -> Result<MountNumber> {
        self.hold().map(|held| held.number())
    }

    /// Holds the mount on top at the name, so that its numbers are not reused. Does not ask its server.
    ///
    /// # Errors
    /// Those of [`number`](Self::number).
    pub fn hold(&self) -> Result<HeldMount> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        HeldMount::of(openat(&self.dir, &self.name, flags, Mode::empty()).map_err(error)?)
    }

    /// Gives the mount `expected` there the flags of `options`, like `ro`, `noatime` and `nodev`. The kernel enforces them without
    /// the server.
    ///
    /// # Errors
    /// `NotFound`: that mount is not on top at the name. `Busy`: it is to become read-only and files are open for writing. Not root.
    pub fn remount(&self, expected: MountNumber, options: &MountOptions) -> Result<()> {
        let held = self.hold()?;
        // PINNED-2
        if held.number() != expected {
            return Err(another());
        }
        direct::remount(&open_path(&held.root), options)
    }

    /// Unmounts the mount `expected` there.
    ///
    /// # Errors
    /// `NotFound`: that mount is not on top at the name. `Busy`: files are open, and `how` is [`Unmount::WhenIdle`]. Those of umount(2).
    pub fn unmount(&self, expected: MountNumber, how: Unmount) -> Result<()> {
        // PINNED-1
        if self.number()? != expected {
            return Err(another());
        }
        let flags = match how {
            Unmount::WhenIdle => UnmountFlags::NOFOLLOW,
            Unmount::Lazy => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
            Unmount::Now => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH | UnmountFlags::FORCE,
        };
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.dir.as_raw_fd())).join(&self.name);
        match rustix::mount::unmount(&path, flags) {
            Ok(()) => Ok(()),
            Err(Errno::BUSY) => Err(ErrorKind::Busy.into()),
            // It is not mounted (any more).
            Err(Errno::INVAL) => Err(ErrorKind::NotFound.into()),
            Err(errno) => Err(error(errno)),
        }
    }
}
