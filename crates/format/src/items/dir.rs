//! Directory entries and extended attributes: `DIR_ITEM`, `DIR_INDEX` and `XATTR_ITEM` share one layout.

use zerocopy::little_endian::{U16, U64};

use super::{packed_iter, split, take};
use crate::corrupt::CorruptKind;
use crate::key::{Key, RawKey};
use crate::raw::raw_struct;

raw_struct! {
    /// A directory entry or attribute; name, then (for attributes) value follow. Entries whose names have equal
    /// hashes are packed in one item.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawDirItem::LEN, 30);
    /// ```
    pub struct RawDirItem[30] {
        /// Key of the inode item or root item that the entry names.
        0 => pub location: RawKey,
        /// Transaction that made the entry.
        17 => pub transid: U64,
        /// Length of the value; 0 for directory entries.
        25 => pub data_len: U16,
        /// Length of the name.
        27 => pub name_len: U16,
        /// See [`FileType`].
        29 => pub kind: u8,
    }
}

/// The type of the object that a directory entry names.
///
/// ```
/// use creamery_format::FileType;
/// assert_eq!(FileType::from_mode(0o040_755), Some(FileType::Directory));
/// assert_eq!(FileType::from_disk(7), Some(FileType::Symlink));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileType {
    /// Unknown.
    Unknown,
    /// Regular file.
    File,
    /// Directory or subvolume.
    Directory,
    /// Character device.
    CharDevice,
    /// Block device.
    BlockDevice,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Symbolic link.
    Symlink,
    /// Not a file: an extended attribute.
    Xattr,
}

impl FileType {
    /// The type with this number on disk.
    #[must_use]
    pub const fn from_disk(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Unknown,
            1 => Self::File,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            8 => Self::Xattr,
            _ => return None,
        })
    }

    /// The number on disk.
    #[must_use]
    pub const fn to_disk(self) -> u8 {
        match self {
            Self::Unknown => 0,
            Self::File => 1,
            Self::Directory => 2,
            Self::CharDevice => 3,
            Self::BlockDevice => 4,
            Self::Fifo => 5,
            Self::Socket => 6,
            Self::Symlink => 7,
            Self::Xattr => 8,
        }
    }

    /// The type in the upper bits of a mode.
    #[must_use]
    pub const fn from_mode(mode: u32) -> Option<Self> {
        Some(match mode & 0o170_000 {
            0o010_000 => Self::Fifo,
            0o020_000 => Self::CharDevice,
            0o040_000 => Self::Directory,
            0o060_000 => Self::BlockDevice,
            0o100_000 => Self::File,
            0o120_000 => Self::Symlink,
            0o140_000 => Self::Socket,
            _ => return None,
        })
    }

    /// Returns the upper bits of a mode; 0 if it is not a file.
    #[must_use]
    pub const fn mode_bits(self) -> u32 {
        match self {
            Self::Fifo => 0o010_000,
            Self::CharDevice => 0o020_000,
            Self::Directory => 0o040_000,
            Self::BlockDevice => 0o060_000,
            Self::File => 0o100_000,
            Self::Symlink => 0o120_000,
            Self::Socket => 0o140_000,
            Self::Unknown | Self::Xattr => 0,
        }
    }
}

/// One entry out of a `DIR_ITEM`, `DIR_INDEX` or `XATTR_ITEM`.
///
/// ```
/// use creamery_format::DirEntries;
/// for entry in DirEntries::new(&[]) {
///     let entry = entry.unwrap();
///     println!("{:?} -> {}", entry.name, entry.location);
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntryRef<'a> {
    /// Key of the object that the entry names.
    pub location: Key,
    /// Transaction that made it.
    pub transid: u64,
    /// The type's number; see [`DirEntryRef::file_type`].
    pub kind: u8,
    /// The name.
    pub name: &'a [u8],
    /// The value of an attribute; empty for directory entries.
    pub data: &'a [u8],
}

impl DirEntryRef<'_> {
    /// The type, when its number is known.
    #[must_use]
    pub const fn file_type(&self) -> Option<FileType> {
        FileType::from_disk(self.kind)
    }

    /// Bytes that the entry takes in its item.
    #[must_use]
    pub const fn len(&self) -> usize {
        RawDirItem::LEN + self.name.len() + self.data.len()
    }

    /// Never: an entry has a head.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }
}

fn parse_entry(rest: &[u8]) -> Result<(DirEntryRef<'_>, &[u8]), CorruptKind> {
    let (head, rest) = split::<RawDirItem>(rest, "directory entry")?;
    let (name, rest) = take(rest, head.name_len.get().into(), "name")?;
    let (data, rest) = take(rest, head.data_len.get().into(), "attribute value")?;
    let entry = DirEntryRef {
        location: head.location.into(),
        transid: head.transid.get(),
        kind: head.kind,
        name,
        data,
    };
    Ok((entry, rest))
}

packed_iter! {
    /// The entries in a `DIR_ITEM`, `DIR_INDEX` or `XATTR_ITEM` item.
    ///
    /// ```
    /// assert!(creamery_format::DirEntries::new(&[0; 29]).next().unwrap().is_err());
    /// ```
    DirEntries, DirEntryRef, parse_entry
}

raw_struct! {
    /// A range of directory indexes that a log tree covers (`DIR_LOG_INDEX`): from the key's offset to `end`.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawDirLogItem::LEN, 8);
    /// ```
    pub struct RawDirLogItem[8] {
        /// The last index of the range.
        0 => pub end: U64,
    }
}
