//! Files with fs-verity: `VERITY_DESC_ITEM`, `VERITY_MERKLE_ITEM` and their content.
//!
//! The first `VERITY_DESC_ITEM` of an inode, at offset 0, has the length of the descriptor; the others hold its bytes, cut into
//! pieces; the key's offset is the place of the first byte plus 1. The `VERITY_MERKLE_ITEM`s hold the bytes of the Merkle tree;
//! the key's offset is the place of the first one. (fs-verity's own structures: `Documentation/filesystems/fsverity.rst` of
//! Linux.)
//!
//! ```text
//!   root hash            in the descriptor
//!   [ h h h . ]          the last level, one block            first in the tree's bytes
//!   [ h h h h ][ h h . ] the first level: digests of blocks of data
//!   data  data  data     blocks of the file, the last one filled up with zeros
//! ```

use creamery_codec::{SaltedHash, VerityDigest, VerityHash};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

use super::split;
use crate::corrupt::CorruptKind;
use crate::raw::raw_struct;

raw_struct! {
    /// The first `VERITY_DESC_ITEM` of an inode.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawVerityDescriptorItem::LEN, 25);
    /// ```
    pub struct RawVerityDescriptorItem[25] {
        /// Bytes of the descriptor, signature included.
        0 => pub size: U64,
        /// Zero.
        8 => pub reserved: [U64; 2],
        /// 0: not encrypted.
        24 => pub encryption: u8,
    }
}

raw_struct! {
    /// The descriptor of fs-verity; the signature follows.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawVerityDescriptor::LEN, 256);
    /// ```
    pub struct RawVerityDescriptor[256] {
        /// 1.
        0 => pub version: u8,
        /// Number of the hash.
        1 => pub hash_algorithm: u8,
        /// Binary logarithm of the bytes of a block.
        2 => pub log_blocksize: u8,
        /// Bytes of the salt, 0 for none.
        3 => pub salt_size: u8,
        /// Bytes of the signature; counted as 0 in the file's digest.
        4 => pub sig_size: U32,
        /// Bytes of the file.
        8 => pub data_size: U64,
        /// Digest of the tree's root, of the only block of data, or zeros for an empty file.
        16 => pub root_hash: [u8; 64],
        /// The salt, filled up with zeros.
        80 => pub salt: [u8; 32],
        /// Zero.
        112 => pub reserved: [u8; 144],
    }
}

/// Binary logarithms of the smallest and the largest block.
const LOG_BLOCK: std::ops::RangeInclusive<u8> = 10..=16;
/// The largest number of levels of a Merkle tree, like on Linux.
const LEVELS_MAX: usize = 8;

/// Returns the length of a descriptor from the item about it, a [`RawVerityDescriptorItem`].
///
/// # Errors
/// The item has another length; the descriptor is encrypted, or its length is impossible.
pub fn verity_descriptor_len(item: &[u8]) -> Result<usize, CorruptKind> {
    let what = "verity descriptor item";
    let (raw, rest) = split::<RawVerityDescriptorItem>(item, what)?;
    if !rest.is_empty() {
        let (found, max) = (item.len() as u64, RawVerityDescriptorItem::LEN as u64);
        return Err(CorruptKind::Overrun { what, found, max });
    }
    if raw.encryption != 0 {
        return Err(CorruptKind::Unknown { what: "encryption", found: raw.encryption.into() });
    }
    let found = raw.size.get();
    let (min, max) = (RawVerityDescriptor::LEN, VerityDescriptor::LEN_MAX);
    let len = usize::try_from(found).ok().filter(|len| (min..=max).contains(len));
    len.ok_or(CorruptKind::Range {
        what: "length of a verity descriptor",
        found,
        min: min as u64,
        max: max as u64,
    })
}

/// A checked descriptor.
///
/// ```
/// use creamery_codec::VerityHash;
/// use creamery_format::{RawVerityDescriptor, VerityDescriptor};
/// use zerocopy::IntoBytes;
/// let raw = RawVerityDescriptor { version: 1, hash_algorithm: 1, log_blocksize: 12, ..Default::default() };
/// let descriptor = VerityDescriptor::parse(raw.as_bytes()).unwrap();
/// assert_eq!((descriptor.hash(), descriptor.block_len()), (VerityHash::Sha256, 4096));
/// assert!(VerityDescriptor::parse(&[0; 256]).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerityDescriptor {
    raw: RawVerityDescriptor,
    hash: VerityHash,
    tree: MerkleTree,
}

impl VerityDescriptor {
    /// Bytes of the longest descriptor, signature included, that Linux accepts.
    pub const LEN_MAX: usize = 16_384;

    /// Checks the bytes of a descriptor.
    ///
    /// # Errors
    /// The invalid field.
    pub fn parse(bytes: &[u8]) -> Result<Self, CorruptKind> {
        let (raw, signature) = split::<RawVerityDescriptor>(bytes, "verity descriptor")?;
        if raw.version != 1 {
            return Err(CorruptKind::Unknown { what: "version of fs-verity", found: raw.version.into() });
        }
        let found = raw.hash_algorithm.into();
        let hash = VerityHash::from_disk(raw.hash_algorithm)
            .ok_or(CorruptKind::Unknown { what: "hash of fs-verity", found })?;
        let in_range = |what, found: u64, min: u64, max: u64| match (min..=max).contains(&found) {
            true => Ok(()),
            false => Err(CorruptKind::Range { what, found, min, max }),
        };
        let (min, max) = (LOG_BLOCK.start(), LOG_BLOCK.end());
        in_range("logarithm of a verity block", raw.log_blocksize.into(), (*min).into(), (*max).into())?;
        in_range("length of a verity salt", raw.salt_size.into(), 0, raw.salt.len() as u64)?;
        let (found, want) = (raw.sig_size.get().into(), signature.len() as u64);
        if found != want {
            return Err(CorruptKind::Mismatch { what: "length of a verity signature", found, want });
        }
        if let Some(found) = raw.reserved.iter().find(|byte| **byte != 0) {
            let what = "reserved bytes of a verity descriptor";
            return Err(CorruptKind::Unknown { what, found: u64::from(*found) });
        }
        let tree = MerkleTree::new(raw.data_size.get(), 1 << raw.log_blocksize, hash)?;
        Ok(Self { raw: *raw, hash, tree })
    }

    /// The hash of the tree's blocks.
    #[must_use]
    pub const fn hash(&self) -> VerityHash {
        self.hash
    }

    /// Bytes of a block, of data and of the tree.
    #[must_use]
    pub const fn block_len(&self) -> usize {
        1 << self.raw.log_blocksize
    }

    /// Bytes of the file.
    #[must_use]
    pub const fn data_len(&self) -> u64 {
        self.raw.data_size.get()
    }

    /// Returns the hash for blocks, with the salt.
    #[must_use]
    pub fn salted_hash(&self) -> SaltedHash {
        SaltedHash::new(self.hash, &self.raw.salt[..self.raw.salt_size.into()])
    }

    /// The digest of the tree's root, or of the only block of data.
    #[must_use]
    pub fn root_hash(&self) -> VerityDigest {
        VerityDigest::read(self.hash, &self.raw.root_hash).expect("the field has room for all hashes")
    }

    /// Returns the layout of the tree.
    #[must_use]
    pub const fn tree(&self) -> &MerkleTree {
        &self.tree
    }

    /// Returns the file's digest, the one of `FS_IOC_MEASURE_VERITY` and `fsverity digest`.
    #[must_use]
    pub fn digest(&self) -> VerityDigest {
        let unsigned = RawVerityDescriptor { sig_size: U32::new(0), ..self.raw };
        SaltedHash::new(self.hash, &[]).digest(unsigned.as_bytes(), RawVerityDescriptor::LEN)
    }
}

/// The place of a digest in a Merkle tree.
///
/// ```
/// use creamery_format::MerklePlace;
/// let place = MerklePlace { node: 3, at: 32 };
/// assert_eq!(place.at % 32, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MerklePlace {
    /// Number of the block within its level.
    pub node: u64,
    /// Bytes before it in the block.
    pub at: usize,
}

/// The layout of a Merkle tree: the root first, each level behind the one above it. Level 0 has the digests of data.
///
/// ```
/// use creamery_codec::VerityHash;
/// use creamery_format::{MerklePlace, MerkleTree};
/// // 129 blocks of data: two blocks of digests, and the root.
/// let tree = MerkleTree::new(129 * 4096, 4096, VerityHash::Sha256).unwrap();
/// assert_eq!((tree.level_count(), tree.len()), (2, 3 * 4096));
/// assert_eq!(tree.place_of(128), MerklePlace { node: 1, at: 0 });
/// assert_eq!(tree.block(0, 1), 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MerkleTree {
    block_len: usize,
    digest_len: usize,
    levels: usize,
    /// The number of the first block of each level.
    first: [u64; LEVELS_MAX],
    /// All blocks.
    blocks: u64,
}

impl MerkleTree {
    /// Creates the layout for `data_len` bytes in blocks of `block_len`, a power of two with room for at least two digests.
    ///
    /// # Errors
    /// It would have too many levels.
    pub fn new(data_len: u64, block_len: usize, hash: VerityHash) -> Result<Self, CorruptKind> {
        let digest_len = hash.digest_len();
        assert!(block_len.is_power_of_two(), "blocks are powers of two");
        assert!(block_len >= 2 * digest_len, "each level has fewer blocks than the one below it");
        let (per_block, mut below) = ((block_len / digest_len) as u64, data_len.div_ceil(block_len as u64));
        let (mut counts, mut levels) = ([0; LEVELS_MAX], 0);
        while below > 1 {
            below = below.div_ceil(per_block);
            let count = counts.get_mut(levels).ok_or(CorruptKind::Range {
                what: "length of a file with fs-verity",
                found: data_len,
                min: 0,
                max: (block_len as u64).saturating_mul(per_block.saturating_pow(LEVELS_MAX as u32)),
            })?;
            *count = below;
            levels += 1;
        }
        let (mut first, mut blocks) = ([0; LEVELS_MAX], 0);
        for level in (0..levels).rev() {
            first[level] = blocks;
            blocks += counts[level];
        }
        Ok(Self { block_len, digest_len, levels, first, blocks })
    }

    /// Returns the number of levels: 0 for at most one block of data.
    #[must_use]
    pub const fn level_count(&self) -> usize {
        self.levels
    }

    /// Returns its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for that; it would be `level_count() == 0`")]
    pub const fn len(&self) -> u64 {
        self.blocks * self.block_len as u64
    }

    /// Returns the place of digest number `index` in its level: a digest of data for level 0, else of the level below.
    #[must_use]
    pub const fn place_of(&self, index: u64) -> MerklePlace {
        let per_block = (self.block_len / self.digest_len) as u64;
        MerklePlace { node: index / per_block, at: (index % per_block) as usize * self.digest_len }
    }

    /// Returns the number of a level's block among all blocks.
    #[must_use]
    pub fn block(&self, level: usize, node: u64) -> u64 {
        assert!(level < self.levels, "a level that the tree has");
        let block = self.first[level] + node;
        let behind = if level == 0 { self.blocks } else { self.first[level - 1] };
        assert!(block < behind, "a block that the level has");
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> RawVerityDescriptor {
        RawVerityDescriptor {
            version: 1,
            hash_algorithm: 1,
            log_blocksize: 12,
            data_size: 5000.into(),
            ..RawVerityDescriptor::default()
        }
    }

    #[test]
    fn a_descriptor_that_makes_no_sense_is_damage() {
        let good = raw();
        assert!(VerityDescriptor::parse(good.as_bytes()).is_ok());
        let mut signed = RawVerityDescriptor { sig_size: 3.into(), ..good }.as_bytes().to_vec();
        assert!(VerityDescriptor::parse(&signed).is_err(), "a signature that is not there");
        signed.extend_from_slice(b"sig");
        let with = VerityDescriptor::parse(&signed).expect("signed");
        let without = VerityDescriptor::parse(good.as_bytes()).expect("not signed");
        assert_eq!(with.digest(), without.digest(), "a signature is no part of the digest");
        type Damage = fn(&mut RawVerityDescriptor);
        let damages: [(&str, Damage); 8] = [
            ("version", |raw| raw.version = 2),
            ("hash", |raw| raw.hash_algorithm = 3),
            ("small blocks", |raw| raw.log_blocksize = 9),
            ("large blocks", |raw| raw.log_blocksize = 17),
            ("salt", |raw| raw.salt_size = 33),
            ("signature", |raw| raw.sig_size = u32::MAX.into()),
            ("reserved", |raw| raw.reserved[143] = 1),
            ("levels", |raw| {
                (raw.log_blocksize, raw.hash_algorithm, raw.data_size) = (10, 2, (1 << 43).into())
            }),
        ];
        for (what, damage) in damages {
            let mut raw = good;
            damage(&mut raw);
            assert!(VerityDescriptor::parse(raw.as_bytes()).is_err(), "{what}");
        }
        for len in 0..RawVerityDescriptor::LEN {
            assert!(VerityDescriptor::parse(&good.as_bytes()[..len]).is_err(), "cut to {len}");
        }
    }

    #[test]
    fn the_item_before_a_descriptor_bounds_its_length() {
        let item = |size: u64| RawVerityDescriptorItem { size: size.into(), ..Default::default() };
        for (size, want) in [(255, None), (256, Some(256)), (16_384, Some(16_384)), (16_385, None)] {
            assert_eq!(verity_descriptor_len(item(size).as_bytes()).ok(), want, "{size}");
        }
        assert!(verity_descriptor_len(item(u64::MAX).as_bytes()).is_err());
        assert!(verity_descriptor_len(&item(256).as_bytes()[..24]).is_err());
        assert!(verity_descriptor_len(&[item(256).as_bytes(), &[0]].concat()).is_err());
        let encrypted = RawVerityDescriptorItem { encryption: 1, ..item(256) };
        assert!(verity_descriptor_len(encrypted.as_bytes()).is_err());
    }

    #[test]
    fn levels_lie_behind_one_another_from_the_root_on() {
        let rows = [
            (0, 4096, VerityHash::Sha256, &[][..]),
            (4096, 4096, VerityHash::Sha256, &[]),
            (4097, 4096, VerityHash::Sha256, &[1]),
            (128 * 4096, 4096, VerityHash::Sha256, &[1]),
            (128 * 4096 + 1, 4096, VerityHash::Sha256, &[2, 1]),
            (1024 * 16 * 16 + 1, 1024, VerityHash::Sha512, &[17, 2, 1]),
        ];
        for (data_len, block_len, hash, counts) in rows {
            let tree = MerkleTree::new(data_len, block_len, hash).expect("a few levels");
            assert_eq!(tree.level_count(), counts.len(), "{data_len}");
            let mut before = 0;
            for (level, count) in counts.iter().enumerate().rev() {
                let blocks: Vec<u64> = (0..*count).map(|node| tree.block(level, node)).collect();
                assert_eq!(blocks, (before..before + count).collect::<Vec<_>>(), "{data_len}, level {level}");
                before += count;
            }
            assert_eq!(tree.len(), before * block_len as u64, "{data_len}");
        }
        for data_len in [u64::MAX, i64::MAX as u64, 1 << 42] {
            for (log, hash) in (10..=16).flat_map(|log| VerityHash::ALL.map(|hash| (log, hash))) {
                let blocks = MerkleTree::new(data_len, 1 << log, hash).map_or(0, |tree| tree.blocks);
                assert!(blocks.checked_mul(1 << log).is_some(), "{data_len}: {blocks} blocks");
            }
        }
    }
}
