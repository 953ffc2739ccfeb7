//! Reads the source tree: attributes of files, xattrs, data and holes.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use creamery_base::{Error, ErrorKind, Result, Timespec};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

/// An open directory of the source tree.
pub(crate) struct SourceDir {
    pub(crate) fd: OwnedFd,
    /// The path from the root of the source tree, for messages; empty for the root itself.
    pub(crate) path: Vec<u8>,
}

/// The attributes of a source file, without its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Meta {
    pub(crate) kind: FileType,
    /// Permission bits, set-id bits and the sticky bit.
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) nlink: u64,
    pub(crate) size: u64,
    /// Device number of a device node.
    pub(crate) rdev: u64,
    pub(crate) atime: Timespec,
    pub(crate) mtime: Timespec,
    /// The device number on the host.
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    /// Extended attributes, sorted by name.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The target of a symbolic link.
    pub(crate) target: Vec<u8>,
}

pub(crate) fn io_error(errno: Errno) -> Error {
    Error::from(std::io::Error::from(errno))
}

/// `path` joined with `name`, for messages.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = path.to_vec();
    if !joined.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

/// Prefixes a message with the source path.
pub(crate) fn at_path(path: &[u8]) -> impl FnOnce(Error) -> Error + use<> {
    let path = String::from_utf8_lossy(if path.is_empty() { b"." } else { path }).into_owned();
    move |error| error.context(format!("reading source '{path}'"))
}

impl SourceDir {
    /// The root of the source tree.
    pub(crate) fn root(path: &std::path::Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| {
            io_error(errno).context(format!("opening source directory '{}'", path.display()))
        })?;
        Ok(Self { fd, path: Vec::new() })
    }

    /// Opens a directory in this one.
    pub(crate) fn open_dir(&self, name: &CStr) -> Result<Self> {
        let path = join(&self.path, name.to_bytes());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
        let fd = open_quietly(self.fd.as_fd(), name, flags).map_err(io_error).map_err(at_path(&path))?;
        Ok(Self { fd, path })
    }

    /// Opens the parent directory; `path` is its path.
    pub(crate) fn open_parent(&self, path: Vec<u8>) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = open_quietly(self.fd.as_fd(), c"..", flags).map_err(io_error).map_err(at_path(&path))?;
        Ok(Self { fd, path })
    }

    /// Whether `name` is a directory on the host.
    pub(crate) fn is_dir(&self, name: &CStr) -> Result<bool> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io_error)?;
        Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
    }

    /// The attributes of this directory itself.
    pub(crate) fn meta(&self) -> Result<Meta> {
        let stat = rustix::fs::fstat(&self.fd).map_err(io_error)?;
        let mut meta = from_stat(&stat);
        meta.xattrs = read_xattrs(&Handle::Open(self.fd.as_fd()))?;
        Ok(meta)
    }

    pub(crate) fn stat(&self, name: &CStr) -> Result<Meta> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(io_error)?;
        Ok(from_stat(&stat))
    }

    /// Opens the regular file `name`.
    pub(crate) fn open_file(&self, name: &CStr) -> Result<OwnedFd> {
        // NONBLOCK: if a fifo has replaced the file since its stat, opening it must not wait for ever.
        open_quietly(self.fd.as_fd(), name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK)
            .map_err(io_error)
    }

    /// The extended attributes of a file that is neither regular nor a directory.
    pub(crate) fn special_xattrs(&self, name: &CStr) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = format!("/proc/self/fd/{}/", self.fd.as_raw_fd());
        let path = [path.as_bytes(), name.to_bytes()].concat();
        read_xattrs(&Handle::Named(std::ffi::CString::new(path).expect("a name has no zero byte")))
    }

    pub(crate) fn read_link(&self, name: &CStr) -> Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.fd, name, Vec::new()).map_err(io_error)?.into_bytes())
    }
}

/// Opens without changing the access time if the host permits that (to owners and root).
fn open_quietly(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => rustix::fs::openat(dir, name, flags, Mode::empty()),
        outcome => outcome,
    }
}

/// A time from `stat`, whose nanoseconds have another type on each architecture.
fn time(sec: i64, nsec: impl TryInto<u32>) -> Timespec {
    Timespec { sec, nsec: nsec.try_into().unwrap_or(0) }
}

pub(crate) fn from_stat(stat: &Stat) -> Meta {
    Meta {
        kind: FileType::from_raw_mode(stat.st_mode),
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        nlink: stat.st_nlink,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        rdev: stat.st_rdev,
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        dev: stat.st_dev,
        ino: stat.st_ino,
        xattrs: Vec::new(),
        target: Vec::new(),
    }
}

/// The source of a file's xattrs.
pub(crate) enum Handle<'a> {
    Open(BorrowedFd<'a>),
    Named(std::ffi::CString),
}

impl Handle<'_> {
    fn list(&self, out: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::flistxattr(fd, out),
            Self::Named(path) => rustix::fs::llistxattr(path.as_c_str(), out),
        }
    }

    fn get(&self, name: &CStr, out: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Self::Open(fd) => rustix::fs::fgetxattr(fd, name, out),
            Self::Named(path) => rustix::fs::lgetxattr(path.as_c_str(), name, out),
        }
    }
}

/// Calls with growing buffers until the answer fits. `None` if the host has no xattrs there.
fn growing(call: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Option<Vec<u8>>> {
    // Linux limits both a value and a list to 64 KiB.
    for len in [256, 4 << 10, 64 << 10, 1 << 20] {
        let mut buffer = vec![0; len];
        match call(&mut buffer) {
            Ok(filled) => {
                buffer.truncate(filled);
                return Ok(Some(buffer));
            }
            Err(Errno::RANGE) => {}
            Err(Errno::OPNOTSUPP | Errno::NODATA | Errno::NOSYS) => return Ok(None),
            // Without /proc a special file cannot be named; it rarely has xattrs.
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            Err(errno) => return Err(io_error(errno)),
        }
    }
    Err(Error::new(ErrorKind::Unsupported, "extended attribute larger than 1 MiB"))
}

/// Whether an xattr is kept: the host's own ones (`system.nfs4_acl`, `btrfs.compression`, ...) describe the host's filesystem, not the
/// file.
fn is_kept(name: &[u8]) -> bool {
    [&b"user."[..], b"trusted.", b"security."].iter().any(|space| name.starts_with(space))
        || name == b"system.posix_acl_access"
        || name == b"system.posix_acl_default"
}

pub(crate) fn read_xattrs(from: &Handle<'_>) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    // Most files have none: try a buffer on the stack first.
    let mut few = [0; 256];
    let list = match from.list(&mut few) {
        Ok(0) => return Ok(Vec::new()),
        Ok(len) => few[..len].to_vec(),
        Err(_) => match growing(|out| from.list(out))? {
            Some(list) => list,
            None => return Ok(Vec::new()),
        },
    };
    let mut xattrs = Vec::new();
    for name in list.split_inclusive(|&byte| byte == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if !is_kept(name.to_bytes()) {
            continue;
        }
        let value = growing(|out| from.get(name, out))
            .map_err(|error| error.context(format!("xattr {}", name.to_string_lossy())))?;
        if let Some(value) = value {
            xattrs.push((name.to_bytes().to_vec(), value));
        }
    }
    xattrs.sort();
    Ok(xattrs)
}

/// The parts of a file that hold data, `[start, end)`, widened to whole blocks of `unit` bytes (the last one ends
/// at `size`). Parts that touch are one.
pub(crate) fn data_parts(fd: BorrowedFd<'_>, size: u64, unit: u64) -> Result<Vec<(u64, u64)>> {
    use rustix::fs::{SeekFrom, seek};
    // Most files have no hole at all, which one call shows.
    if matches!(seek(fd, SeekFrom::Hole(0)), Ok(first) if first >= size) {
        return Ok(vec![(0, size)]);
    }
    let mut parts: Vec<(u64, u64)> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(fd, SeekFrom::Data(at)) {
            Ok(start) => start,
            Err(Errno::NXIO) => break,
            // The host cannot report holes: everything is data.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(vec![(0, size)]),
            Err(errno) => return Err(io_error(errno)),
        };
        let end = match seek(fd, SeekFrom::Hole(start)) {
            Ok(end) => end,
            Err(Errno::NXIO) => break,
            Err(errno) => return Err(io_error(errno)),
        };
        if end <= at {
            break; // never with a sane host
        }
        at = end;
        let start = start / unit * unit;
        let end = end.div_ceil(unit).saturating_mul(unit).min(size);
        match parts.last_mut() {
            Some(last) if last.1 >= start => last.1 = last.1.max(end),
            _ if start < end => parts.push((start, end)),
            _ => {}
        }
    }
    Ok(parts)
}

/// Reads at most `len` bytes at `offset` into a new buffer, which is empty at the end of the file.
pub(crate) fn read_some(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    loop {
        match rustix::io::pread(fd, &mut bytes[..], offset) {
            Ok(count) => {
                bytes.truncate(count);
                return Ok(bytes);
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(io_error(errno)),
        }
    }
}

/// Reads exactly `len` bytes at `offset` into a new buffer.
pub(crate) fn read_exactly(fd: BorrowedFd<'_>, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        match rustix::io::pread(fd, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => return Err(Error::new(ErrorKind::Io, "the file was truncated while it was read")),
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(errno) => return Err(io_error(errno)),
        }
    }
    bytes.truncate(len); // the allocation may be larger than asked for
    Ok(bytes)
}
