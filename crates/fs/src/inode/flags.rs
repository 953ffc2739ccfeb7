//! The flag bits of an inode item.

use bitflags::bitflags;

bitflags! {
    /// Flags of an inode, as stored. Bits without a name here survive rewriting.
    ///
    /// ```
    /// use creamery_fs::InodeFlags;
    /// assert_eq!(InodeFlags::NODATACOW.bits(), 2);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct InodeFlags: u64 {
        /// Data has no checksums.
        const NODATASUM = 1 << 0;
        /// Data is overwritten in place where it is not shared.
        const NODATACOW = 1 << 1;
        /// Read-only.
        const READONLY = 1 << 2;
        /// Never compress.
        const NOCOMPRESS = 1 << 3;
        /// Has, or once had, preallocated extents.
        const PREALLOC = 1 << 4;
        /// Writes are synchronous.
        const SYNC = 1 << 5;
        /// Nothing may change.
        const IMMUTABLE = 1 << 6;
        /// Data is only appended.
        const APPEND = 1 << 7;
        /// Left out by dump(8).
        const NODUMP = 1 << 8;
        /// Access times are not updated.
        const NOATIME = 1 << 9;
        /// Changes of this directory are synchronous.
        const DIRSYNC = 1 << 10;
        /// Compress new data.
        const COMPRESS = 1 << 11;
        /// The stub of a root item that has no inode of its own.
        const ROOT_ITEM_INIT = 1 << 31;
        /// fs-verity is on (upper half: read-only compatible flags).
        const RO_VERITY = 1 << 32;
        const _ = !0;
    }
}
