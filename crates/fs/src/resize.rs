//! How much of a device a filesystem has: it may have more.
//!
//! A file is made longer first, then the filesystem, in one transaction: the device's item in the chunk tree, its copy in the
//! superblock, and the sum there. A crash in between leaves a file with room behind the filesystem, which is no harm, and which
//! the next try takes. Less of a device cannot be had: what lies behind the new end would have to be moved.

use creamery_base::{DevId, Error, ErrorKind, HumanSize, Result};
use serde::{Deserialize, Serialize};

use crate::Filesystem;

/// How much of a device a filesystem is to have, bytes. What is no whole sector at the end is left out.
///
/// ```
/// # fn example(fs: &creamery_fs::Filesystem) -> creamery_base::Result<()> {
/// use creamery_base::DevId;
/// let resized = fs.resize(DevId::new(1), creamery_fs::NewSize::More(1 << 30))?;
/// assert_eq!(resized.to - resized.from, 1 << 30);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NewSize {
    /// All that there is.
    Max,
    /// So many.
    Bytes(u64),
    /// So many more than it has.
    More(u64),
    /// So many less than it has.
    Less(u64),
}

/// A device of which a filesystem has another part.
///
/// ```
/// let same = creamery_fs::Resized { device: 1, path: "disk.img".into(), from: 1 << 30, to: 1 << 30 };
/// assert_eq!(same.from, same.to);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Resized {
    /// Its number in the filesystem.
    pub device: u64,
    /// The file or device of the host, or the name of a device of one's own.
    pub path: String,
    /// Bytes that the filesystem had of it.
    pub from: u64,
    /// Bytes that it has.
    pub to: u64,
}

impl Filesystem {
    /// Has the filesystem take more of a device. A file that is too short is made longer; a partition and a block device are as
    /// long as they are. Durable when it returns, with every change so far.
    /// Errors: not found: there is no such device; unsupported: it would be less; no space: the device is shorter; read-only; those of
    /// a commit. A file may be longer then.
    pub fn resize(&self, device: DevId, size: NewSize) -> Result<Resized> {
        let engine = self.engine();
        engine.check_writable()?;
        let not_found = || Error::new(ErrorKind::NotFound, format!("there is no device {device}"));
        let on = engine.volume().device(device).ok_or_else(not_found)?;
        let has = engine.devices().into_iter().find(|member| member.id == device);
        let from = has.ok_or_else(not_found)?.total_bytes;
        // By now: it may have been made longer since it was opened.
        let len = on.lengthen(0)?;
        let wanted = match size {
            NewSize::Max => Some(len),
            NewSize::Bytes(bytes) => Some(bytes),
            NewSize::More(bytes) => from.checked_add(bytes),
            NewSize::Less(bytes) => Some(from.saturating_sub(bytes)),
        };
        let wanted = wanted.ok_or_else(|| Error::invalid("the size would be 16 EiB or more"))?;
        let sector = u64::from(engine.sector_size());
        let to = match wanted / sector * sector {
            // What is there need not end with a whole sector.
            to if wanted >= from => to.max(from),
            to => to,
        };
        if to < from {
            let (from, to) = (HumanSize(from), HumanSize(to));
            let what = format!(
                "device {device} cannot be made smaller, from {from} to {to}: what lies behind the new end would have to be \
                 moved, which is not there"
            );
            return Err(Error::unsupported(what));
        }
        if to > from {
            on.lengthen(to).map_err(|error| too_short(error, len, to))?;
            engine.grow_device(device, to)?;
            self.make_durable()?;
        }
        Ok(Resized { device: device.get(), path: on.describe(), from, to })
    }
}

/// Says of a device that has its length from elsewhere how long it is.
fn too_short(error: Error, len: u64, to: u64) -> Error {
    match error.kind() {
        ErrorKind::Unsupported => {
            let what = format!("{} are wanted and {} are there", HumanSize(to), HumanSize(len));
            Error::with_source(ErrorKind::NoSpace, what, error)
        }
        _ => error,
    }
}
