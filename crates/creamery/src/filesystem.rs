//! The open filesystem: what `std::fs` does, inside an image.

use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use creamery_base::{Error, ErrorKind, InodeId, Near, Result, Striped, Wait};

use creamery_txn::BackgroundThreads;
use creamery_volume::Rescue;

use crate::canonical::canonical;
use crate::fs::{self, NewInode};
use crate::path::{Last, at, means_directory, resolve, resolve_parent};
use crate::statistics::Statistics;
use crate::{File, Metadata, OpenOptions, ReadDir, Walk};

/// Permission bits of new files and directories, before anybody says otherwise.
const FILE_MODE: u32 = 0o666;
const DIRECTORY_MODE: u32 = 0o777;
/// What is taken from these, unless a default ACL says what a new file is to be.
const UMASK: u32 = 0o022;

/// A directory, before anybody says otherwise.
pub(crate) const fn new_directory() -> NewInode<'static> {
    NewInode { umask: UMASK, ..NewInode::directory(DIRECTORY_MODE) }
}

/// A file, before anybody says otherwise.
pub(crate) const fn new_file() -> NewInode<'static> {
    NewInode { umask: UMASK, ..NewInode::file(FILE_MODE) }
}

/// An open filesystem.
///
/// It may be used from many threads at once. Paths begin at the root of the subvolume that was opened, whether they
/// begin with a slash or not; symbolic links are followed inside the image. Changes are durable after
/// [`sync`](Self::sync) or [`close`](Self::close), and after commits in between; dropping the object without closing
/// it loses what came after the last one, but never leaves a damaged filesystem.
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
    /// Ends before the rest is dropped.
    background: BackgroundThreads,
    pub(crate) fs: Arc<fs::Filesystem>,
    /// For what each thread opens.
    near: Striped<OnceLock<Near<fs::Filesystem>>>,
    pub(crate) root: InodeId,
    /// The root is that of the default subvolume, which nobody chose.
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
        Self { background, fs, near: Striped::default(), root, is_default: false, image }
    }

    /// Notes whether the root is the default subvolume because no other one was chosen.
    pub(crate) const fn by_default(mut self, is_default: bool) -> Self {
        self.is_default = is_default;
        self
    }

    /// A reference for something that this thread opens.
    pub(crate) fn near(&self) -> Near<fs::Filesystem> {
        self.near.mine().get_or_init(|| Near::new(Arc::clone(&self.fs))).clone()
    }

    /// What has been done since it was opened: commits and how long they took, what trees and caches did, what was read and
    /// written, as `creamery stats` shows it.
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

    /// The same for something that is no directory and is to get that name, or to lose it: "x/" can only be one, which
    /// `refusal` tells of.
    pub(crate) fn resolve_parent_of_file<'p>(
        &self,
        path: &'p Path,
        refusal: impl FnOnce() -> ErrorKind,
    ) -> Result<(InodeId, &'p [u8])> {
        let found = self.resolve_parent(path)?;
        if means_directory(path) { Err(at(path)(refusal().into())) } else { Ok(found) }
    }

    /// Opens a file for reading, as [`std::fs::File::open`].
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
    /// When there is none, or it is no regular file.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).open(self, path)
    }

    /// The same where its name is lost in a damaged directory: it is found by its inode, as when that directory is copied with
    /// [`OnError::PastDamage`](crate::progress::OnError::PastDamage). So it is with each path when the image was opened to
    /// [rescue](crate::ImageOptions::rescue) something.
    ///
    /// ```no_run
    /// let fs = creamery::Image::open("disk.img")?;
    /// let file = fs.open_past_damage("/home/diary")?;
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is none, nothing tells of it any more, or it is no regular file.
    pub fn open_past_damage(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().read(true).past_damage().open(self, path)
    }

    /// Opens a file for writing; one that exists loses its content, as [`std::fs::File::create`].
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
    /// When its directory does not exist or something else has the name.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// The whole content of a file, as [`std::fs::read`].
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
    /// When it cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let mut file = self.open(path.as_ref())?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| at(path.as_ref())(error.into()))?;
        Ok(bytes)
    }

    /// The whole content of a file as text, as [`std::fs::read_to_string`].
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
    /// When it cannot be read or is no UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path.as_ref())?).map_err(|error| {
            Error::with_source(ErrorKind::InvalidData, path.as_ref().display().to_string(), error)
        })
    }

    /// Makes `content` the whole content of a file, which is created if there is none, as [`std::fs::write`].
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
    /// When it cannot be written.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        let file = self.create(path.as_ref())?;
        file.write_all_at(content.as_ref(), 0).map_err(at(path.as_ref()))
    }

    /// Whether the path leads to something, as [`std::path::Path::exists`]: false also when that cannot be read.
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

    /// Whether the path leads to something, as [`std::fs::exists`]: a symbolic link that leads nowhere does not.
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
    /// When that cannot be found out: a directory on the way is damaged, or is none.
    pub fn try_exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.metadata(path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Returns the path of what `path` leads to, from the root on, without symbolic links and dots, as [`std::fs::canonicalize`].
    /// A path that begins at the top level ([`TOP_LEVEL`](crate::subvolume::TOP_LEVEL)) still does.
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
    /// When it leads to nothing.
    pub fn canonicalize(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let path = path.as_ref();
        self.resolve(path, Last::Follow)?;
        let whole = canonical(&self.fs, self.root, path.as_os_str().as_bytes()).map_err(at(path))?;
        Ok(std::ffi::OsString::from_vec(whole).into())
    }

    /// What is known about the file that the path leads to, as [`std::fs::metadata`].
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
    /// When it leads to nothing.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Last::Follow)
    }

    /// What is known about a file, or about a symbolic link itself, as [`std::fs::symlink_metadata`].
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
    /// When there is no such name.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Last::Keep)
    }

    fn stat(&self, path: &Path, last: Last) -> Result<Metadata> {
        let id = self.resolve(path, last)?;
        self.fs.stat(id, Wait::Yes).map(Metadata::new).map_err(at(path))
    }

    /// The entries of a directory, in the order in which they were made, as [`std::fs::read_dir`].
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
    /// When it is no directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        ReadDir::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// A directory with all that is in it and below, parents before children, as find(1) lists them. Symbolic links are not followed.
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
    /// When it does not exist.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        Walk::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// A name with what is below, as [`walk`](Self::walk), but a symbolic link at the end of the path stands for itself, as `find -P`.
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
    /// When it does not exist.
    pub fn walk_unfollowed(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        Walk::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// Where a symbolic link points, as [`std::fs::read_link`].
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
    /// When it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        let target = self.fs.read_link(id, Wait::Yes).map_err(at(path.as_ref()))?;
        Ok(std::ffi::OsString::from_vec(target).into())
    }

    /// Makes every change so far durable, as syncfs(2).
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
    /// When the device fails; the filesystem is read-only from then on.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    /// Deletes what has no name any more, makes every change durable and lets go of the image, as unmounting does; others may open it then.
    /// Files and listings of it that are still open are refused whatever they ask for from then on: what a write answered with
    /// success is durable.
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
    /// When the device fails, or has failed before: with the reason and the place. On the device is what the last commit left;
    /// the image is let go all the same.
    pub fn close(self) -> Result<()> {
        // A step that has not ended is no loss by itself: what counts is whether all is durable.
        let stopped = self.background.stop();
        self.fs.shut_down().map_err(|error| match stopped {
            Ok(()) => error,
            Err(stuck) => error.context(stuck),
        })
    }
}
