//! Making a file in place of an existing one, which keeps its name until the new one is whole.
//!
//! The new one has a name beside it until then. A killed program leaves the new one behind only where a commit came in between.

use creamery_base::{Error, ErrorKind, InodeId, Result, Wait};

use crate::inode::xattr::{CAPABILITIES, COMPRESSION};
use crate::names::RenameMode;
use crate::{FileType, Filesystem, InodeFlags, SetAttributes, XattrMode};

/// Flags that forbid changes: a file with one of them is not replaced.
const LASTING: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// A new inode that may still have a temporary name. [`finish`](Self::finish) gives it its name; without that it is removed.
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
    /// The temporary name; `None` when it is finished.
    meanwhile: Option<Vec<u8>>,
    name: Vec<u8>,
    /// The regular file that had to go before the new one was whole.
    gone: Option<Old>,
}

/// The owner, mode, extended attributes and flags of the file that goes, for the new one.
#[derive(Clone)]
struct Old {
    flags: InodeFlags,
    attributes: SetAttributes,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Filesystem {
    /// Calls `make` with `name`. Where an inode that is no directory has that name, `make` gets another one of the same directory,
    /// and the new inode replaces the old one when it is finished. `bytes` are still to be written to it. Where there is no room for
    /// them beside the old one, but there is without it, the old one goes first.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyExists`] when a directory has the name; those of `make`, and of removing the old one, before anything is made.
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
        let (there, kind) = self.lookup_kind(dir, name, Wait::Yes)?;
        if kind == FileType::Directory {
            return Err(refused);
        }
        if self.stat(dir, Wait::Yes)?.flags.contains(InodeFlags::APPEND) {
            let what = "cannot replace a file in an append-only directory";
            return Err(Error::new(ErrorKind::PermissionDenied, what));
        }
        let is = self.stat(there, Wait::Yes)?;
        let frees = if is.nlink == 1 { is.allocated } else { 0 };
        let figures = self.statfs();
        let room = figures.blocks_available.saturating_mul(figures.block_size.into());
        if bytes > room && bytes <= room.saturating_add(frees) {
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
    /// The properties of the regular file called `name`; `None` if there is none, or it is no regular file.
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
                // The capabilities were given to a program that is no more.
                _ if name == CAPABILITIES => {}
                // Its namespace is one that no program reads.
                Err(error) if error.kind() == ErrorKind::Unsupported => {}
                value => xattrs.push((name, value?)),
            }
        }
        let attributes = SetAttributes { uid, gid, mode, ..SetAttributes::default() };
        Ok(Self { flags: is.flags - LASTING, attributes, xattrs })
    }

    /// Gives `id`, which is still empty, the flags and the compression property, by which data is written, in place of those from
    /// its directory.
    fn give_flags(&self, fs: &Filesystem, id: InodeId) -> Result<()> {
        // A change from overwriting in place to compression has to go through neither.
        for flags in [InodeFlags::empty(), self.flags] {
            where_it_can(
                fs.set_attributes(id, &SetAttributes { flags: Some(flags), ..SetAttributes::default() }),
            )?;
        }
        let compression = self.xattrs.iter().find(|(name, _)| name == COMPRESSION);
        compression
            .map_or(Ok(()), |(name, value)| where_it_can(fs.set_xattr(id, name, value, XattrMode::Any)))
    }

    /// Gives `id` the other properties, in place of those from its directory.
    fn give(&self, fs: &Filesystem, id: InodeId) -> Result<()> {
        for name in fs.list_xattrs(id, Wait::Yes)? {
            if !self.xattrs.iter().any(|(kept, _)| *kept == name) {
                fs.remove_xattr(id, &name)?;
            }
        }
        for (name, value) in &self.xattrs {
            where_it_can(fs.set_xattr(id, name, value, XattrMode::Any))?;
        }
        // After the ACL, which may change the mode.
        fs.set_attributes(id, &self.attributes).map(drop)
    }
}

/// Ignores the error of a property of the old file that cannot be given today, for example compression in a word of a later Linux:
/// the content is worth more.
fn where_it_can<T>(given: Result<T>) -> Result<()> {
    match given {
        Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => Ok(()),
        given => given.map(drop),
    }
}

impl Replacing<'_> {
    /// Gives `made`, a regular file without data so far, the flags and the compression property of the file that it replaces, if it
    /// does: its data is then written as the old one's would be. For callers that end with
    /// [`finish_as_the_old`](Self::finish_as_the_old).
    ///
    /// # Errors
    /// Those of reading and setting attributes.
    pub fn begin_as_the_old(&self, made: InodeId) -> Result<()> {
        self.old()?.map_or(Ok(()), |old| old.give_flags(self.fs, made))
    }

    /// The properties of the old one now, or when it had to go.
    fn old(&self) -> Result<Option<Old>> {
        match self.meanwhile.as_ref().filter(|meanwhile| **meanwhile != self.name) {
            Some(_) => Old::called(self.fs, self.dir, &self.name),
            None => Ok(self.gone.clone()),
        }
    }

    /// Gives `made` its name like [`finish`](Self::finish), for a regular file that brings no attributes of its own. `made` first gets the
    /// owner, mode and extended attributes of the file that it replaces, if it does, as cp(1) keeps them when it overwrites a file.
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish), and of reading and setting attributes.
    pub fn finish_as_the_old(self, made: InodeId) -> Result<()> {
        self.old()?.map_or(Ok(()), |old| old.give(self.fs, made))?;
        self.finish()
    }

    /// Gives the new inode its name; the old one goes.
    ///
    /// # Errors
    /// Those of renaming; the old one still has its name.
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
            // The error of the operation matters more than a failure to remove the file.
            let _ = self.fs.unlink(self.dir, meanwhile);
        }
    }
}
