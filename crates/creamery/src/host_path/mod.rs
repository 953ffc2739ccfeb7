//! Finds the place on the host where a command writes a file.
//!
//! A symbolic link at that place stands for its target, as with cp(1). Only the kernel follows it: in a sticky directory that everybody may
//! write to (`/tmp`) the kernel refuses links of other users, `fs.protected_symlinks`, and a library that reads links itself bypasses that
//! rule. The directory of the file is opened and stays open; the file with the name in it must be the one that the kernel reached.
//!
//! A new file takes the name when it is whole. Some files are written in place instead, as by cp(1) and tar(1), because a new file would be
//! a different one:
//! - an open file (`/dev/stdout`, `/dev/fd/3`), a pipe, a device, and a file in a directory that takes no new name;
//! - a file with several names, and one with another owner or group, unless the copy brings its own owner and mode: a file that others have
//!   open or name otherwise gains no rights.
//!
//! A file that the caller may not write stays.
//!
//! # Invariants
//! - HOSTPATH-1: no link is read to find a file; the path of an open file shows where it lies.
//! - HOSTPATH-2: the file found by the directory and the name is the file that the user's path led to. An exchange in between is an error.
//!   Shown by `a_file_that_takes_the_name_meanwhile_is_noticed`.
//! - HOSTPATH-3: a file is cut, and a device written, only after the checks that protect an image. Shown by `open_files` and
//!   `pipes_and_devices`, two cases of host-targets.
//! - HOSTPATH-4: nothing is read from a pipe or a terminal, for it would be gone. Shown by `pipes_and_devices`.
//! - HOSTPATH-5: a name in a directory of a copy ([`HostPath::within`]) stands for the file itself, and not for a link's target or for
//!   other names of the file: a new file takes the name. Shown by `other_names_stay`, `a_link_that_has_a_folders_name_is_not_gone_through`.

mod held;
mod rights;
mod whole_file;

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt as _, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::{Taken, refuse_seen_use};
use creamery_format::{SIGNATURES_END, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock, find_signature};
use rustix::fs::{
    AtFlags, IFlags, Mode, OFlags, ResolveFlags, ioctl_getflags, ioctl_setflags, open, openat, openat2,
    statat,
};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{CapabilitySet, capabilities};

pub(crate) use held::InPlace;
use held::{HeldFile, SMALLEST_IMAGE};
pub(crate) use rights::{ACL, DEFAULT_ACL, owned};
pub(crate) use whole_file::write_whole_file;

/// A directory of the host, and the name of a file that exists there or will exist.
#[derive(Debug)]
pub(crate) struct HostPath {
    dir: OwnedFd,
    dir_path: PathBuf,
    name: OsString,
    /// The file with the name, opened with `O_PATH`.
    there: Option<File>,
    /// No file had the name at the lookup.
    was_free: bool,
    leads: Leads,
}

/// How a name leads to the file that was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leads {
    /// The user gave the name, and may mean the target of a link.
    ByLinks,
    /// The name leads to an open file, whatever the file's own name is.
    ToDescriptor,
    /// The name belongs to a tree that is copied: it is not followed (HOSTPATH-5).
    Nowhere,
}

fn on_host(path: &Path) -> impl Fn(Errno) -> Error + Copy + '_ {
    move |errno| Error::from(std::io::Error::from(errno)).on_host(path)
}

/// Opens a directory that need not be readable.
fn open_dir(path: &Path) -> rustix::io::Result<OwnedFd> {
    open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The directory and the name that `path` ends with.
fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some((parent.unwrap_or(Path::new(".")), path.file_name()?))
}

/// Whether the last name of `path`, which exists, leads to an open file, through any links. Asks the kernel if it can answer
/// (Linux 5.6); otherwise such a name counts as any other.
fn is_descriptor(path: &Path) -> bool {
    let Some((Ok(dir), name)) = split(path).map(|(dir, name)| (open_dir(dir), name)) else { return false };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat2(&dir, name, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS);
    // The kernel has followed all links before, so there is no circle.
    found.is_err_and(|errno| errno == Errno::LOOP)
}

/// Whether the error says that the file is a running program.
fn is_running(error: &Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::ExecutableFileBusy)
}

/// Whether this user can make a file with the owner and the group of another one.
fn is_own(meta: &Metadata) -> bool {
    let user = geteuid();
    let is_member = || {
        let groups = getgroups().unwrap_or_default();
        meta.gid() == getegid().as_raw() || groups.iter().any(|group| group.as_raw() == meta.gid())
    };
    if user.is_root() { gives_files_away() } else { meta.uid() == user.as_raw() && is_member() }
}

/// Whether root can make a file with another owner and mode: root of a container may have less rights than its number suggests.
fn gives_files_away() -> bool {
    let needed = CapabilitySet::CHOWN | CapabilitySet::FOWNER;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn is_file(file: &File) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file())
}

fn is_same(one: &File, other: &File) -> bool {
    let identity = |file: &File| file.metadata().ok().map(|meta| (meta.dev(), meta.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Whether `path` ends with a name of `file` itself, and not with a link to it.
fn is_itself(path: &Path, file: &File) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| {
        file.metadata().is_ok_and(|meta| (found.dev(), found.ino()) == (meta.dev(), meta.ino()))
    })
}

/// A path to an open file, whichever file has its name by now.
fn open_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Whether the directory keeps a file from getting a name, so that the existing file can only be written in place: the directory is not
/// writable for the caller, it is sticky and the file belongs to another user, the file is a mount point, or it is on a read-only mount.
pub(crate) fn is_no_place(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    matches!(error.kind(), PermissionDenied | ResourceBusy | ReadOnlyFilesystem)
}

impl HostPath {
    /// Finds the destination of a regular file that the user calls `to`.
    ///
    /// # Errors
    /// A link without a target, or one that the kernel does not follow; a path without a name at its end; a directory that cannot be
    /// opened.
    pub(crate) fn find(to: &Path) -> Result<Self> {
        let failed = on_host(to);
        let there = match open(to, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(there) => Some(File::from(there)),
            Err(Errno::NOENT) if std::fs::symlink_metadata(to).is_ok() => {
                return Err(Error::new(ErrorKind::NotFound, "is a dangling symbolic link").on_host(to));
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(failed(errno)),
        };
        let file = there.as_ref().filter(|there| is_file(there));
        let leads = match there.is_some() && is_descriptor(to) {
            true => Leads::ToDescriptor,
            false => Leads::ByLinks,
        };
        // HOSTPATH-1. A file that is not regular may have no path: a pipe behind /dev/stdout. A path without a link at its end may work
        // where an absolute one does not, below a directory that is closed to this user.
        let path = match file.filter(|file| leads == Leads::ByLinks && !is_itself(to, file)) {
            Some(file) => {
                std::fs::read_link(open_path(file)).map_err(|error| Error::from(error).on_host(to))?
            }
            None => to.to_owned(),
        };
        let is_checked = leads == Leads::ByLinks && file.is_some();
        let (dir_path, name) = split(&path).ok_or_else(|| failed(Errno::ISDIR))?;
        let dir = open_dir(dir_path).map_err(on_host(dir_path))?;
        let (dir_path, name, was_free) = (dir_path.to_owned(), name.to_owned(), there.is_none());
        let found = Self { dir, dir_path, name, there, was_free, leads };
        match is_checked {
            true => found.check_unexchanged().map_err(|error| error.on_host(to)).map(|()| found),
            false => Ok(found),
        }
    }

    /// Finds `name` in the open directory `dir`, whose path is `dir_path`, without following a link.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn within(dir: BorrowedFd<'_>, dir_path: PathBuf, name: &OsStr) -> Result<Self> {
        let path = dir_path.join(name);
        let dir = dir.try_clone_to_owned().map_err(|error| Error::from(error).on_host(&path))?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let there = match openat(&dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT) => None,
            there => Some(File::from(there.map_err(on_host(&path))?)),
        };
        let was_free = there.is_none();
        Ok(Self { dir, dir_path, name: name.to_owned(), there, was_free, leads: Leads::Nowhere })
    }

    /// Checks HOSTPATH-2.
    fn check_unexchanged(&self) -> Result<()> {
        let Some(there) = &self.there else { return Ok(()) };
        let meta = there.metadata()?;
        match statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if (found.st_dev, found.st_ino) == (meta.dev(), meta.ino()) => Ok(()),
            _ => Err(Error::new(ErrorKind::Busy, "it was replaced during the lookup")),
        }
    }

    /// The path of the file, with links followed.
    pub(crate) fn path(&self) -> PathBuf {
        self.dir_path.join(&self.name)
    }

    /// The name in the directory.
    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Whether a new file replaces an existing one. A file that did not exist at the lookup is unchecked, and stays,
    /// as with cp(1).
    pub(crate) const fn taken(&self) -> Taken {
        if self.was_free { Taken::Keep } else { Taken::Replace }
    }

    /// The metadata of the existing file.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn metadata(&self) -> Result<Option<Metadata>> {
        let meta = self.there.as_ref().map(File::metadata).transpose();
        meta.map_err(|error| Error::from(error).on_host(&self.path()))
    }

    /// Whether other names of the existing file do not matter to the copy (HOSTPATH-5).
    pub(crate) fn spares_other_names(&self) -> bool {
        self.leads == Leads::Nowhere
    }

    /// Opens the existing file with its content, if no new file may take its place. `None` if one may, or there is no existing file.
    /// `keeps_rights` says whether the copy brings its own owner and mode, `by_force` whether it also replaces a file that may not be
    /// written.
    ///
    /// # Errors
    /// The file may not be written. `Busy`: it is an image that is open elsewhere. The host's.
    pub(crate) fn in_place(&mut self, keeps_rights: bool, by_force: bool) -> Result<Option<InPlace>> {
        let Some(meta) = self.metadata()? else { return Ok(None) };
        let is_in_tree = self.leads == Leads::Nowhere;
        if is_in_tree && !meta.is_file() {
            return Ok(None); // HOSTPATH-5
        }
        let is_plain = self.leads != Leads::ToDescriptor && meta.is_file();
        let is_others = match is_in_tree {
            true => meta.nlink() == 1 && !is_own(&meta), // HOSTPATH-5
            false => meta.nlink() > 1 || !is_own(&meta),
        };
        let stays = !is_plain || is_others && !keeps_rights;
        let opened = if stays {
            self.write().map(Some)
        } else {
            self.reopen(OFlags::WRONLY).map(|_| None).or_else(|errno| match errno {
                // A running program keeps its file.
                Errno::TXTBSY if !by_force => Ok(None),
                _ => Err(on_host(&self.path())(errno)),
            })
        };
        match opened {
            Err(error)
                if by_force
                    && is_plain
                    && (error.kind() == ErrorKind::PermissionDenied || is_running(&error)) =>
            {
                // It goes as if it was removed: nothing of it stays.
                self.there = None;
                Ok(None)
            }
            opened => opened,
        }
    }

    /// Opens the existing file again.
    fn reopen(&self, how: OFlags) -> rustix::io::Result<File> {
        let there = self.there.as_ref().ok_or(Errno::NOENT)?;
        match open(open_path(there), how | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => {
                // A host without /proc.
                let flags = how | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = File::from(openat(&self.dir, &self.name, flags, Mode::empty())?);
                if is_same(&file, there) { Ok(file) } else { Err(Errno::NOENT) }
            }
            file => file.map(File::from),
        }
    }

    /// Opens the existing file for reading, if it is a regular file or a disk (HOSTPATH-4).
    fn read(&self) -> rustix::io::Result<Option<File>> {
        let kind = self.there.as_ref().and_then(|there| there.metadata().ok()).map(|meta| meta.file_type());
        match kind.is_some_and(|kind| kind.is_file() || kind.is_block_device()) {
            true => self.reopen(OFlags::RDONLY | OFlags::NONBLOCK).map(Some),
            false => Ok(None),
        }
    }

    /// Opens the existing file with its content, to write it in place. Opening a pipe waits for its reader.
    ///
    /// # Errors
    /// `Busy`: it is an image that is open elsewhere. The host's.
    pub(crate) fn write(&self) -> Result<InPlace> {
        let disk = self.metadata()?.is_some_and(|meta| meta.file_type().is_block_device());
        let alone = if disk { OFlags::EXCL } else { OFlags::empty() };
        let file = self.reopen(OFlags::WRONLY | alone).map_err(on_host(&self.path()))?;
        InPlace::hold(file, &self.path())
    }

    /// Locks a file that is not open as an image. As long as the returned value exists, the file cannot be opened as one.
    ///
    /// # Errors
    /// `Busy`; the host's.
    pub(crate) fn hold(&self) -> Result<Option<HeldFile>> {
        match (self.read(), self.metadata()?) {
            (Ok(None), _) | (_, None) => Ok(None),
            (Ok(Some(file)), _) => HeldFile::take(file, &self.path()),
            // A file that cannot be read cannot be locked either.
            (Err(_), Some(meta)) => refuse_seen_use(&meta, &self.path()).map(|()| None),
        }
    }

    /// Gives a new, empty file the inode flags of the existing one, as far as its filesystem has them and this user may set
    /// them: a file that is overwritten in place keeps that flag.
    pub(crate) fn keep_flags(&self, new: &File) {
        let Some(old) = self.reopen(OFlags::RDONLY | OFlags::NONBLOCK).ok().filter(is_file) else { return };
        if let Ok(flags) = ioctl_getflags(&old) {
            let _ = ioctl_setflags(new, flags - (IFlags::IMMUTABLE | IFlags::APPEND));
        }
    }

    /// Whether a new file can have the owner and the group of the existing one, if there is one. Root in a container, or without
    /// capabilities, cannot give a file to every user; then the existing file is written in place.
    pub(crate) fn gives_owner(&self, new: &File) -> Result<bool> {
        match self.there.as_ref().filter(|there| is_file(there)) {
            Some(old) => rights::give_owner(new.as_fd(), old.as_fd()),
            None => Ok(true),
        }
    }

    /// Gives a new file the rights of the existing file, if there is one.
    ///
    /// # Errors
    /// The host's.
    pub(crate) fn keep_rights(&self, new: &File) -> Result<()> {
        let old = self.there.as_ref().filter(|there| is_file(there));
        old.map_or(Ok(()), |old| rights::keep_rights(new.as_fd(), old.as_fd()))
    }

    /// The open directory.
    pub(crate) const fn dir(&self) -> &OwnedFd {
        &self.dir
    }

    /// The path of the directory.
    pub(crate) fn dir_path(&self) -> &Path {
        &self.dir_path
    }

    /// Rejects a file with a Btrfs filesystem or a partition table, and a block device with any known signature. In other
    /// arguments the path of an image stands for the root directory in it, so the user may not mean the file itself.
    ///
    /// # Errors
    /// `AlreadyExists`: one of these, or a file that cannot be read and is long enough for an image.
    pub(crate) fn refuse_image(&self) -> Result<()> {
        let refuse = |what: String| Err(Error::new(ErrorKind::AlreadyExists, what).on_host(&self.path()));
        let meta = self.metadata()?;
        if self.leads == Leads::Nowhere && !meta.as_ref().is_some_and(Metadata::is_file) {
            return Ok(()); // a link's target is not written to
        }
        let disk = meta.as_ref().is_some_and(|meta| meta.file_type().is_block_device());
        let (mut head, mut copies) = (Vec::new(), None);
        let read = match self.read() {
            Ok(Some(file)) => {
                copies = Some(file.try_clone()?);
                file.take(SIGNATURES_END as u64).read_to_end(&mut head).map(drop)
            }
            Ok(None) => return Ok(()),
            Err(errno) => Err(errno.into()),
        };
        match (read, find_signature(&head)) {
            (_, Some(found)) if disk || found.is_btrfs() || found.has_partitions => {
                Err(would_replace(found.name).on_host(&self.path()))
            }
            (Ok(()), _) if copies.as_ref().is_some_and(has_superblock_copy) => {
                Err(would_replace("a Btrfs filesystem").on_host(&self.path()))
            }
            (Err(error), _) if disk || meta.is_some_and(|meta| meta.len() >= SMALLEST_IMAGE) => {
                refuse(format!("may contain an image, but cannot be read: {error}"))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a copy of the superblock is in the file, behind a first one that is lost: the filesystem opens by the copy.
fn has_superblock_copy(file: &File) -> bool {
    let mut superblock = vec![0; SUPERBLOCK_LEN];
    SUPERBLOCK_OFFSETS[1..].iter().any(|at| {
        file.read_exact_at(&mut superblock, *at).is_ok() && Superblock::from_bytes(&superblock, *at).is_ok()
    })
}

fn would_replace(name: &str) -> Error {
    Error::new(ErrorKind::AlreadyExists, format!("holds {name}, which would be overwritten"))
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
            assert!(
                found.metadata().unwrap().unwrap().is_file() && found.read().unwrap().is_some(),
                "{name}"
            );
        }
    }

    #[test]
    fn a_free_name_is_found_in_its_directory() {
        let dir = scene();
        let found = HostPath::find(&dir.path().join("far/new")).unwrap();
        assert_eq!(found.path(), dir.path().join("far/new"));
        assert!(found.metadata().unwrap().is_none() && found.read().unwrap().is_none());
    }

    #[test]
    fn a_name_that_leads_to_an_open_file_is_no_name_of_a_directory() {
        let dir = scene();
        let file = dir.path().join("far/file");
        let open = File::options().write(true).open(&file).unwrap();
        let link = dir.path().join("open");
        std::os::unix::fs::symlink(open_path(&open), &link).unwrap();
        for path in [Path::new(&open_path(&open)), &link] {
            let found = HostPath::find(path).unwrap();
            assert!(found.leads == Leads::ToDescriptor && found.path() == path, "{}", path.display());
            let meta = found.write().unwrap().file().metadata().unwrap();
            assert_eq!((meta.ino(), meta.len()), (file.metadata().unwrap().ino(), 3));
        }
        // A directory that is reached this way has names like any other.
        let far = File::open(dir.path().join("far")).unwrap();
        for path in [Path::new(&open_path(&far)).join("file"), dir.path().join("near")] {
            assert!(HostPath::find(&path).unwrap().leads == Leads::ByLinks, "{}", path.display());
        }
        // The file needs no name either.
        std::fs::remove_file(&file).unwrap();
        assert_eq!(HostPath::find(&link).unwrap().leads, Leads::ToDescriptor);
    }

    #[test]
    fn a_file_that_must_stay_the_one_that_it_is_is_written_in_place() {
        let dir = scene();
        let (file, other) = (dir.path().join("far/file"), dir.path().join("far/other"));
        let in_place =
            |path: &Path, keeps_rights| HostPath::find(path).unwrap().in_place(keeps_rights, false);
        assert!(in_place(&file, false).unwrap().is_none() && in_place(&other, false).unwrap().is_none());
        std::fs::hard_link(&file, &other).unwrap();
        let held = in_place(&file, false).unwrap().unwrap();
        assert_eq!(held.file().metadata().unwrap().len(), 3);
        assert!(held.cut().unwrap() && other.metadata().unwrap().len() == 0);
        assert!(in_place(&file, true).unwrap().is_none(), "a copy with rights of its own is a new file");
        assert!(!in_place(Path::new("/dev/null"), true).unwrap().unwrap().cut().unwrap());
        in_place(dir.path(), false).unwrap_err();
    }

    #[test]
    fn a_file_that_is_written_in_place_is_nobodys_image_meanwhile() {
        let dir = scene();
        let file = dir.path().join("far/file");
        File::options().write(true).open(&file).unwrap().set_len(SMALLEST_IMAGE).unwrap();
        std::fs::hard_link(&file, dir.path().join("far/other")).unwrap();
        let held = HostPath::find(&file).unwrap().in_place(false, false).unwrap().unwrap();
        assert_eq!(HostPath::find(&file).unwrap().hold().unwrap_err().kind(), ErrorKind::Busy);
        held.cut().unwrap();
        drop(held);
        HostPath::find(&file).unwrap().hold().unwrap();
    }

    #[test]
    fn links_that_lead_nowhere_or_round_are_refused() {
        let dir = scene();
        let refused = HostPath::find(&dir.path().join("nowhere")).unwrap_err();
        assert!(refused.to_string().contains("dangling"), "{refused}");
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
