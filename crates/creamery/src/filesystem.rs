//! The open filesystem: the functions of `std::fs`, inside an image.

use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use creamery_base::{Error, ErrorKind, InodeId, PerThread, Result, ShardedArc, Wait};

use creamery_txn::BackgroundThreads;
use creamery_volume::Rescue;

use crate::canonical::canonical;
use crate::fs::{self, NewInode};
use crate::path::{Last, at, means_directory, resolve, resolve_parent};
use crate::statistics::Statistics;
use crate::{File, Metadata, OpenOptions, ReadDir, Walk};

/// Permission bits of new files and directories, by default.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
/// Bits that are removed from these, unless a default ACL sets the permissions of a new file.
const UMASK: u32 = 0o022;

/// A directory with the default permissions.
pub(crate) const fn new_directory() -> NewInode<'static> {
    NewInode { umask: UMASK, ..NewInode::directory(DIRECTORY_MODE) }
}

/// A file with the default permissions.
pub(crate) const fn new_file() -> NewInode<'static> {
    NewInode { umask: UMASK, ..NewInode::file(FILE_MODE) }
}

/// An open filesystem.
///
/// It may be used from many threads at once. Paths begin at the root of the subvolume that was opened, whether they
/// begin with a slash or not; symbolic links are followed inside the image. Changes are durable after
/// [`sync`](Self::sync) or [`close`](Self::close), and after commits in between; dropping the object without closing
/// it loses the changes after the last commit, but never leaves a damaged filesystem.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let fs = creamery::Image::options().write().open(&image)?;
/// fs.create_dir("/notes")?;
/// fs.write("/notes/today", "milk")?;
/// fs.hard_link("/notes/today", "/today")?;
/// assert_eq!(fs.read("/today")?, b"milk");
/// assert_eq!(fs.metadata("/today")?.nlink(), 2);
/// fs.remove_dir_all("/notes")?;
/// fs.close()?;
/// # Ok::<(), creamery::Error>(())
/// ```
pub struct Filesystem {
    /// Stops before the other fields are dropped.
    background: BackgroundThreads,
    pub(crate) fs: Arc<fs::Filesystem>,
    /// A reference for each thread, for the files that it opens.
    near: PerThread<OnceLock<ShardedArc<fs::Filesystem>>>,
    pub(crate) root: InodeId,
    /// The root is that of the default subvolume, and the caller did not choose it.
    pub(crate) is_default: bool,
    /// Device and inode of the image file on the host.
    pub(crate) image: Option<(u64, u64)>,
}

impl Filesystem {
    pub(crate) fn new(
        fs: Arc<fs::Filesystem>,
        root: InodeId,
        image: Option<(u64, u64)>,
        threads: usize,
    ) -> Self {
        let background = fs.engine().start_background(threads);
        Self { background, fs, near: PerThread::default(), root, is_default: false, image }
    }

    /// Records whether the root is the default subvolume because the caller chose no other one.
    pub(crate) const fn by_default(mut self, is_default: bool) -> Self {
        self.is_default = is_default;
        self
    }

    /// A reference for a file that this thread opens.
    pub(crate) fn near(&self) -> ShardedArc<fs::Filesystem> {
        self.near.mine().get_or_init(|| ShardedArc::new(Arc::clone(&self.fs))).clone()
    }

    /// Counts and durations since the filesystem was opened: commits, trees and caches, bytes read and
    /// written. `creamery stats` prints them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.sync()?;
    /// println!("{:?}", fs.statistics());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.fs.statistics()
    }

    pub(crate) fn resolve(&self, path: &Path, last: Last) -> Result<InodeId> {
        match self.fs.engine().volume().rescue() == Rescue::default() {
            true => resolve(&self.fs, self.root, path, last),
            false => self.resolve_past_damage(path, last).map(|(id, _)| id),
        }
        .map_err(|error| self.with_beginning(path, error))
    }

    pub(crate) fn resolve_parent<'p>(&self, path: &'p Path) -> Result<(InodeId, &'p [u8])> {
        resolve_parent(&self.fs, self.root, path).map_err(|error| self.with_beginning(path, error))
    }

    /// Resolves the parent for a name that is not a directory's and is to be created or removed. Fails for "x/", which can only be a
    /// directory; `refusal` makes the error.
    pub(crate) fn resolve_parent_of_file<'p>(
        &self,
        path: &'p Path,
        refusal: impl FnOnce() -> ErrorKind,
    ) -> Result<(InodeId, &'p [u8])> {
        let found = self.resolve_parent(path)?;
        if means_directory(path) { Err(at(path)(refusal().into())) } else { Ok(found) }
    }

    /// Opens a file for reading, as [`std::fs::File::open`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let len = fs.open("/file")?.metadata()?.len();
    /// assert_eq!(len, 4);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file, or it is not a regular file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// Opens a file for reading even if its name is lost in a damaged directory. The file is then found by its inode, as when that
    /// directory is copied with [`OnError::PastDamage`](crate::progress::OnError::PastDamage). In an image that was opened to
    /// [rescue](crate::ImageOptions::rescue) data, every path works this way.
    ///
    /// ```no_run
    /// let fs = creamery::Image::open("disk.img")?;
    /// let file = fs.open_past_damage("/home/diary")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such file, no item names it any more, or it is not a regular file.
    pub fn open_past_damage(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).past_damage().open(self, path)
    }

    /// Opens a file for writing, as [`std::fs::File::create`] does. An existing file loses its content.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use std::io::Write;
    /// fs.create("/file")?.write_all(b"text")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When its directory does not exist, or the name belongs to something other than a regular file.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// Reads the whole content of a file, as [`std::fs::read`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// assert_eq!(fs.read("/file")?, b"text");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let mut file = self.open(path.as_ref())?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| at(path.as_ref())(error.into()))?;
        Ok(bytes)
    }

    /// Reads the whole content of a file as text, as [`std::fs::read_to_string`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// assert_eq!(fs.read_to_string("/file")?, "text");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be read or is not valid UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path.as_ref())?).map_err(|error| {
            Error::with_source(ErrorKind::InvalidData, path.as_ref().display().to_string(), error)
        })
    }

    /// Replaces the whole content of a file, or creates it, as [`std::fs::write`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.write("/file", b"other")?;
    /// assert_eq!(fs.read("/file")?, b"other");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path.as_ref())?;
        file.write_all_at(content.as_ref(), 0).map_err(at(path.as_ref()))
    }

    /// Whether the path leads to a file or directory, as [`std::path::Path::exists`]: also false on an error.
    /// [`try_exists`](Self::try_exists) tells the two apart.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// assert!(fs.exists("/file") && !fs.exists("/other"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn exists(&self, path: impl AsRef<Path>) -> bool {
        self.metadata(path).is_ok()
    }

    /// Whether the path leads to a file or directory, as [`std::fs::exists`]: false for a symbolic link without a target.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.symlink("nowhere", "/link")?;
    /// assert!(!fs.try_exists("/link")?);
    /// fs.write("/file", "text")?;
    /// assert!(fs.try_exists("/file/below").is_err(), "a file has nothing below it");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the path cannot be resolved: a component on the way is damaged, or is not a directory.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of the target of `path` from the root, without symbolic links and dots, as [`std::fs::canonicalize`] does.
    /// A path that begins at the top level ([`TOP_LEVEL`](crate::subvolume::TOP_LEVEL)) still begins there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir_all("/usr/bin")?;
    /// fs.symlink("usr/bin", "/bin")?;
    /// assert_eq!(fs.canonicalize("bin/../bin/.")?, std::path::Path::new("/usr/bin"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the target does not exist.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.resolve(path, Last::Follow)?;
        let whole = canonical(&self.fs, self.root, path.as_os_str().as_bytes()).map_err(at(path))?;
        Ok(std::ffi::OsString::from_vec(whole).into())
    }

    /// Returns the metadata of the path's target, as [`std::fs::metadata`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.symlink("file", "/link")?;
    /// assert_eq!(fs.metadata("/link")?.len(), 4);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the target does not exist.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Last::Follow)
    }

    /// Returns the metadata of a file, or of a symbolic link itself, as [`std::fs::symlink_metadata`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.symlink("nowhere", "/link")?;
    /// assert!(fs.symlink_metadata("/link")?.is_symlink());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the name does not exist.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Last::Keep)
    }

    fn stat(&self, path: &Path, last: Last) -> Result<Metadata> {
        let id = self.resolve(path, last)?;
        self.fs.stat(id, Wait::Yes).map(Metadata::new).map_err(at(path))
    }

    /// Lists a directory in the order in which its entries were made, as [`std::fs::read_dir`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// for entry in fs.read_dir("/")? {
    ///     assert_eq!(entry?.file_name(), "file");
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the path is not a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        ReadDir::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// Lists a directory and everything below it, parents before children, like find(1). Symbolic links are not followed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.create_dir_all("/a/b")?;
    /// let paths: Result<Vec<_>, _> = fs.walk("/a")?.map(|entry| entry.map(|entry| entry.path().to_owned())).collect();
    /// assert_eq!(paths?, [std::path::Path::new("/a"), std::path::Path::new("/a/b")]);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the path does not exist.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        Walk::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// Lists a path and everything below it like [`walk`](Self::walk), but does not follow a symbolic link at the end of the path, like
    /// `find -P`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.symlink("nowhere", "/link")?;
    /// assert_eq!(fs.walk_unfollowed("/link")?.count(), 1);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the path does not exist.
    pub fn walk_unfollowed(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        Walk::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// Returns the target of a symbolic link, as [`std::fs::read_link`] does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.symlink("there", "/link")?;
    /// assert_eq!(fs.read_link("/link")?, std::path::Path::new("there"));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the path is not a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        let target = self.fs.read_link(id, Wait::Yes).map_err(at(path.as_ref()))?;
        Ok(std::ffi::OsString::from_vec(target).into())
    }

    /// Makes every change so far durable, like syncfs(2).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.sync()?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the device fails; from then on the filesystem is read-only.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    /// Deletes files without a name, makes every change durable and releases the image, as unmounting does. Then another program can open
    /// it. Every operation of a file or listing that is still open fails from then on: a write that returned success is durable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// fs.close()?;
    /// assert_eq!(creamery::Image::open(&image)?.read("/file")?, b"text");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the device fails, or has failed before: with the reason and the place. The device then holds the state of the last commit;
    /// the image is released in any case.
    pub fn close(self) -> Result<()> {
        // A step that has not ended is not a loss by itself: the result says whether everything is durable.
        let stopped = self.background.stop();
        self.fs.shut_down().map_err(|error| match stopped {
            Ok(()) => error,
            Err(stuck) => error.context(stuck),
        })
    }
}
