//! Newtypes for addresses and ids: no two of them can be swapped by mistake.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Wraps a bare number.
            #[must_use]
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The bare number.
            #[must_use]
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl From<u64> for $name {
            fn from(value: u64) -> Self {
                Self(value)
            }
        }

        impl From<$name> for u64 {
            fn from(value: $name) -> Self {
                value.0
            }
        }
    };
}

newtype! {
    /// A byte address in the filesystem's logical space (Btrfs calls it bytenr). Chunks map it to devices.
    ///
    /// ```
    /// use creamery_base::Logical;
    /// assert_eq!(Logical::new(4096).checked_add(4096), Some(Logical::new(8192)));
    /// ```
    Logical
}

newtype! {
    /// The number of a transaction (Btrfs also says transid). Every tree block carries the number of the transaction that wrote it.
    ///
    /// ```
    /// use creamery_base::Generation;
    /// assert_eq!(Generation::new(7).next(), Generation::new(8));
    /// ```
    Generation
}

newtype! {
    /// The first field of a key: an inode number, a tree id, a device id or an address, by the key's type.
    ///
    /// ```
    /// use creamery_base::ObjectId;
    /// assert_eq!(ObjectId::FIRST_FREE.get(), 256);
    /// ```
    ObjectId
}

newtype! {
    /// The id of a tree: the fixed ones below 256, subvolumes from 256 on.
    ///
    /// ```
    /// use creamery_base::TreeId;
    /// assert!(TreeId::FS.is_subvolume() && !TreeId::EXTENT.is_subvolume());
    /// ```
    TreeId
}

newtype! {
    /// The id of a device within a filesystem, from 1.
    ///
    /// ```
    /// use creamery_base::DevId;
    /// assert_eq!(DevId::new(1).to_string(), "1");
    /// ```
    DevId
}

impl Logical {
    /// Returns the sum, or `None` past 2^64.
    #[must_use]
    pub const fn checked_add(self, len: u64) -> Option<Self> {
        match self.0.checked_add(len) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Returns the distance in bytes from `start`, or `None` if `self` lies before it.
    #[must_use]
    pub const fn checked_sub(self, start: Self) -> Option<u64> {
        self.0.checked_sub(start.0)
    }

    /// Whether the address is a multiple of `unit` bytes.
    #[must_use]
    pub const fn is_aligned(self, unit: u64) -> bool {
        self.0.is_multiple_of(unit)
    }
}

impl std::ops::Add<u64> for Logical {
    type Output = Self;

    /// Adds to an address that is already checked; asserts against wrapping.
    fn add(self, len: u64) -> Self {
        self.checked_add(len).expect("a checked logical address does not wrap")
    }
}

impl Generation {
    /// The generation of the next transaction.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl ObjectId {
    /// The first id free for inodes and subvolumes; the inode number of each subvolume's root directory.
    pub const FIRST_FREE: Self = Self(256);
    /// The number of the directory in the place of a subvolume whose entry, but not its tree, was copied by a snapshot.
    pub const EMPTY_SUBVOLUME_DIR: Self = Self(2);
    /// The last id free for inodes and subvolumes (-256).
    pub const LAST_FREE: Self = Self(256_u64.wrapping_neg());
    /// Key objectid of a running balance's item (-4).
    pub const BALANCE: Self = Self(4_u64.wrapping_neg());
    /// Key objectid of orphan items (-5).
    pub const ORPHAN: Self = Self(5_u64.wrapping_neg());
    /// Key objectid of checksum items (-10).
    pub const EXTENT_CSUM: Self = Self(10_u64.wrapping_neg());
    /// Key objectid of the headers of free space caches of the old kind (-11).
    pub const FREE_SPACE: Self = Self(11_u64.wrapping_neg());
    /// Number of the inode cache's inode, which Linux had until 5.11 (-12).
    pub const FREE_INO: Self = Self(12_u64.wrapping_neg());
    /// Key objectid of device items in the chunk tree.
    pub const DEV_ITEMS: Self = Self(1);
    /// Key objectid of chunk items.
    pub const FIRST_CHUNK_TREE: Self = Self(256);
    /// Key objectid of the root tree's directory.
    pub const ROOT_TREE_DIR: Self = Self(6);
}

impl TreeId {
    /// The tree of roots.
    pub const ROOT: Self = Self(1);
    /// Extents and their references.
    pub const EXTENT: Self = Self(2);
    /// Logical address to device.
    pub const CHUNK: Self = Self(3);
    /// Device address to chunk.
    pub const DEV: Self = Self(4);
    /// The top-level subvolume.
    pub const FS: Self = Self(5);
    /// Data checksums.
    pub const CSUM: Self = Self(7);
    /// Quota groups.
    pub const QUOTA: Self = Self(8);
    /// Subvolume UUID to id.
    pub const UUID: Self = Self(9);
    /// Free space.
    pub const FREE_SPACE: Self = Self(10);
    /// Block groups.
    pub const BLOCK_GROUP: Self = Self(11);
    /// RAID stripes.
    pub const RAID_STRIPE: Self = Self(12);
    /// Data relocation (-9).
    pub const DATA_RELOC: Self = Self(9_u64.wrapping_neg());
    /// The log (-6).
    pub const TREE_LOG: Self = Self(6_u64.wrapping_neg());
    /// Relocation copies (-8).
    pub const TREE_RELOC: Self = Self(8_u64.wrapping_neg());

    /// Whether files live in this tree: the top level or an id in the free range.
    #[must_use]
    pub const fn is_subvolume(self) -> bool {
        self.0 == Self::FS.0 || (self.0 >= ObjectId::FIRST_FREE.0 && self.0 <= ObjectId::LAST_FREE.0)
    }

    /// Whether snapshots may share blocks of this tree with another tree (subvolumes and the data
    /// relocation tree); only these trees pay for reference checks when copied.
    #[must_use]
    pub const fn is_shareable(self) -> bool {
        self.is_subvolume() || self.0 == Self::DATA_RELOC.0
    }

    /// Returns the id as a key's objectid.
    #[must_use]
    pub const fn objectid(self) -> ObjectId {
        ObjectId(self.0)
    }
}

impl From<ObjectId> for TreeId {
    fn from(id: ObjectId) -> Self {
        Self(id.0)
    }
}

/// A place on one device.
///
/// ```
/// use creamery_base::{DevId, Physical};
/// let super_block = Physical { dev: DevId::new(1), offset: 65536 };
/// assert_eq!(super_block.to_string(), "devid 1 offset 65536");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Physical {
    /// The device.
    pub dev: DevId,
    /// Byte offset from the device's start.
    pub offset: u64,
}

impl fmt::Display for Physical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "devid {} offset {}", self.dev, self.offset)
    }
}

/// Names an inode: inode numbers repeat in every subvolume, so the subvolume belongs to the name.
///
/// ```
/// use creamery_base::{InodeId, ObjectId, TreeId};
/// let root = InodeId::new(TreeId::FS, ObjectId::FIRST_FREE);
/// assert_eq!(root.to_string(), "5/256");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct InodeId {
    /// The subvolume.
    pub subvolume: TreeId,
    /// The inode number in it.
    pub ino: ObjectId,
}

impl InodeId {
    /// The inode `ino` of `subvolume`.
    #[must_use]
    pub const fn new(subvolume: TreeId, ino: ObjectId) -> Self {
        Self { subvolume, ino }
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.subvolume, self.ino)
    }
}
