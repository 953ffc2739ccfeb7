//! Keys: the order of all items in a tree.
//!
//! A key is `(objectid, type, offset)`, compared in that order. [`RawKey`] is its form on disk.

use std::fmt;
use std::mem::offset_of;

use creamery_base::ObjectId;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key_names;

/// The type byte of a key. Unknown numbers are kept.
///
/// ```
/// use creamery_format::KeyType;
/// assert_eq!(KeyType::DIR_INDEX.to_string(), "DIR_INDEX");
/// assert_eq!(KeyType::new(84), KeyType::DIR_ITEM);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyType(u8);

macro_rules! key_types {
    ($($(#[$doc:meta])* $name:ident = $value:literal;)*) => {
        impl KeyType {
            $($(#[$doc])* pub const $name: Self = Self($value);)*
        }
    };
}

key_types! {
    /// The old free space cache's header, and nothing else.
    UNTYPED = 0;
    /// An inode's attributes.
    INODE_ITEM = 1;
    /// Names of an inode: offset is the directory.
    INODE_REF = 12;
    /// Names that did not fit: offset is a hash of directory and name.
    INODE_EXTREF = 13;
    /// Extended attributes: offset is a hash of the name.
    XATTR_ITEM = 24;
    /// Descriptor of an fs-verity file.
    VERITY_DESC_ITEM = 36;
    /// Merkle tree of an fs-verity file.
    VERITY_MERKLE_ITEM = 37;
    /// An inode (or subvolume) that has to be cleaned up.
    ORPHAN_ITEM = 48;
    /// Log tree: a range of name hashes.
    DIR_LOG_ITEM = 60;
    /// Log tree: a range of directory indexes.
    DIR_LOG_INDEX = 72;
    /// Directory entries by hash of the name.
    DIR_ITEM = 84;
    /// Directory entries by order of creation.
    DIR_INDEX = 96;
    /// A piece of a file.
    EXTENT_DATA = 108;
    /// Obsolete checksums.
    CSUM_ITEM = 120;
    /// Packed checksums of data.
    EXTENT_CSUM = 128;
    /// The address of a tree's root.
    ROOT_ITEM = 132;
    /// From a subvolume to the directory that has it.
    ROOT_BACKREF = 144;
    /// From a subvolume to one below it.
    ROOT_REF = 156;
    /// An extent in use: offset is its length.
    EXTENT_ITEM = 168;
    /// A tree block in use: offset is its level.
    METADATA_ITEM = 169;
    /// Inline only: the subvolume that wrote a data extent first.
    EXTENT_OWNER_REF = 172;
    /// A tree block's reference by tree.
    TREE_BLOCK_REF = 176;
    /// A data extent's reference by tree, inode and offset.
    EXTENT_DATA_REF = 178;
    /// Obsolete backreference.
    EXTENT_REF_V0 = 180;
    /// A tree block's reference by parent block.
    SHARED_BLOCK_REF = 182;
    /// A data extent's reference by parent leaf.
    SHARED_DATA_REF = 184;
    /// A block group: offset is its length.
    BLOCK_GROUP_ITEM = 192;
    /// The form of a block group's free space.
    FREE_SPACE_INFO = 198;
    /// Free space as a range.
    FREE_SPACE_EXTENT = 199;
    /// Free space as bits.
    FREE_SPACE_BITMAP = 200;
    /// A piece of a device that a chunk uses.
    DEV_EXTENT = 204;
    /// A device.
    DEV_ITEM = 216;
    /// A chunk.
    CHUNK_ITEM = 228;
    /// The places of a striped extent.
    RAID_STRIPE = 230;
    /// State of the quotas.
    QGROUP_STATUS = 240;
    /// Numbers of a quota group.
    QGROUP_INFO = 242;
    /// Limits of a quota group.
    QGROUP_LIMIT = 244;
    /// Parent and child quota group.
    QGROUP_RELATION = 246;
    /// Passing states: the running balance.
    TEMPORARY_ITEM = 248;
    /// Lasting states: device error counters.
    PERSISTENT_ITEM = 249;
    /// State of a device replacement.
    DEV_REPLACE = 250;
    /// From a UUID to subvolumes.
    UUID_SUBVOL = 251;
    /// From a received UUID to subvolumes.
    UUID_RECEIVED_SUBVOL = 252;
    /// A string, for debugging.
    STRING_ITEM = 253;
}

impl KeyType {
    /// The type with this number.
    #[must_use]
    pub const fn new(value: u8) -> Self {
        Self(value)
    }

    /// The number on disk.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match key_names::key_type(*self) {
            Some(name) => f.pad(name),
            None => write!(f, "UNKNOWN.{}", self.0),
        }
    }
}

impl fmt::Debug for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key. Shown in the form of `btrfs inspect-internal dump-tree`, symbolic ids included.
///
/// ```
/// use creamery_base::{ObjectId, TreeId};
/// use creamery_format::{Key, KeyType};
/// let key = Key::new(ObjectId::new(257), KeyType::INODE_ITEM, 0);
/// assert_eq!(key.to_string(), "(257 INODE_ITEM 0)");
/// assert_eq!(Key::new(TreeId::FS.objectid(), KeyType::ROOT_ITEM, 0).to_string(), "(FS_TREE ROOT_ITEM 0)");
/// assert!(key < key.next().unwrap());
/// ```
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Inode number, tree id, address or device id, by the type.
    pub objectid: ObjectId,
    /// The type of the item.
    pub kind: KeyType,
    /// Offset, hash, length or id, by the type.
    pub offset: u64,
}

impl Key {
    /// The first of all keys.
    pub const MIN: Self = Self::new(ObjectId::new(0), KeyType(0), 0);
    /// The last of all keys.
    pub const MAX: Self = Self::new(ObjectId::new(u64::MAX), KeyType(u8::MAX), u64::MAX);

    /// Creates the key of these three parts.
    #[must_use]
    pub const fn new(objectid: ObjectId, kind: KeyType, offset: u64) -> Self {
        Self { objectid, kind, offset }
    }

    /// Returns the key right after this one; `None` after [`Key::MAX`].
    #[must_use]
    pub const fn next(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_add(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = self.kind.0.checked_add(1) {
            return Some(Self { kind: KeyType(kind), offset: 0, ..self });
        }
        match self.objectid.get().checked_add(1) {
            Some(objectid) => Some(Self::new(ObjectId::new(objectid), KeyType(0), 0)),
            None => None,
        }
    }

    /// Returns the key right before this one; `None` before [`Key::MIN`].
    #[must_use]
    pub const fn prev(self) -> Option<Self> {
        if let Some(offset) = self.offset.checked_sub(1) {
            return Some(Self { offset, ..self });
        }
        if let Some(kind) = self.kind.0.checked_sub(1) {
            return Some(Self { kind: KeyType(kind), offset: u64::MAX, ..self });
        }
        match self.objectid.get().checked_sub(1) {
            Some(objectid) => Some(Self::new(ObjectId::new(objectid), KeyType(u8::MAX), u64::MAX)),
            None => None,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        key_names::write_key(f, self)
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A key on disk.
///
/// ```
/// use creamery_format::{Key, RawKey};
/// assert_eq!(Key::from(RawKey::from(Key::MAX)), Key::MAX);
/// ```
#[derive(
    Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawKey {
    /// See [`Key::objectid`].
    pub objectid: U64,
    /// See [`Key::kind`].
    pub kind: u8,
    /// See [`Key::offset`].
    pub offset: U64,
}

const _: () = assert!(size_of::<RawKey>() == 17);
const _: () = assert!(offset_of!(RawKey, kind) == 8);
const _: () = assert!(offset_of!(RawKey, offset) == 9);

impl RawKey {
    /// Bytes of a key on disk.
    pub const LEN: usize = size_of::<Self>();
}

impl From<Key> for RawKey {
    fn from(key: Key) -> Self {
        Self { objectid: U64::new(key.objectid.get()), kind: key.kind.0, offset: U64::new(key.offset) }
    }
}

impl From<RawKey> for Key {
    fn from(raw: RawKey) -> Self {
        Self::from(&raw)
    }
}

impl From<&RawKey> for Key {
    fn from(raw: &RawKey) -> Self {
        Self {
            objectid: ObjectId::new(raw.objectid.get()),
            kind: KeyType(raw.kind),
            offset: raw.offset.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_and_prev_carry_into_the_higher_parts() {
        let at = |objectid, kind, offset| Key::new(ObjectId::new(objectid), KeyType::new(kind), offset);
        assert_eq!(at(1, 2, 3).next(), Some(at(1, 2, 4)));
        assert_eq!(at(1, 2, u64::MAX).next(), Some(at(1, 3, 0)));
        assert_eq!(at(1, 255, u64::MAX).next(), Some(at(2, 0, 0)));
        assert_eq!(Key::MAX.next(), None);
        assert_eq!(Key::MIN.prev(), None);
        for key in [at(1, 2, 0), at(1, 0, 0), at(7, 255, u64::MAX), Key::MIN] {
            assert_eq!(key.next().and_then(Key::prev), Some(key));
        }
    }
}
