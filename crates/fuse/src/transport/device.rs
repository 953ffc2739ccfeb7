//! The descriptor of `/dev/fuse` and its clones.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use creamery_base::{Error, ErrorKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags, major, minor};
use rustix::io::Errno;

/// One channel to the kernel: a connection may have several, and a reply must go out on the one its request
/// came in.
#[derive(Debug)]
pub(crate) struct Device {
    fd: OwnedFd,
}

/// Major and minor number of FUSE's device.
const NUMBER: (u32, u32) = (10, 229);
/// `FUSE_DEV_IOC_CLONE`.
const CLONE: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(229, 0);

/// The error of opening `/dev/fuse`, with what to do.
pub(crate) fn cannot_be_opened(errno: Errno) -> Error {
    const CONTAINER: &str = "give it to the container (--device /dev/fuse)";
    let (kind, what, advice) = match errno {
        Errno::NOENT => (
            ErrorKind::NotFound,
            "there is no /dev/fuse",
            format!("load the kernel's FUSE (modprobe fuse), or {CONTAINER}"),
        ),
        Errno::NODEV | Errno::NXIO => (
            ErrorKind::Unsupported,
            "there is no FUSE behind /dev/fuse",
            "load the kernel's FUSE (modprobe fuse), or use a kernel that has it".to_owned(),
        ),
        Errno::ACCESS | Errno::PERM => (
            ErrorKind::PermissionDenied,
            "this user may not open /dev/fuse",
            format!("let root give it mode 666, or {CONTAINER}"),
        ),
        errno => return Error::from(std::io::Error::from(errno)).context("opening /dev/fuse"),
    };
    Error::new(kind, what).advise(advice)
}

impl Device {
    /// A fresh channel that belongs to no connection yet.
    /// Errors: those of opening; `NXIO` if another driver's node lies at that path.
    pub(crate) fn open() -> Result<Self, Errno> {
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let is_fuse = FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice
            && (major(stat.st_rdev), minor(stat.st_rdev)) == NUMBER;
        if is_fuse { Ok(Self { fd }) } else { Err(Errno::NXIO) }
    }

    /// A further channel of the same connection. Without access to `/dev/fuse` (if the mount helper opened it)
    /// the same channel again, which only costs contention.
    pub(crate) fn another(&self) -> Result<Self, Errno> {
        if let Ok(fresh) = Self::open() {
            let ours = u32::try_from(self.fd.as_raw_fd()).expect("an open descriptor is not negative");
            // SAFETY: the driver of FUSE, whose number `open` has seen, reads one u32 through the pointer that `Setter` makes,
            // which lives across the call, and changes no memory of this process.
            let cloned =
                unsafe { rustix::ioctl::ioctl(&fresh.fd, rustix::ioctl::Setter::<CLONE, u32>::new(ours)) };
            if cloned.is_ok() {
                return Ok(fresh);
            }
        }
        rustix::io::fcntl_dupfd_cloexec(&self.fd, 3).map(Self::from)
    }

    /// Waits for a message and puts it into `buffer`.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        rustix::io::read(&self.fd, buffer)
    }

    /// Whether a message waits to be read.
    pub(crate) fn is_readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Sends one message: all of it, or nothing.
    pub(crate) fn write(&self, pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
        rustix::io::retry_on_intr(|| rustix::io::writev(&self.fd, pieces)).map(drop)
    }
}

impl From<OwnedFd> for Device {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
