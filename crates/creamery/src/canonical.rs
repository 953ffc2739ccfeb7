//! The path of a file without links and dots.

use creamery_base::{InodeId, Result, Wait};

use crate::beginning::{TOP_LEVEL, begin};
use crate::fs;
use crate::path::{names, target_of};

/// Returns the canonical form of a path whose target exists. The caller has resolved it, and has reported any error of it.
pub(crate) fn canonical(fs: &fs::Filesystem, root: InodeId, path: &[u8]) -> Result<Vec<u8>> {
    let (start, rest) = begin(root, path);
    let mut canonical = Canonical { fs, dirs: vec![start], names: Vec::new() };
    canonical.go(rest)?;
    let mut whole = if rest.len() < path.len() { TOP_LEVEL.as_bytes().to_vec() } else { Vec::new() };
    for name in &canonical.names {
        whole.push(b'/');
        whole.extend_from_slice(name);
    }
    if canonical.names.is_empty() {
        whole.push(b'/');
    }
    Ok(whole)
}

/// A directory, its parents, and their names.
struct Canonical<'f> {
    fs: &'f fs::Filesystem,
    dirs: Vec<InodeId>,
    names: Vec<Vec<u8>>,
}

impl Canonical<'_> {
    /// Goes along a path. Each link on it is one level of recursion; path resolution limits their number.
    fn go(&mut self, path: &[u8]) -> Result<()> {
        if path.starts_with(b"/") {
            self.dirs.truncate(1);
            self.names.clear();
        }
        for name in names(path) {
            if name == b".." {
                if self.names.pop().is_some() {
                    self.dirs.pop();
                }
                continue;
            }
            let here = *self.dirs.last().expect("it begins with one");
            match self.fs.lookup_kind(here, name, Wait::Yes)? {
                (link, fs::FileType::Symlink) => self.go(&target_of(self.fs, link)?)?,
                (id, _) => {
                    self.dirs.push(id);
                    self.names.push(name.to_vec());
                }
            }
        }
        Ok(())
    }
}
