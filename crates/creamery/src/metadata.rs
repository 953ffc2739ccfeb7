//! What is known about a file besides its data.

use std::time::SystemTime;

use creamery_base::{Error, Generation, InodeId, ObjectId, Result, Timespec, TreeId, Wait};

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

/// What a file is.
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
    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(self) -> bool {
        matches!(self, Self::File)
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Symlink)
    }

    /// The letter with which `ls -l` begins its line.
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

    /// In words.
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

/// Permission bits, with set-user-id, set-group-id and the sticky bit.
///
/// ```
/// use creamery::Permissions;
/// assert_eq!(Permissions::from_mode(0o4755).to_string(), "rwsr-xr-x");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Permissions(u32);

impl Permissions {
    /// The lower twelve bits of a mode.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Self {
        Self(mode & 0o7777)
    }

    /// The bits.
    #[must_use]
    pub const fn mode(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for Permissions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bit = |mask: u32| self.0 & mask != 0;
        for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
            let execute = match (bit(special), bit(1 << shift)) {
                (false, false) => '-',
                (false, true) => 'x',
                (true, true) => letter,
                (true, false) => letter.to_ascii_uppercase(),
            };
            let read = if bit(4 << shift) { 'r' } else { '-' };
            let write = if bit(2 << shift) { 'w' } else { '-' };
            write!(f, "{read}{write}{execute}")?;
        }
        Ok(())
    }
}

/// What is known about a file besides its data.
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

    /// What it is.
    #[must_use]
    pub const fn file_type(&self) -> FileType {
        file_type(self.0.kind)
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Whether it is a regular file.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Whether it is a symbolic link.
    #[must_use]
    pub const fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Bytes of a file or of a link's target.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // as in std::fs
    pub const fn len(&self) -> u64 {
        self.0.size
    }

    /// Bytes that its data takes; less than its length where there are holes.
    #[must_use]
    pub const fn allocated(&self) -> u64 {
        self.0.allocated
    }

    /// Type and permission bits.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.0.mode
    }

    /// Permission bits.
    #[must_use]
    pub const fn permissions(&self) -> Permissions {
        Permissions::from_mode(self.0.mode)
    }

    /// Owner.
    #[must_use]
    pub const fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    #[must_use]
    pub const fn gid(&self) -> u32 {
        self.0.gid
    }

    /// How many names it has.
    #[must_use]
    pub const fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Its number in its subvolume.
    #[must_use]
    pub const fn ino(&self) -> ObjectId {
        self.0.id.ino
    }

    /// The subvolume it lies in.
    #[must_use]
    pub const fn subvolume(&self) -> TreeId {
        self.0.id.subvolume
    }

    /// Major and minor number of a device node.
    #[must_use]
    pub const fn device(&self) -> (u32, u32) {
        (self.0.device.major, self.0.device.minor)
    }

    /// Inode flags, as `chattr` and Btrfs number them on disk.
    #[must_use]
    pub const fn flags(&self) -> u64 {
        self.0.flags.bits()
    }

    /// The transaction that made it.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.0.generation
    }

    /// Last access, to the nanosecond. This library's reading does not move it: a mount's does, and
    /// [`Filesystem::set_times`](crate::Filesystem::set_times).
    #[must_use]
    pub const fn atime(&self) -> Timespec {
        self.0.times.access
    }

    /// Last change of the data.
    #[must_use]
    pub const fn mtime(&self) -> Timespec {
        self.0.times.modification
    }

    /// Last change of the inode.
    #[must_use]
    pub const fn ctime(&self) -> Timespec {
        self.0.times.change
    }

    /// Birth.
    #[must_use]
    pub const fn btime(&self) -> Timespec {
        self.0.times.birth
    }

    /// Last access, as `std::fs` gives it.
    #[must_use]
    pub fn accessed(&self) -> SystemTime {
        self.atime().into()
    }

    /// Last change of the data, as `std::fs` gives it.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.mtime().into()
    }

    /// Last change of the inode.
    #[must_use]
    pub fn changed(&self) -> SystemTime {
        self.ctime().into()
    }

    /// Birth, as `std::fs` gives it.
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
