//! The address of a damaged block.

use std::fmt;

use crate::Logical;

/// A block without a good copy.
///
/// ```
/// use creamery_base::{DamagedBlock, Logical};
/// assert_eq!(DamagedBlock::Tree(Logical::new(30408704)).to_string(), "the tree block at logical 30408704");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum DamagedBlock {
    /// A leaf or node of a tree.
    Tree(Logical),
    /// A sector of data.
    Data(Logical),
}

impl DamagedBlock {
    /// Returns the address of the block's first byte.
    #[must_use]
    pub const fn logical(self) -> Logical {
        let (Self::Tree(logical) | Self::Data(logical)) = self;
        logical
    }
}

impl fmt::Display for DamagedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tree(logical) => write!(f, "the tree block at logical {logical}"),
            Self::Data(logical) => write!(f, "data at logical {logical}"),
        }
    }
}
