//! Permissions, owners, times and extended attributes of files by their paths.

use std::path::Path;

use creamery_base::{Result, Wait};

use crate::attributes::AttributeChange;
use crate::file_times::FileTimes;
use crate::fs::{SetAttributes, XattrMode};
use crate::path::{Last, at};
use crate::{Filesystem, Permissions};

impl Filesystem {
    fn change(&self, path: &Path, last: Last, set: &SetAttributes) -> Result<()> {
        let id = self.resolve(path, last)?;
        self.fs.set_attributes(id, set).map(drop).map_err(at(path))
    }

    /// Changes permission bits, as [`std::fs::set_permissions`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.set_permissions("/file", creamery::Permissions::from_mode(0o600))?;
    /// assert_eq!(fs.metadata("/file")?.permissions().mode(), 0o600);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let set = SetAttributes { mode: Some(permissions.mode()), ..SetAttributes::default() };
        self.change(path.as_ref(), Last::Follow, &set)
    }

    /// Changes owner and group of a file, or of a symbolic link itself, as [`std::os::unix::fs::lchown`] does. As on Linux, that clears
    /// set-user-id, set-group-id and capabilities, except on directories.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.chown("/file", Some(1000), None)?;
    /// assert_eq!(fs.metadata("/file")?.uid(), 1000);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file; when a number is 4294967295, which is not a valid user or group.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let change = AttributeChange { uid, gid, ..AttributeChange::default() };
        change.apply_to_symlink(self, path)
    }

    /// Sets the times of the last access and of the last change of the data, of a symbolic link itself, like utimensat(2) with
    /// `AT_SYMLINK_NOFOLLOW`. For an open file use [`File::set_times`](crate::File::set_times).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::attributes::{FileTimes, Timespec};
    /// fs.write("/file", "text")?;
    /// let time = Timespec { sec: 1_700_000_000, nsec: 0 };
    /// fs.set_times("/file", FileTimes::new().set_modified(time))?;
    /// assert_eq!(fs.metadata("/file")?.mtime(), time);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file, or the filesystem was opened for reading.
    pub fn set_times(&self, path: impl AsRef<Path>, times: FileTimes) -> Result<()> {
        self.change(path.as_ref(), Last::Keep, &times.to_set())
    }

    /// Lists the names of a file's extended attributes, like listxattr(2): a symbolic link is followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.set_xattr("/file", "user.note", "milk")?;
    /// assert_eq!(fs.xattrs("/file")?, [b"user.note"]);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        self.fs.list_xattrs(id, Wait::Yes).map_err(at(path.as_ref()))
    }

    /// Returns the value of an extended attribute, like getxattr(2): a symbolic link is followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.set_xattr("/file", "user.note", "milk")?;
    /// assert_eq!(fs.xattr("/file", "user.note")?, b"milk");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`](crate::ErrorKind::NoAttribute) when the file does not have the attribute.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        self.fs.get_xattr(id, name.as_ref(), Wait::Yes).map_err(at(path.as_ref()))
    }

    /// Lists the names of the extended attributes of a file, or of a symbolic link itself, like llistxattr(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.symlink("nowhere", "/link")?;
    /// assert!(fs.symlink_xattrs("/link")?.is_empty());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such name.
    pub fn symlink_xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        self.fs.list_xattrs(id, Wait::Yes).map_err(at(path.as_ref()))
    }

    /// Returns the value of an extended attribute of a file, or of a symbolic link itself, like lgetxattr(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.symlink("nowhere", "/link")?;
    /// let error = fs.symlink_xattr("/link", "security.selinux").unwrap_err();
    /// assert_eq!(error.kind(), creamery::ErrorKind::NoAttribute);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`](crate::ErrorKind::NoAttribute) when the file does not have the attribute.
    pub fn symlink_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        self.fs.get_xattr(id, name.as_ref(), Wait::Yes).map_err(at(path.as_ref()))
    }

    /// Sets an extended attribute, like setxattr(2): a symbolic link is followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.set_xattr("/file", "user.note", "milk")?;
    /// assert!(fs.set_xattr("/file", "no-such-kind", "").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the name has an unknown prefix or the value is too large.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        self.fs.set_xattr(id, name.as_ref(), value.as_ref(), XattrMode::Any).map_err(at(path.as_ref()))
    }

    /// Removes an extended attribute, like removexattr(2): a symbolic link is followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.set_xattr("/file", "user.note", "milk")?;
    /// fs.remove_xattr("/file", "user.note")?;
    /// assert!(fs.xattrs("/file")?.is_empty());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`](crate::ErrorKind::NoAttribute) when the file does not have the attribute.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        self.fs.remove_xattr(id, name.as_ref()).map_err(at(path.as_ref()))
    }
}
