//! What can be asked of a live mount of Btrfs, whoever serves it: the kernel or we.
//!
//! Both answer the controls of `linux/btrfs.h` whose message is all in the bytes that their numbers tell, ours through
//! `subvolumes/ioctl`. With these most questions are answered without asking whose mount it is: what kind of a thing a path is, which
//! names an inode has, where a subvolume is. A search in a tree (`search`) is for root, and on ours for the mounter, too.
//!
//! What has a pointer in its message, or a tail of any length, reaches no server of FUSE. There ours is asked by its own channel
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

/// Whether what is at `path` is on a mount of Linux' own Btrfs, whoever may read it.
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
    /// Opens what is at `path`, where a link leads; none if that is on no live mount of Btrfs.
    /// Errors: those of opening it for reading; it is neither a file nor a directory.
    pub fn at(path: &Path) -> Result<Option<Self>> {
        let Some(answering) = Answering::open(path)? else { return Ok(None) };
        if !answering.is_linux() {
            let meta = answering.file().metadata()?;
            match is_ours(meta.dev())? {
                Some(true) => {}
                // The mounter may have chosen another type for the table to show.
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

    /// The filesystem of the kernel's that is mounted and has the block device `device`, and which of its devices that is; none if
    /// there is no such mount.
    /// Errors: the mount table cannot be read; of no mount it can be told, and those of opening the root of one.
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
                // One of another device is nobody's business here.
                Err(_) => {}
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Whether the kernel serves it, and not a program of ours.
    #[must_use]
    pub const fn is_linux(&self) -> bool {
        self.answering.is_linux()
    }

    /// Whether it is a directory.
    /// Errors: the mount does not answer.
    pub fn is_directory(&self) -> Result<bool> {
        Ok(self.answering.file().metadata()?.is_dir())
    }

    /// Refuses what is no directory, where btrfs-progs take nothing else.
    /// Errors: not a directory.
    pub fn check_directory(&self) -> Result<()> {
        if self.is_directory()? {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotADirectory, self.path.display().to_string()))
    }

    /// Where it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// It as a directory of a mount of ours, which has answers of its own. Errors: no directory; the server is gone.
    fn ours(&self) -> Result<Live> {
        Live::at(&self.path)?
            .ok_or_else(|| Error::invalid(format!("{}: no mount of an image", self.path.display())))
    }

    /// What the kernel said, with the path in front.
    fn failed(&self, errno: Errno) -> Error {
        Error::from(std::io::Error::from(errno)).context(self.path.display())
    }
}
