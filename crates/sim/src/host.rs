//! Runs operations on a directory of the host, by system calls: the host's filesystem judges the model, and so the engine.
//!
//! A system call names files by path. So an operation on an inode that has no path and is not open, or on a name that no path can hold,
//! cannot run on the host ([`Host::can`]). The host also has side effects (it clears set-id bits when the owner changes); these are undone.

use std::ffi::OsStr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use creamery_base::ErrorKind;
use creamery_fs::{Fallocate, FileType, RenameMode, XattrMode};
use creamery_testkit::{Run, ficlonerange};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, RenameFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::judge::host_snapshot;
use crate::model::{Content, Model, Node};
use crate::operation::{Operation, Outcome, content};

/// A directory of the host that must have the content of a model.
pub(crate) struct Host {
    root: PathBuf,
    open: Vec<(u64, OwnedFd)>,
}

type Answer = Result<Outcome, Errno>;

const fn mode_of(bits: u32) -> Mode {
    Mode::from_bits_retain(bits)
}

/// The engine's kind of error for an error number of the host.
fn kind_of(errno: Errno) -> Option<ErrorKind> {
    Some(match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST => ErrorKind::AlreadyExists,
        Errno::ISDIR => ErrorKind::IsADirectory,
        Errno::NOTDIR => ErrorKind::NotADirectory,
        Errno::NOTEMPTY => ErrorKind::DirectoryNotEmpty,
        Errno::INVAL => ErrorKind::InvalidInput,
        Errno::NAMETOOLONG => ErrorKind::NameTooLong,
        Errno::PERM => ErrorKind::PermissionDenied,
        Errno::NODATA => ErrorKind::NoAttribute,
        Errno::OPNOTSUPP => ErrorKind::Unsupported,
        Errno::XDEV => ErrorKind::CrossDevice,
        _ => return None,
    })
}

fn fits_a_path(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

fn is_dir(node: &Node) -> bool {
    matches!(node.content, Content::Directory(_))
}

/// The flags of fallocate(2).
fn flags_of(mode: Fallocate) -> FallocateFlags {
    let keeping = |keep_size: bool, flags| if keep_size { FallocateFlags::KEEP_SIZE | flags } else { flags };
    match mode {
        Fallocate::Allocate { keep_size } => keeping(keep_size, FallocateFlags::empty()),
        Fallocate::PunchHole => keeping(true, FallocateFlags::PUNCH_HOLE),
        Fallocate::ZeroRange { keep_size } => keeping(keep_size, FallocateFlags::ZERO_RANGE),
    }
}

fn is_file(node: &Node) -> bool {
    matches!(node.content, Content::File(_))
}

impl Host {
    /// An empty directory.
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), open: Vec::new() }
    }

    /// Whether the operation can run on the host at all.
    pub(crate) fn can(model: &Model, operation: &Operation) -> bool {
        let node = |number: &u64| model.nodes.get(number);
        // The host would follow a symbolic link.
        let dir = |number: &u64| node(number).is_some_and(|node| is_dir(node) || is_file(node));
        let data = |number: &u64| node(number).is_some_and(|node| is_dir(node) || is_file(node));
        let named = |node: &Node| node.nlink > 0 || is_file(node) || is_dir(node);
        match operation {
            Operation::Create { dir: at, name, .. }
            | Operation::Symlink { dir: at, name, .. }
            | Operation::Unlink { dir: at, name }
            | Operation::Rmdir { dir: at, name } => dir(at) && fits_a_path(name),
            Operation::DeleteSubvolume { .. } => true,
            Operation::CreateSubvolume { dir: at, name } | Operation::Snapshot { dir: at, name, .. } => {
                // A program does it, and its exit status is success or failure only.
                node(at).is_some_and(|node| is_dir(node) && node.nlink > 0)
                    && fits_a_path(name)
                    && model.child(*at, name).is_none()
                    && name.len() < 256
            }
            Operation::Tmpfile { dir: at } => dir(at),
            Operation::Link { target, dir: at, name } => {
                dir(at) && fits_a_path(name) && node(target).is_some_and(named)
            }
            Operation::Rename { from, name, to, new_name, .. } => {
                let subvolume = |dir: &u64, name: &[u8]| {
                    model
                        .child(*dir, name)
                        .is_some_and(|id| id != crate::ROOT && model.subvolume_of(id) == id)
                };
                // The host renames subvolumes, also over each other; the engine does not yet.
                dir(from)
                    && dir(to)
                    && fits_a_path(name)
                    && fits_a_path(new_name)
                    && !subvolume(from, name)
                    && !subvolume(to, new_name)
            }
            Operation::Open { inode } => node(inode).is_some_and(named),
            Operation::Close { .. } | Operation::Sync => true,
            // The length of the host's device is fixed.
            Operation::Grow { .. } | Operation::Convert(_) => false,
            // A run beside the host has no such operations.
            Operation::Append { .. } | Operation::Mark { .. } | Operation::SetReadOnly { .. } => false,
            Operation::Write { inode, .. }
            | Operation::Read { inode, .. }
            | Operation::Truncate { inode, .. }
            | Operation::Fallocate { inode, .. }
            | Operation::Fsync { inode } => data(inode),
            // Both files have to be open, and a directory cannot be open for writing.
            Operation::Defragment { inode, .. } => node(inode).is_some_and(is_file),
            Operation::Clone { inode, source, .. } => {
                [inode, source].iter().all(|number| node(number).is_some_and(is_file))
            }
            Operation::Chmod { inode, .. } => {
                node(inode).is_some_and(|node| named(node) && node.kind() != FileType::Symlink)
            }
            Operation::Chown { inode, .. } | Operation::SetTimes { inode, .. } => {
                node(inode).is_some_and(named)
            }
            Operation::SetXattr { inode, name, .. } | Operation::RemoveXattr { inode, name } => node(inode)
                .is_some_and(|node| {
                    named(node) && (is_file(node) || is_dir(node) || !name.starts_with(b"user."))
                }),
        }
    }

    /// Runs the operation on the host. `before` and `after` are the model around it, and `wanted` is its answer.
    ///
    /// # Errors
    /// The host answers differently.
    pub(crate) fn apply(
        &mut self,
        before: &Model,
        after: &Model,
        operation: &Operation,
        wanted: &Result<Outcome, ErrorKind>,
    ) -> Result<()> {
        let found = self.run(before, operation)?;
        match (wanted, &found) {
            (Ok(Outcome::Made(number)), Ok(Outcome::Made(_))) => {
                if let Operation::Tmpfile { .. } = operation {
                    self.open.last_mut().context("a file that was just opened")?.0 = *number;
                }
            }
            // The rename left a whiteout.
            (Ok(Outcome::Made(_)), Ok(Outcome::Done)) => {}
            (Ok(wanted), Ok(found)) => ensure!(wanted == found, "wanted {wanted:?}, the host has {found:?}"),
            (Err(wanted), Err(found)) => {
                let kind = kind_of(*found);
                let same = kind == Some(*wanted) || either_first(operation, *wanted, kind);
                ensure!(same, "wanted {wanted:?}, the host has {found:?}");
            }
            _ => bail!("wanted {wanted:?}, the host has {found:?}"),
        }
        self.tidy(after, operation, wanted)
    }

    /// Undoes side effects of the host.
    fn tidy(&self, after: &Model, operation: &Operation, wanted: &Result<Outcome, ErrorKind>) -> Result<()> {
        let inode = match (operation, wanted) {
            (Operation::Chown { inode, .. }, Ok(_)) => *inode,
            (Operation::CreateSubvolume { .. } | Operation::Snapshot { .. }, Ok(Outcome::Made(inode))) => {
                *inode
            }
            _ => return Ok(()),
        };
        let node = &after.nodes[&inode];
        if node.kind() != FileType::Symlink {
            rustix::fs::chmod(self.path(after, inode)?, mode_of(node.mode))?;
        }
        Ok(())
    }

    fn handle(&self, inode: u64) -> Option<&OwnedFd> {
        self.open.iter().find(|(number, _)| *number == inode).map(|(_, file)| file)
    }

    /// A path of an inode: its own, or that of an open file.
    fn path(&self, model: &Model, inode: u64) -> Result<PathBuf> {
        if let Some(path) = model.path_of(inode) {
            return Ok(self.root.join(OsStr::from_bytes(&path)));
        }
        let file = self.handle(inode).with_context(|| format!("inode {inode} is neither named nor open"))?;
        Ok(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
    }

    /// The path of a name in a directory.
    fn within(&self, model: &Model, dir: u64, name: &[u8]) -> Result<PathBuf> {
        Ok(self.path(model, dir)?.join(OsStr::from_bytes(name)))
    }

    fn run(&mut self, model: &Model, operation: &Operation) -> Result<Answer> {
        let made = |()| Outcome::Made(0);
        Ok(match operation {
            Operation::Create { dir, name, kind, mode } => {
                create(&self.within(model, *dir, name)?, *kind, *mode).map(made)
            }
            Operation::Symlink { dir, name, target } => {
                rustix::fs::symlink(OsStr::from_bytes(target), self.within(model, *dir, name)?).map(made)
            }
            Operation::CreateSubvolume { dir, name } => {
                let path = self.within(model, *dir, name)?;
                Run::new("btrfs").args(["-q", "subvolume", "create"]).arg(path).ok()?;
                Ok(Outcome::Made(0))
            }
            Operation::Snapshot { source, dir, name } => {
                let (source, path) = (self.path(model, *source)?, self.within(model, *dir, name)?);
                Run::new("btrfs").args(["-q", "subvolume", "snapshot"]).arg(source).arg(path).ok()?;
                Ok(Outcome::Made(0))
            }
            Operation::DeleteSubvolume { dir, name } => {
                let path = self.within(model, *dir, name)?;
                Run::new("btrfs").args(["-q", "subvolume", "delete"]).arg(path).ok()?;
                Ok(Outcome::Done)
            }
            Operation::Tmpfile { dir } => {
                let flags = OFlags::TMPFILE | OFlags::RDWR;
                let opened = rustix::fs::open(self.path(model, *dir)?, flags, mode_of(0o600));
                opened.map(|file| {
                    self.open.push((u64::MAX, file));
                    Outcome::Made(0)
                })
            }
            Operation::Open { inode } => {
                let file = model.nodes.get(inode).is_some_and(is_file);
                let flags = if file { OFlags::RDWR } else { OFlags::PATH };
                let named = model.path_of(*inode).is_some();
                let flags = if named { flags | OFlags::NOFOLLOW } else { flags };
                rustix::fs::open(self.path(model, *inode)?, flags, Mode::empty()).map(|file| {
                    self.open.push((*inode, file));
                    Outcome::Done
                })
            }
            Operation::Close { inode } => {
                let at = self.open.iter().position(|(number, _)| number == inode);
                self.open.swap_remove(at.context("closing what was opened")?);
                Ok(Outcome::Done)
            }
            Operation::Grow { .. } | Operation::Convert(_) | Operation::Sync => {
                let root = rustix::fs::open(&self.root, OFlags::RDONLY, Mode::empty())?;
                rustix::fs::syncfs(root).map(|()| Outcome::Done)
            }
            Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::Truncate { .. }
            | Operation::Fallocate { .. }
            | Operation::Defragment { .. }
            | Operation::Clone { .. }
            | Operation::Fsync { .. } => self.run_on_data(model, operation)?,
            Operation::Unlink { .. }
            | Operation::Rmdir { .. }
            | Operation::Link { .. }
            | Operation::Rename { .. } => self.run_on_names(model, operation)?,
            other => self.run_on_attributes(model, other)?,
        })
    }

    fn run_on_names(&self, model: &Model, operation: &Operation) -> Result<Answer> {
        let answer = match operation {
            Operation::Unlink { dir, name } => rustix::fs::unlink(self.within(model, *dir, name)?),
            Operation::Rmdir { dir, name } => rustix::fs::rmdir(self.within(model, *dir, name)?),
            Operation::Link { target, dir, name } => {
                let named = model.path_of(*target).is_some();
                let flags = if named { AtFlags::empty() } else { AtFlags::SYMLINK_FOLLOW };
                let (old, new) = (self.path(model, *target)?, self.within(model, *dir, name)?);
                rustix::fs::linkat(CWD, old, CWD, new, flags)
            }
            Operation::Rename { from, name, to, new_name, mode } => {
                let flags = match mode {
                    RenameMode::NoReplace => RenameFlags::NOREPLACE,
                    RenameMode::Exchange => RenameFlags::EXCHANGE,
                    RenameMode::Whiteout => RenameFlags::WHITEOUT,
                    _ => RenameFlags::empty(),
                };
                let (old, new) = (self.within(model, *from, name)?, self.within(model, *to, new_name)?);
                rustix::fs::renameat_with(CWD, old, CWD, new, flags)
            }
            other => bail!("{other:?} is done elsewhere"),
        };
        Ok(answer.map(|()| Outcome::Done))
    }

    fn run_on_data(&self, model: &Model, operation: &Operation) -> Result<Answer> {
        let answer = match operation {
            Operation::Write { inode, offset, len, seed } => {
                let opened = rustix::fs::open(self.path(model, *inode)?, OFlags::RDWR, Mode::empty());
                opened
                    .and_then(|file| rustix::io::pwrite(file, &content(*len, *seed), *offset))
                    .map(Outcome::Count)
            }
            Operation::Read { inode, offset, len } => {
                let opened = rustix::fs::open(self.path(model, *inode)?, OFlags::RDONLY, Mode::empty());
                opened.and_then(|file| {
                    let mut data = vec![0; *len];
                    let count = rustix::io::pread(file, data.as_mut_slice(), *offset)?;
                    data.truncate(count);
                    Ok(Outcome::Data(data))
                })
            }
            Operation::Truncate { inode, size } => {
                let path = self.path(model, *inode)?;
                let opened = rustix::fs::open(path, OFlags::WRONLY, Mode::empty());
                opened.and_then(|file| rustix::fs::ftruncate(file, *size)).map(|()| Outcome::Done)
            }
            Operation::Fallocate { inode, mode, offset, len } => {
                let opened = rustix::fs::open(self.path(model, *inode)?, OFlags::WRONLY, Mode::empty());
                let changed =
                    opened.and_then(|file| rustix::fs::fallocate(file, flags_of(*mode), *offset, *len));
                changed.map(|()| Outcome::Done)
            }
            // Its effect is not visible.
            Operation::Defragment { .. } => Ok(Outcome::Done),
            Operation::Clone { inode, source, from, len, to } => {
                let open = |number: &u64, flags| {
                    Ok::<_, anyhow::Error>(rustix::fs::open(self.path(model, *number)?, flags, Mode::empty()))
                };
                match (open(source, OFlags::RDONLY)?, open(inode, OFlags::WRONLY)?) {
                    (Ok(source), Ok(target)) => {
                        ficlonerange(&target.into(), *to, &source.into(), *from, *len).map(|()| Outcome::Done)
                    }
                    (Err(error), _) | (_, Err(error)) => Err(error),
                }
            }
            Operation::Fsync { inode } => {
                let opened = rustix::fs::open(self.path(model, *inode)?, OFlags::RDONLY, Mode::empty());
                opened.and_then(rustix::fs::fsync).map(|()| Outcome::Done)
            }
            other => bail!("{other:?} is done elsewhere"),
        };
        Ok(answer)
    }

    fn run_on_attributes(&self, model: &Model, operation: &Operation) -> Result<Answer> {
        let answer = match operation {
            Operation::Chmod { inode, mode } => rustix::fs::chmod(self.path(model, *inode)?, mode_of(*mode)),
            Operation::Chown { inode, uid, gid } => {
                let named = model.path_of(*inode).is_some();
                let flags = if named { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
                let (uid, gid) = (Some(Uid::from_raw(*uid)), Some(Gid::from_raw(*gid)));
                rustix::fs::chownat(CWD, self.path(model, *inode)?, uid, gid, flags)
            }
            Operation::SetTimes { inode, second } => {
                let named = model.path_of(*inode).is_some();
                let flags = if named { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
                let time = Timespec { tv_sec: i64::from(*second), tv_nsec: 0 };
                let times = Timestamps { last_access: time, last_modification: time };
                rustix::fs::utimensat(CWD, self.path(model, *inode)?, &times, flags)
            }
            Operation::SetXattr { inode, name, value, mode } => {
                let flags = match mode {
                    XattrMode::Create => XattrFlags::CREATE,
                    XattrMode::Replace => XattrFlags::REPLACE,
                    _ => XattrFlags::empty(),
                };
                let path = self.path(model, *inode)?;
                if model.path_of(*inode).is_some() {
                    rustix::fs::lsetxattr(path, &name[..], value, flags)
                } else {
                    rustix::fs::setxattr(path, &name[..], value, flags)
                }
            }
            Operation::RemoveXattr { inode, name } => {
                let path = self.path(model, *inode)?;
                if model.path_of(*inode).is_some() {
                    rustix::fs::lremovexattr(path, &name[..])
                } else {
                    rustix::fs::removexattr(path, &name[..])
                }
            }
            other => bail!("{other:?} is done elsewhere"),
        };
        Ok(answer.map(|()| Outcome::Done))
    }

    /// Compares everything with the host's files.
    ///
    /// # Errors
    /// They differ.
    pub(crate) fn compare(&self, model: &Model) -> Result<()> {
        match model.snapshot().difference(&host_snapshot(&self.root)?) {
            Some(difference) => bail!("the host: {difference}"),
            None => Ok(()),
        }
    }
}

fn create(path: &Path, kind: FileType, mode: u32) -> rustix::io::Result<()> {
    let mode = mode_of(mode);
    match kind {
        FileType::Directory => rustix::fs::mkdir(path, mode),
        FileType::Fifo => rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0),
        FileType::Socket => rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Socket, mode, 0),
        _ => rustix::fs::open(path, OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, mode).map(drop),
    }
}

/// Whether the other error is legal, too, where several apply: the engine checks lengths of names and subvolumes first, the host the files
/// behind the names.
fn either_first(operation: &Operation, wanted: ErrorKind, found: Option<ErrorKind>) -> bool {
    use ErrorKind::{
        AlreadyExists, CrossDevice, DirectoryNotEmpty, InvalidInput, IsADirectory, NameTooLong,
        NotADirectory, NotFound, PermissionDenied,
    };
    let two_places = matches!(operation, Operation::Link { .. } | Operation::Rename { .. });
    let first = wanted == NameTooLong || (two_places && wanted == CrossDevice);
    let of_names = [
        AlreadyExists,
        CrossDevice,
        DirectoryNotEmpty,
        InvalidInput,
        IsADirectory,
        NameTooLong,
        NotADirectory,
        NotFound,
        PermissionDenied,
    ];
    first && found.is_some_and(|found| of_names.contains(&found))
}
