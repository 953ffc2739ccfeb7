//! A mount whose root directory is open.
//!
//! The kernel reuses the number of a mount only after nothing holds the mount any more. So a caller that holds a mount can read the mount
//! table, ask the server and unmount, and all three concern one mount, even if other processes mount and unmount at the same path
//! meanwhile.
//!
//! # Invariants
//! - HELDMOUNT-1: the server is asked, and the mount is detached, through the descriptor and not through a path.
//!   Shown by `a_held_mount_is_detached_and_no_other`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, OFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::number::MountNumber;
use super::open_path;

/// A mount that is held open, which keeps it busy.
///
/// ```no_run
/// use creamery_fuse::PinnedPoint;
/// let mount = PinnedPoint::open("/mnt".as_ref())?.hold()?;
/// if mount.ask().is_err_and(|error| error.kind() == std::io::ErrorKind::NotConnected) {
///     mount.detach()?;
/// }
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Debug)]
pub struct HeldMount {
    pub(super) root: File,
    number: MountNumber,
}

impl HeldMount {
    pub(super) fn of(root: OwnedFd) -> Result<Self> {
        let number = MountNumber::of(&root)?;
        Ok(Self { root: root.into(), number })
    }

    /// Returns the number of the mount.
    #[must_use]
    pub const fn number(&self) -> MountNumber {
        self.number
    }

    /// Asks the server for the attributes of the root directory. The kernel does not answer from its cache, and does not check permissions
    /// of that directory.
    ///
    /// # Errors
    /// `ENOTCONN`, `ECONNABORTED`: the server has died. `EACCES`: this process may not enter the mount. The server's error.
    pub fn ask(&self) -> std::io::Result<()> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_FORCE_SYNC;
        statx(&self.root, "", flags, StatxFlags::BASIC_STATS)?;
        Ok(())
    }

    /// Opens the root directory for reading.
    ///
    /// # Errors
    /// The permissions of the directory; the server's error; it is not a directory; `/proc` is missing.
    pub fn open_root(&self) -> std::io::Result<File> {
        let flags = OFlags::DIRECTORY.bits().cast_signed();
        File::options().read(true).custom_flags(flags).open(open_path(&self.root))
    }

    /// Detaches this mount and everything that is mounted below it.
    ///
    /// # Errors
    /// `NotFound`: it is not mounted any more. Those of umount(2).
    pub fn detach(&self) -> Result<()> {
        // HELDMOUNT-1
        match rustix::mount::unmount(open_path(&self.root), UnmountFlags::DETACH) {
            Ok(()) => Ok(()),
            Err(Errno::INVAL) => Err(ErrorKind::NotFound.into()),
            Err(errno) => Err(Error::from(std::io::Error::from(errno))),
        }
    }
}
