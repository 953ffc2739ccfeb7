//! Mounting and unmounting: by mount(2) where we may, else through `fusermount3`, which is installed setuid
//! for just that and hands us the descriptor of `/dev/fuse` over a socket.
//!
//! # Invariants
//! - MOUNT-1: the mount point is opened once, and mount(2) takes what is open. Unmounting opens the directory of the path where that lies
//!   and takes the mount with the numbers that ours got (see `pinned`), so neither follows a link that was put there later. A mount that was not
//!   found in the table is not unmounted.
//! - MOUNT-2: what was mounted one way is unmounted the same way.
//! - MOUNT-3: at most one successful unmount, and at a session's end only of what is ours by its connection or its unique number: the
//!   kernel gives the other numbers of a mount that is gone to the next one, which may lie at the same place. Where neither is to be
//!   seen, a dead mount stays.

mod direct;
mod fusermount;
mod held;
mod number;
mod options;
mod pinned;
mod table;

pub use held::HeldMount;
pub use number::MountNumber;
pub use options::MountOptions;
pub use pinned::PinnedPoint;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::{Mode, OFlags, open};

use self::table::Row;
use crate::transport::Device;

/// When an unmount may end.
///
/// ```no_run
/// # fn example(session: creamery_fuse::Session) -> creamery_base::Result<()> {
/// use creamery_fuse::Unmount;
/// session.unmounter().unmount(Unmount::Lazy)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmount {
    /// Fails while files are open or directories in use.
    WhenIdle,
    /// Takes the mount out of sight at once; it is gone when the last user leaves.
    Lazy,
    /// The same, and cuts off who still uses it: what they ask from now on fails, and the session ends.
    Now,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Direct,
    Fusermount,
    /// Somebody else mounts; we only serve.
    Foreign,
}

/// Looks for what was just mounted: somebody may exchange directories on its way meanwhile.
const LOOKS: usize = 100;

/// A mount of ours.
#[derive(Debug)]
pub(crate) struct Mount {
    point: PathBuf,
    method: Method,
    /// Its row of the mount table, if it could be found there.
    row: Option<Row>,
    gone: AtomicBool,
}

impl Mount {
    /// Mounts. The kernel has queued its `INIT` on the device by then.
    pub(crate) fn new(point: &Path, options: &MountOptions) -> Result<(Self, Device)> {
        mount(point, options).map_err(|error| error.context(format_args!("mounting on {}", point.display())))
    }

    /// A mount somebody else made, or will make.
    pub(crate) fn foreign() -> Self {
        Self { point: PathBuf::new(), method: Method::Foreign, row: None, gone: AtomicBool::new(false) }
    }

    /// What was just mounted on the directory `opened`, which may have another path by now (MOUNT-1).
    fn at(opened: &File, method: Method) -> Result<Self> {
        let found = || {
            let point = std::fs::read_link(open_path(opened)).ok()?;
            Some((table::mount_at(&point)?, point))
        };
        let gone = AtomicBool::new(false);
        match std::iter::repeat_with(found).take(LOOKS).flatten().next() {
            Some((row, point)) => Ok(Self { point, method, row: Some(row), gone }),
            None => Ok(Self { point: std::fs::read_link(open_path(opened))?, method, row: None, gone }),
        }
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// The kernel has closed the connection: unmounted, or aborted with the dead mount still in its place.
    pub(crate) fn clean_up(&self) {
        let there = table::mount_at(&self.point);
        if self.row.as_ref().zip(there.as_ref()).is_some_and(|(ours, there)| ours.is_same(there)) {
            // Nothing better can be done about a mount that refuses this, too.
            let _ = self.unmount(Unmount::Lazy);
        }
        self.mark_gone();
    }

    /// Ends the connection with the kernel, which whoever mounted may do. One that ended by itself is as good.
    fn cut_off(&self) -> Result<()> {
        let Some(abort) = self.row.as_ref().and_then(Row::abort_file) else { return Ok(()) };
        match std::fs::write(abort, "1") {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn mark_gone(&self) {
        self.gone.store(true, Ordering::Release);
    }

    pub(crate) fn unmount(&self, how: Unmount) -> Result<()> {
        if self.is_gone() || self.row.as_ref().is_some_and(Row::is_gone) {
            return Ok(());
        }
        let result = match self.method {
            Method::Direct => match &self.row {
                Some(row) => PinnedPoint::open(&self.point).and_then(|point| point.unmount(row.number, how)),
                None => {
                    let what = "the mount was not found in the mount table: unmount it with umount(8)";
                    Err(Error::new(ErrorKind::NotFound, what))
                }
            },
            Method::Fusermount => {
                // While it is mounted the connection's number is ours; after that it may be somebody else's.
                let cut_off = if how == Unmount::Now { self.cut_off() } else { Ok(()) };
                fusermount::unmount(&self.point, how).and(cut_off)
            }
            Method::Foreign => Err(Error::unsupported("unmounting what somebody else mounted")),
        };
        match result {
            Ok(()) => {
                self.mark_gone();
                Ok(())
            }
            Err(error) => Err(error.context(format_args!("unmounting {}", self.point.display()))),
        }
    }
}

/// The path that leads to what is open, whatever has its name by now.
fn open_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

fn mount(point: &Path, options: &MountOptions) -> Result<(Mount, Device)> {
    let opened: File =
        open(point, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(std::io::Error::from)?.into();
    let point = std::fs::read_link(open_path(&opened))?;
    if rustix::process::geteuid().is_root() && !options.through_helper {
        match direct::mount(&opened, options) {
            Ok(device) => return Ok((Mount::at(&opened, Method::Direct)?, device)),
            // Root of a namespace that may not mount.
            Err(direct::Failure::NotPermitted) => {}
            Err(direct::Failure::Other(error)) => return Err(error),
        }
    }
    let device = fusermount::mount(&point, options)?;
    Ok((Mount::at(&opened, Method::Fusermount)?, device))
}
