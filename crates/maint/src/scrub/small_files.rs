//! Small files in a directory of one user: reads of limited length, and locks.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind as IoKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::{FlockOperation, OFlags, flock};

/// Open flags: links are not followed, and opening a pipe does not block.
pub(super) const NO_SURPRISE: i32 = (OFlags::NOFOLLOW.bits() | OFlags::NONBLOCK.bits()).cast_signed();
/// The number of tries for a lock that another process may hold for a moment; the pause between two is [`nap`].
pub(super) const LOOKS: u32 = 20;
const MOMENT: Duration = Duration::from_millis(5);
/// Whether a scrubbing process holds the exclusive lock of the file.
pub(super) fn is_held(lock: &File) -> std::io::Result<bool> {
    match flock(lock, FlockOperation::NonBlockingLockShared) {
        Ok(()) => flock(lock, FlockOperation::Unlock).map(|()| false).map_err(Into::into),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// Opens or makes a file that is only locked.
pub(super) fn lock_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600).custom_flags(NO_SURPRISE);
    options.open(path)
}

/// Tries up to `looks` times to lock a file that another process may have locked for a moment, to read or replace the locked data. Returns
/// whether it is locked.
pub(super) fn is_locked_within(file: &File, looks: u32) -> bool {
    (0..looks).any(|_| flock(file, FlockOperation::NonBlockingLockExclusive).is_ok() || nap())
}

/// Pauses for a moment.
pub(super) fn nap() -> bool {
    std::thread::sleep(MOMENT);
    false
}

/// The content of a file of at most `max` bytes; `None` if there is no file. Errors: it is longer; it cannot be read.
pub(super) fn read(path: &Path, max: u64) -> Result<Option<Vec<u8>>> {
    let about = |error: std::io::Error| Error::from(error).context(path.display());
    let mut text = Vec::new();
    match OpenOptions::new().read(true).custom_flags(NO_SURPRISE).open(path) {
        Err(error) if error.kind() == IoKind::NotFound => return Ok(None),
        file => file.and_then(|file| file.take(max + 1).read_to_end(&mut text)).map_err(about)?,
    };
    if text.len() as u64 > max {
        let what = format!("{} exceeds {max} bytes", path.display());
        return Err(Error::new(ErrorKind::InvalidData, what).advise("remove the file"));
    }
    Ok(Some(text))
}
