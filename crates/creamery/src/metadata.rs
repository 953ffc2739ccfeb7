//! Metadata of files.

use std::time::SystemTime;

use creamery_base::{Error, Generation, InodeId, ObjectId, Result, Timespec, TreeId, Wait};

use crate::Permissions;
use crate::fs::{Attributes, Filesystem};

/// The extended attributes of an inode, with their values.
pub(crate) fn xattrs_of(fs: &Filesystem, id: InodeId) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let names = fs.list_xattrs(id, Wait::Yes).map_err(|error| error.context("its xattrs"))?;
    let value = |name: Vec<u8>| {
        let named = |error: Error| error.context(format!("xattr {}", String::from_utf8_lossy(&name)));
        let value = fs.get_xattr(id, &name, Wait::Yes).map_err(named)?;
        Ok((name, value))
    };
    names.into_iter().map(value).collect()
}

/// The type of a file, as [`std::fs::FileType`].
///
/// ```
/// use creamery::FileType;
/// assert!(FileType::Directory.is_dir() && !FileType::Symlink.is_file());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

impl FileType {
    /// Whether the file is a regular file, as [`std::fs::FileType::is_file`].
    ///
    /// ```
    /// use creamery::FileType;
    /// assert!(FileType::File.is_file());
    /// ```
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, Self::File)
    }

    /// Whether the file is a directory, as [`std::fs::FileType::is_dir`].
    ///
    /// ```
    /// use creamery::FileType;
    /// assert!(FileType::Directory.is_dir());
    /// ```
    #[must_use]
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Whether the file is a symbolic link, as [`std::fs::FileType::is_symlink`].
    ///
    /// ```
    /// use creamery::FileType;
    /// assert!(FileType::Symlink.is_symlink());
    /// ```
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// The letter at the beginning of a line of `ls -l`.
    ///
    /// ```
    /// use creamery::FileType;
    /// assert_eq!(FileType::Directory.letter(), 'd');
    /// ```
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::File => '-',
            Self::Directory => 'd',
            Self::Symlink => 'l',
            Self::Fifo => 'p',
            Self::Socket => 's',
            Self::CharDevice => 'c',
            Self::BlockDevice => 'b',
        }
    }

    /// The type in words, as stat(1) prints it.
    ///
    /// ```
    /// use creamery::FileType;
    /// assert_eq!(FileType::File.name(), "regular file");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
        }
    }
}

/// Metadata of a file, as [`std::fs::Metadata`].
///
/// ```no_run
/// let fs = creamery::Image::open("disk.img")?;
/// let meta = fs.metadata("/etc/passwd")?;
/// println!("{} {} {}", meta.permissions(), meta.uid(), meta.len());
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata(Attributes);

impl Metadata {
    pub(crate) const fn new(attributes: Attributes) -> Self {
        Self(attributes)
    }

    /// The type of the file, as [`std::fs::Metadata::file_type`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.file_type(), creamery::FileType::File);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        file_type(self.0.kind)
    }

    /// Whether the file is a directory, as [`std::fs::Metadata::is_dir`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert!(!meta.is_dir());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether the file is a regular file, as [`std::fs::Metadata::is_file`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert!(meta.is_file());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether the file is a symbolic link, as [`std::fs::Metadata::is_symlink`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert!(!meta.is_symlink());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Bytes of a file or of a link's target, as [`std::fs::Metadata::len`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.len(), 4);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // as in std::fs
    pub const fn len(&self) -> u64 {
        self.0.size
    }

    /// Bytes that the data takes on disk; less than the length if there are holes; 512 times [`std::os::unix::fs::MetadataExt::blocks`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert!(meta.allocated() <= 4096);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn allocated(&self) -> u64 {
        self.0.allocated
    }

    /// Type and permission bits, as [`std::os::unix::fs::MetadataExt::mode`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.mode(), 0o100644);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Permission bits, as [`std::fs::Metadata::permissions`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.permissions().to_string(), "rw-r--r--");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.0.mode)
    }

    /// Owner, as [`std::os::unix::fs::MetadataExt::uid`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.uid());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group, as [`std::os::unix::fs::MetadataExt::gid`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.gid());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Number of hard links, as [`std::os::unix::fs::MetadataExt::nlink`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.nlink(), 1);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Inode number, unique in its subvolume, as [`std::os::unix::fs::MetadataExt::ino`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.ino().get(), 257);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn ino(&self) -> ObjectId {
        self.0.id.ino
    }

    /// The subvolume of the file, as `btrfs inspect-internal rootid` prints it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.subvolume(), creamery::id::TreeId::FS);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn subvolume(&self) -> TreeId {
        self.0.id.subvolume
    }

    /// Major and minor number of a device node, of [`std::os::unix::fs::MetadataExt::rdev`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.device(), (0, 0));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        (self.0.device.major, self.0.device.minor)
    }

    /// Inode flags, as `chattr` and Btrfs number them on disk.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// assert_eq!(meta.flags(), 0);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn flags(&self) -> u64 {
        self.0.flags.bits()
    }

    /// The transaction that made the inode.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.generation());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.0.generation
    }

    /// Time of the last access, to the nanosecond. Reads by this library do not change it; reads through a mount and
    /// [`Filesystem::set_times`](crate::Filesystem::set_times) do.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.atime().sec);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn atime(&self) -> Timespec {
        self.0.times.access
    }

    /// Time of the last change of the data, as [`std::os::unix::fs::MetadataExt::mtime`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.mtime().sec);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn mtime(&self) -> Timespec {
        self.0.times.modification
    }

    /// Time of the last change of the inode, as [`std::os::unix::fs::MetadataExt::ctime`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.ctime().sec);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn ctime(&self) -> Timespec {
        self.0.times.change
    }

    /// Time of birth (`stx_btime` of statx(2)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{}", meta.btime().sec);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn btime(&self) -> Timespec {
        self.0.times.birth
    }

    /// Time of the last access, as [`std::fs::Metadata::accessed`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{:?}", meta.accessed());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        self.atime().into()
    }

    /// Last change of the data, as `std::fs` gives it ([`std::fs::Metadata::modified`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{:?}", meta.modified());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.mtime().into()
    }

    /// Time of the last change of the inode, as [`std::os::unix::fs::MetadataExt::ctime`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{:?}", meta.changed());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        self.ctime().into()
    }

    /// Birth, as `std::fs` gives it ([`std::fs::Metadata::created`]).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.write("/file", "text")?;
    /// let meta = fs.metadata("/file")?;
    /// println!("{:?}", meta.created());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn created(&self) -> SystemTime {
        self.btime().into()
    }
}

pub(crate) const fn file_type(kind: crate::fs::FileType) -> FileType {
    use crate::fs::FileType as Kind;
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::Fifo,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        _ => FileType::File,
    }
}
