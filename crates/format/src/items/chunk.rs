//! Chunks and block groups: `CHUNK_ITEM`, `BLOCK_GROUP_ITEM`, and the bits that both share.

use std::fmt;

use bitflags::bitflags;
use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32, U64};

use super::split;
use crate::corrupt::CorruptKind;
use crate::key::KeyType;
use crate::raw::raw_struct;

/// Length of a stripe element, the same in every filesystem.
pub const STRIPE_LEN: u64 = 65536;

raw_struct! {
    /// A chunk: a range of logical addresses. Its stripes follow.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawChunk::LEN, 48);
    /// ```
    pub struct RawChunk[48] {
        /// Length in logical space.
        0 => pub length: U64,
        /// The extent tree (2).
        8 => pub owner: U64,
        /// [`STRIPE_LEN`].
        16 => pub stripe_len: U64,
        /// See [`BlockGroupFlags`].
        24 => pub kind: U64,
        /// Alignment of I/O.
        32 => pub io_align: U32,
        /// Width of I/O.
        36 => pub io_width: U32,
        /// Sector size.
        40 => pub sector_size: U32,
        /// Number of stripes that follow.
        44 => pub num_stripes: U16,
        /// Copies of each stripe element in RAID10, else 1 (0 in old filesystems).
        46 => pub sub_stripes: U16,
    }
}

raw_struct! {
    /// The place of a stripe of a chunk.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawStripe::LEN, 32);
    /// ```
    pub struct RawStripe[32] {
        /// The device.
        0 => pub devid: U64,
        /// Byte offset on it.
        8 => pub offset: U64,
        /// Its UUID.
        16 => pub dev_uuid: [u8; 16],
    }
}

bitflags! {
    /// The purpose of a chunk or block group, and its replication. Unknown bits are kept.
    ///
    /// ```
    /// use creamery_format::BlockGroupFlags;
    /// let flags = BlockGroupFlags::METADATA | BlockGroupFlags::DUP;
    /// assert_eq!(flags.to_string(), "METADATA|DUP");
    /// assert_eq!(BlockGroupFlags::DATA.to_string(), "DATA|single");
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct BlockGroupFlags: u64 {
        /// File data.
        const DATA = 1;
        /// The chunk tree.
        const SYSTEM = 1 << 1;
        /// All other trees.
        const METADATA = 1 << 2;
        /// Striped.
        const RAID0 = 1 << 3;
        /// Two copies on two devices.
        const RAID1 = 1 << 4;
        /// Two copies, may be on one device.
        const DUP = 1 << 5;
        /// Striped, two copies.
        const RAID10 = 1 << 6;
        /// Striped with one parity.
        const RAID5 = 1 << 7;
        /// Striped with two parities.
        const RAID6 = 1 << 8;
        /// Three copies.
        const RAID1C3 = 1 << 9;
        /// Four copies.
        const RAID1C4 = 1 << 10;
        const _ = !0;
    }
}

impl BlockGroupFlags {
    /// The bits of the purpose.
    pub const TYPES: Self = Self::DATA.union(Self::SYSTEM).union(Self::METADATA);
    /// The bits of the replication; "single" has none of them.
    pub const PROFILES: Self = Self::from_bits_retain(0x7f8);

    /// Returns only the bits of the purpose.
    #[must_use]
    pub const fn types(self) -> Self {
        self.intersection(Self::TYPES)
    }

    /// Returns only the bits of the replication; empty for single.
    #[must_use]
    pub const fn profile(self) -> Self {
        self.intersection(Self::PROFILES)
    }

    /// Returns the numbers of stripes that a chunk of this profile may have, as `(least, most)`; most is 0 for no upper limit.
    const fn stripes(self) -> (u16, u16) {
        match self.profile() {
            Self::RAID1 | Self::DUP => (2, 2),
            Self::RAID1C3 => (3, 3),
            Self::RAID1C4 => (4, 4),
            Self::RAID0 => (1, 0),
            Self::RAID10 | Self::RAID5 => (2, 0),
            Self::RAID6 => (3, 0),
            _ => (1, 1),
        }
    }

    /// Refuses impossible combinations.
    pub(crate) fn check(self) -> Result<(), CorruptKind> {
        let bits = self.bits();
        if self.types().is_empty() {
            return Err(CorruptKind::Unknown { what: "block group type", found: bits });
        }
        if self.contains(Self::SYSTEM) && self.types() != Self::SYSTEM {
            return Err(CorruptKind::Unknown { what: "mix of block group types", found: bits });
        }
        if self.profile().bits().count_ones() > 1 {
            return Err(CorruptKind::Unknown { what: "mix of profiles", found: bits });
        }
        Ok(())
    }
}

/// Shows the type and the profile as dump-tree does: `METADATA|DUP`.
impl fmt::Display for BlockGroupFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const TYPES: [(&str, BlockGroupFlags); 3] = [
            ("DATA", BlockGroupFlags::DATA),
            ("METADATA", BlockGroupFlags::METADATA),
            ("SYSTEM", BlockGroupFlags::SYSTEM),
        ];
        // A group has one profile. If several bits are set, the first of these is shown.
        const PROFILES: [(&str, BlockGroupFlags); 8] = [
            ("RAID10", BlockGroupFlags::RAID10),
            ("RAID1", BlockGroupFlags::RAID1),
            ("RAID1C3", BlockGroupFlags::RAID1C3),
            ("RAID1C4", BlockGroupFlags::RAID1C4),
            ("DUP", BlockGroupFlags::DUP),
            ("RAID0", BlockGroupFlags::RAID0),
            ("RAID5", BlockGroupFlags::RAID5),
            ("RAID6", BlockGroupFlags::RAID6),
        ];
        let mut between = "";
        for (name, flag) in TYPES {
            if self.contains(flag) {
                write!(f, "{between}{name}")?;
                between = "|";
            }
        }
        let profile =
            PROFILES.iter().find(|(_, flag)| self.contains(*flag)).map_or("single", |(name, _)| name);
        write!(f, "|{profile}")
    }
}

/// A chunk with its stripes.
///
/// ```
/// assert!(creamery_format::Chunk::parse(&[0; 80]).is_err()); // no stripes
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Chunk<'a> {
    /// The head.
    pub head: &'a RawChunk,
    /// Its stripes.
    pub stripes: &'a [RawStripe],
}

impl<'a> Chunk<'a> {
    /// Reads and checks one chunk at the start of `data` (as in the superblock's array). Also returns the bytes behind it.
    ///
    /// # Errors
    /// The chunk is impossible.
    pub fn parse_prefix(data: &'a [u8]) -> Result<(Self, &'a [u8]), CorruptKind> {
        let (head, rest) = split::<RawChunk>(data, "chunk")?;
        let count = usize::from(head.num_stripes.get());
        let (stripes, rest) =
            <[RawStripe]>::ref_from_prefix_with_elems(rest, count).map_err(|_| CorruptKind::Truncated {
                what: "stripes of a chunk",
                found: rest.len(),
                want: count * RawStripe::LEN,
            })?;
        let chunk = Self { head, stripes };
        chunk.check()?;
        Ok((chunk, rest))
    }

    /// Reads and checks the data of a `CHUNK_ITEM`.
    ///
    /// # Errors
    /// The chunk is impossible or does not fill the item.
    pub fn parse(data: &'a [u8]) -> Result<Self, CorruptKind> {
        match Self::parse_prefix(data)? {
            (chunk, []) => Ok(chunk),
            (_, rest) => Err(CorruptKind::ItemSize {
                kind: KeyType::CHUNK_ITEM,
                found: data.len(),
                want: data.len() - rest.len(),
            }),
        }
    }

    /// Returns the purpose and replication of the chunk.
    #[must_use]
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.head.kind.get())
    }

    fn check(&self) -> Result<(), CorruptKind> {
        const SECTOR_MIN: u64 = 4096;
        self.flags().check()?;
        let (found, (min, max)) = (self.head.num_stripes.get(), self.flags().stripes());
        let max = if max == 0 { u16::MAX } else { max };
        if found < min || found > max {
            let (found, min, max) = (found.into(), min.into(), max.into());
            return Err(CorruptKind::Range { what: "number of stripes", found, min, max });
        }
        let found = self.head.stripe_len.get();
        if found != STRIPE_LEN {
            return Err(CorruptKind::Mismatch { what: "wrong stripe length", found, want: STRIPE_LEN });
        }
        let length = self.head.length.get();
        if length == 0 || !length.is_multiple_of(SECTOR_MIN) {
            return Err(CorruptKind::Alignment { what: "chunk length", found: length, unit: SECTOR_MIN });
        }
        if !self.flags().contains(BlockGroupFlags::RAID10) {
            return Ok(());
        }
        let found = self.head.sub_stripes.get().into();
        if found != 2 {
            return Err(CorruptKind::Mismatch { what: "wrong number of sub-stripes", found, want: 2 });
        }
        let found = self.stripes.len() as u64;
        if !found.is_multiple_of(2) {
            return Err(CorruptKind::Alignment { what: "number of stripes", found, unit: 2 });
        }
        Ok(())
    }
}

raw_struct! {
    /// The usage of a block group.
    ///
    /// ```
    /// use creamery_format::{BlockGroupFlags, RawBlockGroupItem};
    /// let group = RawBlockGroupItem { flags: 4.into(), ..Default::default() };
    /// assert_eq!(group.flags(), BlockGroupFlags::METADATA);
    /// ```
    pub struct RawBlockGroupItem[24] {
        /// Bytes in use.
        0 => pub used: U64,
        /// The chunk tree's objectid (256).
        8 => pub chunk_objectid: U64,
        /// See [`BlockGroupFlags`].
        16 => pub flags: U64,
    }
}

impl RawBlockGroupItem {
    /// Returns the purpose and replication of the group.
    #[must_use]
    pub fn flags(&self) -> BlockGroupFlags {
        BlockGroupFlags::from_bits_retain(self.flags.get())
    }
}
