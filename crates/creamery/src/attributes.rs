//! Changes attributes of one file, or of a directory and everything below it.

use std::path::Path;

use creamery_base::{Error, InodeId, Result, Wait};

use crate::fs::SetAttributes;
use crate::path::{Last, at};
use crate::{Filesystem, Metadata};

pub use creamery_base::Timespec;
pub use creamery_fs::Time;

pub use crate::file_times::FileTimes;
pub use crate::mode_change::ModeChange;
pub use crate::owner::Owner;

/// Changes to a file's attributes; a field that is not set leaves its attribute alone.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// use creamery::attributes::AttributeChange;
/// fs.create_dir("/srv")?;
/// fs.write("/srv/page", "hello")?;
/// let change = AttributeChange {
///     mode: Some("go-rwx".parse()?),
///     uid: Some(1000),
///     ..AttributeChange::default()
/// };
/// change.apply_to_all(&fs, "/srv", |error| eprintln!("{error}"))?;
/// let meta = fs.metadata("/srv/page")?;
/// assert_eq!((meta.permissions().mode(), meta.uid()), (0o600, 1000));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// Permission bits. A symbolic link has none.
    pub mode: Option<ModeChange>,
    /// Bits that a mode change without any of `ugoa` leaves alone.
    pub umask: u32,
    /// Owner. As on Linux, a new owner or group clears set-user-id, set-group-id and capabilities, except on directories.
    pub uid: Option<u32>,
    /// Group. A new group clears the bits that a new owner clears.
    pub gid: Option<u32>,
    /// Time of last access.
    pub atime: Option<Time>,
    /// Time of the last change of the data.
    pub mtime: Option<Time>,
}

impl AttributeChange {
    /// Changes attributes of the path's target, like chmod(1), chown(1) and touch(1).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// use creamery::attributes::AttributeChange;
    /// let change = AttributeChange { uid: Some(1000), ..AttributeChange::default() };
    /// change.apply(&fs, "/file")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file; when a number is 4294967295, which is not a valid user or group.
    pub fn apply(&self, fs: &Filesystem, path: impl AsRef<Path>) -> Result<()> {
        fs.change_attributes(path.as_ref(), self)
    }

    /// Changes attributes of a file, or of a symbolic link itself, like `chown -h` and `touch -h`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::attributes::AttributeChange;
    /// fs.symlink("nowhere", "/link")?;
    /// let change = AttributeChange { uid: Some(1000), ..AttributeChange::default() };
    /// change.apply_to_symlink(&fs, "/link")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file; when a number is 4294967295, which is not a valid user or group.
    pub fn apply_to_symlink(&self, fs: &Filesystem, path: impl AsRef<Path>) -> Result<()> {
        fs.change_symlink_attributes(path.as_ref(), self)
    }

    /// Changes attributes of a directory and of everything below it. Symbolic links are not followed. Calls `failed` for each file that
    /// cannot be changed and each directory that cannot be listed; the others are changed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::attributes::AttributeChange;
    /// let change = AttributeChange { gid: Some(100), ..AttributeChange::default() };
    /// change.apply_to_all(&fs, "/", |error| eprintln!("{error}"))?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file.
    pub fn apply_to_all(
        &self,
        fs: &Filesystem,
        path: impl AsRef<Path>,
        failed: impl FnMut(Error),
    ) -> Result<()> {
        fs.change_attributes_of_all(path.as_ref(), self, failed)
    }
}

impl Filesystem {
    /// See [`AttributeChange::apply`].
    pub(crate) fn change_attributes(&self, path: &Path, change: &AttributeChange) -> Result<()> {
        self.change_named(path, Last::Follow, change)
    }

    /// See [`AttributeChange::apply_to_symlink`].
    pub(crate) fn change_symlink_attributes(&self, path: &Path, change: &AttributeChange) -> Result<()> {
        self.change_named(path, Last::Keep, change)
    }

    fn change_named(&self, path: &Path, last: Last, change: &AttributeChange) -> Result<()> {
        let id = self.resolve(path, last)?;
        self.change_inode(id, change).map_err(at(path))
    }

    /// See [`AttributeChange::apply_to_all`].
    pub(crate) fn change_attributes_of_all(
        &self,
        path: &Path,
        change: &AttributeChange,
        mut failed: impl FnMut(Error),
    ) -> Result<()> {
        let id = self.resolve(path, Last::Keep)?;
        for entry in crate::Walk::new(std::sync::Arc::clone(&self.fs), id, path.to_owned())? {
            let change =
                |entry: crate::WalkEntry| self.change_inode(entry.id, change).map_err(at(entry.path()));
            entry.and_then(change).unwrap_or_else(&mut failed);
        }
        Ok(())
    }

    fn change_inode(&self, id: InodeId, change: &AttributeChange) -> Result<()> {
        let meta = Metadata::new(self.fs.stat(id, Wait::Yes)?);
        let AttributeChange { umask, uid, gid, atime, mtime, .. } = *change;
        if [uid, gid].contains(&Some(u32::MAX)) {
            return Err(Error::invalid(format!("invalid user or group id {}", u32::MAX)));
        }
        if (uid, gid) != (None, None) {
            let kill_suid_sgid = !meta.is_dir() && !meta.is_symlink();
            let set = SetAttributes { uid, gid, kill_suid_sgid, ..SetAttributes::default() };
            self.fs.set_attributes(id, &set)?;
            if kill_suid_sgid {
                self.fs.remove_capabilities(id)?;
            }
        }
        let mode = change.mode.as_ref().filter(|_| !meta.is_symlink());
        let mode = mode.map(|mode| mode.apply(meta.permissions(), meta.file_type(), umask).mode());
        if (mode, atime, mtime) == (None, None, None) {
            return Ok(());
        }
        self.fs
            .set_attributes(id, &SetAttributes { mode, atime, mtime, ..SetAttributes::default() })
            .map(drop)
    }
}
