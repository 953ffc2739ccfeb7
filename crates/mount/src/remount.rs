//! `mount -o remount`: new flags for a live mount.

use std::path::Path;
use std::time::Duration;

use creamery_base::{Error, ErrorKind, Result};

use crate::control::Channel;
use crate::options::Options;
use crate::table::held_at;

/// Gives the mount at `dir` the flags of `options` (`ro`, `rw`, `noatime`, ...). When it becomes read-only, everything that was
/// done on it is durable and nothing is left to do for the server: the image does not change until it becomes writable again.
/// From then on access times move as they say, and new data is compressed as they say. What else the server does (`subvol=`, owners) stays as it is.
/// Errors: nothing of ours is mounted there; `commit=` and other words about writing say something else than when it was mounted; not root; files are open for writing and it is to become read-only; it is
/// to become writable, but was mounted from an image opened read-only, or has aborted; not everything is durable.
pub fn remount(dir: &Path, options: &Options) -> Result<()> {
    let (mounted, point, held) = held_at(dir)?;
    let channel = Channel::through(&held, &mounted.point)?;
    let to_be_read_only = options.transport.read_only();
    let told = channel.statistics()?;
    let why_not = match told.filesystem.aborted {
        _ if to_be_read_only => None,
        _ if told.opened_for_reading => Some(format!(
            "it was mounted read-only, and {} is open only for reading",
            mounted.image.display()
        )),
        aborted => {
            aborted.map(|aborted| format!("nothing can be written to it any more: {}", aborted.reason))
        }
    };
    if let Some(why_not) = why_not {
        let message = format!("{}: {why_not}: unmount it and mount it read-write", dir.display());
        return Err(Error::new(ErrorKind::ReadOnly, message));
    }
    if let Some(word) = options.first_that_changes(&told.writing) {
        let message = format!(
            "mount option {word}: how {} is written was said when it was mounted, and stays: unmount it and mount it again",
            mounted.image.display()
        );
        return Err(Error::new(ErrorKind::Unsupported, message));
    }
    // Before, so that the kernel is not kept long with writers shut out.
    channel.sync()?;
    let remounted = until_closed(|| point.remount(held.number(), &options.transport));
    remounted.map_err(|error| error.context(format_args!("remounting {}", dir.display())))?;
    if let Some(compression) = options.compression() {
        channel.compress(&compression)?;
    }
    // And after: what came in between. Then the server sees the new flags, too.
    channel.sync()
}

/// Asks again for a moment when something is in use: a file that was closed is open to the kernel until the server has answered that.
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
