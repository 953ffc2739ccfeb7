//! Inodes and their names: `INODE_ITEM`, `INODE_REF`, `INODE_EXTREF`, `XATTR_ITEM` limits.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};

use super::time::RawTimespec;
use super::{packed_iter, split, take};
use crate::corrupt::CorruptKind;
use crate::raw::raw_struct;

/// The longest name of a file, subvolume or attribute.
pub const NAME_LEN_MAX: usize = 255;
/// The largest number of links of an inode.
pub const LINK_MAX: u32 = 65535;

raw_struct! {
    /// An inode's attributes.
    ///
    /// ```
    /// use creamery_format::{InodeFlags, RawInodeItem};
    /// let mut inode = RawInodeItem::default();
    /// inode.set_flags(InodeFlags::NODATASUM);
    /// assert_eq!(inode.flags(), InodeFlags::NODATASUM);
    /// ```
    pub struct RawInodeItem[160] {
        /// Transaction that made the inode; NFS calls it generation.
        0 => pub generation: U64,
        /// Transaction that last changed it.
        8 => pub transid: U64,
        /// Length in bytes.
        16 => pub size: U64,
        /// Bytes of data it uses.
        24 => pub nbytes: U64,
        /// Unused.
        32 => pub block_group: U64,
        /// Hard links.
        40 => pub nlink: U32,
        /// Owner.
        44 => pub uid: U32,
        /// Group.
        48 => pub gid: U32,
        /// File type and permissions as in `stat`.
        52 => pub mode: U32,
        /// Device number, in the kernel's 20-bit-minor form.
        56 => pub rdev: U64,
        /// See [`InodeFlags`].
        64 => pub flags: U64,
        /// Counts changes.
        72 => pub sequence: U64,
        /// Zero.
        80 => pub reserved: [U64; 4],
        /// Last access.
        112 => pub atime: RawTimespec,
        /// Last change of the inode.
        124 => pub ctime: RawTimespec,
        /// Last change of the data.
        136 => pub mtime: RawTimespec,
        /// Birth.
        148 => pub otime: RawTimespec,
    }
}

bitflags! {
    /// Flags of an inode. Unknown bits are kept.
    ///
    /// ```
    /// use creamery_format::InodeFlags;
    /// assert_eq!(InodeFlags::IMMUTABLE.bits(), 0x40);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct InodeFlags: u64 {
        /// Data has no checksums.
        const NODATASUM = 1;
        /// Data is overwritten in place.
        const NODATACOW = 1 << 1;
        /// Read-only.
        const READONLY = 1 << 2;
        /// Never compressed.
        const NOCOMPRESS = 1 << 3;
        /// Has preallocated extents.
        const PREALLOC = 1 << 4;
        /// Synchronous.
        const SYNC = 1 << 5;
        /// Cannot be changed.
        const IMMUTABLE = 1 << 6;
        /// Can only be appended to.
        const APPEND = 1 << 7;
        /// Not for dump(8).
        const NODUMP = 1 << 8;
        /// Access times are not kept.
        const NOATIME = 1 << 9;
        /// Directory changes are synchronous.
        const DIRSYNC = 1 << 10;
        /// Always compressed.
        const COMPRESS = 1 << 11;
        /// The inode inside a root item has been initialized.
        const ROOT_ITEM_INIT = 1 << 31;
        /// Protected by fs-verity.
        const VERITY = 1 << 32;
        const _ = !0;
    }
}

impl RawInodeItem {
    /// The flags.
    #[must_use]
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.flags.get())
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: InodeFlags) {
        self.flags = U64::new(flags.bits());
    }
}

raw_struct! {
    /// One name of an inode; the name follows. Several are packed in one item.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawInodeRef::LEN, 10);
    /// ```
    pub struct RawInodeRef[10] {
        /// The directory index (key offset of `DIR_INDEX`) of this name.
        0 => pub index: U64,
        /// Length of the name.
        8 => pub name_len: U16,
    }
}

raw_struct! {
    /// One name of an inode in an extended ref; the name follows.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawInodeExtref::LEN, 18);
    /// ```
    pub struct RawInodeExtref[18] {
        /// Inode number of the directory.
        0 => pub parent: U64,
        /// The directory index of this name.
        8 => pub index: U64,
        /// Length of the name.
        16 => pub name_len: U16,
    }
}

/// One name out of an `INODE_REF`.
///
/// ```
/// use creamery_format::InodeRefs;
/// let data = [7, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'a'];
/// let name = InodeRefs::new(&data).next().unwrap().unwrap();
/// assert_eq!((name.index, name.name), (7, &b"a"[..]));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeRef<'a> {
    /// The directory index.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

/// One name out of an `INODE_EXTREF`.
///
/// ```
/// use creamery_format::{InodeExtref, InodeExtrefs};
/// assert_eq!(InodeExtrefs::new(&[]).next(), None);
/// let name = InodeExtref { parent: 256, index: 2, name: b"a" };
/// assert_eq!(name.parent, 256);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeExtref<'a> {
    /// Inode number of the directory.
    pub parent: u64,
    /// The directory index.
    pub index: u64,
    /// The name.
    pub name: &'a [u8],
}

fn parse_ref(rest: &[u8]) -> Result<(InodeRef<'_>, &[u8]), CorruptKind> {
    let (head, rest) = split::<RawInodeRef>(rest, "inode ref")?;
    let (name, rest) = take(rest, head.name_len.get().into(), "name")?;
    Ok((InodeRef { index: head.index.get(), name }, rest))
}

fn parse_extref(rest: &[u8]) -> Result<(InodeExtref<'_>, &[u8]), CorruptKind> {
    let (head, rest) = split::<RawInodeExtref>(rest, "inode extref")?;
    let (name, rest) = take(rest, head.name_len.get().into(), "name")?;
    Ok((InodeExtref { parent: head.parent.get(), index: head.index.get(), name }, rest))
}

packed_iter! {
    /// The names in an `INODE_REF` item.
    ///
    /// ```
    /// assert!(creamery_format::InodeRefs::new(&[1, 2, 3]).next().unwrap().is_err());
    /// ```
    InodeRefs, InodeRef, parse_ref
}

packed_iter! {
    /// The names in an `INODE_EXTREF` item.
    ///
    /// ```
    /// assert!(creamery_format::InodeExtrefs::new(&[1, 2, 3]).next().unwrap().is_err());
    /// ```
    InodeExtrefs, InodeExtref, parse_extref
}
