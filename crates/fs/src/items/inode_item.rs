//! The inode item in memory.

use creamery_base::{Error, ErrorKind, Generation, Result, Timespec};
use creamery_format::{FileType, InodeFlags, RawInodeItem};
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// The largest size of a file: offsets are signed in Linux.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

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
    /// Bytes of the file that extents hold, before compression; holes do not count.
    pub nbytes: u64,
    /// A hint without a use; preserved.
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
    /// Bytes without a meaning yet; preserved.
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
            mode: FileType::File.mode_bits(),
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

impl InodeItem {
    /// Reads the bytes of an INODE_ITEM. The mode must name a type.
    pub fn decode(data: &[u8]) -> Result<Self> {
        let raw = RawInodeItem::ref_from_bytes(data)
            .map_err(|_| Error::new(ErrorKind::Corrupt, format!("inode item of {} bytes", data.len())))?;
        let item = Self {
            generation: Generation::new(raw.generation.get()),
            transid: Generation::new(raw.transid.get()),
            size: raw.size.get(),
            nbytes: raw.nbytes.get(),
            block_group: raw.block_group.get(),
            nlink: raw.nlink.get(),
            uid: raw.uid.get(),
            gid: raw.gid.get(),
            mode: raw.mode.get(),
            rdev: raw.rdev.get(),
            flags: raw.flags(),
            sequence: raw.sequence.get(),
            reserved: raw.reserved.map(U64::get),
            atime: raw.atime.into(),
            ctime: raw.ctime.into(),
            mtime: raw.mtime.into(),
            otime: raw.otime.into(),
        };
        if FileType::from_mode(item.mode).is_none() {
            return Err(Error::new(ErrorKind::Corrupt, format!("inode item with mode 0{:o}", item.mode)));
        }
        // Code that uses sizes rounds them up to sectors, and the result must not overflow.
        if item.size > FILE_SIZE_MAX {
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!("inode item with a size of {} bytes", item.size),
            ));
        }
        Ok(item)
    }

    /// The stored form of the item.
    #[must_use]
    pub fn to_raw(&self) -> RawInodeItem {
        RawInodeItem {
            generation: self.generation.get().into(),
            transid: self.transid.get().into(),
            size: self.size.into(),
            nbytes: self.nbytes.into(),
            block_group: self.block_group.into(),
            nlink: self.nlink.into(),
            uid: self.uid.into(),
            gid: self.gid.into(),
            mode: self.mode.into(),
            rdev: self.rdev.into(),
            flags: self.flags.bits().into(),
            sequence: self.sequence.into(),
            reserved: self.reserved.map(U64::new),
            atime: self.atime.into(),
            ctime: self.ctime.into(),
            mtime: self.mtime.into(),
            otime: self.otime.into(),
        }
    }

    /// The bytes of the INODE_ITEM.
    #[must_use]
    pub fn encode(&self) -> [u8; RawInodeItem::LEN] {
        self.to_raw().as_bytes().try_into().expect("a structure has its length")
    }

    /// The kind of the inode.
    #[must_use]
    pub fn kind(&self) -> FileType {
        FileType::from_mode(self.mode).expect("the mode's type was checked when the item was decoded")
    }

    /// Whether it is a directory.
    #[must_use]
    pub const fn is_dir(&self) -> bool {
        matches!(FileType::from_mode(self.mode), Some(FileType::Directory))
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
        let mut bytes = [0u8; RawInodeItem::LEN];
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

    #[test]
    fn a_size_that_no_file_can_have_is_damage() {
        let largest = InodeItem { mode: 0o100_644, size: FILE_SIZE_MAX, ..InodeItem::default() };
        assert_eq!(InodeItem::decode(&largest.encode()).expect("just possible"), largest);
        let larger = InodeItem { size: FILE_SIZE_MAX + 1, ..largest };
        assert_eq!(InodeItem::decode(&larger.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
