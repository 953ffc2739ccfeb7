//! Queries of a live Btrfs mount, whether the kernel serves it or Creamery.
//!
//! Both answer the controls of `linux/btrfs.h` whose whole message is in the bytes that their numbers announce, Creamery through
//! `subvolumes/ioctl`. These answer most questions without regard to the server: the type of a path, the
//! names of an inode, the place of a subvolume. A search in a tree (`search`) is for root, and on our mounts for the mounter, too.
//!
//! A message with a pointer, or of variable length, does not reach a FUSE server. There the queries use the channel of our mounts
//! ([`Live`](crate::Live)).

mod controls;
mod disk_usage;
mod properties;
mod resolve;
mod search;
mod space;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Result};
use rustix::io::Errno;

use self::controls::Answering;
use crate::control::Channel;
use crate::subvolumes::Live;
use crate::table::{is_ours, points_of_linux};

pub use space::{LiveDevice, LiveShare, LiveSpace, LiveUsage};

/// A file or directory on a live mount of Btrfs, the kernel's or one of an image. It keeps the mount busy.
///
/// ```no_run
/// use creamery_mount::LiveBtrfs;
/// let root = LiveBtrfs::at("/mnt/root".as_ref())?.expect("a mount of Btrfs");
/// println!("read-only: {:?}", root.read_only()?);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Debug)]
pub struct LiveBtrfs {
    answering: Answering,
    path: PathBuf,
}

/// Whether `path` is on a mount of Linux' own Btrfs.
///
/// ```
/// assert!(!creamery_mount::is_on_linux("/proc".as_ref()));
/// ```
#[must_use]
pub fn is_on_linux(path: &Path) -> bool {
    /// `BTRFS_SUPER_MAGIC`.
    const MAGIC: u64 = 0x9123_683e;
    rustix::fs::statfs(path).is_ok_and(|told| u64::try_from(told.f_type).is_ok_and(|kind| kind == MAGIC))
}

impl LiveBtrfs {
    /// Opens the file at `path`, with links followed; `None` if it is not on a live Btrfs mount.
    /// Errors: those of opening it for reading; it is neither a file nor a directory.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let Some(answering) = Answering::open(path)? else { return Ok(None) };
        if !answering.is_linux() {
            let meta = answering.file().metadata()?;
            match is_ours(meta.dev())? {
                Some(true) => {}
                // The mounter may have chosen another type for the mount table.
                Some(false) if meta.is_dir() => {
                    let channel = Channel::of(answering.file().try_clone()?, path.to_owned());
                    if channel.statistics().is_err() {
                        return Ok(None);
                    }
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(Self { answering, path: path.to_owned() }))
    }

    /// The mounted filesystem of the kernel's Btrfs that has the block device `device`, and that device of it; `None` if
    /// there is no such mount.
    /// Errors: the mount table cannot be read; no mount has the device, and one that names it in the table could not be opened or asked.
    pub fn of_device(device: &Path) -> Result<Option<(Self, LiveDevice)>> {
        let number = |path: &Path| std::fs::metadata(path).ok().map(|meta| meta.rdev());
        let Some(wanted) = number(device) else { return Ok(None) };
        let mut failed = None;
        for (point, is_named) in points_of_linux(device)? {
            // Another filesystem may have been mounted above it since.
            let found = Self::at(&point).and_then(|live| {
                let Some(live) = live.filter(Self::is_linux) else { return Ok(None) };
                let its = live.devices()?.into_iter().find(|one| number(&one.path) == Some(wanted));
                Ok(its.map(|its| (live, its)))
            });
            match found {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) if is_named => failed = failed.or(Some(error)),
                // The error of a mount with another device does not matter here.
                Err(_) => {}
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Whether the kernel serves it, and not Creamery.
    #[must_use]
    pub const fn is_linux(&self) -> bool {
        self.answering.is_linux()
    }

    /// Whether it is a directory.
    /// Errors: the mount does not answer.
    pub fn is_directory(&self) -> Result<bool> {
        Ok(self.answering.file().metadata()?.is_dir())
    }

    /// Fails if it is not a directory, as btrfs-progs do.
    /// Errors: not a directory.
    pub fn check_directory(&self) -> Result<()> {
        if self.is_directory()? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotADirectory, self.path.display().to_string()))
    }

    /// The path with which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens it as a directory of a mount of ours, for further queries. Errors: not a directory; the server died.
    fn ours(&self) -> Result<Live> {
        Live::at(&self.path)?
            .ok_or_else(|| Error::invalid(format!("{}: not a mount of an image", self.path.display())))
    }

    /// Converts the kernel's error, with the path in front.
    fn failed(&self, errno: Errno) -> Error {
        Error::from(std::io::Error::from(errno)).context(self.path.display())
    }
}
