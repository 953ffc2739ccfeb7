//! `mount -o remount`: new flags for a live mount.

use std::path::Path;
use std::time::Duration;

use creamery_base::{Error, ErrorKind, Result};

use crate::control::Channel;
use crate::options::Options;
use crate::table::held_at;

/// Gives the mount at `dir` the flags of `options` (`ro`, `rw`, `noatime`, ...). When it becomes read-only, all earlier changes
/// are durable and the server has no work left: the image does not change until the mount becomes writable again.
/// From then on the options decide about access times and the compression of new data. The server's other options (`subvol=`, owners) stay.
/// Errors: no mount of ours is there; `commit=` or another option for writing differs from the mount's; not root; it is to become read-only and files are open for writing; it is
/// to become writable, but the image was opened read-only, or the filesystem has aborted; some changes are not durable.
pub fn remount(dir: &Path, options: &Options) -> Result<()> {
    let (mounted, point, held) = held_at(dir)?;
    let channel = Channel::through(&held, &mounted.point)?;
    let to_be_read_only = options.transport.read_only();
    let told = channel.statistics()?;
    let why_not = match told.filesystem.aborted {
        _ if to_be_read_only => None,
        _ if told.opened_for_reading => Some(format!("{} is open only for reading", mounted.image.display())),
        aborted => aborted.map(|aborted| format!("the filesystem aborted: {}", aborted.reason)),
    };
    if let Some(why_not) = why_not {
        let message = format!("{}: {why_not}: unmount it and mount it read-write", dir.display());
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    if let Some(word) = options.first_that_changes(&told.writing) {
        let message = format!(
            "mount option {word}: a remount cannot change how {} is written: unmount it and mount it again",
            mounted.image.display()
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // A first sync, so that the kernel does not block writers for long.
    channel.sync()?;
    let remounted = until_closed(|| point.remount(held.number(), &options.transport));
    remounted.map_err(|error| error.context(format_args!("remounting {}", dir.display())))?;
    if let Some(compression) = options.compression() {
        channel.compress(&compression)?;
    }
    // A second sync, for the changes in between. Then the server sees the new flags, too.
    channel.sync()
}

/// Repeats for a moment while the mount is in use: a closed file stays open for the kernel until the server has answered.
fn until_closed(remount: impl Fn() -> Result<()>) -> Result<()> {
    const ROUND: Duration = Duration::from_millis(10);
    const ROUNDS: u32 = 20;
    for _ in 0..ROUNDS {
        match remount() {
            Err(error) if error.kind() == ErrorKind::Busy => std::thread::sleep(ROUND),
            done => return done,
        }
    }
    remount()
}
