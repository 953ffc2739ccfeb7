//! Space on the host for a commit without a request of a user.

use std::os::unix::fs::MetadataExt;

use creamery_base::{Error, ErrorKind, Result};
use creamery_maint::scrub::HostPaths;

/// A commit needs less than this, bytes.
const ROOM: u64 = 16 << 20;

/// Checks that the host has space for the writes of a commit to devices that are sparse files. A failed commit ends all writing to the mount, and the counters
/// of a scrub are not worth that.
///
/// Errors: no space.
pub(super) fn check_host_room(paths: &HostPaths) -> Result<()> {
    for path in paths.values() {
        let Ok(meta) = std::fs::metadata(path) else { continue };
        let is_sparse = meta.is_file() && meta.blocks().saturating_mul(512) < meta.len();
        let Some(host) = rustix::fs::statvfs(path).ok().filter(|_| is_sparse) else { continue };
        let room = host.f_bavail.saturating_mul(host.f_frsize);
        if room < ROOM {
            let what =
                format!("the host has {room} bytes left for {}, and a commit may need more", path.display());
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
    }
    Ok(())
}
