//! The numbers of mounts.

use std::os::fd::{AsRawFd, OwnedFd};

use creamery_base::{Error, Result};
use rustix::fs::{AtFlags, StatxFlags, statx};

/// A bit of statx(2).
const STATX_MNT_ID_UNIQUE: u32 = 0x4000;

/// The number that identifies a mount.
///
/// ```no_run
/// use creamery_fuse::PinnedPoint;
/// let mount = PinnedPoint::open("/mnt".as_ref())?.number()?;
/// assert_eq!(PinnedPoint::open("/mnt".as_ref())?.number()?, mount);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MountNumber {
    /// The first field of `/proc/self/mountinfo`. The kernel reuses it after an unmount.
    pub id: u64,
    /// The number that no other mount ever has; `None` before Linux 6.8.
    pub unique: Option<u64>,
}

impl MountNumber {
    /// The mount of an open file. Does not ask its server.
    ///
    /// # Errors
    /// `/proc` is missing.
    pub(super) fn of(file: &OwnedFd) -> Result<Self> {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd()))?;
        let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
        let id = id.ok_or_else(|| Error::unsupported("mount ID is missing in /proc/self/fdinfo"))?;
        Ok(Self { id, unique: unique_number(file) })
    }
}

/// The unique number of the mount of an open file. Does not ask the mount's server.
fn unique_number(file: &OwnedFd) -> Option<u64> {
    let unique = StatxFlags::from_bits_retain(STATX_MNT_ID_UNIQUE);
    let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, "", flags, unique).ok()?;
    (found.stx_mask & STATX_MNT_ID_UNIQUE != 0).then_some(found.stx_mnt_id)
}
