//! What can be wrong, each with a number that never changes its meaning. `docs/findings.md` is the page about them.

use std::fmt;

use serde::Serialize;

/// How bad it is.
///
/// ```
/// use creamery_check::{Problem, Severity};
/// assert_eq!(Problem::SuperblockCopyOld.severity(), Severity::Warning);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is lost, and the filesystem works: a copy is bad while another is good, or something is left over.
    Warning,
    /// The filesystem contradicts itself.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

macro_rules! problems {
    ($($name:ident = $number:literal $severity:ident $title:literal;)*) => {
        /// What is wrong. Numbers are permanent: a number is never given to another meaning.
        ///
        /// ```
        /// use creamery_check::Problem;
        /// assert_eq!(Problem::BlockChecksum.number(), 202);
        /// assert_eq!(Problem::from_number(202), Some(Problem::BlockChecksum));
        /// ```
        #[non_exhaustive]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Problem {
            $(#[doc = $title] $name = $number,)*
        }

        impl Problem {
            /// All of them, by number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The permanent number.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// How bad it is.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }

            /// What it is, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            /// The problem with this number.
            #[must_use]
            pub fn from_number(number: u16) -> Option<Self> {
                Self::ALL.iter().copied().find(|problem| problem.number() == number)
            }
        }
    };
}

problems! {
    SuperblockCopyDamaged = 101 Warning "a superblock copy is damaged";
    SuperblockCopyMissing = 102 Warning "a superblock copy is missing";
    SuperblockCopyForeign = 103 Warning "a superblock copy is of another filesystem";
    SuperblockCopyOld = 104 Warning "a superblock copy is of another generation";
    SuperblockTotalBytes = 105 Error "the superblock's size is not that of the devices";
    SuperblockBytesUsed = 106 Error "the superblock's used bytes are not those of the block groups";
    SuperblockDeviceCount = 107 Error "the superblock's number of devices is wrong";
    SuperblockDevice = 108 Error "the superblock describes its device otherwise than the chunk tree";
    SystemChunkMissing = 109 Error "a system chunk is not in the superblock's array";
    SystemChunkExtra = 110 Error "the superblock's array has a chunk that the chunk tree lacks or describes otherwise";
    SuperblockFirstDamaged = 111 Error "the first superblock is damaged";
    SuperblockStripeSize = 112 Error "the superblock's stripe size is not the sector size";
    SuperblockFlags = 113 Error "the superblock has flags that mean nothing";
    SuperblockCacheGeneration = 114 Warning "the superblock is older than the space caches that it tells of";
    FeatureMissing = 115 Error "the superblock lacks a feature that the filesystem uses";
    FeatureUntold = 116 Warning "the superblock does not tell of a feature that the filesystem uses";

    BlockUnreadable = 201 Error "a tree block cannot be read";
    BlockChecksum = 202 Error "a tree block has the wrong checksum";
    BlockIdentity = 203 Error "a tree block is of another filesystem or another address";
    BlockGeneration = 204 Error "a tree block has the wrong generation";
    BlockLevel = 205 Error "a tree block has the wrong level";
    BlockOwner = 206 Error "a tree block belongs to another tree";
    BlockFirstKey = 207 Error "a tree block does not begin with its parent's key";
    BlockKeyOrder = 208 Error "keys are out of order";
    BlockCount = 209 Error "a tree block has an impossible number of entries";
    BlockItemBounds = 210 Error "items of a leaf overlap, leave gaps or leave the leaf";
    BlockItem = 211 Error "an item is impossible";
    BlockUpperKey = 212 Error "a tree block has keys that belong to its right neighbour";
    BlockAddress = 213 Error "a tree block's address is not aligned or in no chunk";
    BlockTwice = 214 Error "a tree block is used twice in trees that share nothing";
    BlockCopy = 215 Warning "one copy of a tree block is bad while another is good";
    BlockPointer = 216 Error "a key pointer is impossible";
    BlockFlags = 217 Error "a tree block's flags are not those of its references";
    BlockName = 218 Error "a name is impossible";
    BlockNotWritten = 219 Error "a tree block is not marked as written";

    ChunkInvalid = 301 Error "a chunk is impossible, overlaps another one or leaves its device";
    DeviceExtentMissing = 302 Error "a chunk's stripe has no device extent";
    DeviceExtentExtra = 303 Error "a device extent belongs to no chunk";
    DeviceExtentWrong = 304 Error "a device extent differs from its chunk's stripe";
    DeviceExtentOverlap = 305 Error "device extents overlap";
    DeviceExtentEnd = 306 Error "a device extent leaves its device";
    DeviceBytesUsed = 307 Error "a device's used bytes are not the sum of its extents";
    DeviceMissing = 308 Error "a stripe or a device extent is on a device that the chunk tree lacks";
    DeviceSize = 309 Error "a device is smaller than the filesystem says";
    BlockGroupMissing = 310 Error "a chunk has no block group";
    BlockGroupExtra = 311 Error "a block group has no chunk";
    BlockGroupWrong = 312 Error "a block group differs from its chunk";
    BlockGroupUsed = 313 Error "a block group's used bytes are not the sum of its extents";

    ExtentOverlap = 401 Error "extents overlap";
    ExtentOutside = 402 Error "an extent lies in no chunk or leaves its chunk";
    ExtentKind = 403 Error "an extent lies in a chunk of another kind";
    ExtentRefCount = 404 Error "an extent's number of references is not that of those listed";
    ReferenceStale = 405 Error "a recorded reference does not exist";
    ReferenceMissing = 406 Error "a reference is not recorded";
    ReferenceCount = 407 Error "a reference is recorded with another count";
    ExtentMissing = 408 Error "something in use has no extent item";
    ExtentLevel = 409 Error "an extent item has another level than its tree block";
    ExtentOwner = 410 Error "a tree block's owner is not among its references";
    ReferenceOrphan = 411 Error "a reference has no extent item";
    ExtentLength = 412 Error "a tree block's extent has the wrong length";
    ExtentGeneration = 413 Error "an extent item is newer than the filesystem";
    ReferenceHash = 414 Error "a reference's key is not its hash";
    ReferencesUnexplained = 415 Error "more references disagree than could be listed";
    ReferenceOrder = 416 Error "references in an extent item are out of order";
    ExtentOlder = 417 Error "an extent item is older than its tree block";
    ExtentNewer = 418 Error "an extent item is newer than its tree block";

    FreeSpaceInfoMissing = 501 Error "a block group has no free space info";
    FreeSpaceInfoWrong = 502 Error "free space info has another length than its block group";
    FreeSpaceUsed = 503 Error "space is listed as free that is in use";
    FreeSpaceMissing = 504 Error "free space is not listed";
    FreeSpaceCount = 505 Error "a block group's number of free extents is wrong";
    FreeSpaceForm = 506 Error "free space is listed in the wrong form or outside its block group";
    SpaceCacheUnusable = 507 Warning "a block group's old free space cache cannot be used";
    SpaceCacheWrong = 508 Error "a block group's old free space cache is accepted and wrong";
    FreeSpaceGroup = 509 Error "free space of a block group that does not exist is listed";

    ChecksumMissing = 601 Error "file data has no checksums";
    ChecksumUnwanted = 602 Error "file data of an inode without checksums has some";
    ChecksumStale = 603 Error "checksums of no extent";
    ChecksumOverlap = 604 Error "checksum items overlap";
    DataChecksum = 605 Error "data does not have its checksum";
    DataCopy = 606 Warning "one copy of data is bad while another is good";
    ChecksumItem = 607 Error "a checksum item is impossible";
    DataUnreadable = 608 Error "data cannot be read";
    ChecksumCompressed = 609 Error "compressed data of an inode without checksums";
    ChecksumLog = 610 Error "file data in a log has no checksums";
    ChecksumUnwritten = 611 Error "data that is said not to be written has checksums";
    DataPacked = 612 Error "compressed data cannot be unpacked";

    InodeMissing = 701 Error "items of an inode that does not exist";
    InodeLinks = 702 Error "an inode's link count is wrong";
    DirectorySize = 703 Error "a directory's size is wrong";
    InodeBytes = 704 Error "an inode's number of bytes is wrong";
    FileExtentOverlap = 705 Error "file extents overlap";
    FileHole = 706 Error "a hole is not described, in a filesystem that demands it";
    DirectoryIndexes = 707 Error "a directory's entries by name and by index differ";
    EntryWithoutRef = 708 Error "a directory entry has no inode ref";
    RefWithoutEntry = 709 Error "an inode ref has no directory entry";
    EntryType = 710 Error "a directory entry has another type than its inode";
    EntryWithoutInode = 711 Error "a directory entry names an inode that does not exist";
    InodeUnlinked = 712 Error "an inode has no link and is not an orphan";
    OrphanStale = 713 Warning "an orphan item names nothing";
    InodeItems = 714 Error "an inode has items that its type does not have";
    InodeGeneration = 715 Error "an inode is newer than the filesystem";
    ExtrefHash = 716 Error "an inode extref's key is not its hash";
    FileInline = 717 Error "an inline extent is impossible";
    RootDirectory = 718 Error "a subvolume has no root directory";
    FileExtentGeneration = 719 Error "a file extent is newer than the filesystem";
    InodeFlags = 721 Error "a symlink has flags that symlinks cannot have";
    InodeCache = 722 Error "a subvolume has the inode cache that Linux has no more";
    EntryTwice = 723 Error "a directory has a name twice";
    ItemForeign = 724 Error "an item of a type that subvolumes do not have";
    VerityItem = 725 Error "an item of fs-verity makes no sense";

    TreeMissing = 801 Error "a tree that must exist is missing";
    RootGeneration = 802 Error "a root item is newer than the filesystem";
    RootBackrefMissing = 803 Error "a root ref has no root backref";
    RootRefMissing = 804 Error "a root backref has no root ref";
    RootRefEntry = 805 Error "a root ref has no directory entry";
    SubvolumeUnreferenced = 806 Error "a subvolume is in no directory";
    UuidMissing = 807 Warning "a subvolume is not in the UUID tree";
    UuidStale = 808 Warning "the UUID tree names a subvolume that does not exist";
    RootRefTree = 809 Error "a root ref names a tree that does not exist";
    DefaultSubvolume = 810 Error "the default subvolume does not exist";
    LogWaiting = 811 Warning "a log waits to be replayed";
    SubvolumeOrphan = 812 Error "a deleted subvolume has no orphan item";
    DataRelocUnreferenced = 813 Error "the data relocation tree has no reference";
    DefaultEntry = 814 Warning "the entry of the default subvolume is missing or impossible";

    QuotaReferenced = 901 Error "a quota group's referenced bytes are wrong";
    QuotaExclusive = 902 Error "a quota group's exclusive bytes are wrong";
    QuotaInconsistent = 903 Warning "quota groups are marked as inconsistent";
    QuotaUncounted = 904 Warning "too much is shared by too many for quota groups to be counted";
    QuotaGroupMissing = 905 Error "a quota group that is part of another one does not exist";
    QuotaRelationHalf = 906 Warning "that a quota group is part of another one is said by one of them only";
    QuotaStatusMissing = 907 Warning "there are quota groups and no status of quotas";
    QuotaGroupHalf = 908 Warning "a quota group has numbers and no limits, or the reverse";
    QuotaGroupNone = 909 Warning "a subvolume has no quota group";
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.title())
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    #[test]
    fn numbers_ascend_and_each_has_its_row_in_the_page() {
        let page = include_str!("../../../docs/findings.md");
        assert!(Problem::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for problem in Problem::ALL {
            let row = format!("| {} | {} | {} |", problem.number(), problem.severity(), problem.title());
            assert!(page.contains(&row), "docs/findings.md lacks: {row}");
        }
    }
}
