//! The inode item in memory.

use creamery_base::{Error, ErrorKind, Generation, Result, Timespec};

use super::InodeFlags;

/// Bytes of an INODE_ITEM.
pub(crate) const INODE_ITEM_SIZE: usize = 160;

const S_IFMT: u32 = 0o170_000;

/// What an inode is. The numbers are those of directory items.
///
/// ```
/// use creamery_fs::FileType;
/// assert_eq!(FileType::from_mode(0o100_644), Some(FileType::Regular));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A named pipe.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl FileType {
    /// By the format bits of a mode.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & S_IFMT {
            0o100_000 => Self::Regular,
            0o040_000 => Self::Directory,
            0o020_000 => Self::CharDevice,
            0o060_000 => Self::BlockDevice,
            0o010_000 => Self::Fifo,
            0o140_000 => Self::Socket,
            0o120_000 => Self::Symlink,
            _ => return None,
        })
    }

    /// By the type byte of a directory item.
    #[must_use]
    pub const fn from_dir_type(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => return None,
        })
    }

    /// The type byte of directory items.
    #[must_use]
    pub const fn dir_type(self) -> u8 {
        self as u8
    }

    /// The format bits of a mode.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Regular => 0o100_000,
            Self::Directory => 0o040_000,
            Self::CharDevice => 0o020_000,
            Self::BlockDevice => 0o060_000,
            Self::Fifo => 0o010_000,
            Self::Socket => 0o140_000,
            Self::Symlink => 0o120_000,
        }
    }
}

/// An inode item, in the host's byte order.
///
/// ```
/// use creamery_fs::{FileType, InodeItem};
/// let item = InodeItem { mode: 0o040_755, nlink: 1, ..InodeItem::default() };
/// assert_eq!(item.kind(), FileType::Directory);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InodeItem {
    /// The transaction that made the inode.
    pub generation: Generation,
    /// The transaction that changed it last.
    pub transid: Generation,
    /// Bytes of a file or symlink target; twice the sum of name lengths for a directory.
    pub size: u64,
    /// Bytes of data on disk that the extents stand for.
    pub nbytes: u64,
    /// A hint without a use; kept.
    pub block_group: u64,
    /// Names of this inode; 1 for a directory.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Type and permission bits.
    pub mode: u32,
    /// Device number of a device node (major in the bits from 20 on, minor below).
    pub rdev: u64,
    /// Flags.
    pub flags: InodeFlags,
    /// Counts changes (NFS calls it the change attribute).
    pub sequence: u64,
    /// Last access.
    pub atime: Timespec,
    /// Last change of the inode.
    pub ctime: Timespec,
    /// Last change of the data.
    pub mtime: Timespec,
    /// Birth.
    pub otime: Timespec,
    /// Bytes without a meaning yet; kept.
    pub reserved: [u64; 4],
}

impl Default for InodeItem {
    fn default() -> Self {
        Self {
            generation: Generation::default(),
            transid: Generation::default(),
            size: 0,
            nbytes: 0,
            block_group: 0,
            nlink: 1,
            uid: 0,
            gid: 0,
            mode: FileType::Regular.mode_bits(),
            rdev: 0,
            flags: InodeFlags::default(),
            sequence: 0,
            atime: Timespec::default(),
            ctime: Timespec::default(),
            mtime: Timespec::default(),
            otime: Timespec::default(),
            reserved: [0; 4],
        }
    }
}

fn word(bytes: &[u8; INODE_ITEM_SIZE], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8; INODE_ITEM_SIZE], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn time(bytes: &[u8; INODE_ITEM_SIZE], at: usize) -> Timespec {
    Timespec { sec: word(bytes, at).cast_signed(), nsec: half(bytes, at + 8) }
}

fn put_time(bytes: &mut [u8; INODE_ITEM_SIZE], at: usize, time: Timespec) {
    bytes[at..at + 8].copy_from_slice(&time.sec.to_le_bytes());
    bytes[at + 8..at + 12].copy_from_slice(&time.nsec.to_le_bytes());
}

impl InodeItem {
    /// Reads the bytes of an INODE_ITEM. The mode must name a type.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let bytes: &[u8; INODE_ITEM_SIZE] = data
            .try_into()
            .map_err(|_| Error::new(ErrorKind::Corrupt, format!("inode item of {} bytes", data.len())))?;
        let item = Self {
            generation: Generation::new(word(bytes, 0)),
            transid: Generation::new(word(bytes, 8)),
            size: word(bytes, 16),
            nbytes: word(bytes, 24),
            block_group: word(bytes, 32),
            nlink: half(bytes, 40),
            uid: half(bytes, 44),
            gid: half(bytes, 48),
            mode: half(bytes, 52),
            rdev: word(bytes, 56),
            flags: InodeFlags::from_bits_retain(word(bytes, 64)),
            sequence: word(bytes, 72),
            reserved: [word(bytes, 80), word(bytes, 88), word(bytes, 96), word(bytes, 104)],
            atime: time(bytes, 112),
            ctime: time(bytes, 124),
            mtime: time(bytes, 136),
            otime: time(bytes, 148),
        };
        if FileType::from_mode(item.mode).is_none() {
            return Err(Error::new(ErrorKind::Corrupt, format!("inode item with mode 0{:o}", item.mode)));
        }
        Ok(item)
    }

    /// The bytes of the INODE_ITEM.
    #[must_use]
    pub fn encode(&self) -> [u8; INODE_ITEM_SIZE] {
        let mut bytes = [0; INODE_ITEM_SIZE];
        let words = [self.generation.get(), self.transid.get(), self.size, self.nbytes, self.block_group];
        for (index, value) in words.into_iter().enumerate() {
            bytes[index * 8..index * 8 + 8].copy_from_slice(&value.to_le_bytes());
        }
        for (index, value) in [self.nlink, self.uid, self.gid, self.mode].into_iter().enumerate() {
            bytes[40 + index * 4..44 + index * 4].copy_from_slice(&value.to_le_bytes());
        }
        let words = [self.rdev, self.flags.bits(), self.sequence];
        for (index, value) in words.into_iter().chain(self.reserved).enumerate() {
            bytes[56 + index * 8..64 + index * 8].copy_from_slice(&value.to_le_bytes());
        }
        for (index, value) in [self.atime, self.ctime, self.mtime, self.otime].into_iter().enumerate() {
            put_time(&mut bytes, 112 + index * 12, value);
        }
        bytes
    }

    /// What the inode is.
    #[must_use]
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).expect("the mode's type was checked when the item was decoded")
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        self.mode & S_IFMT == FileType::Directory.mode_bits()
    }

    /// Records a change by the transaction `running`: its number and one step of the change counter.
    pub const fn touch(&mut self, running: Generation) {
        self.transid = running;
        self.sequence = self.sequence.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_an_inode_item_survives_decoding_and_encoding() {
        let mut bytes = [0u8; INODE_ITEM_SIZE];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::try_from(index).expect("160 fits in a byte").wrapping_mul(37);
        }
        bytes[52..56].copy_from_slice(&0o100_644_u32.to_le_bytes());
        let item = InodeItem::decode(&bytes).expect("a valid mode");
        assert_eq!(item.encode(), bytes);
        assert_eq!(item.mode, 0o100_644);
    }

    #[test]
    fn an_item_of_the_wrong_size_or_without_a_type_is_damage() {
        assert_eq!(InodeItem::decode(&[0; 159]).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(InodeItem::decode(&[0; 160]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
