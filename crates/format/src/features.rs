//! Feature bits of the superblock. Names are those of `btrfs inspect-internal dump-super`.
//!
//! An unknown incompat bit forbids opening, an unknown compat_ro bit forbids writing. All bits survive rewriting.

use std::fmt;

use bitflags::bitflags;

bitflags! {
    /// Features that a program must know to open the filesystem at all. Unknown bits are kept.
    ///
    /// ```
    /// use creamery_format::Incompat;
    /// let bits = Incompat::NO_HOLES | Incompat::from_bits_retain(1 << 40);
    /// assert_eq!(bits.unsupported().to_string(), "unknown flag: 0x10000000000");
    /// assert!(Incompat::default_features().unsupported().is_empty());
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Incompat: u64 {
        /// Backreferences of 2009.
        const MIXED_BACKREF = 1;
        /// The default subvolume is not the top level.
        const DEFAULT_SUBVOL = 1 << 1;
        /// Data and metadata share block groups.
        const MIXED_GROUPS = 1 << 2;
        /// Has LZO extents.
        const COMPRESS_LZO = 1 << 3;
        /// Has zstd extents.
        const COMPRESS_ZSTD = 1 << 4;
        /// Nodes may be larger than a page.
        const BIG_METADATA = 1 << 5;
        /// Has `INODE_EXTREF` items.
        const EXTENDED_IREF = 1 << 6;
        /// Has RAID5 or RAID6 block groups.
        const RAID56 = 1 << 7;
        /// `METADATA_ITEM` instead of `EXTENT_ITEM` for tree blocks.
        const SKINNY_METADATA = 1 << 8;
        /// Holes have no file extent items.
        const NO_HOLES = 1 << 9;
        /// Tree blocks carry `metadata_uuid`, not `fsid`.
        const METADATA_UUID = 1 << 10;
        /// Has RAID1C3 or RAID1C4 block groups.
        const RAID1C34 = 1 << 11;
        /// Zoned devices.
        const ZONED = 1 << 12;
        /// Several extent trees.
        const EXTENT_TREE_V2 = 1 << 13;
        /// Has a RAID stripe tree.
        const RAID_STRIPE_TREE = 1 << 14;
        /// Extents have owner refs.
        const SIMPLE_QUOTA = 1 << 16;
        const _ = !0;
    }
}

bitflags! {
    /// Features that a program must know to write. Unknown bits are kept.
    ///
    /// ```
    /// use creamery_format::CompatRo;
    /// assert!(CompatRo::BLOCK_GROUP_TREE.unsupported().is_empty());
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct CompatRo: u64 {
        /// Has a free space tree.
        const FREE_SPACE_TREE = 1;
        /// The free space tree is up to date.
        const FREE_SPACE_TREE_VALID = 1 << 1;
        /// Has fs-verity files.
        const VERITY = 1 << 2;
        /// Block group items have a tree of their own.
        const BLOCK_GROUP_TREE = 1 << 3;
        const _ = !0;
    }
}

bitflags! {
    /// Flags of the superblock. Unknown bits are kept.
    ///
    /// ```
    /// use creamery_format::SuperFlags;
    /// assert_eq!((SuperFlags::WRITTEN | SuperFlags::SEEDING).to_string(), "WRITTEN SEEDING");
    /// ```
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SuperFlags: u64 {
        /// Has been written.
        const WRITTEN = 1;
        /// A relocation; unused.
        const RELOC = 1 << 1;
        /// The device is a seed: never written.
        const SEEDING = 1 << 32;
        /// A metadata dump.
        const METADUMP = 1 << 33;
        /// A metadata dump of several devices.
        const METADUMP_V2 = 1 << 34;
        /// btrfstune changes the UUID.
        const CHANGING_FSID = 1 << 35;
        /// btrfstune changes the metadata UUID.
        const CHANGING_FSID_V2 = 1 << 36;
        /// btrfstune converts to or from a block group tree.
        const CHANGING_BG_TREE = 1 << 38;
        /// btrfstune changes data checksums.
        const CHANGING_DATA_CSUM = 1 << 39;
        /// btrfstune changes metadata checksums.
        const CHANGING_META_CSUM = 1 << 40;
        const _ = !0;
    }
}

impl SuperFlags {
    /// The bits with a meaning, including Linux' record of an error.
    pub const KNOWN: Self = Self::from_bits_retain(0x1df << 32 | 0b111);
}

impl Incompat {
    /// The bits whose structures this crate knows.
    pub const SUPPORTED: Self = Self::from_bits_retain(0xfff).union(Self::SIMPLE_QUOTA);

    /// The bits that forbid opening.
    #[must_use]
    pub const fn unsupported(self) -> Self {
        self.difference(Self::SUPPORTED)
    }

    /// Returns the features that current mkfs sets.
    #[must_use]
    pub const fn default_features() -> Self {
        Self::MIXED_BACKREF
            .union(Self::BIG_METADATA)
            .union(Self::EXTENDED_IREF)
            .union(Self::SKINNY_METADATA)
            .union(Self::NO_HOLES)
    }
}

impl CompatRo {
    /// The bits that this project maintains when it writes.
    pub const SUPPORTED: Self = Self::FREE_SPACE_TREE
        .union(Self::FREE_SPACE_TREE_VALID)
        .union(Self::VERITY)
        .union(Self::BLOCK_GROUP_TREE);

    /// The bits that forbid writing.
    #[must_use]
    pub const fn unsupported(self) -> Self {
        self.difference(Self::SUPPORTED)
    }
}

/// Name and bits of each flag, in the order of printing.
pub(crate) type Names = &'static [(&'static str, u64)];

/// Names of incompat bits.
pub(crate) const INCOMPAT_NAMES: Names = &[
    ("MIXED_BACKREF", Incompat::MIXED_BACKREF.bits()),
    ("DEFAULT_SUBVOL", Incompat::DEFAULT_SUBVOL.bits()),
    ("MIXED_GROUPS", Incompat::MIXED_GROUPS.bits()),
    ("COMPRESS_LZO", Incompat::COMPRESS_LZO.bits()),
    ("COMPRESS_ZSTD", Incompat::COMPRESS_ZSTD.bits()),
    ("BIG_METADATA", Incompat::BIG_METADATA.bits()),
    ("EXTENDED_IREF", Incompat::EXTENDED_IREF.bits()),
    ("RAID56", Incompat::RAID56.bits()),
    ("SKINNY_METADATA", Incompat::SKINNY_METADATA.bits()),
    ("NO_HOLES", Incompat::NO_HOLES.bits()),
    ("METADATA_UUID", Incompat::METADATA_UUID.bits()),
    ("RAID1C34", Incompat::RAID1C34.bits()),
    ("ZONED", Incompat::ZONED.bits()),
    ("EXTENT_TREE_V2", Incompat::EXTENT_TREE_V2.bits()),
    ("RAID_STRIPE_TREE", Incompat::RAID_STRIPE_TREE.bits()),
    ("SIMPLE_QUOTA", Incompat::SIMPLE_QUOTA.bits()),
];

/// Names of compat_ro bits; `VERITY` has none there.
pub(crate) const COMPAT_RO_NAMES: Names = &[
    ("FREE_SPACE_TREE", CompatRo::FREE_SPACE_TREE.bits()),
    ("FREE_SPACE_TREE_VALID", CompatRo::FREE_SPACE_TREE_VALID.bits()),
    ("BLOCK_GROUP_TREE", CompatRo::BLOCK_GROUP_TREE.bits()),
];

/// Names of superblock flags.
pub(crate) const SUPER_FLAG_NAMES: Names = &[
    ("WRITTEN", SuperFlags::WRITTEN.bits()),
    ("RELOC", SuperFlags::RELOC.bits()),
    ("CHANGING_FSID", SuperFlags::CHANGING_FSID.bits()),
    ("CHANGING_FSID_V2", SuperFlags::CHANGING_FSID_V2.bits()),
    ("SEEDING", SuperFlags::SEEDING.bits()),
    ("METADUMP", SuperFlags::METADUMP.bits()),
    ("METADUMP_V2", SuperFlags::METADUMP_V2.bits()),
    ("CHANGING_BG_TREE", SuperFlags::CHANGING_BG_TREE.bits()),
    ("CHANGING_DATA_CSUM", SuperFlags::CHANGING_DATA_CSUM.bits()),
    ("CHANGING_META_CSUM", SuperFlags::CHANGING_META_CSUM.bits()),
];

/// Writes the names of the set bits, and at the end the bits without a name, separated.
pub(crate) fn write_names(f: &mut dyn fmt::Write, bits: u64, names: Names, separator: &str) -> fmt::Result {
    let mut rest = bits;
    let mut between = "";
    for (name, bit) in names {
        if bits & bit != 0 {
            write!(f, "{between}{name}")?;
            between = separator;
            rest &= !bit;
        }
    }
    if rest != 0 {
        write!(f, "{between}unknown flag: 0x{rest:x}")?;
    }
    Ok(())
}

impl fmt::Display for Incompat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.bits(), INCOMPAT_NAMES, " ")
    }
}

impl fmt::Display for CompatRo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // dump-super has no name for fs-verity, but a message about the bit needs one.
        let names = [COMPAT_RO_NAMES, &[("VERITY", Self::VERITY.bits())]];
        let known: u64 = names.iter().flat_map(|names| names.iter()).map(|(_, bit)| bit).sum();
        let mut between = "";
        for (name, bit) in names.into_iter().flatten() {
            if self.bits() & bit != 0 {
                write!(f, "{between}{name}")?;
                between = " ";
            }
        }
        match self.bits() & !known {
            0 => Ok(()),
            rest => write!(f, "{between}unknown flag: 0x{rest:x}"),
        }
    }
}

impl fmt::Display for SuperFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_names(f, self.bits(), SUPER_FLAG_NAMES, " ")
    }
}
