//! Damage of a block: its kind and place. Exact inside, one kind of error outside.
//!
//! Messages follow one grammar: `corrupt <leaf|node>: <where>, <reason>[[, expected <range>], found <value>]`; lower
//! case, decimal numbers, checksums in hex, half-open ranges as `[a, b)` and closed ones as `[a, b]`.

use std::fmt;

use creamery_base::{DamagedBlock, Error, ErrorKind, Generation, Logical, TreeId, Uuid};

use crate::key::{Key, KeyType};

/// The place of damage.
///
/// ```
/// use creamery_base::{Logical, TreeId};
/// use creamery_format::BlockSite;
/// let site = BlockSite { level: Some(0), tree: Some(TreeId::FS), logical: Logical::new(4096), slot: None, key: None };
/// assert_eq!(site.to_string(), "leaf: tree=5 logical=4096");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSite {
    /// The level, if it is known whether the block is a leaf.
    pub level: Option<u8>,
    /// The tree, if it is known.
    pub tree: Option<TreeId>,
    /// The address at which the block was read.
    pub logical: Logical,
    /// The item or key pointer.
    pub slot: Option<usize>,
    /// Its key.
    pub key: Option<Key>,
}

impl fmt::Display for BlockSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            Some(0) => "leaf:",
            Some(_) => "node:",
            None => "block:",
        })?;
        if let Some(tree) = self.tree {
            write!(f, " tree={}", tree.get().cast_signed())?;
        }
        write!(f, " logical={}", self.logical)?;
        if let Some(slot) = self.slot {
            write!(f, " slot={slot}")?;
        }
        if let Some(key) = self.key {
            write!(f, " key={key}")?;
        }
        Ok(())
    }
}

/// Hex digits of a checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SumHex {
    field: [u8; 32],
    len: usize,
}

impl SumHex {
    /// The first `len` bytes of a checksum field.
    #[must_use]
    pub const fn new(field: [u8; 32], len: usize) -> Self {
        Self { field, len }
    }
}

impl fmt::Display for SumHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("0x")?;
        self.field.iter().take(self.len).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The kind of damage. Exhaustive for this crate's tests; new reasons may come.
///
/// ```
/// use creamery_format::CorruptKind;
/// assert_eq!(CorruptKind::Level { found: 9, want: 0 }.to_string(), "wrong level, expected 0, found 9");
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs)] // the message beside each variant says what its fields are
pub enum CorruptKind {
    #[error("block has wrong length, expected {want}, found {found}")]
    BlockLength { found: usize, want: usize },
    #[error("checksum mismatch, expected {want}, found {found}")]
    Checksum { found: SumHex, want: SumHex },
    #[error("wrong filesystem uuid, expected {want}, found {found}")]
    Fsid { found: Uuid, want: Uuid },
    #[error("wrong address, expected {want}, found {found}")]
    Address { found: Logical, want: Logical },
    #[error("wrong generation, expected {want}, found {found}")]
    WrongGeneration { found: Generation, want: Generation },
    #[error("block is not marked as written")]
    NotWritten,
    #[error("wrong level, expected {want}, found {found}")]
    Level { found: u8, want: u8 },
    #[error("level too high, expected [0, 7], found {found}")]
    LevelMax { found: u8 },
    #[error("wrong owner, expected {want}, found {found}")]
    Owner { found: TreeId, want: TreeId },
    #[error("owner out of range, expected at most {max}, found {found}")]
    OwnerRange { found: u64, max: u64 },
    #[error("wrong first key, expected {want}, found {found}")]
    FirstKey { found: Key, want: Key },
    #[error("block is empty")]
    Empty,
    #[error("too many entries, expected [1, {max}], found {found}")]
    Count { found: usize, max: usize },
    #[error("keys out of order, found {found} after {previous}")]
    KeyOrder { previous: Key, found: Key },
    #[error("item ends past leaf data, expected [0, {max}], found {found}")]
    ItemEnd { found: u64, max: u64 },
    #[error("item data has a gap or overlaps, expected {want}, found end {found}")]
    ItemGap { found: u64, want: u64 },
    #[error("item data overlaps item heads, expected [{min}, {max}], found offset {found}")]
    ItemOverlap { found: u64, min: u64, max: u64 },
    #[error("child pointer is null")]
    ChildNull,
    #[error("child pointer is not aligned, expected a multiple of {unit}, found {found}")]
    ChildAlignment { found: Logical, unit: u64 },
    #[error("child is newer than the node, expected at most {max}, found generation {found}")]
    ChildGeneration { found: Generation, max: Generation },
    #[error("wrong size of {kind}, expected {want}, found {found}")]
    ItemSize { kind: KeyType, found: usize, want: usize },
    #[error("size of {kind} out of range, expected [{min}, {max}], found {found}")]
    ItemSizeRange { kind: KeyType, found: usize, min: usize, max: usize },
    #[error("wrong size of {kind}, expected a multiple of {unit}, found {found}")]
    ItemArray { kind: KeyType, found: usize, unit: usize },
    #[error("{what} is cut short, expected {want}, found {found} bytes")]
    Truncated { what: &'static str, found: usize, want: usize },
    #[error("{what} out of range, expected [{min}, {max}], found {found}")]
    Range { what: &'static str, found: u64, min: u64, max: u64 },
    #[error("{what} is not aligned, expected a multiple of {unit}, found {found}")]
    Alignment { what: &'static str, found: u64, unit: u64 },
    #[error("{what}, expected {want}, found {found}")]
    Mismatch { what: &'static str, found: u64, want: u64 },
    #[error("{what} runs past its item, expected [0, {max}], found end {found}")]
    Overrun { what: &'static str, found: u64, max: u64 },
    #[error("{what} begins before the one before it ends, expected at least {end}, found {found}")]
    Overlap { what: &'static str, found: u64, end: u64 },
    #[error("inline references out of order, found {found} {by} after {previous} {after}")]
    RefOrder { previous: KeyType, after: u64, found: KeyType, by: u64 },
    #[error("unknown {what}, found {found}")]
    Unknown { what: &'static str, found: u64 },
    #[error("{what}, found at byte {at} of {len}")]
    Name { what: &'static str, at: usize, len: usize },
}

/// Damage in a tree block: opaque to callers, exact in its message.
///
/// ```
/// use creamery_base::{Error, ErrorKind, Logical};
/// use creamery_format::{BlockSite, CorruptKind, Corruption};
/// let site = BlockSite { level: None, tree: None, logical: Logical::new(4096), slot: None, key: None };
/// let damage = Corruption::new(site, CorruptKind::Empty);
/// assert_eq!(damage.to_string(), "corrupt block: logical=4096, block is empty");
/// assert_eq!(Error::from(damage).kind(), ErrorKind::Corrupt);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("corrupt {}, {}", .0.site, .0.kind)]
pub struct Corruption(Box<Detail>);

#[derive(Clone, PartialEq, Eq, Debug)]
struct Detail {
    site: BlockSite,
    kind: CorruptKind,
}

impl Corruption {
    /// This damage at this place.
    #[must_use]
    pub fn new(site: BlockSite, kind: CorruptKind) -> Self {
        Self(Box::new(Detail { site, kind }))
    }

    /// Returns the place.
    #[must_use]
    pub fn site(&self) -> &BlockSite {
        &self.0.site
    }

    /// Returns the kind.
    #[must_use]
    pub fn kind(&self) -> &CorruptKind {
        &self.0.kind
    }
}

impl From<Corruption> for Error {
    fn from(damage: Corruption) -> Self {
        let block = DamagedBlock::Tree(damage.site().logical);
        Self::with_source(ErrorKind::Corrupt, String::new(), damage).of_block(block)
    }
}
