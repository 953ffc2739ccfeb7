//! The open filesystem: what `std::fs` does, inside an image.

use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use creamery_base::{Error, ErrorKind, InodeId, Near, Result, Striped, Wait};

use creamery_txn::BackgroundThreads;
use creamery_volume::Rescue;

use crate::canonical::canonical;
use crate::file_times::FileTimes;
use crate::fs::{self, NewInode, NewKind, RenameMode, SetAttributes, XattrMode};
use crate::path::{Last, at, make_directories, means_directory, resolve, resolve_parent};
use crate::statistics::Statistics;
use crate::{File, Metadata, OpenOptions, Permissions, ReadDir, Walk, WalkEntry};

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
    /// written.
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

    /// What has the name at the end of `path`, be there a slash behind it or not; links are not followed.
    fn named(&self, path: &Path) -> Option<fs::FileType> {
        let (dir, name) = self.resolve_parent(path).ok()?;
        self.fs.lookup_kind(dir, name, Wait::Yes).ok().map(|(_, kind)| kind)
    }

    /// Why nothing but a directory can be made at `path`, which ends in a slash.
    fn taken_or_not(&self, path: &Path) -> ErrorKind {
        self.named(path).map_or(ErrorKind::NotFound, |_| ErrorKind::AlreadyExists)
    }

    /// Opens a file for reading.
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

    /// Opens a file for writing; one that exists loses its content.
    ///
    /// # Errors
    /// When its directory does not exist or something else has the name.
    pub fn create(&self, path: impl AsRef<Path>) -> Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(self, path)
    }

    /// The whole content of a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let mut file = self.open(path.as_ref())?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| at(path.as_ref())(error.into()))?;
        Ok(bytes)
    }

    /// The whole content of a file as text.
    ///
    /// # Errors
    /// When it cannot be read or is no UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path.as_ref())?).map_err(|error| {
            Error::with_source(ErrorKind::InvalidInput, path.as_ref().display().to_string(), error)
        })
    }

    /// Makes `content` the whole content of a file, which is created if there is none.
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

    /// What is known about the file that the path leads to.
    ///
    /// # Errors
    /// When it leads to nothing.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.stat(path.as_ref(), Last::Follow)
    }

    /// The same of a symbolic link itself.
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

    /// The entries of a directory, in the order in which they were made.
    ///
    /// # Errors
    /// When it is no directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        ReadDir::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// A directory with all that is in it and below, parents before children. Symbolic links are not followed.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let id = self.resolve(path.as_ref(), Last::Follow)?;
        Walk::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// The same of one that was come across.
    pub(crate) fn read_dir_of(&self, entry: &WalkEntry) -> Result<ReadDir> {
        ReadDir::new(Arc::clone(&self.fs), entry.id, entry.path().to_owned())
    }

    /// A name with what is below, as [`walk`](Self::walk), but a symbolic link at the end of the path stands for itself.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn walk_unfollowed(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        Walk::new(Arc::clone(&self.fs), id, path.as_ref().to_owned())
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// When it is none.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        let target = self.fs.read_link(id, Wait::Yes).map_err(at(path.as_ref()))?;
        Ok(std::ffi::OsString::from_vec(target).into())
    }

    fn make(&self, path: &Path, new: &NewInode<'_>) -> Result<InodeId> {
        let (dir, name) = self.resolve_parent_to_make(path)?;
        self.fs.create(dir, name, new).map(|made| made.id).map_err(at(path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// When its parent does not exist or the name is taken.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        self.make(path.as_ref(), &new_directory()).map(drop)
    }

    /// Makes a directory with these permissions.
    ///
    /// # Errors
    /// When its parent does not exist or the name is taken.
    pub fn create_dir_mode(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        self.make(path.as_ref(), &NewInode::directory(permissions.mode())).map(drop)
    }

    /// Makes a directory and those above it that do not exist. One that exists is no error.
    ///
    /// # Errors
    /// When something on the way is no directory.
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

    /// Makes a symbolic link at `link` that points to `target`.
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

    /// Gives a file another name.
    ///
    /// # Errors
    /// When it is a directory, lies in another subvolume, or the name is taken.
    pub fn hard_link(&self, original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
        let link = link.as_ref();
        let id = self.resolve(original.as_ref(), Last::Keep)?;
        let (dir, name) = self.resolve_parent_of_file(link, || self.taken_or_not(link))?;
        self.refuse_name_of_top_level(dir, name).map_err(at(link))?;
        self.fs.link(id, dir, name).map(drop).map_err(at(link))
    }

    /// Moves or renames; a file that has the new name goes.
    ///
    /// # Errors
    /// As rename(2).
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

    /// Removes a name that is no directory.
    ///
    /// # Errors
    /// When there is none or it is a directory.
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

    /// Removes an empty directory.
    ///
    /// # Errors
    /// When it is none, or not empty.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let (dir, name) = self.resolve_parent(path.as_ref())?;
        self.fs.rmdir(dir, name).map_err(at(path.as_ref()))
    }

    /// Removes a directory with all that is in it. Symbolic links are removed, not followed.
    ///
    /// # Errors
    /// When it is the root directory or its path ends in dots; when something in it cannot be removed, and what came before
    /// is gone then.
    pub fn remove_dir_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        if self.named(path) == Some(fs::FileType::Symlink) {
            return Err(at(path)(ErrorKind::NotADirectory.into()));
        }
        // Refused before anything in it is gone: the root, and what is called by dots.
        self.resolve_parent(path)?;
        self.empty_dir(self.read_dir(path)?)?;
        self.remove_dir(path)
    }

    /// Removes what is in a directory, without recursion: a path may be deeper than a stack.
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

    fn change(&self, path: &Path, last: Last, set: &SetAttributes) -> Result<()> {
        let id = self.resolve(path, last)?;
        self.fs.set_attributes(id, set).map(drop).map_err(at(path))
    }

    /// Changes permission bits.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn set_permissions(&self, path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
        let set = SetAttributes { mode: Some(permissions.mode()), ..SetAttributes::default() };
        self.change(path.as_ref(), Last::Follow, &set)
    }

    /// Changes owner and group of a file, or of a symbolic link itself.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn chown(&self, path: impl AsRef<Path>, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        let set = SetAttributes { uid, gid, ..SetAttributes::default() };
        self.change(path.as_ref(), Last::Keep, &set)
    }

    /// Sets the times of last access and of the last change of the data, of a symbolic link itself, as utimensat(2) with
    /// `AT_SYMLINK_NOFOLLOW`; [`File::set_times`] is that of an open file.
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

    /// The names of a file's extended attributes.
    ///
    /// # Errors
    /// When there is no such file.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<Vec<u8>>> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        self.fs.list_xattrs(id, Wait::Yes).map_err(at(path.as_ref()))
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`] when there is none.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        self.fs.get_xattr(id, name.as_ref(), Wait::Yes).map_err(at(path.as_ref()))
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// When the name is of no known kind or the value too large.
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        self.fs.set_xattr(id, name.as_ref(), value.as_ref(), XattrMode::Any).map_err(at(path.as_ref()))
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`ErrorKind::NoAttribute`] when there is none.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<[u8]>) -> Result<()> {
        let id = self.resolve(path.as_ref(), Last::Keep)?;
        self.fs.remove_xattr(id, name.as_ref()).map_err(at(path.as_ref()))
    }

    /// Makes every change so far durable.
    ///
    /// # Errors
    /// When the device fails; the filesystem is read-only from then on.
    pub fn sync(&self) -> Result<()> {
        self.fs.sync()
    }

    /// Deletes what has no name any more, makes every change durable and lets go of the image, which others may open then.
    /// Files and listings of it that are still open are refused whatever they ask for from then on: what a write answered with
    /// success is durable.
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
