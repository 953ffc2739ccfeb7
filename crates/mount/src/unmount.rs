//! Unmounting from outside, and waiting until the image is closed: a tool that reads it a moment later must not find
//! it half flushed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Access, FileDevice};
use rustix::mount::UnmountFlags;

use crate::table::{is_mounted, mounted_at};

/// Time between two looks at whether the image is closed.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// When an unmount is over.
///
/// ```
/// assert_ne!(creamery_mount::How::WhenIdle, creamery_mount::How::Lazy);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// Refuse while files are open or somebody's working directory is there; wait until the image is closed.
    WhenIdle,
    /// Take it out of sight at once and do not wait; the image is closed when the last user has left.
    Lazy,
}

/// Unmounts what is mounted at `dir` and, unless it is lazy, returns when the image is closed and durable,
/// or still mounted at another place.
/// Errors: nothing of ours is mounted there; in use; what the system said.
pub fn unmount(dir: &Path, how: How) -> Result<()> {
    let mounted = mounted_at(dir)?;
    detach(&mounted.point, how)
        .map_err(|error| error.context(format_args!("unmounting {}", dir.display())))?;
    if how == How::WhenIdle && !mounted.lives_on()? {
        wait_until_closed(&mounted.image);
    }
    Ok(())
}

fn detach(point: &Path, how: How) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        let flags = if how == How::Lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
        return match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(rustix::io::Errno::BUSY) => Err(Error::new(
                ErrorKind::Busy,
                "files are open there, or it is somebody's working directory (-l detaches it all the same)",
            )),
            Err(errno) => Err(std::io::Error::from(errno).into()),
        };
    }
    let mut command = Command::new("fusermount3");
    command.arg("-u").args((how == How::Lazy).then_some("-z")).arg("--").arg(point);
    let output = command.output().map_err(|error| Error::from(error).context("running fusermount3"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Busy, String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// The server holds the image's lock until everything is durable. Who mounts the image meanwhile gets the lock right after
/// it; then it is not ours to wait for any more.
fn wait_until_closed(image: &Path) {
    while let Err(error) = FileDevice::open(image, Access::ReadOnly) {
        if error.kind() != ErrorKind::Busy || is_mounted(image) {
            break; // gone, or not ours to look at: nothing to wait for
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
