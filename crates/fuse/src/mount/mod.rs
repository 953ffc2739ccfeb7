//! Mounts and unmounts: with mount(2) if possible, else with `fusermount3`, which is installed setuid
//! for that purpose and sends the descriptor of `/dev/fuse` over a socket.
//!
//! # Invariants
//! - MOUNT-1: the mount point is opened once, and mount(2) gets the open directory. Unmounting opens the parent directory of the path and
//!   unmounts the mount with the recorded numbers (see `pinned`), so neither follows a link that was put there later. A mount that was not
//!   found in the table is not unmounted.
//! - MOUNT-2: a mount is unmounted by the method that made it.
//! - MOUNT-3: at most one successful unmount, and at a session's end only of the mount with our connection or unique number: the
//!   kernel reuses the other numbers of a mount that is gone for the next one, which may lie at the same place. If neither is
//!   visible, a dead mount stays.
//!   Shown by `the_next_mount_with_the_number_of_one_that_is_gone_stays`, `an_unmount_by_somebody_else_ends_the_session`,
//!   `next_mount_stays`.

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

/// The kind of an unmount: what happens while files are in use.
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
    /// Detaches the mount from the directory tree at once; the session ends after the last use.
    Lazy,
    /// Detaches the mount from the directory tree at once, and ends the connection: further requests of its users fail, and the session
    /// ends.
    Now,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Method {
    Direct,
    Fusermount,
    /// Another process mounts; this one only serves.
    Foreign,
}

/// Number of searches for the new mount: another process may exchange directories on its way meanwhile.
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
    /// Mounts. By then the kernel has queued its `INIT` on the device.
    pub(crate) fn new(point: &Path, options: &MountOptions) -> Result<(Self, Device)> {
        mount(point, options).map_err(|error| error.context(format_args!("mounting on {}", point.display())))
    }

    /// A mount that another process made, or will make.
    pub(crate) fn foreign() -> Self {
        Self { point: PathBuf::new(), method: Method::Foreign, row: None, gone: AtomicBool::new(false) }
    }

    /// The new mount on the directory `opened`, which may have another path by now (MOUNT-1).
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

    /// Cleans up after the kernel has closed the connection: unmounted, or aborted with the dead mount still in its place.
    pub(crate) fn clean_up(&self) {
        let there = table::mount_at(&self.point);
        if self.row.as_ref().zip(there.as_ref()).is_some_and(|(ours, there)| ours.is_same(there)) {
            // If this fails, too, nothing more can be done.
            let _ = self.unmount(Unmount::Lazy);
        }
        self.mark_gone();
    }

    /// Ends the connection with the kernel, which the mounter may do. Succeeds if it has ended already.
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
                // While the filesystem is mounted, the connection's number belongs to it; after that it may belong to another one.
                let cut_off = if how == Unmount::Now { self.cut_off() } else { Ok(()) };
                fusermount::unmount(&self.point, how).and(cut_off)
            }
            Method::Foreign => Err(Error::unsupported("the session did not mount it")),
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

/// A path to an open file, whichever file has its name by now.
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
            // Root of a namespace without the right to mount.
            Err(direct::Failure::NotPermitted) => {}
            Err(direct::Failure::Other(error)) => return Err(error),
        }
    }
    let device = fusermount::mount(&point, options)?;
    Ok((Mount::at(&opened, Method::Fusermount)?, device))
}
