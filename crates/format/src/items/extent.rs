//! References of extents: `EXTENT_ITEM`, `METADATA_ITEM`, their inline references and the keyed ones.
//!
//! An extent item counts all references. Some are packed in the item itself, the rest have items of their own
//! (keyed), with the same contents. `METADATA_ITEM` (skinny) has the level in its key; an `EXTENT_ITEM` of a tree
//! block has a [`RawTreeBlockInfo`] before its references.

use bitflags::bitflags;
use creamery_base::{Logical, TreeId};
use zerocopy::little_endian::{U32, U64};

use super::split;
use crate::corrupt::CorruptKind;
use crate::key::{KeyType, RawKey};
use crate::raw::raw_struct;

raw_struct! {
    /// The head of an extent item.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawExtentItem::LEN, 24);
    /// ```
    pub struct RawExtentItem[24] {
        /// All references, inline and keyed.
        0 => pub refs: U64,
        /// Transaction that allocated the extent.
        8 => pub generation: U64,
        /// See [`ExtentFlags`].
        16 => pub flags: U64,
    }
}

bitflags! {
    /// Flags of an extent item. Unknown bits are kept.
    ///
    /// ```
    /// assert_eq!(creamery_format::ExtentFlags::FULL_BACKREF.bits(), 256);
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct ExtentFlags: u64 {
        /// File data.
        const DATA = 1;
        /// A tree block.
        const TREE_BLOCK = 2;
        /// The block's children count the block itself as their user, not the block's owner.
        const FULL_BACKREF = 256;
        const _ = !0;
    }
}

impl RawExtentItem {
    /// The flags.
    #[must_use]
    pub fn flags(&self) -> ExtentFlags {
        ExtentFlags::from_bits_retain(self.flags.get())
    }
}

raw_struct! {
    /// First key and level of a tree block, in an `EXTENT_ITEM` (not in a `METADATA_ITEM`).
    ///
    /// ```
    /// assert_eq!(creamery_format::RawTreeBlockInfo::LEN, 18);
    /// ```
    pub struct RawTreeBlockInfo[18] {
        /// First key of the block.
        0 => pub key: RawKey,
        /// Its level.
        17 => pub level: u8,
    }
}

raw_struct! {
    /// The head of an inline reference, as used by all but [`RawExtentDataRef`].
    ///
    /// ```
    /// assert_eq!(creamery_format::RawInlineRef::LEN, 9);
    /// ```
    pub struct RawInlineRef[9] {
        /// Key type of the keyed form.
        0 => pub kind: u8,
        /// Key offset of the keyed form.
        1 => pub offset: U64,
    }
}

raw_struct! {
    /// Uses of a data extent by one file, at one offset.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawExtentDataRef::LEN, 28);
    /// ```
    pub struct RawExtentDataRef[28] {
        /// The subvolume.
        0 => pub root: U64,
        /// The inode.
        8 => pub objectid: U64,
        /// File offset at which the extent would begin: key offset minus extent offset, wrapping.
        16 => pub offset: U64,
        /// The number of file extent items.
        24 => pub count: U32,
    }
}

raw_struct! {
    /// The number of file extent items of one leaf that use a data extent.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawSharedDataRef::LEN, 4);
    /// ```
    pub struct RawSharedDataRef[4] {
        /// The number.
        0 => pub count: U32,
    }
}

/// One reference to an extent.
///
/// ```
/// use creamery_base::TreeId;
/// use creamery_format::{ExtentRef, KeyType};
/// let used = ExtentRef::TreeBlock { root: TreeId::FS };
/// assert_eq!((used.kind(), used.key_offset(), used.count()), (KeyType::TREE_BLOCK_REF, 5, 1));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExtentRef {
    /// A tree block is used by a tree.
    TreeBlock {
        /// The tree.
        root: TreeId,
    },
    /// A tree block is used by a node with full backrefs.
    SharedBlock {
        /// The node.
        parent: Logical,
    },
    /// A data extent is used by a file.
    ExtentData {
        /// The subvolume.
        root: TreeId,
        /// The inode.
        objectid: u64,
        /// File offset at which the extent would begin.
        offset: u64,
        /// The number of file extent items.
        count: u32,
    },
    /// A data extent is used by a leaf with full backrefs.
    SharedData {
        /// The leaf.
        parent: Logical,
        /// The number of file extent items.
        count: u32,
    },
    /// Simple quotas: the subvolume that is charged. Counts as no reference.
    Owner {
        /// The subvolume.
        root: TreeId,
    },
}

impl ExtentRef {
    /// The key type of the reference.
    #[must_use]
    pub const fn kind(&self) -> KeyType {
        match self {
            Self::TreeBlock { .. } => KeyType::TREE_BLOCK_REF,
            Self::SharedBlock { .. } => KeyType::SHARED_BLOCK_REF,
            Self::ExtentData { .. } => KeyType::EXTENT_DATA_REF,
            Self::SharedData { .. } => KeyType::SHARED_DATA_REF,
            Self::Owner { .. } => KeyType::EXTENT_OWNER_REF,
        }
    }

    /// The key offset of the keyed form, before a hash collision moves it; inline refs are sorted by type and,
    /// descending, by this.
    #[must_use]
    pub fn key_offset(&self) -> u64 {
        match *self {
            Self::TreeBlock { root } | Self::Owner { root } => root.get(),
            Self::SharedBlock { parent } | Self::SharedData { parent, .. } => parent.get(),
            Self::ExtentData { root, objectid, offset, .. } => {
                creamery_codec::data_ref_hash(root.get(), objectid, offset)
            }
        }
    }

    /// Returns the number of references it stands for.
    #[must_use]
    pub const fn count(&self) -> u32 {
        match self {
            Self::TreeBlock { .. } | Self::SharedBlock { .. } => 1,
            Self::ExtentData { count, .. } | Self::SharedData { count, .. } => *count,
            Self::Owner { .. } => 0,
        }
    }

    /// Returns the bytes of the inline form of a type; `None` if there is no such form.
    #[must_use]
    pub const fn inline_len(kind: KeyType) -> Option<usize> {
        match kind {
            KeyType::TREE_BLOCK_REF | KeyType::SHARED_BLOCK_REF | KeyType::EXTENT_OWNER_REF => {
                Some(RawInlineRef::LEN)
            }
            KeyType::EXTENT_DATA_REF => Some(1 + RawExtentDataRef::LEN),
            KeyType::SHARED_DATA_REF => Some(RawInlineRef::LEN + RawSharedDataRef::LEN),
            _ => None,
        }
    }

    /// Reads one inline reference at the start of `data`. Also returns its length.
    ///
    /// # Errors
    /// The type is unknown or the data too short.
    pub fn parse_inline(data: &[u8]) -> Result<(Self, usize), CorruptKind> {
        const WHAT: &str = "inline ref";
        let (kind, rest) = split::<u8>(data, WHAT)?;
        let kind = KeyType::new(*kind);
        let len = Self::inline_len(kind)
            .ok_or(CorruptKind::Unknown { what: "inline ref type", found: kind.get().into() })?;
        if kind == KeyType::EXTENT_DATA_REF {
            return Ok((split::<RawExtentDataRef>(rest, WHAT)?.0.into(), len));
        }
        let (offset, rest) = split::<U64>(rest, WHAT)?;
        let offset = offset.get();
        let found = match kind {
            KeyType::TREE_BLOCK_REF => Self::TreeBlock { root: TreeId::new(offset) },
            KeyType::SHARED_BLOCK_REF => Self::SharedBlock { parent: Logical::new(offset) },
            KeyType::EXTENT_OWNER_REF => Self::Owner { root: TreeId::new(offset) },
            _ => {
                let count = split::<RawSharedDataRef>(rest, WHAT)?.0.count.get();
                Self::SharedData { parent: Logical::new(offset), count }
            }
        };
        Ok((found, len))
    }

    /// Reads a reference that has an item of its own; `None` if `kind` is no such item.
    ///
    /// # Errors
    /// The data is too short.
    pub fn parse_keyed(kind: KeyType, offset: u64, data: &[u8]) -> Result<Option<Self>, CorruptKind> {
        const WHAT: &str = "keyed ref";
        Ok(Some(match kind {
            KeyType::TREE_BLOCK_REF => Self::TreeBlock { root: TreeId::new(offset) },
            KeyType::SHARED_BLOCK_REF => Self::SharedBlock { parent: Logical::new(offset) },
            KeyType::EXTENT_DATA_REF => (*split::<RawExtentDataRef>(data, WHAT)?.0).into(),
            KeyType::SHARED_DATA_REF => {
                let count = split::<RawSharedDataRef>(data, WHAT)?.0.count.get();
                Self::SharedData { parent: Logical::new(offset), count }
            }
            KeyType::EXTENT_OWNER_REF => Self::Owner { root: TreeId::new(offset) },
            _ => return Ok(None),
        }))
    }

    /// Appends the inline form.
    pub fn write_inline(&self, out: &mut Vec<u8>) {
        out.push(self.kind().get());
        if !matches!(self, Self::ExtentData { .. }) {
            out.extend_from_slice(&self.key_offset().to_le_bytes());
        }
        self.write_keyed(out);
    }

    /// Appends the data of the keyed form. Tree block references have none.
    pub fn write_keyed(&self, out: &mut Vec<u8>) {
        match *self {
            Self::ExtentData { root, objectid, offset, count } => {
                for part in [root.get(), objectid, offset] {
                    out.extend_from_slice(&part.to_le_bytes());
                }
                out.extend_from_slice(&count.to_le_bytes());
            }
            Self::SharedData { count, .. } => out.extend_from_slice(&count.to_le_bytes()),
            Self::TreeBlock { .. } | Self::SharedBlock { .. } | Self::Owner { .. } => {}
        }
    }
}

impl From<&RawExtentDataRef> for ExtentRef {
    fn from(raw: &RawExtentDataRef) -> Self {
        Self::ExtentData {
            root: TreeId::new(raw.root.get()),
            objectid: raw.objectid.get(),
            offset: raw.offset.get(),
            count: raw.count.get(),
        }
    }
}

impl From<RawExtentDataRef> for ExtentRef {
    fn from(raw: RawExtentDataRef) -> Self {
        Self::from(&raw)
    }
}

/// The references packed in an extent item.
///
/// ```
/// use creamery_base::TreeId;
/// use creamery_format::{ExtentRef, ExtentRefs};
/// let mut packed = Vec::new();
/// ExtentRef::TreeBlock { root: TreeId::FS }.write_inline(&mut packed);
/// let refs: Result<Vec<_>, _> = ExtentRefs::new(&packed).collect();
/// assert_eq!(refs, Ok(vec![ExtentRef::TreeBlock { root: TreeId::FS }]));
/// ```
#[derive(Clone, Debug)]
pub struct ExtentRefs<'a> {
    rest: &'a [u8],
}

impl<'a> ExtentRefs<'a> {
    /// Creates an iterator over packed references, without the head of the item.
    #[must_use]
    pub const fn new(packed: &'a [u8]) -> Self {
        Self { rest: packed }
    }

    /// Returns the bytes that are not read yet.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl Iterator for ExtentRefs<'_> {
    type Item = Result<ExtentRef, CorruptKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        match ExtentRef::parse_inline(self.rest) {
            Ok((found, len)) => {
                self.rest = &self.rest[len..];
                Some(Ok(found))
            }
            Err(kind) => {
                self.rest = &[];
                Some(Err(kind))
            }
        }
    }
}

impl std::iter::FusedIterator for ExtentRefs<'_> {}

/// An extent item, split into its parts.
///
/// ```
/// use creamery_format::{ExtentItem, KeyType};
/// let item = ExtentItem::parse(KeyType::METADATA_ITEM, &[0; 24]).unwrap();
/// assert_eq!(item.refs().count(), 0);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ExtentItem<'a> {
    /// The head.
    pub head: &'a RawExtentItem,
    /// First key and level, for a tree block that is not skinny.
    pub tree_block: Option<&'a RawTreeBlockInfo>,
    /// The packed references.
    pub inline: &'a [u8],
}

impl<'a> ExtentItem<'a> {
    /// Splits the data of an `EXTENT_ITEM` or `METADATA_ITEM`.
    ///
    /// # Errors
    /// The data is too short.
    pub fn parse(kind: KeyType, data: &'a [u8]) -> Result<Self, CorruptKind> {
        let (head, rest) = split::<RawExtentItem>(data, "extent item")?;
        if kind == KeyType::EXTENT_ITEM && head.flags().contains(ExtentFlags::TREE_BLOCK) {
            let (info, rest) = split::<RawTreeBlockInfo>(rest, "tree block info")?;
            return Ok(Self { head, tree_block: Some(info), inline: rest });
        }
        Ok(Self { head, tree_block: None, inline: rest })
    }

    /// The references packed in it.
    #[must_use]
    pub const fn refs(&self) -> ExtentRefs<'a> {
        ExtentRefs::new(self.inline)
    }
}
