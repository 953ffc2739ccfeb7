//! Walks the source tree in the order in which it is written: depth first, names bytewise.
//!
//! # Memory and handles
//! The names of a directory stay in memory while the walk is in it. Few directories are open: of a deep path only the last [`OPEN_DEPTH`]
//! stay open. The ones above are reopened through ".." on the way back (and compared with the former ones).

use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Result};
use rustix::fs::FileType;

use super::listing::Listing;
use super::source::{Meta, SourceDir, at_path, join};

/// The number of levels of the path that stay open.
const OPEN_DEPTH: usize = 64;

/// The reason for an early end of a walk.
pub(crate) enum WalkStop {
    /// The visitor needs no more.
    Enough,
    /// The source cannot be read.
    Failed(Error),
}

impl From<Error> for WalkStop {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// Visits every file, in order.
pub(crate) trait Visitor {
    /// A directory begins; its content follows, then [`leave`](Self::leave). The root has no name.
    fn enter(&mut self, name: &[u8], dir: &SourceDir, meta: Meta) -> Result<(), WalkStop>;
    /// The directory entered last is complete.
    fn leave(&mut self) -> Result<(), WalkStop>;
    /// The directory at `path`, or the file of that name, cannot be read. The walk goes on behind it, unless this returns an error.
    fn unread(&mut self, path: &[u8], error: Error) -> Result<(), WalkStop> {
        let _ = path;
        Err(error.into())
    }
    /// A file that is no directory; `kind` is the type from the directory, if it has one.
    fn file(&mut self, name: &CStr, kind: FileType, dir: &Arc<SourceDir>) -> Result<(), WalkStop>;
}

/// One level of the path that the walk is at.
struct Level {
    dir: Option<Arc<SourceDir>>,
    path: Vec<u8>,
    dev: u64,
    ino: u64,
    listing: Listing,
    next: usize,
}

/// Calls `visitor` for the directory `root` and everything below it.
pub(crate) fn walk(root: SourceDir, visitor: &mut dyn Visitor) -> Result<(), WalkStop> {
    let mut levels = vec![enter(b"", look(root)?, visitor)?];
    while let Some(level) = levels.last_mut() {
        if level.next == level.listing.len() {
            leave(&mut levels, visitor)?;
            continue;
        }
        let index = level.next;
        level.next += 1;
        let dir = level.dir.as_ref().expect("the level at hand is open");
        let (name, kind) = level.listing.get(index);
        let directory = match is_dir(dir, name, kind) {
            Ok(true) => dir.open_dir(name).and_then(look).map(Some),
            Ok(false) => Ok(None),
            Err(error) => Err(error),
        };
        match directory {
            Ok(Some(directory)) => {
                let below = enter(name.to_bytes(), directory, visitor)?;
                levels.push(below);
                if let Some(far) = levels.len().checked_sub(OPEN_DEPTH + 1) {
                    levels[far].dir = None;
                }
            }
            Ok(None) => visitor.file(name, kind, dir)?,
            Err(error) => visitor.unread(&join(&dir.path, name.to_bytes()), error)?,
        }
    }
    Ok(())
}

/// A directory that was opened.
struct Found {
    dir: SourceDir,
    meta: Meta,
    listing: Listing,
}

fn look(dir: SourceDir) -> Result<Found> {
    let meta = dir.meta().map_err(at_path(&dir.path))?;
    let listing = Listing::read(dir.fd.as_fd()).map_err(at_path(&dir.path))?;
    Ok(Found { dir, meta, listing })
}

fn enter(name: &[u8], directory: Found, visitor: &mut dyn Visitor) -> Result<Level, WalkStop> {
    let Found { dir, meta, listing } = directory;
    let (dev, ino) = (meta.dev, meta.ino);
    visitor.enter(name, &dir, meta)?;
    Ok(Level { path: dir.path.clone(), dir: Some(Arc::new(dir)), dev, ino, listing, next: 0 })
}

/// Leaves the last level, and reopens the one above if it was closed.
fn leave(levels: &mut Vec<Level>, visitor: &mut dyn Visitor) -> Result<(), WalkStop> {
    let left = levels.pop().expect("there is a level to leave");
    visitor.leave()?;
    if let Some(above) = levels.last_mut()
        && above.dir.is_none()
    {
        let dir = left.dir.as_ref().expect("the level at hand is open").open_parent(above.path.clone())?;
        let meta = dir.meta().map_err(at_path(&above.path))?;
        if (meta.dev, meta.ino) != (above.dev, above.ino) {
            let moved = Error::new(ErrorKind::Stale, "the directory was moved while it was read");
            return Err(at_path(&above.path)(moved).into());
        }
        above.dir = Some(Arc::new(dir));
    }
    Ok(())
}

fn is_dir(dir: &SourceDir, name: &CStr, kind: FileType) -> Result<bool> {
    match kind {
        FileType::Directory => Ok(true),
        FileType::Unknown => dir.is_dir(name).map_err(at_path(&join(&dir.path, name.to_bytes()))),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Log(Vec<String>);

    impl Visitor for Log {
        fn enter(&mut self, name: &[u8], _: &SourceDir, _: Meta) -> Result<(), WalkStop> {
            self.0.push(format!("+{}", name.escape_ascii()));
            Ok(())
        }

        fn leave(&mut self) -> Result<(), WalkStop> {
            self.0.push("-".to_owned());
            Ok(())
        }

        fn file(&mut self, name: &CStr, _: FileType, _: &Arc<SourceDir>) -> Result<(), WalkStop> {
            self.0.push(name.to_bytes().escape_ascii().to_string());
            Ok(())
        }
    }

    fn log(root: &std::path::Path) -> Vec<String> {
        let mut log = Log::default();
        assert!(walk(SourceDir::root(root).unwrap(), &mut log).is_ok());
        log.0
    }

    #[test]
    fn entries_come_depth_first_and_by_the_bytes_of_their_names() {
        let root = tempfile::tempdir().unwrap();
        for path in ["b/y", "b/x", "a"] {
            std::fs::create_dir_all(root.path().join(path)).unwrap();
        }
        std::fs::write(root.path().join("b/file"), b"").unwrap();
        std::os::unix::fs::symlink("b", root.path().join("B")).unwrap();
        assert_eq!(log(root.path()), ["+", "B", "+a", "-", "+b", "file", "+x", "-", "+y", "-", "-", "-"]);
    }

    #[test]
    fn a_path_deeper_than_the_open_levels_is_walked_to_its_end_and_back() {
        let root = tempfile::tempdir().unwrap();
        let mut path = root.path().to_owned();
        for _ in 0..3 * OPEN_DEPTH {
            path.push("d");
        }
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(root.path().join("d/z"), b"").unwrap();
        let log = log(root.path());
        assert_eq!(log.iter().filter(|line| *line == "+d").count(), 3 * OPEN_DEPTH);
        assert_eq!(log[log.len() - 3..], ["z", "-", "-"]); // found on the way back, two levels up
    }
}
