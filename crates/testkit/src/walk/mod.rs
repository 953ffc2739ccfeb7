//! A walk of a tree through the host's own system calls, and the differences of two walks in words.
//!
//! The host's kernel reads everything: a source folder, a kernel mount of an image and a FUSE mount of it are read the same way, so a
//! difference is one of filesystems, not of readers. A walk taken before an event can be compared with one taken afterwards.
//!
//! The comparison covers names (bytes), type, mode, owner, group, device number, size, times to the nanosecond, hard link groups and
//! counts, symlink targets, every xattr (POSIX ACLs are xattrs), data and hole ranges, and a hash of the content. Folders are an exception
//! for size and link count, which every filesystem defines in its own way.
//!
//! Reading has no side effects: files are opened without updating their access time where the caller has the permission for that.

mod compare;
mod entry;

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result};

pub use compare::{Compare, differences, expect_same};
pub use entry::{Entry, Moment};

/// The content of a tree: entries by path below its root; `.` is the root.
///
/// ```
/// use creamery_testkit::walk::Walk;
/// let scratch = creamery_testkit::Scratch::new("walk").unwrap();
/// std::fs::write(scratch.file("a"), b"content").unwrap();
/// let walk = Walk::take(scratch.path()).unwrap();
/// assert_eq!(walk.entry(b"a").unwrap().size, 7);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Walk {
    entries: BTreeMap<Vec<u8>, Entry>,
}

impl Walk {
    /// Reads the whole tree below `root`.
    ///
    /// # Errors
    /// Anything in it cannot be read: a walk is always complete.
    pub fn take(root: &Path) -> Result<Self> {
        Self::take_without(root, &|_| false)
    }

    /// Reads the tree below `root` without the paths (and everything below them) for which `leave_out` returns true.
    ///
    /// # Errors
    /// Anything else in it cannot be read.
    pub fn take_without(root: &Path, leave_out: &dyn Fn(&[u8]) -> bool) -> Result<Self> {
        let mut seen = Self::default();
        let mut inodes: BTreeMap<(u64, u64), Vec<Vec<u8>>> = BTreeMap::new();
        let mut waiting: Vec<Vec<u8>> = vec![b".".to_vec()];
        while let Some(name) = waiting.pop() {
            let path = root.join(std::ffi::OsStr::from_bytes(&name));
            let path = if name == b"." { root.to_owned() } else { path };
            let stat = path.symlink_metadata().with_context(|| format!("looking at {}", path.display()))?;
            let entry = Entry::read(&path, &stat).with_context(|| format!("reading {}", path.display()))?;
            if stat.is_dir() {
                for child in
                    std::fs::read_dir(&path).with_context(|| format!("listing {}", path.display()))?
                {
                    let child = child.with_context(|| format!("listing {}", path.display()))?.file_name();
                    let below = join(&name, child.as_bytes());
                    if !leave_out(&below) {
                        waiting.push(below);
                    }
                }
            } else if stat.nlink() > 1 {
                inodes.entry((stat.dev(), stat.ino())).or_default().push(name.clone());
            }
            seen.entries.insert(name, entry);
        }
        for mut names in inodes.into_values() {
            names.sort();
            for name in &names {
                if let Some(entry) = seen.entries.get_mut(name) {
                    entry.links = names.clone();
                }
            }
        }
        Ok(seen)
    }

    /// The entry at `path`, if there is one.
    #[must_use]
    pub fn entry(&self, path: &[u8]) -> Option<&Entry> {
        self.entries.get(path)
    }

    /// All entries in the order of their paths.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_slice(), entry))
    }

    /// The number of entries, the root included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Always false: there is always a root.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    if parent == b"." { name.to_vec() } else { [parent, b"/", name].concat() }
}
