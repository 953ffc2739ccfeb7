//! The log of the program that serves a mount. The log is the program's standard error: in the foreground that of its caller, in the
//! background a file, whose path `creamery stats` prints. Panic messages go there, too.
//!
//! The file is created in the first of these directories that can be created and written:
//! 1. `$XDG_STATE_HOME/creamery`
//! 2. `/var/log/creamery` for root, `$HOME/.local/state/creamery` for others
//! 3. `/run/creamery` for root, `$XDG_RUNTIME_DIR/creamery` for others
//!
//! Its name is the image's name with the process id, and with another number if that name is taken: processes of two PID namespaces that
//! share a directory may have equal ids. Only the owner may read the file. When a mount ends well, its log is empty and is removed. A
//! killed server leaves its log behind: the next server of this user removes that log, if it is empty.
//!
//! # Invariants
//! - LOGFILE-1: a server holds a lock (flock(2)) on its log for as long as it lives, so if a log can be locked, its server has ended.
//!   Shown by `a_server_with_the_number_of_another_one_has_a_log_of_its_own`.
//! - LOGFILE-2: a process removes a log only if it has locked it, and only while the log's path leads to that file.
//!   Shown by `a_path_that_leads_to_another_log_keeps_it`.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use creamery::env::{Env, SystemEnv};
use creamery::error::Escaped;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags};

use crate::time::Utc;

/// Bytes allocated beforehand, so that the log can report a full disk of the host.
const ROOM: u64 = 16 << 10;
/// Names that are tried in a directory until one is free.
const NAMES_MAX: u32 = 1000;

/// A log file.
pub(crate) struct Log {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
}

impl Log {
    /// Creates a log for the mount of `image`; `None` if no directory accepts it.
    pub(crate) fn make(image: &Path) -> Option<Self> {
        let mut name = image.file_name().map_or_else(|| OsString::from("image"), OsString::from);
        name.push(format!(".{}", std::process::id()));
        directories().into_iter().find_map(|dir| Self::make_in(&dir, &name).ok())
    }

    /// Creates a log whose name begins with `name`.
    fn make_in(dir: &Path, name: &OsStr) -> std::io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        forget_ended(dir);
        let mut number = 0;
        let (file, path) = loop {
            let mut name = name.to_owned();
            name.push(if number == 0 { ".log".to_owned() } else { format!(".{number}.log") });
            let path = dir.join(name);
            let file = match OpenOptions::new().append(true).create_new(true).mode(0o600).open(&path) {
                // The existing log belongs to a living server, or is not empty.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && number < NAMES_MAX => {
                    number += 1;
                    continue;
                }
                file => file?,
            };
            // LOGFILE-1. A server that starts at the same moment may inspect this log just now, and take it for the log of an ended server.
            // Some filesystems have no such locks: there, logs stay.
            let _ = rustix::fs::flock(&file, FlockOperation::LockExclusive);
            if file.metadata()?.nlink() > 0 {
                break (file, path);
            }
        };
        // Not every filesystem can allocate; then no space is reserved.
        let _ = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::KEEP_SIZE, 0, ROOM);
        Ok(Self { file, path })
    }

    /// Removes the log if it is empty. A log that stays does no harm.
    pub(crate) fn forget(&self) {
        remove_locked(&self.file, &self.path);
    }
}

/// Removes the log `file`, which this process has locked, if `path` leads to it (LOGFILE-2).
fn remove_locked(file: &File, path: &Path) {
    let found = rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW);
    if let (Ok(found), Ok(meta)) = (found, file.metadata())
        && (found.st_dev, found.st_ino) == (meta.dev(), meta.ino())
    {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the empty logs of servers that ended without removing them.
fn forget_ended(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let is_log = path.extension() == Some(OsStr::new("log"));
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        if is_log
            && let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()).map(File::from)
            && file.metadata().is_ok_and(|meta| meta.is_file())
            && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            // Its server has ended, so the length is final.
            && file.metadata().is_ok_and(|meta| meta.len() == 0)
        {
            remove_locked(&file, &path);
        }
    }
}

fn directories() -> Vec<PathBuf> {
    let of = |variable: &str, below: &str| {
        let dir = std::env::var_os(variable).map(PathBuf::from).filter(|dir| dir.is_absolute());
        dir.map(|dir| dir.join(below))
    };
    let (lasting, passing) = match rustix::process::geteuid().is_root() {
        true => (Some(PathBuf::from("/var/log/creamery")), Some(PathBuf::from("/run/creamery"))),
        false => (of("HOME", ".local/state/creamery"), of("XDG_RUNTIME_DIR", "creamery")),
    };
    [of("XDG_STATE_HOME", "creamery"), lasting, passing].into_iter().flatten().collect()
}

/// Writes a line about the mount of `image` to the log.
pub(crate) fn say(image: &Path, what: &str) {
    let (time, image) = (Utc(SystemEnv.now()), Escaped(image.as_os_str().as_bytes()));
    let what = what.replace('\n', " ");
    let what = Escaped(what.as_bytes());
    // A single write keeps lines whole. An error cannot be reported anywhere.
    let line = format!("{time} creamery[{}]: {image}: {what}\n", std::process::id());
    let _ = std::io::stderr().write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_server_with_the_number_of_another_one_has_a_log_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let make = || Log::make_in(dir.path(), "disk.img.7".as_ref()).unwrap();
        let (first, second) = (make(), make());
        assert_eq!(names(dir.path()), ["disk.img.7.1.log", "disk.img.7.log"]);
        assert_eq!(first.file.metadata().unwrap().nlink(), 1);
        second.forget();
        assert_eq!(names(dir.path()), ["disk.img.7.log"]);
        // The log of an ended server stays while it is not empty.
        (&first.file).write_all(b"last words").unwrap();
        drop(first);
        let third = make();
        assert_eq!(names(dir.path()), ["disk.img.7.1.log", "disk.img.7.log"]);
        drop(third);
        make();
        assert_eq!(names(dir.path()), ["disk.img.7.1.log", "disk.img.7.log"]);
    }

    #[test]
    fn a_path_that_leads_to_another_log_keeps_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = Log::make_in(dir.path(), "disk.img.7".as_ref()).unwrap();
        std::fs::remove_file(&log.path).unwrap();
        let other = Log::make_in(dir.path(), "disk.img.7".as_ref()).unwrap();
        assert_eq!(log.path, other.path);
        log.forget();
        assert_eq!(names(dir.path()), ["disk.img.7.log"]);
        other.forget();
        assert!(names(dir.path()).is_empty());
    }
}
