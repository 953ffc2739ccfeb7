//! A file that has no name until it is complete.
//!
//! A process that is killed in the middle - by a signal, by a loss of power - leaves nothing behind: a file without a name goes with
//! its last descriptor. A file that replaces an older one is durable before it does, so that after a loss of power one of the two is
//! there, complete. To make a new file durable, the caller syncs it. If the host has no unnamed files (NFS, FAT), the file has a temporary name beside its
//! future one; an error removes it, a signal does not.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, CWD, Mode, OFlags, RenameFlags, StatxAttributes, StatxFlags, linkat, openat, renameat,
    renameat_with, statx, unlinkat,
};
use rustix::io::Errno;

/// The action if the name exists already.
///
/// ```
/// use creamery_device::Taken;
/// assert_ne!(Taken::Keep, Taken::Replace);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// The existing file stays, and publishing fails.
    Keep,
    /// The existing file is replaced, unless it is a directory. The name exists at every moment.
    Replace,
}

/// A file without a name (see the module). If it is dropped before it is published, it is removed.
///
/// ```
/// use creamery_device::{NewFile, Taken};
/// use std::io::Write;
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("letter");
/// let new = NewFile::beside(&path, 0o644)?;
/// new.file().write_all(b"dear reader")?;
/// assert!(!path.exists());
/// new.publish("letter".as_ref(), Taken::Keep)?;
/// assert_eq!(std::fs::read(&path)?, b"dear reader");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct NewFile<D: AsFd = OwnedFd> {
    file: File,
    dir: D,
    /// The temporary name, if the host needs one.
    meanwhile: Option<CString>,
}

/// Names that are tried until one is free. They cannot be guessed, so a clash happens only by chance.
const NAMES_MAX: u32 = 16;

/// Returns a name that no other user can guess beforehand: in `/tmp` any user could take it.
fn meanwhile() -> CString {
    // Each `RandomState` has its own keys, from the random numbers of the system.
    let random = RandomState::new().build_hasher().finish();
    CString::new(format!(".creamery-{random:016x}.part")).expect("no zero byte")
}

/// Calls `make` with `names` until one is free.
///
/// # Errors
/// Those of `make`. If no name was free, the error is not [`AlreadyExists`](io::ErrorKind::AlreadyExists), which would refer to the file's future name.
fn under_a_free_name(
    names: impl Fn() -> CString,
    make: impl Fn(&CStr) -> rustix::io::Result<()>,
) -> io::Result<CString> {
    for _ in 0..NAMES_MAX {
        let name = names();
        match make(&name) {
            Err(Errno::EXIST) => {}
            outcome => return Ok(outcome.map(|()| name)?),
        }
    }
    let what = format!("{NAMES_MAX} names for it until it is whole, .creamery-*.part, are taken; try again");
    Err(io::Error::other(what))
}

/// Whether a file without a name can get one: this needs /proc.
fn has_proc() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| rustix::fs::access("/proc/self/fd", rustix::fs::Access::EXISTS).is_ok())
}

impl NewFile {
    /// Creates an empty file that will be at `path`; see [`within`](Self::within).
    ///
    /// # Errors
    /// Those of [`within`](Self::within).
    pub fn beside(path: &Path, mode: u32) -> io::Result<Self> {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A directory need not be readable to create a name in it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self::within(rustix::fs::open(parent, flags, Mode::empty())?, mode)
    }
}

impl<D: AsFd> NewFile<D> {
    /// Creates an empty file that will be in `dir`, open for reading and writing, with these permission bits less those of the
    /// umask.
    ///
    /// # Errors
    /// The host's: no such directory, no permission, no space.
    pub fn within(dir: D, mode: u32) -> io::Result<Self> {
        let mode = Mode::from_raw_mode(mode);
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        if has_proc() {
            match openat(&dir, ".", flags | OFlags::TMPFILE, mode) {
                // The answers of a filesystem, or a host, without such files.
                Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {}
                file => return Ok(Self { file: file?.into(), dir, meanwhile: None }),
            }
        }
        Self::with_name(dir, mode, meanwhile)
    }

    fn with_name(dir: D, mode: Mode, names: impl Fn() -> CString) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let made = std::cell::Cell::new(None);
        let meanwhile = under_a_free_name(names, |name| {
            made.set(Some(openat(&dir, name, flags, mode)?));
            Ok(())
        })?;
        let file = made.take().expect("it was made under that name");
        Ok(Self { file: file.into(), dir, meanwhile: Some(meanwhile) })
    }

    /// The open file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }

    /// Names the file in its directory. `name` is one component.
    ///
    /// # Errors
    /// The name is taken and `taken` is [`Taken::Keep`], or it is a directory; and the host's errors. The file is removed then.
    pub fn publish(mut self, name: &OsStr, taken: Taken) -> io::Result<()> {
        let name = CString::new(name.as_bytes())?;
        if self.meanwhile.is_some() && taken == Taken::Replace {
            rustix::fs::fdatasync(&self.file)?;
        }
        match self.meanwhile.take() {
            Some(meanwhile) => Ok(self.rename(&meanwhile, &name, taken)?),
            None => self.link(&name, taken, meanwhile),
        }
    }

    fn link(&self, name: &CStr, taken: Taken, names: impl Fn() -> CString) -> io::Result<()> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let link = |name: &CStr| linkat(CWD, &*own, &self.dir, name, AtFlags::SYMLINK_FOLLOW);
        match link(name) {
            Err(Errno::EXIST) if taken == Taken::Replace => {
                if self.is_append_only() {
                    return Err(Errno::PERM.into()); // a free name could not be taken away again
                }
                // Before the file has a name of any kind: a process that is killed meanwhile leaves none behind.
                rustix::fs::fdatasync(&self.file)?;
                let meanwhile = under_a_free_name(names, link)?;
                Ok(self.rename(&meanwhile, name, taken)?)
            }
            outcome => Ok(outcome?),
        }
    }

    /// Whether the directory is append-only (`chattr +a`): it takes new names and loses none.
    fn is_append_only(&self) -> bool {
        let found = statx(&self.dir, "", AtFlags::EMPTY_PATH, StatxFlags::empty());
        found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::APPEND))
    }

    fn rename(&self, meanwhile: &CStr, name: &CStr, taken: Taken) -> rustix::io::Result<()> {
        let dir = &self.dir;
        let renamed = match taken {
            Taken::Replace => renameat(dir, meanwhile, dir, name),
            Taken::Keep => match renameat_with(dir, meanwhile, dir, name, RenameFlags::NOREPLACE) {
                // Not every filesystem has this kind of rename; most of those without it have links.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    match linkat(dir, meanwhile, dir, name, AtFlags::empty()) {
                        Err(Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP | Errno::MLINK) => {
                            self.rename_over_own(meanwhile, name)
                        }
                        linked => linked.and_then(|()| self.remove(meanwhile)),
                    }
                }
                outcome => outcome,
            },
        };
        renamed.inspect_err(|_| {
            // The failed rename is more useful as an error than the failed removal.
            let _ = self.remove(meanwhile);
        })
    }

    /// Takes the free `name` with an empty file, and renames over it.
    fn rename_over_own(&self, meanwhile: &CStr, name: &CStr) -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        drop(openat(&self.dir, name, flags, Mode::RUSR | Mode::WUSR)?);
        renameat(&self.dir, meanwhile, &self.dir, name).inspect_err(|_| {
            // Ours and empty; the failed rename is the more useful error.
            let _ = self.remove(name);
        })
    }

    fn remove(&self, name: &CStr) -> rustix::io::Result<()> {
        unlinkat(&self.dir, name, AtFlags::empty())
    }
}

impl<D: AsFd> Drop for NewFile<D> {
    fn drop(&mut self) {
        if let Some(meanwhile) = &self.meanwhile {
            // No caller is left to receive an error.
            let _ = self.remove(meanwhile);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Runs a test with unnamed files and with temporary names, in a directory with a file and a directory.
    fn each_way(test: impl Fn(&Path, &dyn Fn() -> NewFile)) {
        for unnamed in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("old"), "old").unwrap();
            std::fs::create_dir(dir.path().join("folder")).unwrap();
            test(dir.path(), &|| {
                let open = File::open(dir.path()).unwrap();
                let new = match unnamed {
                    true => NewFile::within(open.into(), 0o600),
                    false => NewFile::with_name(open.into(), Mode::RUSR | Mode::WUSR, meanwhile),
                };
                let new = new.unwrap();
                new.file().write_all(b"new").unwrap();
                new
            });
        }
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_not_published_is_not_there() {
        each_way(|dir, make| {
            drop(make());
            assert_eq!(names(dir), ["folder", "old"]);
        });
    }

    #[test]
    fn a_name_that_is_free_is_given() {
        each_way(|dir, make| {
            for (name, taken) in [("a", Taken::Keep), ("b", Taken::Replace)] {
                make().publish(name.as_ref(), taken).unwrap();
                assert_eq!(std::fs::read(dir.join(name)).unwrap(), b"new");
            }
            assert_eq!(names(dir), ["a", "b", "folder", "old"]);
        });
    }

    #[test]
    fn a_name_that_is_taken_is_kept_or_replaced_and_nothing_is_left_over() {
        each_way(|dir, make| {
            std::os::unix::fs::symlink("old", dir.join("link")).unwrap();
            let refused = make().publish("old".as_ref(), Taken::Keep).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
            make().publish("folder".as_ref(), Taken::Keep).unwrap_err();
            make().publish("folder".as_ref(), Taken::Replace).unwrap_err();
            assert_eq!(std::fs::read(dir.join("old")).unwrap(), b"old");
            make().publish("link".as_ref(), Taken::Replace).unwrap();
            assert_eq!(std::fs::read(dir.join("old")).unwrap(), b"old");
            make().publish("old".as_ref(), Taken::Replace).unwrap();
            for name in ["link", "old"] {
                assert!(dir.join(name).symlink_metadata().unwrap().is_file());
                assert_eq!(std::fs::read(dir.join(name)).unwrap(), b"new");
            }
            assert_eq!(names(dir), ["folder", "link", "old"]);
        });
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_is_no_error_of_the_name_that_the_file_is_to_have() {
        let dir = tempfile::tempdir().unwrap();
        let open = || OwnedFd::from(File::open(dir.path()).unwrap());
        std::fs::write(dir.path().join("taken"), "other").unwrap();
        std::fs::write(dir.path().join("old"), "old").unwrap();
        let taken = || c"taken".to_owned();
        let refused = NewFile::with_name(open(), Mode::RWXU, taken).unwrap_err();
        assert!(
            refused.kind() == io::ErrorKind::Other && refused.to_string().contains("are taken"),
            "{refused}"
        );
        let new = NewFile::within(open(), 0o600).unwrap();
        if new.meanwhile.is_none() {
            let refused = new.link(c"old", Taken::Replace, taken).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::Other);
        }
        assert_eq!(std::fs::read(dir.path().join("old")).unwrap(), b"old");
        assert_eq!(std::fs::read(dir.path().join("taken")).unwrap(), b"other");
    }

    #[test]
    fn where_there_are_no_links_a_free_name_is_taken_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("old"), "old").unwrap();
        let open = || OwnedFd::from(File::open(dir.path()).unwrap());
        let new = NewFile::with_name(open(), Mode::RWXU, || c"meanwhile".to_owned()).unwrap();
        new.file().write_all(b"new").unwrap();
        assert_eq!(new.rename_over_own(c"meanwhile", c"old"), Err(Errno::EXIST));
        new.rename_over_own(c"meanwhile", c"free").unwrap();
        assert_eq!(new.rename_over_own(c"meanwhile", c"gone"), Err(Errno::NOENT));
        drop(new);
        assert_eq!(names(dir.path()), ["free", "old"]);
        assert_eq!(std::fs::read(dir.path().join("free")).unwrap(), b"new");
        assert_eq!(std::fs::read(dir.path().join("old")).unwrap(), b"old");
    }

    #[test]
    fn names_for_a_while_are_not_to_be_guessed() {
        let names: std::collections::HashSet<CString> = (0..100).map(|_| meanwhile()).collect();
        assert_eq!(names.len(), 100);
    }
}
