//! Makes, moves and removes directories, links and files.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use creamery_base::{ErrorKind, InodeId, Result, Wait};

use crate::filesystem::new_directory;
use crate::fs::{self, NewInode, NewKind, RenameMode};
use crate::path::{Last, at, make_directories, means_directory};
use crate::{Filesystem, Permissions, ReadDir};

impl Filesystem {
    /// The type of the file at `path`, with or without a slash at the end; links are not followed.
    fn named(&self, path: &Path) -> Option<fs::FileType> {
        let (dir, name) = self.resolve_parent(path).ok()?;
        self.fs.lookup_kind(dir, name, Wait::Yes).ok().map(|(_, kind)| kind)
    }

    /// The error of making a file at `path`, which ends in a slash.
    fn taken_or_not(&self, path: &Path) -> ErrorKind {
        self.named(path).map_or(ErrorKind::NotFound, |_| ErrorKind::AlreadyExists)
    }

    fn make(&self, path: &Path, new: &NewInode<'_>) -> Result<InodeId> {
        let (dir, name) = self.resolve_parent_to_make(path)?;
        self.fs.create(dir, name, new).map(|made| made.id).map_err(at(path))
    }

    /// Makes a directory, as [`std::fs::create_dir`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir("/dir")?;
    /// assert!(fs.create_dir("/dir").is_err());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When its parent does not exist or the name is taken.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.make(path.as_ref(), &new_directory()).map(drop)
    }

    /// Makes a directory with these permissions, as [`std::fs::DirBuilder`] does with [`mode`](std::os::unix::fs::DirBuilderExt::mode).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::Permissions;
    /// fs.create_dir_mode("/tmp", Permissions::from_mode(0o1777))?;
    /// assert_eq!(fs.metadata("/tmp")?.permissions().mode(), 0o1777);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When its parent does not exist or the name is taken.
    pub fn create_dir_mode(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        self.make(path.as_ref(), &NewInode::directory(permissions.mode())).map(drop)
    }

    /// Makes a directory and its missing parents, as [`std::fs::create_dir_all`] does. Succeeds if the directory exists.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir_all("/a/b/c")?;
    /// fs.create_dir_all("/a/b/c")?;
    /// assert!(fs.metadata("/a/b/c")?.is_dir());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When a component of the path is not a directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        make_directories(&self.fs, self.root, path, &|dir, name| {
            self.refuse_name_of_top_level(dir, name)?;
            match self.fs.create(dir, name, &new_directory()) {
                Ok(made) => Ok((made.id, fs::FileType::Directory)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    self.fs.lookup_kind(dir, name, Wait::Yes)
                }
                Err(error) => Err(error),
            }
        })
    }

    /// Makes a symbolic link at `link` that points to `target`, as [`std::os::unix::fs::symlink`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.symlink("file", "/link")?;
    /// assert_eq!(fs.read("/link")?, b"text");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the name is taken or the target is longer than the filesystem's nodes allow.
    pub fn symlink(&self, target: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let (dir, name) = self.resolve_parent_of_file(link, || self.taken_or_not(link))?;
        self.refuse_name_of_top_level(dir, name).map_err(at(link))?;
        let kind = NewKind::Symlink(target.as_ref().as_os_str().as_bytes());
        self.fs.create(dir, name, &NewInode { kind, ..NewInode::file(0o777) }).map(drop).map_err(at(link))
    }

    /// Makes a hard link, as [`std::fs::hard_link`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.hard_link("/file", "/other")?;
    /// assert_eq!(fs.metadata("/file")?.nlink(), 2);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When `original` is a directory or lies in another subvolume, or the name is taken.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let id = self.resolve(original.as_ref(), Last::Keep)?;
        let (dir, name) = self.resolve_parent_of_file(link, || self.taken_or_not(link))?;
        self.refuse_name_of_top_level(dir, name).map_err(at(link))?;
        self.fs.link(id, dir, name).map(drop).map_err(at(link))
    }

    /// Renames a file or directory, as [`std::fs::rename`] does. Replaces `to` where rename(2) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.rename("/file", "/other")?;
    /// assert!(!fs.exists("/file") && fs.exists("/other"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (from_dir, from_name) = self.resolve_parent(from)?;
        let (to_dir, to_name) = self.resolve_parent_to_make(to)?;
        if means_directory(from) || means_directory(to) {
            let (_, kind) = self.fs.lookup_kind(from_dir, from_name, Wait::Yes).map_err(at(from))?;
            if kind != fs::FileType::Directory {
                return Err(at(from)(ErrorKind::NotADirectory.into()));
            }
        }
        self.fs.rename(from_dir, from_name, to_dir, to_name, RenameMode::Replace).map_err(at(from))
    }

    /// Removes a file that is not a directory, as [`std::fs::remove_file`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.remove_file("/file")?;
    /// assert!(!fs.exists("/file"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file or it is a directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let refusal = || match self.named(path) {
            Some(fs::FileType::Directory) => ErrorKind::IsADirectory,
            Some(_) => ErrorKind::NotADirectory,
            None => ErrorKind::NotFound,
        };
        let (dir, name) = self.resolve_parent_of_file(path, refusal)?;
        self.fs.unlink(dir, name).map_err(at(path))
    }

    /// Removes an empty directory, as [`std::fs::remove_dir`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir("/dir")?;
    /// fs.remove_dir("/dir")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is not a directory, or not empty.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.resolve_parent(path.as_ref())?;
        self.fs.rmdir(dir, name).map_err(at(path.as_ref()))
    }

    /// Removes a directory and everything below it, as [`std::fs::remove_dir_all`] does. Symbolic links are removed, not followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir_all("/a/b/c")?;
    /// fs.remove_dir_all("/a")?;
    /// assert!(!fs.exists("/a"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is the root directory or its path ends in dots; when an entry in it cannot be removed. Entries before that one are
    /// gone then.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.named(path) == Some(fs::FileType::Symlink) {
            return self.remove_file(path);
        }
        // Rejects the root and paths that end in dots before anything is removed.
        self.resolve_parent(path)?;
        self.empty_dir(self.read_dir(path)?)?;
        self.remove_dir(path)
    }

    /// Removes everything in a directory, without recursion: a path may be deeper than a stack.
    pub(crate) fn empty_dir(&self, dir: ReadDir) -> Result<()> {
        let mut levels = vec![(None, dir)];
        while let Some((_, entries)) = levels.last_mut() {
            match entries.next().transpose()? {
                Some(entry) if entry.file_type().is_dir() => {
                    let below = entry.read_dir()?;
                    levels.push((Some(entry), below));
                }
                Some(entry) => {
                    let name = entry.file_name().as_bytes();
                    self.fs.unlink(entry.dir_id(), name).map_err(at(&entry.path()))?;
                }
                None => {
                    if let Some((Some(empty), _)) = levels.pop() {
                        let name = empty.file_name().as_bytes();
                        self.fs.rmdir(empty.dir_id(), name).map_err(at(&empty.path()))?;
                    }
                }
            }
        }
        Ok(())
    }
}
