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
    /// The regular file that had to go before the new one was whole.
    gone: Option<Old>,
}

/// Whose a file is that goes, and for whom.
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
        let called = |made, meanwhile: &[u8], gone| {
            (
                made,
                Replacing { fs: self, dir, meanwhile: Some(meanwhile.to_vec()), name: name.to_vec(), gone },
            )
        };
        let refused = match make(name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => error,
            made => return made.map(|made| called(made, name, None)),
        };
        if self.lookup_kind(dir, name, Wait::Yes)?.1 == FileType::Directory {
            return Err(refused);
        }
        let figures = self.statfs();
        if bytes > figures.blocks_available.saturating_mul(figures.block_size.into()) {
            let gone = Old::called(self, dir, name)?;
            self.unlink(dir, name)?;
            return make(name).map(|made| called(made, name, gone));
        }
        for number in 0_u64.. {
            let meanwhile = format!(".creamery-{number}.part").into_bytes();
            match make(&meanwhile) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                made => return made.map(|made| called(made, &meanwhile, None)),
            }
        }
        unreachable!("no directory has so many entries")
    }
}

impl Old {
    /// That of the regular file that has the name; none if nothing has, or what is none.
    fn called(fs: &Filesystem, dir: InodeId, name: &[u8]) -> Result<Option<Self>> {
        match fs.lookup_kind(dir, name, Wait::Yes) {
            Ok((id, FileType::File)) => Self::of(fs, id).map(Some),
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(None),
        }
    }

    fn of(fs: &Filesystem, id: InodeId) -> Result<Self> {
        let is = fs.stat(id, Wait::Yes)?;
        let (uid, gid, mode) = (Some(is.uid), Some(is.gid), Some(is.mode & 0o7777));
        let mut xattrs = Vec::new();
        for name in fs.list_xattrs(id, Wait::Yes)? {
            match fs.get_xattr(id, &name, Wait::Yes) {
                _ if name == CAPABILITY => {}
                // Of no space of names that anybody reads.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                value => xattrs.push((name, value?)),
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
            match fs.set_xattr(id, name, value, XattrMode::Any) {
                // What the old one had and nobody could give it today: compression where the directory forbids it, by now, or in a
                // word of a later Linux. The content is worth more.
                Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {}
                done => done?,
            }
        }
        // Behind the ACL, which may move the mode.
        fs.set_attributes(id, &self.attributes).map(drop)
    }
}

impl Replacing<'_> {
    /// The same for a regular file that brings no attributes of its own: `made` gets owner, mode and extended attributes that the file has
    /// now that it is in place of, if it is, as a file keeps them into which cp(1) writes.
    ///
    /// # Errors
    /// As of [`finish`](Self::finish), and of reading and setting attributes.
    pub fn finish_as_the_old(mut self, made: InodeId) -> Result<()> {
        let old = match self.meanwhile.as_ref().filter(|meanwhile| **meanwhile != self.name) {
            Some(_) => Old::called(self.fs, self.dir, &self.name)?,
            None => self.gone.take(),
        };
        if let Some(old) = old {
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
