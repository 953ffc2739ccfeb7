//! Making something in place of what has the name, which keeps it until the new one is whole.
//!
//! The new one has a name beside it until then. Who is killed leaves that behind only where a commit came in between.

use creamery_base::{ErrorKind, InodeId, Result, Wait};

use super::RenameMode;
use crate::{FileType, Filesystem, SetAttributes, XattrMode};

/// What goes when a file gets another content, whoever writes it: it was given to a program that is no more.
const CAPABILITY: &[u8] = b"security.capability";

/// Something new, which may not be called yet what it is to be called. [`finish`](Self::finish) gives it its name; without that it is
/// removed.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem, dir: creamery_base::InodeId) -> creamery_base::Result<()> {
/// use creamery_fs::NewInode;
/// let (made, replacing) =
///     fs.make_or_replace(dir, b"name", 0, |name| fs.create(dir, name, &NewInode::file(0o644)))?;
/// fs.open_file(made.id)?.write_at(0, b"all that is to be in it")?;
/// replacing.finish()
/// # }
/// ```
#[must_use = "it is removed unless it is finished"]
pub struct Replacing<'f> {
    fs: &'f Filesystem,
    dir: InodeId,
    /// What it is called meanwhile; none when it is finished.
    meanwhile: Option<Vec<u8>>,
    name: Vec<u8>,
    /// The regular file that it is in place of.
    old: Option<Old>,
}

/// Whose a file is that goes, and for whom: it can be gone before the new one is whole.
struct Old {
    attributes: SetAttributes,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Filesystem {
    /// Calls `make` with `name`, or where that is taken by what is no directory, with another one of the same directory: what is made
    /// is in place of the old when it is finished. `bytes` are still to be written to it; where there is no room for them beside the
    /// old one, that goes first.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] when a directory has the name; those of `make`.
    pub fn make_or_replace<T>(
        &self,
        dir: InodeId,
        name: &[u8],
        bytes: u64,
        make: impl Fn(&[u8]) -> Result<T>,
    ) -> Result<(T, Replacing<'_>)> {
        let called = |made, meanwhile: &[u8], old| {
            (made, Replacing { fs: self, dir, meanwhile: Some(meanwhile.to_vec()), name: name.to_vec(), old })
        };
        let refused = match make(name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => error,
            made => return made.map(|made| called(made, name, None)),
        };
        let old = match self.lookup_kind(dir, name, Wait::Yes)? {
            (_, FileType::Directory) => return Err(refused),
            (id, FileType::File) => Some(Old::of(self, id)?),
            _ => None,
        };
        let figures = self.statfs();
        if bytes > figures.blocks_available.saturating_mul(figures.block_size.into()) {
            self.unlink(dir, name)?;
            return make(name).map(|made| called(made, name, old));
        }
        for number in 0_u64.. {
            let meanwhile = format!(".creamery-{number}.part").into_bytes();
            match make(&meanwhile) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|made| called(made, &meanwhile, old)),
            }
        }
        unreachable!("no directory has so many entries")
    }
}

impl Old {
    fn of(fs: &Filesystem, id: InodeId) -> Result<Self> {
        let is = fs.stat(id, Wait::Yes)?;
        let (uid, gid, mode) = (Some(is.uid), Some(is.gid), Some(is.mode & 0o7777));
        let mut xattrs = Vec::new();
        for name in fs.list_xattrs(id, Wait::Yes)? {
            if name != CAPABILITY {
                let value = fs.get_xattr(id, &name, Wait::Yes)?;
                xattrs.push((name, value));
            }
        }
        Ok(Self { attributes: SetAttributes { uid, gid, mode, ..SetAttributes::default() }, xattrs })
    }

    /// Gives `id` all of it, in place of what it had from its directory.
    fn give(&self, fs: &Filesystem, id: InodeId) -> Result<()> {
        for name in fs.list_xattrs(id, Wait::Yes)? {
            fs.remove_xattr(id, &name)?;
        }
        for (name, value) in &self.xattrs {
            fs.set_xattr(id, name, value, XattrMode::Any)?;
        }
        // Behind the ACL, which may move the mode.
        fs.set_attributes(id, &self.attributes).map(drop)
    }
}

impl Replacing<'_> {
    /// The same for a regular file that brings no attributes of its own: `made` gets owner, mode and extended attributes of the file that it is
    /// in place of, if it is, as a file keeps them into which cp(1) writes.
    ///
    /// # Errors
    /// As of [`finish`](Self::finish), and of setting attributes.
    pub fn finish_as_the_old(self, made: InodeId) -> Result<()> {
        if let Some(old) = &self.old {
            old.give(self.fs, made)?;
        }
        self.finish()
    }

    /// Gives it its name; the old one goes.
    ///
    /// # Errors
    /// As of renaming; the old one has its name still.
    pub fn finish(mut self) -> Result<()> {
        if let Some(meanwhile) = self.meanwhile.as_ref().filter(|meanwhile| **meanwhile != self.name) {
            self.fs.rename(self.dir, meanwhile, self.dir, &self.name, RenameMode::Replace)?;
        }
        self.meanwhile = None;
        Ok(())
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        if let Some(meanwhile) = &self.meanwhile {
            // Why it was not finished is more news than that it cannot be removed.
            let _ = self.fs.unlink(self.dir, meanwhile);
        }
    }
}
