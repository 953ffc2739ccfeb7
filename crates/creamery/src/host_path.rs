//! The place on the host that a command writes a regular file to.
//!
//! A symbolic link at that place stands for the file that it leads to, as with cp(1). The kernel alone follows it: in a sticky directory that
//! everybody may write to (`/tmp`) it refuses links of other users, `fs.protected_symlinks`, and a library that reads links itself goes past
//! that rule. The directory of the file is opened and stays open; the file that has the name there must be the one that the kernel came to.
//!
//! # Invariants
//! - HOSTPATH-1: no link is read to find a file; the path of an open file says where it lies.
//! - HOSTPATH-2: the file found by the directory and the name is the file that the user's path led to. An exchange in between is an error.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::{SIGNATURES_END, find_signature};
use rustix::fs::{AtFlags, Mode, OFlags, open, openat, statat};
use rustix::io::Errno;

/// A directory of the host, and the name of a file that is there or will be.
#[derive(Debug)]
pub(crate) struct HostPath {
    dir: OwnedFd,
    dir_path: PathBuf,
    name: OsString,
    /// The file that has the name, opened with `O_PATH`.
    there: Option<File>,
}

fn on_host(path: &Path) -> impl Fn(Errno) -> Error + Copy + '_ {
    move |errno| Error::from(std::io::Error::from(errno)).on_host(path)
}

fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

impl HostPath {
    /// Finds where a regular file goes that the user calls `to`.
    ///
    /// # Errors
    /// A link that leads nowhere, or that the kernel does not follow; a path without a name at its end; a directory that cannot be opened.
    pub(crate) fn find(to: &Path) -> Result<Self> {
        let failed = on_host(to);
        let there = match open(to, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(there) => Some(File::from(there)),
            Err(Errno::NOENT) if std::fs::symlink_metadata(to).is_ok() => {
                return Err(Error::new(ErrorKind::NotFound, "is a link that leads nowhere").on_host(to));
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        let is_file = |file: &File| file.metadata().is_ok_and(|meta| meta.is_file());
        // HOSTPATH-1. What is no file may have no path: a pipe behind /dev/stdout.
        let path = match there.as_ref().filter(|there| is_file(there)) {
            Some(file) => std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))
                .map_err(|error| Error::from(error).on_host(to))?,
            None => to.to_owned(),
        };
        let name = path.file_name().ok_or_else(|| failed(Errno::ISDIR))?.to_owned();
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let dir_path = parent.unwrap_or(Path::new(".")).to_owned();
        let dir = open_dir(&dir_path).map_err(on_host(&dir_path))?;
        let found = Self { dir, dir_path, name, there };
        match found.there.as_ref().is_some_and(is_file) {
            true => found.check_unexchanged().map_err(|error| error.on_host(to)).map(|()| found),
            false => Ok(found),
        }
    }

    /// HOSTPATH-2
    fn check_unexchanged(&self) -> Result<()> {
        let Some(there) = &self.there else { return Ok(()) };
        let meta = there.metadata()?;
        match statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_dev, found.st_ino) == (meta.dev(), meta.ino()) => Ok(()),
            _ => Err(Error::new(ErrorKind::Busy, "somebody exchanged it while it was looked up")),
        }
    }

    /// The path of the file, with the links followed that led to it.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir_path.join(&self.name)
    }

    /// The name in the directory.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The attributes of the file that has the name.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn metadata(&self) -> Result<Option<Metadata>> {
        let meta = self.there.as_ref().map(File::metadata).transpose();
        meta.map_err(|error| Error::from(error).on_host(&self.path()))
    }

    /// Opens the file that has the name for reading. `None`: there is none, or this user may not read it.
    pub(crate) fn read(&self) -> Option<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat(&self.dir, &self.name, flags, Mode::empty()).ok()?;
        self.there.as_ref().map(|_| File::from(file))
    }

    /// The open directory and its path.
    pub(crate) fn into_dir(self) -> (OwnedFd, PathBuf) {
        (self.dir, self.dir_path)
    }

    /// Refuses to replace an image, or a disk with partitions, by a file that is written to its name. Everywhere else an image alone stands for
    /// its root directory.
    pub(crate) fn refuse_image(&self) -> Result<()> {
        let Some(file) = self.read() else { return Ok(()) };
        let mut head = Vec::new();
        // A file that cannot be read is found out where it is replaced.
        let _ = file.take(SIGNATURES_END as u64).read_to_end(&mut head);
        let found = find_signature(&head).filter(|found| found.is_btrfs() || found.has_partitions);
        let Some(found) = found else { return Ok(()) };
        let what = format!("holds {}, and this would replace all of it", found.name);
        Err(Error::new(ErrorKind::AlreadyExists, what).on_host(&self.path()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("far")).unwrap();
        std::fs::write(dir.path().join("far/file"), "old").unwrap();
        for (link, target) in
            [("near", "far/file"), ("twice", "near"), ("nowhere", "none"), ("round", "round")]
        {
            std::os::unix::fs::symlink(target, dir.path().join(link)).unwrap();
        }
        dir
    }

    #[test]
    fn a_link_stands_for_the_file_that_it_leads_to() {
        let dir = scene();
        for name in ["far/file", "near", "twice", "./far/../near"] {
            let found = HostPath::find(&dir.path().join(name)).unwrap();
            assert_eq!(found.path(), dir.path().canonicalize().unwrap().join("far/file"), "{name}");
            assert!(found.metadata().unwrap().unwrap().is_file() && found.read().is_some(), "{name}");
        }
    }

    #[test]
    fn a_free_name_is_found_in_its_directory() {
        let dir = scene();
        let found = HostPath::find(&dir.path().join("far/new")).unwrap();
        assert_eq!(found.path(), dir.path().join("far/new"));
        assert!(found.metadata().unwrap().is_none() && found.read().is_none());
    }

    #[test]
    fn links_that_lead_nowhere_or_round_are_refused() {
        let dir = scene();
        let refused = HostPath::find(&dir.path().join("nowhere")).unwrap_err();
        assert!(refused.to_string().contains("leads nowhere"), "{refused}");
        HostPath::find(&dir.path().join("round")).unwrap_err();
        HostPath::find(Path::new("/")).unwrap_err();
    }

    #[test]
    fn a_file_that_takes_the_name_meanwhile_is_noticed() {
        let dir = scene();
        let found = HostPath::find(&dir.path().join("near")).unwrap();
        std::fs::remove_file(dir.path().join("far/file")).unwrap();
        std::fs::write(dir.path().join("far/file"), "another").unwrap();
        assert_eq!(found.check_unexchanged().unwrap_err().kind(), ErrorKind::Busy);
    }
}
