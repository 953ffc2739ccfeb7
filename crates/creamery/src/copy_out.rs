//! The host as a sink.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, InodeId, Result};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags, fchmod, fsetxattr,
    ftruncate, futimens, linkat, lsetxattr, mkdirat, mknodat, openat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::File;
use crate::fs::Attributes;
use crate::sink::{Sink, Source, for_each_piece};

/// A directory of the host.
pub(crate) struct HostDir {
    fd: OwnedFd,
    /// From where the copy began, for hard links.
    path: PathBuf,
}

/// Makes files on the host.
pub(crate) struct HostSink {
    root: OwnedFd,
    archive: bool,
    /// Source files whose other names are still to come, where the first copy lies, and how many.
    links: HashMap<InodeId, (PathBuf, u32)>,
}

fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::invalid("a name with a zero byte"))
}

fn mode(attributes: &Attributes) -> Mode {
    Mode::from_raw_mode(attributes.mode & 0o7777)
}

impl HostSink {
    /// Copies go into `dir`, or below.
    pub(crate) fn open(dir: &Path, archive: bool) -> Result<(Self, HostDir)> {
        let open =
            || rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let failed = |errno| error(errno).context(dir.display());
        let sink = Self { root: open().map_err(failed)?, archive, links: HashMap::new() };
        Ok((sink, HostDir { fd: open().map_err(failed)?, path: PathBuf::new() }))
    }

    fn remember(&mut self, parent: &HostDir, name: &[u8], source: &Source) {
        let Attributes { id, nlink, .. } = source.attributes;
        if self.archive && nlink > 1 {
            let path = parent.path.join(std::ffi::OsString::from(os(name)));
            self.links.entry(id).or_insert((path, nlink - 1));
        }
    }

    /// Owner, xattrs, mode and times, in an order in which none undoes another.
    fn finish(&self, fd: BorrowedFd<'_>, source: &Source) -> Result<()> {
        if !self.archive {
            return Ok(());
        }
        let attributes = &source.attributes;
        tolerate(rustix::fs::fchown(fd, Some(uid(attributes)), Some(gid(attributes))))?;
        for (name, value) in &source.xattrs {
            let name = c_name(name)?;
            tolerate_xattr(&name, fsetxattr(fd, &name, value, XattrFlags::empty()))?;
        }
        fchmod(fd, mode(attributes)).map_err(error)?;
        futimens(fd, &timestamps(attributes)).map_err(error)
    }

    /// The same for what cannot be opened.
    fn finish_node(&self, dir: &HostDir, name: &CString, source: &Source) -> Result<()> {
        if !self.archive {
            return Ok(());
        }
        let attributes = &source.attributes;
        let keep = AtFlags::SYMLINK_NOFOLLOW;
        tolerate(rustix::fs::chownat(&dir.fd, name, Some(uid(attributes)), Some(gid(attributes)), keep))?;
        for (xattr, value) in &source.xattrs {
            // There is no call that takes a directory and a name, but there is this path.
            let path =
                [format!("/proc/self/fd/{}/", dir.fd.as_raw_fd()).as_bytes(), name.to_bytes()].concat();
            let (path, xattr) = (c_name(&path)?, c_name(xattr)?);
            tolerate_xattr(&xattr, lsetxattr(&path, &xattr, value, XattrFlags::empty()))?;
        }
        if attributes.kind != crate::fs::FileType::Symlink {
            rustix::fs::chmodat(&dir.fd, name, mode(attributes), AtFlags::empty()).map_err(error)?;
        }
        utimensat(&dir.fd, name, &timestamps(attributes), keep).map_err(error)
    }
}

fn os(name: &[u8]) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name)
}

fn uid(attributes: &Attributes) -> Uid {
    Uid::from_raw(attributes.uid)
}

fn gid(attributes: &Attributes) -> Gid {
    Gid::from_raw(attributes.gid)
}

fn timestamps(attributes: &Attributes) -> Timestamps {
    let time = |time: creamery_base::Timespec| Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps {
        last_access: time(attributes.times.access),
        last_modification: time(attributes.times.modification),
    }
}

/// Who is not root cannot give files away: the copy is theirs then, as with cp(1).
fn tolerate(outcome: rustix::io::Result<()>) -> Result<()> {
    match outcome {
        Err(Errno::PERM | Errno::INVAL) if !rustix::process::geteuid().is_root() => Ok(()),
        outcome => outcome.map_err(error),
    }
}

/// The host may know no such xattr, or allow it to root only.
fn tolerate_xattr(name: &CString, outcome: rustix::io::Result<()>) -> Result<()> {
    let outcome = match outcome {
        Err(Errno::OPNOTSUPP) => Ok(()),
        Err(Errno::PERM) if !name.to_bytes().starts_with(b"user.") => tolerate(Err(Errno::PERM)),
        outcome => outcome.map_err(error),
    };
    outcome.map_err(|error| error.context(format!("xattr {}", name.to_string_lossy())))
}

/// Calls `make` again without what has the name, when something has.
fn replacing<R>(dir: &HostDir, name: &CString, make: impl Fn() -> rustix::io::Result<R>) -> Result<R> {
    match make() {
        Err(Errno::EXIST) => {
            unlinkat(&dir.fd, name, AtFlags::empty()).map_err(error)?;
            make().map_err(error)
        }
        outcome => outcome.map_err(error),
    }
}

impl Sink for HostSink {
    type Dir = HostDir;

    fn enter(&mut self, parent: &HostDir, name: &[u8], source: &Source) -> Result<HostDir> {
        let path = parent.path.join(os(name));
        let name = c_name(name)?;
        // Writable until everything is in.
        let first = mode(&source.attributes) | Mode::RWXU;
        match mkdirat(&parent.fd, &name, first) {
            Err(Errno::EXIST) => {
                let there = statat(&parent.fd, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(error)?;
                if FileType::from_raw_mode(there.st_mode) != FileType::Directory {
                    let what = "something else has the name of the directory on the host";
                    return Err(Error::new(ErrorKind::AlreadyExists, what));
                }
            }
            outcome => outcome.map_err(error)?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&parent.fd, &name, flags, Mode::empty()).map_err(error)?;
        Ok(HostDir { fd, path })
    }

    fn leave(&mut self, dir: HostDir, source: &Source) -> Result<()> {
        self.finish(dir.fd.as_fd(), source)
    }

    fn file(&mut self, parent: &HostDir, name: &[u8], source: &Source, data: &File) -> Result<()> {
        let c_name = c_name(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let first = if self.archive { Mode::RUSR | Mode::WUSR } else { mode(&source.attributes) };
        let fd = replacing(parent, &c_name, || openat(&parent.fd, &c_name, flags, first))?;
        let size = source.attributes.size;
        for_each_piece(data, size, |at, bytes| {
            let mut done = 0;
            while done < bytes.len() {
                match rustix::io::pwrite(&fd, &bytes[done..], at + done as u64) {
                    Err(Errno::INTR) => {}
                    outcome => done += outcome.map_err(error)?,
                }
            }
            Ok(())
        })?;
        ftruncate(&fd, size).map_err(error)?;
        self.remember(parent, name, source);
        self.finish(fd.as_fd(), source)
    }

    fn node(&mut self, parent: &HostDir, name: &[u8], source: &Source) -> Result<()> {
        use crate::fs::FileType as Kind;
        let c_name = c_name(name)?;
        let attributes = &source.attributes;
        let kind = match attributes.kind {
            Kind::Symlink => None,
            Kind::Fifo => Some(FileType::Fifo),
            Kind::Socket => Some(FileType::Socket),
            Kind::CharDevice => Some(FileType::CharacterDevice),
            Kind::BlockDevice => Some(FileType::BlockDevice),
            _ => return Err(Error::unsupported("a file of a kind that has no name")),
        };
        match kind {
            None => {
                let target = self::c_name(&source.target)?;
                replacing(parent, &c_name, || symlinkat(&target, &parent.fd, &c_name))?;
            }
            Some(kind) => {
                let device = rustix::fs::makedev(attributes.device.major, attributes.device.minor);
                replacing(parent, &c_name, || mknodat(&parent.fd, &c_name, kind, mode(attributes), device))?;
            }
        }
        self.remember(parent, name, source);
        self.finish_node(parent, &c_name, source)
    }

    fn link(&mut self, parent: &HostDir, name: &[u8], source: &Source) -> Result<bool> {
        let id = source.attributes.id;
        let Some((path, left)) = self.links.get_mut(&id) else { return Ok(false) };
        let c_name = c_name(name)?;
        let root = &self.root;
        replacing(parent, &c_name, || linkat(root, &*path, &parent.fd, &c_name, AtFlags::empty()))?;
        *left -= 1;
        if *left == 0 {
            self.links.remove(&id);
        }
        Ok(true)
    }
}
