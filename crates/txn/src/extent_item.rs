//! Extent items: how many refer to an extent, and who. References stand in the item itself while it is small,
//! else as items of their own.
//!
//! # On disk
//! `(address EXTENT_ITEM length)` for data, `(address METADATA_ITEM level)` for tree blocks: reference count u64,
//! generation u64, flags u64, then inline references: type u8 and, by type, an offset u64 (tree id or parent),
//! a 28-byte data reference, or a parent u64 with a count u32. They are sorted by type upwards and within a type
//! by their sequence number downwards: the hash for data references, else the offset. Linux' tree checker
//! demands that order.

use creamery_base::{Error, ErrorKind, Generation, Logical, ObjectId, Result, TreeId};
use creamery_codec::data_ref_hash;
use creamery_format::{Key, KeyType};

use crate::delayed_refs::Backref;

/// Extent flag: file data.
pub(crate) const FLAG_DATA: u64 = 1;
/// Extent flag: a tree block.
pub(crate) const FLAG_TREE_BLOCK: u64 = 2;
/// Extent flag: what the block points to counts it by address.
pub(crate) const FLAG_FULL_BACKREF: u64 = 0x100;

const HEAD_LEN: usize = 24;
const DATA_REF_LEN: usize = 28;
/// Offset in a file extent item of its type, of disk_bytenr, disk_num_bytes and offset.
const FILE_EXTENT_TYPE: usize = 20;

/// Where a regular or preallocated file extent item's data lies: address, bytes on disk, offset into the extent.
/// None for inline data and holes.
pub(crate) fn file_extent_address(data: &[u8]) -> Option<(Logical, u64, u64)> {
    if *data.get(FILE_EXTENT_TYPE)? == 0 {
        return None;
    }
    let start = u64_at(data, 21)?;
    if start == 0 {
        return None;
    }
    Some((Logical::new(start), u64_at(data, 29)?, u64_at(data, 37)?))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(data.get(at..at + 8)?.try_into().ok()?))
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at + 4)?.try_into().ok()?))
}

impl Backref {
    pub(crate) fn key_type(self) -> KeyType {
        match self {
            Self::TreeBlock { .. } => KeyType::TREE_BLOCK_REF,
            Self::SharedBlock { .. } => KeyType::SHARED_BLOCK_REF,
            Self::ExtentData { .. } => KeyType::EXTENT_DATA_REF,
            Self::SharedData { .. } => KeyType::SHARED_DATA_REF,
        }
    }

    /// The number that orders references of one type, and the key offset when it has an item of its own.
    pub(crate) fn sequence(self) -> u64 {
        match self {
            Self::TreeBlock { root } => root.get(),
            Self::SharedBlock { parent } | Self::SharedData { parent } => parent.get(),
            Self::ExtentData { root, ino, offset } => data_ref_hash(root.get(), ino.get(), offset),
        }
    }

    fn inline_len(self) -> usize {
        1 + match self {
            Self::TreeBlock { .. } | Self::SharedBlock { .. } => 8,
            Self::ExtentData { .. } => DATA_REF_LEN,
            Self::SharedData { .. } => 12,
        }
    }

    /// The reference as the data of an item of its own.
    pub(crate) fn keyed_data(self, count: u32) -> Vec<u8> {
        match self {
            Self::TreeBlock { .. } | Self::SharedBlock { .. } => Vec::new(),
            Self::SharedData { .. } => count.to_le_bytes().to_vec(),
            Self::ExtentData { .. } => {
                let mut data = Vec::with_capacity(DATA_REF_LEN);
                self.push_data_ref(&mut data, count);
                data
            }
        }
    }

    fn push_data_ref(self, out: &mut Vec<u8>, count: u32) {
        if let Self::ExtentData { root, ino, offset } = self {
            out.extend(root.get().to_le_bytes());
            out.extend(ino.get().to_le_bytes());
            out.extend(offset.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
    }

    /// The data reference and its count in the data of an item of its own.
    pub(crate) fn parse_data_ref(data: &[u8]) -> Option<(Self, u32)> {
        let root = TreeId::new(u64_at(data, 0)?);
        let ino = ObjectId::new(u64_at(data, 8)?);
        Some((Self::ExtentData { root, ino, offset: u64_at(data, 16)? }, u32_at(data, 24)?))
    }
}

/// An extent item in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExtentItem {
    pub(crate) refs: u64,
    pub(crate) generation: Generation,
    pub(crate) flags: u64,
    /// Tree block info of items from before skinny metadata; kept as it is.
    block_info: Vec<u8>,
    /// Bytes of an owner reference (simple quotas), kept as they are.
    owner: Vec<u8>,
    pub(crate) inline: Vec<(Backref, u32)>,
}

const OWNER_REF_LEN: usize = 9;
const BLOCK_INFO_LEN: usize = 18;

impl ExtentItem {
    pub(crate) fn new(generation: Generation, flags: u64) -> Self {
        Self { refs: 0, generation, flags, block_info: Vec::new(), owner: Vec::new(), inline: Vec::new() }
    }

    /// Reads an item. Errors: damage, naming the key.
    pub(crate) fn parse(key: &Key, data: &[u8]) -> Result<Self> {
        Self::try_parse(key, data).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("extent item {key} of {} bytes", data.len()))
        })
    }

    fn try_parse(key: &Key, data: &[u8]) -> Option<Self> {
        let mut item = Self::new(Generation::new(u64_at(data, 8)?), u64_at(data, 16)?);
        item.refs = u64_at(data, 0)?;
        let mut at = HEAD_LEN;
        if item.flags & FLAG_TREE_BLOCK != 0 && key.kind == KeyType::EXTENT_ITEM {
            item.block_info = data.get(at..at + BLOCK_INFO_LEN)?.to_vec();
            at += BLOCK_INFO_LEN;
        }
        while at < data.len() {
            let kind = KeyType::new(data[at]);
            let body = at + 1;
            if kind == KeyType::EXTENT_OWNER_REF {
                item.owner = data.get(at..at + OWNER_REF_LEN)?.to_vec();
                at += OWNER_REF_LEN;
                continue;
            }
            let (backref, count) = if kind == KeyType::TREE_BLOCK_REF {
                (Backref::TreeBlock { root: TreeId::new(u64_at(data, body)?) }, 1)
            } else if kind == KeyType::SHARED_BLOCK_REF {
                (Backref::SharedBlock { parent: Logical::new(u64_at(data, body)?) }, 1)
            } else if kind == KeyType::EXTENT_DATA_REF {
                Backref::parse_data_ref(data.get(body..body + DATA_REF_LEN)?)?
            } else if kind == KeyType::SHARED_DATA_REF {
                (Backref::SharedData { parent: Logical::new(u64_at(data, body)?) }, u32_at(data, body + 8)?)
            } else {
                return None;
            };
            item.inline.push((backref, count));
            at += backref.inline_len();
        }
        Some(item)
    }

    /// The item's bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.len());
        out.extend(self.refs.to_le_bytes());
        out.extend(self.generation.get().to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend(&self.block_info);
        out.extend(&self.owner);
        for &(backref, count) in &self.inline {
            out.push(backref.key_type().get());
            match backref {
                Backref::TreeBlock { root } => out.extend(root.get().to_le_bytes()),
                Backref::SharedBlock { parent } => out.extend(parent.get().to_le_bytes()),
                Backref::ExtentData { .. } => backref.push_data_ref(&mut out, count),
                Backref::SharedData { parent } => {
                    out.extend(parent.get().to_le_bytes());
                    out.extend(count.to_le_bytes());
                }
            }
        }
        out
    }

    pub(crate) fn len(&self) -> usize {
        let inline: usize = self.inline.iter().map(|(backref, _)| backref.inline_len()).sum();
        HEAD_LEN + self.block_info.len() + self.owner.len() + inline
    }

    /// References that stand in the item.
    pub(crate) fn inline_count(&self) -> u64 {
        self.inline.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Puts a new inline reference where the order wants it; false when the item would outgrow `most` bytes.
    pub(crate) fn insert_inline(&mut self, backref: Backref, count: u32, most: usize) -> bool {
        if !self.inline.is_empty() && self.len() + backref.inline_len() > most {
            return false;
        }
        let order = |backref: Backref| (backref.key_type(), std::cmp::Reverse(backref.sequence()));
        let at = self.inline.partition_point(|(other, _)| order(*other) < order(backref));
        self.inline.insert(at, (backref, count));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data_ref(offset: u64) -> Backref {
        Backref::ExtentData { root: TreeId::FS, ino: ObjectId::new(257), offset }
    }

    #[test]
    fn an_item_survives_the_way_to_bytes_and_back() {
        let key = Key::new(ObjectId::new(1 << 20), KeyType::EXTENT_ITEM, 4096);
        let mut item = ExtentItem::new(Generation::new(9), FLAG_DATA);
        assert!(item.insert_inline(Backref::SharedData { parent: Logical::new(1 << 25) }, 3, 1000));
        for offset in [0, 4096, 8192, 1 << 40] {
            assert!(item.insert_inline(data_ref(offset), 2, 1000));
        }
        item.refs = item.inline_count();
        assert_eq!(item.refs, 11);
        assert_eq!(ExtentItem::parse(&key, &item.to_bytes()).expect("valid"), item);
        let sequences: Vec<u64> = item.inline[..4].iter().map(|(backref, _)| backref.sequence()).collect();
        assert!(sequences.is_sorted_by(|a, b| a >= b), "{sequences:?}");
        assert_eq!(item.inline[4].0.key_type(), KeyType::SHARED_DATA_REF);
    }

    #[test]
    fn a_full_item_takes_no_more_inline_references() {
        let mut item = ExtentItem::new(Generation::new(9), FLAG_DATA);
        let taken = (0..100).filter(|&offset| item.insert_inline(data_ref(offset), 1, 200)).count();
        assert_eq!(taken, (200 - HEAD_LEN) / (1 + DATA_REF_LEN));
    }

    #[test]
    fn cut_or_unknown_bytes_are_damage() {
        let key = Key::new(ObjectId::new(1 << 20), KeyType::METADATA_ITEM, 0);
        let mut item = ExtentItem::new(Generation::new(9), FLAG_TREE_BLOCK);
        assert!(item.insert_inline(Backref::TreeBlock { root: TreeId::FS }, 1, 1000));
        let bytes = item.to_bytes();
        for len in (0..bytes.len()).filter(|&len| len != HEAD_LEN) {
            assert_eq!(ExtentItem::parse(&key, &bytes[..len]).expect_err("cut").kind(), ErrorKind::Corrupt);
        }
        let mut unknown = bytes;
        unknown[HEAD_LEN] = 99;
        assert_eq!(ExtentItem::parse(&key, &unknown).expect_err("unknown").kind(), ErrorKind::Corrupt);
    }
}
