//! From paths to inodes. Symbolic links are followed inside the image: an absolute target begins at its root.
//!
//! Past damage, `lost_names` finds a name whose lookup fails.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};
use smallvec::{SmallVec, smallvec};

use crate::beginning::begin;
use crate::fs;

/// Links that one path may go through, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// Directories that fit in a trail without an allocation. An allocation would contend with other threads.
const USUAL_DEPTH: usize = 16;

/// Whether a link at the end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// Adds the path to the message of an error, unless the error is about a path of the host.
pub(crate) fn at(path: &Path) -> impl FnOnce(Error) -> Error + '_ {
    move |error| if error.is_on_host() { error } else { error.context(path.display()) }
}

/// Whether a path can only mean a directory: `dir/`.
pub(crate) fn means_directory(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

pub(crate) fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// A directory and the ones above it, so that ".." needs no look-up.
struct Trail(SmallVec<[InodeId; USUAL_DEPTH]>);

impl Trail {
    fn from(root: InodeId) -> Self {
        Self(smallvec![root])
    }

    fn here(&self) -> InodeId {
        *self.0.last().expect("a trail begins at the root")
    }

    fn up(&mut self) {
        if self.0.len() > 1 {
            self.0.pop();
        }
    }
}

/// Resolves `path` to an inode, from `root`, or from the top level where the path says so.
///
/// # Errors
/// `NotFound`, also for an empty path, as in POSIX: an empty variable is not the root directory.
pub(crate) fn resolve(fs: &fs::Filesystem, root: InodeId, path: &Path, last: Last) -> Result<InodeId> {
    let (root, rest) = begin_named(root, path)?;
    resolve_bytes(fs, root, rest, last).map_err(at(path))
}

/// Resolves `names` to an inode, from `root` and not above it. No name is special: they come from an archive, not from
/// a user.
pub(crate) fn resolve_within(
    fs: &fs::Filesystem,
    root: InodeId,
    names: &Path,
    last: Last,
) -> Result<InodeId> {
    resolve_bytes(fs, root, names.as_os_str().as_bytes(), last).map_err(at(names))
}

fn resolve_bytes(fs: &fs::Filesystem, root: InodeId, path: &[u8], last: Last) -> Result<InodeId> {
    let mut walk = PathWalk::from(fs, root);
    walk.go(path, last)?;
    Ok(walk.trail.here())
}

/// Where a user's path begins, and the rest of it.
fn begin_named(root: InodeId, path: &Path) -> Result<(InodeId, &[u8])> {
    match path.as_os_str().as_bytes() {
        b"" => Err(Error::new(ErrorKind::NotFound, "empty path")),
        bytes => Ok(begin(root, bytes)),
    }
}

/// Finds the inode of a name in a directory where the lookup fails.
pub(crate) type FindLost<'f> = &'f dyn Fn(InodeId, &[u8]) -> Option<(InodeId, fs::FileType)>;

/// Makes a directory of this name in a directory, or returns the one that another thread has made meanwhile.
pub(crate) type MakeDirectory<'f> = &'f dyn Fn(InodeId, &[u8]) -> Result<(InodeId, fs::FileType)>;

/// Walks along `path` once and makes each missing directory on it. The target of a link must exist.
///
/// # Errors
/// A component that is not a directory: `NotADirectory` on the way, `AlreadyExists` at the end.
pub(crate) fn make_directories(
    fs: &fs::Filesystem,
    root: InodeId,
    path: &Path,
    make: MakeDirectory<'_>,
) -> Result<()> {
    let (root, rest) = begin_named(root, path)?;
    let mut walk = PathWalk { make: Some(make), ..PathWalk::from(fs, root) };
    walk.go(rest, Last::Follow).map_err(at(path))?;
    match walk.kind {
        fs::FileType::Directory => Ok(()),
        _ => Err(at(path)(ErrorKind::AlreadyExists.into())),
    }
}

/// Resolves a path past damage to an inode and the file type that the way there says; the inode itself may be lost.
pub(crate) fn resolve_past_damage(
    fs: &fs::Filesystem,
    root: InodeId,
    path: &Path,
    last: Last,
    find_lost: FindLost<'_>,
) -> Result<(InodeId, fs::FileType)> {
    let (root, rest) = begin_named(root, path)?;
    let mut walk = PathWalk { find_lost: Some(find_lost), ..PathWalk::from(fs, root) };
    walk.go(rest, last).map_err(at(path))?;
    Ok((walk.trail.here(), walk.kind))
}

/// A walk along a path, and along the targets of the links on it.
struct PathWalk<'f> {
    fs: &'f fs::Filesystem,
    trail: Trail,
    /// The type of the inode that the walk has reached.
    kind: fs::FileType,
    links: u32,
    /// Present if the walk goes on past damage.
    find_lost: Option<FindLost<'f>>,
    /// Present if the walk makes the missing directories of the path itself.
    make: Option<MakeDirectory<'f>>,
}

impl<'f> PathWalk<'f> {
    fn from(fs: &'f fs::Filesystem, root: InodeId) -> Self {
        let kind = fs::FileType::Directory;
        Self { fs, trail: Trail::from(root), kind, links: 0, find_lost: None, make: None }
    }

    fn look_up(&self, name: &[u8]) -> Result<(InodeId, fs::FileType)> {
        let here = self.trail.here();
        self.fs.lookup_kind(here, name, Wait::Yes).or_else(|error| {
            if let Some(make) = self.make.filter(|_| error.kind() == ErrorKind::NotFound) {
                return make(here, name);
            }
            let may_be_lost = error.kind().is_damage() || error.kind() == ErrorKind::NotFound;
            let find_lost = self.find_lost.filter(|_| may_be_lost);
            find_lost.and_then(|find_lost| find_lost(here, name)).ok_or(error)
        })
    }

    /// Goes from the current place along `path`. Each link on the way is one level of recursion, so there are at most
    /// [`SYMLINKS_MAX`].
    fn go(&mut self, path: &[u8], last: Last) -> Result<()> {
        if path.starts_with(b"/") {
            self.trail.0.truncate(1);
            self.kind = fs::FileType::Directory;
        }
        // "x/" and "x/." mean the target of x, which must be a directory.
        let slash = path.ends_with(b"/") || path.ends_with(b"/.");
        let mut names = names(path).peekable();
        while let Some(name) = names.next() {
            if name == b".." {
                self.trail.up();
                self.kind = fs::FileType::Directory;
                continue;
            }
            let (id, kind) = self.look_up(name)?;
            let goes_on = slash || names.peek().is_some();
            if kind == fs::FileType::Symlink && (goes_on || last == Last::Follow) {
                self.follow(id)?;
            } else {
                self.trail.0.push(id);
                self.kind = kind;
            }
            if goes_on && self.kind != fs::FileType::Directory {
                return Err(ErrorKind::NotADirectory.into());
            }
        }
        Ok(())
    }

    /// Counts a link on the way.
    fn count_link(&mut self) -> Result<()> {
        self.links += 1;
        if self.links > SYMLINKS_MAX { Err(ErrorKind::TooManySymlinks.into()) } else { Ok(()) }
    }

    fn follow(&mut self, link: InodeId) -> Result<()> {
        self.count_link()?;
        let target = target_of(self.fs, link)?;
        let make = self.make.take();
        let followed = self.go(&target, Last::Follow);
        self.make = make;
        followed
    }
}

/// Reads the target of a symbolic link. Errors: `NotFound` for an empty target, which is not a path in POSIX. (Linux stays in the link's
/// directory.)
pub(crate) fn target_of(fs: &fs::Filesystem, link: InodeId) -> Result<Vec<u8>> {
    match fs.read_link(link, Wait::Yes)? {
        target if target.is_empty() => Err(ErrorKind::NotFound.into()),
        target => Ok(target),
    }
}

/// The directory and the name that a write to `path` writes. A link at the end of `path` stands for its target, whether that exists
/// or not.
///
/// # Errors
/// The errors of the path walk. `IsADirectory`: the target of a link ends in a slash and does not exist.
pub(crate) fn resolve_parent_of_target(
    fs: &fs::Filesystem,
    root: InodeId,
    path: &Path,
) -> Result<(InodeId, Vec<u8>)> {
    let (root, rest) = begin_named(root, path)?;
    let mut walk = PathWalk::from(fs, root);
    let mut rest = rest.to_vec();
    let mut go = |walk: &mut PathWalk<'_>| loop {
        let is_target = walk.links > 0;
        let of_target = |error| if is_target { ErrorKind::IsADirectory.into() } else { error };
        let (parent, name) = split(&rest).map_err(of_target)?;
        walk.go(parent, Last::Follow)?;
        let is_directory_meant = is_target && rest.ends_with(b"/");
        let (here, name) = (walk.trail.here(), name.to_vec());
        match fs.lookup_kind(here, &name, Wait::Yes) {
            Ok((link, fs::FileType::Symlink)) => {
                walk.count_link()?;
                rest = target_of(fs, link)?;
            }
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Err(_) if is_directory_meant => return Err(ErrorKind::IsADirectory.into()),
            _ => return Ok((here, name)),
        }
    };
    go(&mut walk).map_err(at(path))
}

/// The directory of `path` and its name there, for making, moving and removing names.
pub(crate) fn resolve_parent<'p>(
    fs: &fs::Filesystem,
    root: InodeId,
    path: &'p Path,
) -> Result<(InodeId, &'p [u8])> {
    let (root, rest) = begin_named(root, path)?;
    let (parent, name) = split(rest).map_err(at(path))?;
    let mut walk = PathWalk::from(fs, root);
    walk.go(parent, Last::Follow).map_err(at(path))?;
    Ok((walk.trail.here(), name))
}

/// Splits a path into its directory, with the trailing slash, and a name.
///
/// # Errors
/// `InvalidInput`: the path does not end in a name.
fn split(path: &[u8]) -> Result<(&[u8], &[u8])> {
    let trimmed = &path[..path.iter().rposition(|&byte| byte != b'/').map_or(0, |end| end + 1)];
    let start = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    match trimmed.split_at(start) {
        (_, b"") => Err(Error::invalid("is the root directory")),
        (_, b"." | b"..") => Err(Error::invalid("path ends in . or ..")),
        found => Ok(found),
    }
}
