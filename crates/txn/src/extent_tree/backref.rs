//! Back references: the users of an extent.

use creamery_base::{InodeId, Logical, ObjectId, TreeId};
use creamery_format::{ExtentRef, FILE_EXTENT_INLINE, Key, RawFileExtent};
use zerocopy::FromBytes;

/// One reference to an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Backref {
    /// A tree, by its id: a search of that tree finds the block's place.
    TreeBlock { root: TreeId },
    /// A tree block, by its parent's address.
    SharedBlock { parent: Logical },
    /// File extent items of one inode; `offset` is their key's offset less their offset into the extent.
    ExtentData { root: TreeId, ino: ObjectId, offset: u64 },
    /// File extent items in one leaf, by the leaf's address.
    SharedData { parent: Logical },
}

/// The kind of an extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExtentKind {
    /// A tree block of this level.
    TreeBlock { level: u8 },
    /// File data.
    Data,
}

impl Backref {
    /// The reference of a file, by the offset of its file extent item's key less the item's offset into the extent.
    pub(crate) fn of_file(owner: InodeId, offset: u64) -> Self {
        Self::ExtentData { root: owner.subvolume, ino: owner.ino, offset }
    }

    /// The reference in its on-disk form, counted `count` times.
    pub(crate) fn counted(self, count: u32) -> ExtentRef {
        match self {
            Self::TreeBlock { root } => ExtentRef::TreeBlock { root },
            Self::SharedBlock { parent } => ExtentRef::SharedBlock { parent },
            Self::ExtentData { root, ino, offset } => {
                ExtentRef::ExtentData { root, objectid: ino.get(), offset, count }
            }
            Self::SharedData { parent } => ExtentRef::SharedData { parent, count },
        }
    }

    /// The reference and its count; `None` for the owner entry of simple quotas, which is no reference.
    pub(crate) fn from_format(found: ExtentRef) -> Option<(Self, u32)> {
        let backref = match found {
            ExtentRef::TreeBlock { root } => Self::TreeBlock { root },
            ExtentRef::SharedBlock { parent } => Self::SharedBlock { parent },
            ExtentRef::ExtentData { root, objectid, offset, .. } => {
                Self::ExtentData { root, ino: ObjectId::new(objectid), offset }
            }
            ExtentRef::SharedData { parent, .. } => Self::SharedData { parent },
            ExtentRef::Owner { .. } => return None,
        };
        Some((backref, found.count()))
    }

    /// The key of the reference when it has an item of its own and nothing collides.
    pub(crate) fn key(self, extent: ObjectId) -> Key {
        let form = self.counted(1);
        Key::new(extent, form.kind(), form.key_offset())
    }

    /// The data of the reference's own item.
    pub(crate) fn keyed_data(self, count: u32) -> Vec<u8> {
        let mut data = Vec::new();
        self.counted(count).write_keyed(&mut data);
        data
    }

    /// Bytes of the reference inside an extent item.
    pub(crate) fn inline_len(self) -> usize {
        ExtentRef::inline_len(self.counted(1).kind()).expect("every reference has an inline form")
    }
}

/// The address of a regular or preallocated file extent item's data, its bytes on disk, and the offset into the extent.
/// `None` for inline data and holes.
pub(crate) fn file_extent_address(data: &[u8]) -> Option<(Logical, u64, u64)> {
    let (extent, _) = RawFileExtent::ref_from_prefix(data).ok()?;
    if extent.kind == FILE_EXTENT_INLINE || extent.disk_bytenr.get() == 0 {
        return None;
    }
    Some((Logical::new(extent.disk_bytenr.get()), extent.disk_num_bytes.get(), extent.offset.get()))
}
