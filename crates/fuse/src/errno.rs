//! Error numbers: the only place that converts between [`ErrorKind`] and the system's `errno`.

use std::fmt;

use creamery_base::ErrorKind;
use rustix::io::Errno as Raw;

/// Result of one operation: the answer, or the error number for the caller of the system call.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

/// An error number as a FUSE reply can carry it: 1 to 511.
///
/// ```
/// use creamery_base::ErrorKind;
/// use creamery_fuse::Errno;
/// assert_eq!(Errno::from(ErrorKind::NotFound), Errno::ENOENT);
/// assert_eq!(Errno::new(100_000), Errno::EIO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $raw:ident;)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Self = Self(Raw::$raw.raw_os_error());)*

            const fn name(self) -> Option<&'static str> {
                $(if self.0 == Self::$name.0 { return Some(stringify!($name)); })*
                None
            }
        }
    };
}

errnos! {
    /// Operation not permitted.
    EPERM = PERM;
    /// No such file or directory.
    ENOENT = NOENT;
    /// Interrupted.
    EINTR = INTR;
    /// Input/output error.
    EIO = IO;
    /// Argument list, or a value, too long.
    E2BIG = TOOBIG;
    /// Bad file handle.
    EBADF = BADF;
    /// Try again.
    EAGAIN = AGAIN;
    /// Out of memory.
    ENOMEM = NOMEM;
    /// Permission denied.
    EACCES = ACCESS;
    /// In use.
    EBUSY = BUSY;
    /// The name is taken.
    EEXIST = EXIST;
    /// Crosses a filesystem or subvolume boundary.
    EXDEV = XDEV;
    /// There is no such device.
    ENODEV = NODEV;
    /// Not a directory.
    ENOTDIR = NOTDIR;
    /// Is a directory.
    EISDIR = ISDIR;
    /// Invalid argument.
    EINVAL = INVAL;
    /// The file does not know this control.
    ENOTTY = NOTTY;
    /// File too large.
    EFBIG = FBIG;
    /// No space left.
    ENOSPC = NOSPC;
    /// Read-only filesystem.
    EROFS = ROFS;
    /// Too many links.
    EMLINK = MLINK;
    /// Does not fit the caller's buffer.
    ERANGE = RANGE;
    /// Name too long.
    ENAMETOOLONG = NAMETOOLONG;
    /// Not implemented: the kernel remembers it and stops asking.
    ENOSYS = NOSYS;
    /// Directory not empty.
    ENOTEMPTY = NOTEMPTY;
    /// Too many symbolic links.
    ELOOP = LOOP;
    /// No such attribute.
    ENODATA = NODATA;
    /// No such device, or no data past this offset.
    ENXIO = NXIO;
    /// Protocol error.
    EPROTO = PROTO;
    /// Too large for the type.
    EOVERFLOW = OVERFLOW;
    /// Not supported.
    EOPNOTSUPP = OPNOTSUPP;
    /// Over quota.
    EDQUOT = DQUOT;
    /// The handle's object is gone.
    ESTALE = STALE;
    /// The filesystem is damaged.
    EUCLEAN = UCLEAN;
}

impl Errno {
    /// The number `raw`; one that a reply cannot carry becomes [`Errno::EIO`].
    #[must_use]
    pub const fn new(raw: i32) -> Self {
        if raw > 0 && raw < 512 { Self(raw) } else { Self::EIO }
    }

    /// The bare number, positive.
    #[must_use]
    pub const fn get(self) -> i32 {
        self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "Errno({})", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), f)
    }
}

impl std::error::Error for Errno {}

impl From<Raw> for Errno {
    fn from(raw: Raw) -> Self {
        Self::new(raw.raw_os_error())
    }
}

impl From<ErrorKind> for Errno {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::ENOENT,
            ErrorKind::AlreadyExists => Self::EEXIST,
            ErrorKind::NotADirectory => Self::ENOTDIR,
            ErrorKind::IsADirectory => Self::EISDIR,
            ErrorKind::DirectoryNotEmpty => Self::ENOTEMPTY,
            ErrorKind::InvalidInput | ErrorKind::InvalidData => Self::EINVAL,
            ErrorKind::NameTooLong => Self::ENAMETOOLONG,
            ErrorKind::NoSpace => Self::ENOSPC,
            ErrorKind::QuotaExceeded => Self::EDQUOT,
            ErrorKind::ReadOnly | ErrorKind::Aborted => Self::EROFS,
            ErrorKind::PermissionDenied => Self::EPERM,
            ErrorKind::WouldBlock => Self::EAGAIN,
            ErrorKind::Corrupt => Self::EUCLEAN,
            ErrorKind::Unsupported => Self::EOPNOTSUPP,
            ErrorKind::Busy => Self::EBUSY,
            ErrorKind::TooManyLinks => Self::EMLINK,
            ErrorKind::TooManyCollisions => Self::EOVERFLOW,
            ErrorKind::FileTooLarge => Self::EFBIG,
            ErrorKind::NoAttribute => Self::ENODATA,
            ErrorKind::Range => Self::ERANGE,
            ErrorKind::Stale => Self::ESTALE,
            ErrorKind::CrossDevice => Self::EXDEV,
            ErrorKind::TooManySymlinks => Self::ELOOP,
            ErrorKind::Interrupted => Self::EINTR,
            // `Io` and `Unreadable`, and kinds younger than this table.
            _ => Self::EIO,
        }
    }
}

impl From<&creamery_base::Error> for Errno {
    fn from(error: &creamery_base::Error) -> Self {
        error.kind().into()
    }
}

impl From<creamery_base::Error> for Errno {
    fn from(error: creamery_base::Error) -> Self {
        error.kind().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_errno_linux_users_expect() {
        let rows = [
            (ErrorKind::NotFound, 2),
            (ErrorKind::AlreadyExists, 17),
            (ErrorKind::NotADirectory, 20),
            (ErrorKind::IsADirectory, 21),
            (ErrorKind::DirectoryNotEmpty, 39),
            (ErrorKind::InvalidInput, 22),
            (ErrorKind::NameTooLong, 36),
            (ErrorKind::NoSpace, 28),
            (ErrorKind::QuotaExceeded, 122),
            (ErrorKind::ReadOnly, 30),
            (ErrorKind::PermissionDenied, 1),
            (ErrorKind::WouldBlock, 11),
            (ErrorKind::Io, 5),
            (ErrorKind::Corrupt, 117),
            (ErrorKind::Unsupported, 95),
            (ErrorKind::Busy, 16),
            (ErrorKind::Unreadable, 5),
            (ErrorKind::TooManyLinks, 31),
            (ErrorKind::TooManyCollisions, 75),
            (ErrorKind::FileTooLarge, 27),
            (ErrorKind::NoAttribute, 61),
            (ErrorKind::Range, 34),
            (ErrorKind::Stale, 116),
            (ErrorKind::CrossDevice, 18),
            (ErrorKind::TooManySymlinks, 40),
            (ErrorKind::Interrupted, 4),
            (ErrorKind::Aborted, 30),
        ];
        for (kind, raw) in rows {
            assert_eq!(Errno::from(kind).get(), raw, "{kind:?}");
        }
    }

    #[test]
    fn numbers_a_reply_cannot_carry_become_eio() {
        for raw in [0, -1, 512, i32::MIN, i32::MAX] {
            assert_eq!(Errno::new(raw), Errno::EIO);
        }
        assert_eq!(format!("{:?} {:?}", Errno::ENOENT, Errno::new(511)), "ENOENT Errno(511)");
    }
}
