//! Copies to the host.
//!
//! An image is not trustworthy, and users with all rights on their host copy from it. So each file is
//! made as one name in an open folder. Every folder below the user's folder is opened from its parent
//! without following a link.
//!
//! # Invariants
//! - SINK-1: every name given to the host is one component ([`component`]): a call makes, replaces and removes files only in its own
//!   folder. Shown by `a_name_of_several_components_or_of_none_is_refused_by_every_call`.
//! - SINK-2: no link below the user's folder is followed, whether it comes from the image or not: folders, first copies of hard
//!   links and nodes are opened with `O_NOFOLLOW`, one component at a time.
//!   Shown by `a_link_that_has_a_folders_name_is_not_gone_through`, `a_hard_link_to_a_first_copy_that_moved_is_a_copy_of_its_own`.
//! - SINK-3: attributes are set on the new file by its descriptor, whichever file has its name by then.
//! - SINK-4: a regular file gets its name when it is whole; until then the old file keeps it. If the directory takes no new name,
//!   or the old file must stay the same file (`host_path`), its content is overwritten, as by cp(1).
//!   Shown by `a_file_that_cannot_be_read_to_its_end_leaves_the_old_one`, `a_file_that_must_stay_the_one_that_it_is_is_written_in_place`.
//! - SINK-5: an image that is open elsewhere, or that is being copied from, is not replaced.
//!   Shown by `an_image_that_is_in_use_is_replaced_by_nothing`.
//! - SINK-6: the owner can write to a directory while copies are made in it; afterwards it has its final mode. Shown by `trees`.

mod data;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::Metadata;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use creamery_base::{Error, ErrorKind, InodeId, Result};
use creamery_device::{NewFile, Taken};
use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Stat, Timespec, Timestamps, Uid, XattrFlags, fchmod, fcntl_getfl,
    fremovexattr, fsetxattr, fstat, futimens, linkat, mkdirat, mknodat, openat, removexattr, setxattr,
    statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use self::data::{fill, pour};
use crate::fs::Attributes;
use crate::host_path::{ACL, DEFAULT_ACL, HostPath, InPlace, is_no_place, owned};
use crate::salvage::Data;
use crate::sink::{KeptAttributes, Sink, Source};

/// A directory of the host.
pub(crate) struct HostDir {
    fd: OwnedFd,
    /// Path from the beginning of the copy, for hard links.
    path: PathBuf,
    /// Rights of the owner that the source does not give (SINK-6).
    lent: Mode,
}

/// Makes files on the host.
pub(crate) struct HostSink {
    root: OwnedFd,
    /// The path of `root`.
    path: PathBuf,
    keeps: KeptAttributes,
    /// Whether a copy replaces an existing file.
    taken: Taken,
    /// Whether a copy also replaces images and files that may not be written.
    by_force: bool,
    /// The destination of a single file, if the user named it.
    named: Option<HostPath>,
    /// Source files whose other names are still to come.
    links: HashMap<InodeId, FirstCopy>,
    /// Extended attributes that the last copy did not get.
    left_out: RefCell<Vec<(Vec<u8>, Error)>>,
}

/// A copy that further hard links can refer to.
struct FirstCopy {
    /// Path from the beginning of the copy.
    dir: PathBuf,
    name: CString,
    is: HostFileIdentity,
    /// Number of names still to come.
    left: u32,
}

/// Identifies a file of the host.
#[derive(Clone, Copy, PartialEq, Eq)]
struct HostFileIdentity {
    device: u64,
    inode: u64,
}

impl HostFileIdentity {
    fn of(file: &Metadata) -> Self {
        Self { device: file.dev(), inode: file.ino() }
    }

    fn of_stat(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Error::new(ErrorKind::Corrupt, "unexpected NUL byte"))
}

/// Checks a name (SINK-1). Reading an image has refused other names before.
fn component(name: &[u8]) -> Result<CString> {
    if matches!(name, b"" | b"." | b"..") || name.contains(&b'/') {
        let what = format!("the name '{}' leads out of its directory", name.escape_ascii());
        return Err(Error::new(ErrorKind::Corrupt, what));
    }
    c_string(name)
}

/// Opens a directory without following a link (SINK-2).
fn open_dir(parent: impl AsFd, name: impl rustix::path::Arg, how: OFlags) -> rustix::io::Result<OwnedFd> {
    openat(parent, name, how | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn mode(attributes: &Attributes) -> Mode {
    Mode::from_raw_mode(attributes.mode & 0o7777)
}

impl HostSink {
    /// Copies go into `dir`, or below. The user need not have the right to list it.
    pub(crate) fn open(dir: &Path, keeps: KeptAttributes) -> Result<(Self, HostDir)> {
        let open = |how| rustix::fs::open(dir, how | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let root = match open(OFlags::RDONLY) {
            Err(Errno::ACCESS) => open(OFlags::PATH),
            root => root,
        };
        Self::within(root.map_err(error).map_err(|error| error.on_host(dir))?, dir.to_owned(), keeps)
    }

    /// Copies go into the directory `root`, whose path is `path`, or below.
    fn within(root: OwnedFd, path: PathBuf, keeps: KeptAttributes) -> Result<(Self, HostDir)> {
        let fd = root.try_clone().map_err(|error| Error::from(error).on_host(&path))?;
        let (links, left_out) = (HashMap::new(), RefCell::default());
        let (taken, by_force, named) = (Taken::Replace, true, None);
        let sink = Self { root, path, keeps, taken, by_force, named, links, left_out };
        Ok((sink, HostDir { fd, path: PathBuf::new(), lent: Mode::empty() }))
    }

    /// The single file to copy goes to `place`.
    pub(crate) fn at_place(place: HostPath, keeps: KeptAttributes) -> Result<(Self, HostDir)> {
        let (dir, path) = (place.dir().try_clone(), place.dir_path().to_owned());
        let dir = dir.map_err(|error| Error::from(error).on_host(&path))?;
        let (sink, dir) = Self::within(dir, path, keeps)?;
        Ok((Self { named: Some(place), ..sink }, dir))
    }

    /// Unless `by_force`, an existing image, a disk with partitions or a file that may not be written stays, and its copy fails.
    pub(crate) fn replacing_by_force(self, by_force: bool) -> Self {
        Self { by_force, ..self }
    }

    /// Lets files of the host with the name of a copy stay: their copies are not made.
    pub(crate) fn keeping_what_is_there(self) -> Self {
        Self { taken: Taken::Keep, ..self }
    }

    /// Adds the path of the file that could not be made to an error.
    fn at<'p>(&self, parent: &'p HostDir, name: &'p CString) -> impl Fn(Error) -> Error + Copy + use<'_, 'p> {
        let root = &self.path;
        move |error| error.on_host(&root.join(&parent.path).join(os(name)))
    }

    fn remember(&mut self, parent: &HostDir, name: CString, is: HostFileIdentity, source: &Source) {
        let Attributes { id, nlink, .. } = source.attributes;
        if self.keeps.links && nlink > 1 {
            let first = FirstCopy { dir: parent.path.clone(), name, is, left: nlink - 1 };
            self.links.entry(id).or_insert(first);
        }
    }

    /// The existing file at the name of a copy, unless it is an image that stays.
    fn place(&self, parent: &HostDir, name: &CString) -> Result<HostPath> {
        let place = HostPath::within(parent.fd.as_fd(), self.path.join(&parent.path), os(name))?;
        self.may_go(place)
    }

    /// Returns `place`, unless an image lies there that stays.
    fn may_go(&self, place: HostPath) -> Result<HostPath> {
        if !self.by_force {
            place.refuse_image()?;
        }
        Ok(place)
    }

    /// The directory of a first copy, if the copy is still in it.
    fn find(&self, first: &FirstCopy) -> Option<OwnedFd> {
        let mut dir = open_dir(&self.root, ".", OFlags::PATH).ok()?;
        for name in &first.dir {
            dir = open_dir(&dir, name, OFlags::PATH).ok()?;
        }
        let found = statat(&dir, &first.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (HostFileIdentity::of_stat(&found) == first.is).then_some(dir)
    }

    /// Sets owner, xattrs, mode and times, in an order in which none undoes another.
    fn finish(&self, fd: BorrowedFd<'_>, source: &Source) -> Result<()> {
        let KeptAttributes { metadata, .. } = self.keeps;
        let attributes = &source.attributes;
        self.left_out.take();
        let chown = || rustix::fs::fchown(fd, Some(uid(attributes)), Some(gid(attributes)));
        if metadata {
            // ACLs of the old file, or from the directory's default ACL; most files have none.
            for acl in [ACL, DEFAULT_ACL] {
                let _ = fremovexattr(fd, acl);
            }
        }
        let owned = metadata && owned(chown())?;
        for (name, value) in &source.xattrs {
            let name = c_string(name)?;
            self.settle_xattr(&name, fsetxattr(fd, &name, value, XattrFlags::empty()))?;
        }
        if !metadata {
            return Ok(());
        }
        fchmod(fd, mode_of(attributes, owned)).map_err(error)?;
        futimens(fd, &timestamps(attributes)).map_err(error)
    }

    /// Handles the result of setting an extended attribute: the file comes without those that the host rejects.
    fn settle_xattr(&self, name: &CString, outcome: rustix::io::Result<()>) -> Result<()> {
        let refused =
            refusal(outcome).map_err(|error| error.context(format!("xattr {}", name.to_string_lossy())))?;
        self.left_out.borrow_mut().extend(refused.map(|why| (name.to_bytes().to_vec(), why)));
        Ok(())
    }

    /// Makes a regular file and gives it its name when it is whole.
    fn put(
        &self,
        parent: &HostDir,
        name: &CString,
        source: &Source,
        data: &Data<'_>,
        place: &HostPath,
    ) -> Result<Put> {
        let failed = self.at(parent, name);
        let host = |error: std::io::Error| failed(error.into());
        // Without the source's owner and mode the file belongs to the user, and gives no other user rights. The old file may have been for
        // fewer users.
        let is_private = self.keeps.metadata || place.metadata()?.is_some_and(|old| old.is_file());
        let first = if is_private { 0o600 } else { source.attributes.mode & 0o777 };
        let new = match NewFile::within(&parent.fd, first) {
            Err(error) if is_no_place(&error) => return Ok(Put::NoPlace(error)),
            new => new.map_err(host)?,
        };
        let file = new.file();
        if !self.keeps.metadata && !place.gives_owner(file).map_err(failed)? {
            return Ok(Put::NoPlace(Errno::PERM.into()));
        }
        place.keep_flags(file);
        fill(file, source, data, failed)?;
        self.finish(file.as_fd(), source).map_err(failed)?;
        if !self.keeps.metadata {
            place.keep_rights(file).map_err(failed)?;
        }
        let is = HostFileIdentity::of(&file.metadata().map_err(host)?);
        let taken = if self.taken == Taken::Keep { Taken::Keep } else { place.taken() };
        match new.publish(os(name), taken) {
            Err(error) if is_no_place(&error) => Ok(Put::NoPlace(error)),
            outcome => outcome.map(|()| Put::Done(is)).map_err(host),
        }
    }

    /// Makes a regular file as `put` does. If the directory lets no new file take the name, the old file gets the content.
    fn put_or_write_over(
        &self,
        parent: &HostDir,
        name: &CString,
        source: &Source,
        data: &Data<'_>,
        place: &HostPath,
    ) -> Result<HostFileIdentity> {
        let failed = self.at(parent, name);
        let held = place.hold()?; // SINK-5
        let error = match self.put(parent, name, source, data, place)? {
            Put::Done(is) => return Ok(is),
            Put::NoPlace(error) => error,
        };
        if place.metadata()?.is_none_or(|old| !old.is_file()) {
            return Err(failed(error.into()));
        }
        if place.spares_other_names() && place.metadata()?.is_some_and(|old| old.nlink() > 1) {
            let what = "it has other hard links, and no new file can replace it";
            return Err(failed(Error::new(ErrorKind::PermissionDenied, what)));
        }
        drop(held);
        self.write_over(&place.write()?, source, data, failed)
    }

    /// Gives an existing file the content of a copy, and the attributes that are kept. Its other names and the programs that have it open
    /// see that; after an error it has a part. A pipe or a device gets the content alone.
    fn write_over(
        &self,
        to: &InPlace,
        source: &Source,
        data: &Data<'_>,
        failed: impl Fn(Error) -> Error + Copy,
    ) -> Result<HostFileIdentity> {
        let host = |error: std::io::Error| failed(error.into());
        let old = to.file().metadata().map_err(host)?;
        if self.keeps.metadata && old.is_file() && old.nlink() > 1 {
            let what = "it has other hard links, and no new file can replace it";
            return Err(failed(Error::new(ErrorKind::PermissionDenied, what)));
        }
        data.goes_in_place();
        if to.cut().map_err(host)? {
            fill(to.file(), source, data, failed)?;
            let half = |error: Error| error.context("the content is written, but not all attributes");
            self.finish(to.file().as_fd(), source).map_err(half).map_err(failed)?;
        } else {
            pour(to.file(), source, data, failed)?;
        }
        to.finish().map_err(host)?;
        to.file().metadata().map(|meta| HostFileIdentity::of(&meta)).map_err(host)
    }

    fn make_node(&self, parent: &HostDir, name: &CString, source: &Source) -> Result<HostFileIdentity> {
        use crate::fs::FileType as Kind;
        let attributes = &source.attributes;
        let kind = match attributes.kind {
            Kind::Symlink => FileType::Symlink,
            Kind::Fifo => FileType::Fifo,
            Kind::Socket => FileType::Socket,
            Kind::CharDevice => FileType::CharacterDevice,
            Kind::BlockDevice => FileType::BlockDevice,
            _ => return Err(Error::unsupported("unknown file type")),
        };
        if kind == FileType::Symlink {
            let target = c_string(&source.target)?;
            self.replacing(parent, name, || symlinkat(&target, &parent.fd, name))?;
        } else {
            let device = rustix::fs::makedev(attributes.device.major, attributes.device.minor);
            self.replacing(parent, name, || mknodat(&parent.fd, name, kind, mode(attributes), device))?;
        }
        let (node, is) = open_node(parent, name, kind)?;
        self.finish_node(&node, source)?;
        Ok(is)
    }

    /// Calls `make` again after the existing file is removed, if there is one and it may go.
    fn replacing<R>(
        &self,
        dir: &HostDir,
        name: &CString,
        make: impl Fn() -> rustix::io::Result<R>,
    ) -> Result<R> {
        match make() {
            Err(Errno::EXIST) if self.taken == Taken::Replace => {
                let _held = self.place(dir, name)?.hold()?; // SINK-5
                unlinkat(&dir.fd, name, AtFlags::empty()).map_err(error)?;
                make().map_err(error)
            }
            outcome => outcome.map_err(error),
        }
    }

    /// Sets the attributes of a file that cannot be opened for reading.
    fn finish_node(&self, node: &OwnedFd, source: &Source) -> Result<()> {
        let KeptAttributes { metadata, .. } = self.keeps;
        let attributes = &source.attributes;
        self.left_out.take();
        let itself = AtFlags::EMPTY_PATH;
        let chown = || rustix::fs::chownat(node, "", Some(uid(attributes)), Some(gid(attributes)), itself);
        let owned = metadata && owned(chown())?;
        // No call takes an `O_PATH` descriptor, but this path leads to exactly the open file.
        let path = format!("/proc/self/fd/{}", node.as_raw_fd());
        if metadata && attributes.kind != crate::fs::FileType::Symlink {
            // ACLs of the old file, or from the directory's default ACL; most files have none.
            for acl in [ACL, DEFAULT_ACL] {
                let _ = removexattr(&*path, acl);
            }
        }
        for (xattr, value) in &source.xattrs {
            let xattr = c_string(xattr)?;
            self.settle_xattr(&xattr, setxattr(&*path, &xattr, value, XattrFlags::empty()))?;
        }
        if !metadata {
            return Ok(());
        }
        if attributes.kind != crate::fs::FileType::Symlink {
            rustix::fs::chmod(&*path, mode_of(attributes, owned)).map_err(error)?;
        }
        utimensat(node, "", &timestamps(attributes), itself).map_err(error)
    }
}

/// The result of giving a copy its name.
enum Put {
    Done(HostFileIdentity),
    /// The directory does not let the copy have the name.
    NoPlace(std::io::Error),
}

/// Opens a new node. Another user with write access to the folder can have replaced it, but not with a node of its kind
/// that has a name elsewhere.
fn open_node(dir: &HostDir, name: &CString, kind: FileType) -> Result<(OwnedFd, HostFileIdentity)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = openat(&dir.fd, name, flags, Mode::empty()).map_err(error)?;
    let found = fstat(&node).map_err(error)?;
    if FileType::from_raw_mode(found.st_mode) != kind || found.st_nlink != 1 {
        return Err(Error::new(ErrorKind::Busy, "it was replaced during the copy"));
    }
    Ok((node, HostFileIdentity::of_stat(&found)))
}

/// Gives the owner of a new directory rights that its source or the umask do not give, and returns those rights (SINK-6).
fn lend(parent: &HostDir, name: &CString) -> rustix::io::Result<Mode> {
    let dir = open_dir(&parent.fd, name, OFlags::PATH)?;
    let made = Mode::from_raw_mode(fstat(&dir)?.st_mode);
    let lent = Mode::RWXU - made;
    if !lent.is_empty() {
        rustix::fs::chmod(
            format!("/proc/self/fd/{}", dir.as_raw_fd()),
            (made & Mode::from_raw_mode(0o7777)) | lent,
        )?;
    }
    Ok(lent)
}

/// Takes the lent rights of a directory back (SINK-6).
fn take_back(dir: &HostDir) -> rustix::io::Result<()> {
    let now = Mode::from_raw_mode(fstat(&dir.fd)?.st_mode & 0o7777);
    fchmod(&dir.fd, now - dir.lent)
}

fn os(name: &CString) -> &std::ffi::OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
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

/// The mode of a copy. A copy that does not have the owner of its source has no set-user-ID and set-group-ID bits.
fn mode_of(attributes: &Attributes, owned: bool) -> Mode {
    if owned { mode(attributes) } else { mode(attributes) & Mode::from_raw_mode(0o1777) }
}

/// The reason why the host rejects an extended attribute of a file, if the file itself is fine.
fn refusal(outcome: rustix::io::Result<()>) -> Result<Option<Error>> {
    let why = match outcome {
        Err(Errno::OPNOTSUPP) => Error::unsupported("on the host's filesystem"),
        Err(Errno::PERM) => Error::new(ErrorKind::PermissionDenied, "setting it on the host"),
        // Only this file has no room.
        Err(Errno::NOSPC | Errno::TOOBIG) => {
            Error::invalid("no space left for it in the host file's attributes")
        }
        outcome => return outcome.map(|()| None).map_err(error),
    };
    Ok(Some(why))
}

impl Sink for HostSink {
    type Dir = HostDir;

    fn keeps(&self, parent: &HostDir, name: &[u8]) -> Result<bool> {
        if self.taken == Taken::Replace {
            return Ok(false);
        }
        let name = component(name)?;
        match statat(&parent.fd, &name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(false),
            found => found.map(|_| true).map_err(error).map_err(self.at(parent, &name)),
        }
    }

    fn enter(&mut self, parent: &HostDir, name: &[u8], source: &Source) -> Result<HostDir> {
        let name = component(name)?;
        let failed = self.at(parent, &name);
        let mut lent = Mode::empty();
        match mkdirat(&parent.fd, &name, mode(&source.attributes)) {
            Err(Errno::EXIST) => {
                let there =
                    statat(&parent.fd, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(error).map_err(failed)?;
                if FileType::from_raw_mode(there.st_mode) != FileType::Directory {
                    let what = "cannot replace it with a directory";
                    return Err(failed(Error::new(ErrorKind::NotADirectory, what)));
                }
            }
            outcome => {
                outcome.map_err(error).map_err(failed)?;
                lent = lend(parent, &name).map_err(error).map_err(failed)?;
            }
        }
        // A directory that cannot be listed may still take new names.
        let fd = match open_dir(&parent.fd, &name, OFlags::RDONLY) {
            Err(Errno::ACCESS) => open_dir(&parent.fd, &name, OFlags::PATH),
            fd => fd,
        };
        let fd = fd.map_err(error).map_err(failed)?;
        Ok(HostDir { fd, path: parent.path.join(os(&name)), lent })
    }

    fn leave(&mut self, dir: HostDir, source: &Source) -> Result<()> {
        let is_listed = fcntl_getfl(&dir.fd).is_ok_and(|flags| !flags.contains(OFlags::PATH));
        let done = match is_listed {
            true => self.finish(dir.fd.as_fd(), source),
            false => self.finish_node(&dir.fd, source),
        };
        let done = done.and_then(|()| match self.keeps.metadata || dir.lent.is_empty() {
            true => Ok(()),
            false => take_back(&dir).map_err(error),
        });
        done.map_err(|error| error.on_host(&self.path.join(&dir.path)))
    }

    fn file(&mut self, parent: &HostDir, name: &[u8], source: &Source, data: &Data<'_>) -> Result<()> {
        let name = component(name)?;
        let named = self.named.take();
        let failed = self.at(parent, &name);
        let mut place = match named {
            Some(place) => self.may_go(place)?,
            None => self.place(parent, &name)?,
        };
        let in_place = match self.taken {
            Taken::Replace => place.in_place(self.keeps.metadata, self.by_force)?,
            Taken::Keep => None,
        };
        let is = match in_place {
            Some(file) => self.write_over(&file, source, data, failed)?,
            None => self.put_or_write_over(parent, &name, source, data, &place)?,
        };
        self.remember(parent, name, is, source);
        Ok(())
    }

    fn node(&mut self, parent: &HostDir, name: &[u8], source: &Source) -> Result<()> {
        let name = component(name)?;
        let is = self.make_node(parent, &name, source).map_err(self.at(parent, &name))?;
        self.remember(parent, name, is, source);
        Ok(())
    }

    fn take_left_out(&mut self) -> Vec<(Vec<u8>, Error)> {
        self.left_out.take()
    }

    fn link(&mut self, parent: &HostDir, name: &[u8], source: &Source) -> Result<bool> {
        let name = component(name)?;
        let id = source.attributes.id;
        self.left_out.take();
        let Some(first) = self.links.get(&id) else { return Ok(false) };
        let Some(dir) = self.find(first) else {
            self.links.remove(&id);
            return Ok(false);
        };
        let is_there = statat(&parent.fd, &name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|found| HostFileIdentity::of_stat(&found) == first.is);
        if !is_there {
            let link = || linkat(&dir, &first.name, &parent.fd, &name, AtFlags::empty());
            self.replacing(parent, &name, link).map_err(self.at(parent, &name))?;
        }
        let first = self.links.get_mut(&id).expect("it was just found");
        first.left -= 1;
        if first.left == 0 {
            self.links.remove(&id);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
