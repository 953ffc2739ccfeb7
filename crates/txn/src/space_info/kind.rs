//! The kinds of space.

use creamery_base::TreeId;
use creamery_format::BlockGroupFlags;

/// The use of a block group.
///
/// ```
/// use creamery_txn::SpaceKind;
/// assert_eq!(SpaceKind::Data.to_string(), "data");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpaceKind {
    /// File data.
    Data,
    /// All trees but the chunk tree.
    Metadata,
    /// The chunk tree.
    System,
}

impl SpaceKind {
    /// The kind of block group that holds the blocks of a tree.
    pub(crate) fn of_tree(tree: TreeId) -> Self {
        if tree == TreeId::CHUNK { Self::System } else { Self::Metadata }
    }

    pub(crate) fn flag(self) -> BlockGroupFlags {
        match self {
            Self::Data => BlockGroupFlags::DATA,
            Self::Metadata => BlockGroupFlags::METADATA,
            Self::System => BlockGroupFlags::SYSTEM,
        }
    }
}

impl std::fmt::Display for SpaceKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Data => "data",
            Self::Metadata => "metadata",
            Self::System => "system",
        })
    }
}
