//! From paths to inodes. Symbolic links are followed inside the image: an absolute target begins at its root.

use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use crate::fs;

/// How many links one path may go through, as in Linux.
const SYMLINKS_MAX: u32 = 40;

/// Whether a link at the end of a path stands for itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Last {
    Follow,
    Keep,
}

/// Puts the path in front of a message.
pub(crate) fn at(path: &Path) -> impl FnOnce(Error) -> Error + use<> {
    let path = path.to_owned();
    move |error| error.context(path.display())
}

fn names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|&byte| byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// A directory and the ones above it, so that ".." needs no look-up.
struct Trail(Vec<InodeId>);

impl Trail {
    fn here(&self) -> InodeId {
        *self.0.last().expect("a trail begins at the root")
    }

    fn up(&mut self) {
        if self.0.len() > 1 {
            self.0.pop();
        }
    }
}

/// The inode that `path` names, from `root` on.
pub(crate) fn resolve(fs: &fs::Filesystem, root: InodeId, path: &Path, last: Last) -> Result<InodeId> {
    resolve_bytes(fs, root, path.as_os_str().as_bytes(), last).map_err(at(path))
}

fn resolve_bytes(fs: &fs::Filesystem, root: InodeId, path: &[u8], last: Last) -> Result<InodeId> {
    let mut trail = Trail(vec![root]);
    // "x/" means what x leads to, and that has to be a directory.
    let slash = path.ends_with(b"/");
    let mut rest: VecDeque<Vec<u8>> = names(path).map(<[u8]>::to_vec).collect();
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == b".." {
            trail.up();
            continue;
        }
        let id = fs.lookup(trail.here(), &name, Wait::Yes)?;
        let kind = fs.stat(id, Wait::Yes)?.kind;
        let follow = !rest.is_empty() || last == Last::Follow || slash;
        if kind == fs::FileType::Symlink && follow {
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(ErrorKind::TooManySymlinks.into());
            }
            let target = fs.read_link(id)?;
            if target.starts_with(b"/") {
                trail.0.truncate(1);
            }
            for name in names(&target).rev() {
                rest.push_front(name.to_vec());
            }
            continue;
        }
        if kind != fs::FileType::Directory && (!rest.is_empty() || slash) {
            return Err(ErrorKind::NotADirectory.into());
        }
        trail.0.push(id);
    }
    Ok(trail.here())
}

/// The directory that `path` lies in, and its name there, for making, moving and removing names.
pub(crate) fn resolve_parent<'p>(
    fs: &fs::Filesystem,
    root: InodeId,
    path: &'p Path,
) -> Result<(InodeId, &'p [u8])> {
    let bytes = path.as_os_str().as_bytes();
    let trimmed = &bytes[..bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |end| end + 1)];
    let start = trimmed.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (parent, name) = trimmed.split_at(start);
    if matches!(name, b"" | b"." | b"..") {
        let what = if name.is_empty() { "the root directory itself" } else { "a path that ends in dots" };
        return Err(Error::invalid(what)).map_err(at(path));
    }
    let parent = resolve_bytes(fs, root, parent, Last::Follow).map_err(at(path))?;
    Ok((parent, name))
}
