//! The problems that a check finds, each with a number whose meaning never changes. `docs/use/findings.md` describes them.

use std::fmt;

use serde::Serialize;

/// The severity of a problem.
///
/// ```
/// use creamery_check::{Problem, Severity};
/// assert_eq!(Problem::SuperblockCopyOld.severity(), Severity::Warning);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// No data is lost, and the filesystem works: one copy is bad while another is good, or items are left over.
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
    ($($name:ident = $number:literal $severity:ident $title:literal $meaning:literal;)*) => {
        /// A problem that a check can find. Numbers are permanent: a number is never given another meaning.
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
            /// All problems, by number.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The permanent number.
            #[must_use]
            pub const fn number(self) -> u16 {
                self as u16
            }

            /// The severity.
            #[must_use]
            pub const fn severity(self) -> Severity {
                match self {
                    $(Self::$name => Severity::$severity,)*
                }
            }

            /// The problem in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$name => $title,)*
                }
            }

            /// The meaning of the problem, and its consequences.
            ///
            /// ```
            /// use creamery_check::Problem;
            /// assert!(Problem::SuperblockCopyDamaged.meaning().contains("the next commit rewrites the copy"));
            /// ```
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $meaning,)*
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
    SuperblockCopyDamaged = 101 Warning "a superblock copy is damaged"
        "A later copy of the superblock does not hold. The first one is good; the next commit rewrites the copy.";
    SuperblockCopyMissing = 102 Warning "a superblock copy is missing"
        "Where a copy should be there is no magic number. As 101.";
    SuperblockCopyForeign = 103 Warning "a superblock copy is of another filesystem"
        "A copy carries another filesystem's id: left over from an earlier filesystem, or misplaced.";
    SuperblockCopyOld = 104 Warning "a superblock copy is of another generation"
        "A copy is of an older or newer commit than the superblock in use: a crash between the writes of the copies, or a writer that forgets them.";
    SuperblockTotalBytes = 105 Error "the superblock's size is below that of the devices"
        "`total_bytes` is below the sum of the devices' sizes in the chunk tree. Linux does not mount this.";
    SuperblockBytesUsed = 106 Error "the superblock's used bytes are not those of the block groups"
        "`bytes_used` is not the sum of the block groups' used bytes. `df` is wrong.";
    SuperblockDeviceCount = 107 Error "the superblock's number of devices is wrong"
        "`num_devices` is not the number of device items. Linux warns when it mounts this; its next commit, and Creamery's, writes the right number.";
    SuperblockDevice = 108 Error "the superblock describes its device otherwise than the chunk tree"
        "The superblock's own device item differs from the one in the chunk tree in size, used bytes or ids.";
    SystemChunkMissing = 109 Error "a system chunk is not in the superblock's array"
        "The chunk tree has a system chunk that the superblock's array lacks: the chunk tree may not be found at the next mount.";
    SystemChunkExtra = 110 Error "the superblock's array has a chunk that the chunk tree lacks or describes otherwise"
        "The array has a chunk that the chunk tree does not have, or has otherwise. Blocks may be read from the wrong place.";
    SuperblockFirstDamaged = 111 Error "the first superblock is damaged"
        "The first superblock does not hold and a copy was used. Linux does not mount this.";
    SuperblockStripeSize = 112 Error "the superblock's stripe size is not the sector size"
        "The field means nothing any more, and everybody writes the sector size into it: something else has written here. btrfs-progs does not open this.";
    SuperblockFlags = 113 Error "the superblock has flags that mean nothing"
        "Linux does not mount this.";
    SuperblockCacheGeneration = 114 Warning "the superblock is older than the space caches that it tells of"
        "The transaction of the free space caches is one that is not yet. Linux says so, and makes the caches anew.";
    FeatureMissing = 115 Error "the superblock lacks a feature that the filesystem uses"
        "An incompat flag is missing whose items are there, and without which Linux does not read them.";
    FeatureUntold = 116 Warning "the superblock does not tell of a feature that the filesystem uses"
        "As 115, but only readers from before the feature go by the flag: they take what they meet for something else.";
    GroupTreeAlone = 117 Error "the block group tree lacks a feature that it needs"
        "With a block group tree there have to be a free space tree and the feature no-holes. Linux does not mount this.";
    SuperblockTotalBytesAbove = 118 Warning "the superblock's size is above that of the devices"
        "`total_bytes` is more than the sum of the devices' sizes in the chunk tree. Linux mounts this.";

    BlockUnreadable = 201 Error "a tree block cannot be read"
        "The device failed on every copy. Everything below the block is unknown.";
    BlockChecksum = 202 Error "a tree block has the wrong checksum"
        "The bytes are not those that were written, in every copy. Everything below is lost for this reader. Where the copies are bad in different sectors, the check puts the block together and goes on; Linux cannot read it until `creamery scrub` has mended it.";
    BlockIdentity = 203 Error "a tree block is of another filesystem or another address"
        "A whole block, but of another filesystem or another place: a misdirected or lost write.";
    BlockGeneration = 204 Error "a tree block has the wrong generation"
        "The block is older or newer than its parent says: mostly a write that was lost.";
    BlockLevel = 205 Error "a tree block has the wrong level"
        "The parent, the root item or the superblock says another level.";
    BlockOwner = 206 Error "a tree block belongs to another tree"
        "The header names a tree that cannot have this block.";
    BlockFirstKey = 207 Error "a tree block does not begin with its parent's key"
        "The first key is not the key in the parent's pointer: searches miss items.";
    BlockKeyOrder = 208 Error "keys are out of order"
        "Two neighbouring keys are not in ascending order: searches miss items.";
    BlockCount = 209 Error "a tree block has an impossible number of entries"
        "More entries than fit, or none where some must be.";
    BlockItemBounds = 210 Error "items of a leaf overlap, leave gaps or leave the leaf"
        "The item heads and the data do not fit together.";
    BlockItem = 211 Error "an item is impossible"
        "The contents of one item cannot be: wrong size, a value out of range, a name whose hash is not its key.";
    BlockUpperKey = 212 Error "a tree block has keys that belong to its right neighbour"
        "The last key is not below the next key of the parent.";
    BlockAddress = 213 Error "a tree block's address is not aligned or in no chunk"
        "A pointer leads outside of every chunk or between sectors.";
    BlockTwice = 214 Error "a tree block is used twice in trees that share nothing"
        "Two pointers of trees without snapshots lead to one block: writing one of them destroys the other.";
    BlockCopy = 215 Warning "one copy of a tree block is bad while another is good"
        "Nothing is lost. Reading for writing, or a scrub, repairs it. Copies behind a good one are looked at with `--check-data-csum`.";
    BlockPointer = 216 Error "a key pointer is impossible"
        "A node has a pointer that is null or not aligned, or to a child that is newer than the node: a writer could take the child for a copy of its own, and change it in place.";
    BlockFlags = 217 Error "a tree block's flags are not those of its references"
        "The header says that relocation made the block, or that it has backrefs of before 2009, and its extent item says otherwise: its references are taken for others than they are.";
    BlockName = 218 Error "a name is impossible"
        "A directory entry, a reference to a directory or a subvolume's has a name with a slash or a zero byte, or `.` or `..`, or an attribute's name has a zero byte: whoever joins it to a path leaves the folder. Nothing in the block is believed.";
    BlockNotWritten = 219 Error "a tree block is not marked as written"
        "The header lacks WRITTEN, as only blocks in memory do: a writer could take it for one that its own transaction made, and change it in place. Linux does not read it.";

    ChunkInvalid = 301 Error "a chunk is impossible, overlaps another one or leaves its device"
        "The chunk item breaks a rule of its profile, overlaps another chunk, or lies beyond the device's end or on a device with another id.";
    DeviceExtentMissing = 302 Error "a chunk's stripe has no device extent"
        "The device tree does not know that this part of the device is taken: it may be allocated twice.";
    DeviceExtentExtra = 303 Error "a device extent belongs to no chunk"
        "Part of a device is taken by nothing: lost space.";
    DeviceExtentWrong = 304 Error "a device extent differs from its chunk's stripe"
        "Chunk or length of a device extent are not those of the stripe.";
    DeviceExtentOverlap = 305 Error "device extents overlap"
        "Two chunks claim the same bytes of a device: data of one is destroyed.";
    DeviceExtentEnd = 306 Error "a device extent leaves its device"
        "The device extent ends behind the end of the device.";
    DeviceBytesUsed = 307 Error "a device's used bytes are not the sum of its extents"
        "`bytes_used` of a device item is not the sum of its device extents.";
    DeviceMissing = 308 Error "a stripe or a device extent is on a device that the chunk tree lacks"
        "Something lies on a device of which there is no item.";
    DeviceSize = 309 Error "a device is smaller than the filesystem says"
        "The device has fewer bytes than its item says.";
    BlockGroupMissing = 310 Error "a chunk has no block group"
        "Nothing can account for what lies in the chunk.";
    BlockGroupExtra = 311 Error "a block group has no chunk"
        "A block group for addresses that no chunk has.";
    BlockGroupWrong = 312 Error "a block group differs from its chunk"
        "Length, type or profile differ between a block group and its chunk.";
    BlockGroupUsed = 313 Error "a block group's used bytes are not the sum of its extents"
        "The number of used bytes is not the sum of the extents: allocation will believe there is more or less room.";
    Parity = 314 Warning "parity does not match its data"
        "A row of RAID5 or RAID6 has parity that is not that of its data, while all data in use at that place is as it was written: what is read is right, and nothing of the row could be rebuilt from that parity. Names the row, the device and a file. Only looked for with `--check-parity`.";
    MemberMissing = 315 Warning "a device of the filesystem is missing"
        "The chunk tree lists a device that was not given, and the check goes on without it (`--degraded`). What could be read was read from the others.";
    MemberStale = 316 Warning "a device missed writes"
        "The superblock of the device is of an earlier commit of the filesystem. Its data is read only where no other device has it, and a checksum says that it is right. Linux' scrub brings it up to date.";

    ExtentOverlap = 401 Error "extents overlap"
        "Two extents have the same bytes: one of them is, or will be, overwritten.";
    ExtentOutside = 402 Error "an extent lies in no chunk or leaves its chunk"
        "The extent cannot be read: no chunk has all of it.";
    ExtentKind = 403 Error "an extent lies in a chunk of another kind"
        "Data in a metadata chunk, or the other way round.";
    ExtentRefCount = 404 Error "an extent's number of references is not that of those listed"
        "The count in the extent item is not the sum of the inline and keyed references: the extent is freed too early or never.";
    ReferenceStale = 405 Error "a recorded reference does not exist"
        "The extent tree says that something refers to the extent which does not: space is never freed.";
    ReferenceMissing = 406 Error "a reference is not recorded"
        "Something refers to an extent and the extent tree does not say so: the extent may be freed while in use.";
    ReferenceCount = 407 Error "a reference is recorded with another count"
        "The number of references from one place is another than recorded. As 405 or 406.";
    ExtentMissing = 408 Error "something in use has no extent item"
        "A tree block or file data lies where the extent tree has nothing: it will be overwritten.";
    ExtentLevel = 409 Error "an extent item has another level than its tree block"
        "Level of a tree block in its extent item.";
    ExtentOwner = 410 Error "a tree block's owner is not among its references"
        "A block without full backrefs has to be referred to by the tree in its header, or be in that tree below blocks with full backrefs, since its children's references name that tree.";
    ReferenceOrphan = 411 Error "a reference has no extent item"
        "A keyed reference without the extent that it belongs to.";
    ExtentLength = 412 Error "a tree block's extent has the wrong length"
        "The extent of a tree block has to have the size of a node.";
    ExtentGeneration = 413 Error "an extent item is newer than the filesystem"
        "The generation of an extent item lies beyond that of the superblock.";
    ReferenceHash = 414 Error "a reference's key is not its hash"
        "The key of a keyed reference is not the hash of what it holds: it is not found when it is to be removed.";
    ReferencesUnexplained = 415 Error "more references disagree than could be listed"
        "The list of 405 to 408 was cut to keep the memory limit.";
    ReferenceOrder = 416 Error "references in an extent item are out of order"
        "Linux looks for a reference where its order says, and stops there: one that lies elsewhere is not found when it is to be removed, or is added a second time.";
    ExtentOlder = 417 Error "an extent item is older than its tree block"
        "The block was written by a transaction after the one that its extent item says: one of the two is not the block that the other is about.";
    ExtentNewer = 418 Error "an extent item is newer than its tree block"
        "As 417, the other way round.";

    FreeSpaceInfoMissing = 501 Error "a block group has no free space info"
        "The free space of a block group is not described: nothing can be allocated in it.";
    FreeSpaceInfoWrong = 502 Error "free space info has another length than its block group"
        "The info item's length is not that of the block group.";
    FreeSpaceUsed = 503 Error "space is listed as free that is in use"
        "Space in use will be handed out: the worst that can happen to a filesystem. Do not write to it; clear the free space tree first.";
    FreeSpaceMissing = 504 Error "free space is not listed"
        "Space is lost until the free space tree is made anew.";
    FreeSpaceCount = 505 Error "a block group's number of free extents is wrong"
        "The count in the info item is not the number of free extents or of runs in the bitmaps.";
    FreeSpaceForm = 506 Error "free space is listed in the wrong form or outside its block group"
        "A bitmap in a group that lists extents or the reverse, or a range outside of the group, or a bitmap of the wrong length.";
    SpaceCacheUnusable = 507 Warning "a block group's old free space cache cannot be used"
        "Its checksums, its generation or its number of free bytes are wrong. Linux throws it away and builds it anew.";
    SpaceCacheWrong = 508 Error "a block group's old free space cache is accepted and wrong"
        "Everything by which Linux would notice is right, and still it lists space as free that is in use. Data may be written over data.";
    FreeSpaceGroup = 509 Error "free space of a block group that does not exist is listed"
        "Linux cannot make a block group there any more. What lies below the first block group, or within the first 21 MiB where no block group is, is passed over: mkfs.btrfs up to 2025 leaves it behind, and no block group comes to lie there again.";

    ChecksumMissing = 601 Error "file data has no checksums"
        "A file that has to have checksums has data without: reading it fails.";
    ChecksumUnwanted = 602 Error "file data of an inode without checksums has some"
        "A file without checksums (nodatacow) has data with: overwriting in place makes them wrong.";
    ChecksumStale = 603 Error "checksums of no extent"
        "Checksums for addresses that no data extent has. A log whose data had checksums in the checksum tree leaves them when it is given up (`rescue zero-log`). Creamery replaces them when it writes data there; Linux may abort the transaction that does, and `btrfs check` does not look for them.";
    ChecksumOverlap = 604 Error "checksum items overlap"
        "Two checksum items are about the same sector.";
    DataChecksum = 605 Error "data does not have its checksum"
        "The data is not what was written, in every copy. Names files that have it, the byte of the file, and where each copy of the sector lies on its device. Only looked for with `--check-data-csum`.";
    DataCopy = 606 Warning "one copy of data is bad while another is good"
        "As 215, for data.";
    ChecksumItem = 607 Error "a checksum item is impossible"
        "The item's length is not a multiple of a checksum's, or its address is not that of a sector.";
    DataUnreadable = 608 Error "data cannot be read"
        "The device failed on every copy.";
    ChecksumCompressed = 609 Error "compressed data of an inode without checksums"
        "Where there are no checksums, damaged data is decompressed as if it were good. Linux compresses no data of such inodes, but for kernels before 2018.";
    ChecksumLog = 610 Error "file data in a log has no checksums"
        "A log that waits to be replayed names data whose checksums are neither in the log nor in the checksum tree: after the replay, reading it fails.";
    ChecksumUnwritten = 611 Error "data that is said not to be written has checksums"
        "A file has zeros where an extent is allocated and not written, and the extent has checksums: it was written, and what was written is lost to the file. Not said when the same data is written in another file, for then it may have been written through that one.";
    DataPacked = 612 Error "compressed data cannot be unpacked"
        "The data has its checksums and still is not what the file extent says: packed in another way or not at all, or of an impossible length. Reading it fails. But for the lengths, only looked for with `--check-data-csum`, which reads compressed data twice therefore.";

    InodeMissing = 701 Error "items of an inode that does not exist"
        "There are names, extents or attributes under a number that has no inode item.";
    InodeLinks = 702 Error "an inode's link count is wrong"
        "`nlink` is not the number of names: the inode lives on after its last name, or dies before.";
    DirectorySize = 703 Error "a directory's size is wrong"
        "The size of a directory is twice the length of its names.";
    InodeBytes = 704 Error "an inode's number of bytes is wrong"
        "`nbytes` is not the sum of the extents: `du` and quotas are wrong.";
    FileExtentOverlap = 705 Error "file extents overlap"
        "Two extents describe the same part of a file.";
    FileHole = 706 Error "a hole is not described, in a filesystem that demands it"
        "Without the feature no-holes every part of a file up to its size has an extent item.";
    DirectoryIndexes = 707 Error "a directory's entries by name and by index differ"
        "A directory has each entry by hash of the name and by index. They differ: a name can be listed and not opened, or the reverse.";
    EntryWithoutRef = 708 Error "a directory entry has no inode ref"
        "A name leads to an inode that does not know of it: removing it fails.";
    RefWithoutEntry = 709 Error "an inode ref has no directory entry"
        "An inode says it has a name that its directory does not have.";
    EntryType = 710 Error "a directory entry has another type than its inode"
        "The type in the directory entry is not that of the inode's mode.";
    EntryWithoutInode = 711 Error "a directory entry names an inode that does not exist"
        "The name leads nowhere.";
    InodeUnlinked = 712 Error "an inode has no link and is not an orphan"
        "Space of a file that has no name, and that the next mount will not clean up.";
    OrphanStale = 713 Warning "an orphan item names nothing"
        "An orphan item is left over; Linux removes it at the next mount.";
    InodeItems = 714 Error "an inode has items that its type does not have"
        "Data of a directory or device, or directory entries of a file.";
    InodeGeneration = 715 Error "an inode is newer than the filesystem"
        "Generation or transid lie beyond that of the superblock.";
    ExtrefHash = 716 Error "an inode extref's key is not its hash"
        "An extref is not found by its name.";
    FileInline = 717 Error "an inline extent is impossible"
        "The data of an inline extent is longer than a sector, missing, or not packed as it says.";
    RootDirectory = 718 Error "a subvolume has no root directory"
        "The inode 256 of a subvolume is missing: it cannot be entered.";
    FileExtentGeneration = 719 Error "a file extent is newer than the filesystem"
        "The transaction that a file extent is said to be of is after the last one, or none.";
    InodeFlags = 721 Error "a symlink has flags that symlinks cannot have"
        "Immutable or append-only: no program can set or clear these on a symlink, and it cannot be removed.";
    InodeCache = 722 Error "a subvolume has the inode cache that Linux has no more"
        "Left by a mount with `inode_cache` before Linux 5.11; `btrfs rescue clear-ino-cache` removes it.";
    EntryTwice = 723 Error "a directory has a name twice"
        "Two entries of one directory have one name: which of them is opened or removed is chance.";
    ItemForeign = 724 Error "an item of a type that subvolumes do not have"
        "Mostly one flipped bit in a key: the item is not found under its own type, and nobody knows this one.";
    VerityItem = 725 Error "an item of fs-verity makes no sense"
        "The file cannot be read: what its data is to be held against is not known. Whether the tree of hashes is whole, and the data is what was sealed, is found out by reading.";
    SymlinkSize = 726 Error "a symbolic link's size is not the length of its target"
        "Linux cuts the target at the size, or reads zeros behind it.";
    SymlinkTarget = 727 Warning "a symbolic link's target ends before its size"
        "There is a zero byte in it, where the target ends for Linux: `btrfs-image` writes zeros in place of targets.";
    SpecialSize = 728 Error "a device, a fifo or a socket has a size"
        "Nothing is read from the filesystem there. Linux writes 0.";

    TreeMissing = 801 Error "a tree that must exist is missing"
        "One of the trees that every filesystem of these features has is not in the root tree.";
    RootGeneration = 802 Error "a root item is newer than the filesystem"
        "A root item's generation lies beyond that of the superblock.";
    RootBackrefMissing = 803 Error "a root ref has no root backref"
        "The reverse of a root ref is missing or says something else.";
    RootRefMissing = 804 Error "a root backref has no root ref"
        "As 803, the other way round.";
    RootRefEntry = 805 Error "a root ref has no directory entry"
        "The directory that a root ref names does not have the subvolume: it cannot be reached.";
    SubvolumeUnreferenced = 806 Error "a subvolume is in no directory"
        "A subvolume that no directory has.";
    UuidMissing = 807 Warning "a subvolume is not in the UUID tree"
        "The UUID tree lacks a subvolume: receiving does not find it. Linux can make the tree anew.";
    UuidStale = 808 Warning "the UUID tree names a subvolume that does not exist"
        "The UUID tree names a subvolume that is not there.";
    RootRefTree = 809 Error "a root ref names a tree that does not exist"
        "Parent or child of a root ref is no tree.";
    DefaultSubvolume = 810 Error "the default subvolume does not exist"
        "The entry that says what to mount when nothing is said names no tree.";
    LogWaiting = 811 Warning "a log waits to be replayed"
        "Files were synced after the last commit, and power went. The first change, such as `creamery touch IMAGE:/`, writes what is in the log into a commit; what can be said about the log before is said (610).";
    SubvolumeOrphan = 812 Error "a deleted subvolume has no orphan item"
        "Its root item says that nothing refers to it, and no orphan item tells Linux to go on dropping it: its space is never freed.";
    DataRelocUnreferenced = 813 Error "the data relocation tree has no reference"
        "Linux reads it like a subvolume, and takes one without references for deleted: it does not mount this. It looks at no other tree's references, and mkfs.btrfs makes quota trees without.";
    DefaultEntry = 814 Warning "the entry of the default subvolume is missing or impossible"
        "Nothing says what to mount when nothing is said: Linux then mounts the top level.";
    LogRefused = 815 Error "a log cannot be replayed"
        "An item of a log that waits is one that no subvolume may have, or belongs to no inode of the log. Neither Linux nor Creamery opens this for writing. `creamery rescue zero-log` gives up what was synced after the last commit.";
    DefaultImpossible = 816 Error "the entry of the default subvolume names no subvolume"
        "What it names is no tree of files. Linux mounts this only where another subvolume is named.";

    QuotaReferenced = 901 Error "a quota group's referenced bytes are wrong"
        "What the group's subvolumes refer to adds up to something else. Limits work on wrong numbers.";
    QuotaExclusive = 902 Error "a quota group's exclusive bytes are wrong"
        "What the group's subvolumes refer to and no other subvolume does adds up to something else.";
    QuotaInconsistent = 903 Warning "quota groups are marked as inconsistent"
        "Linux knows that the numbers are wrong and wants a rescan; they are not compared then. So it is when the status is of another transaction than the superblock.";
    QuotaUncounted = 904 Warning "too much is shared by too many for quota groups to be counted"
        "The sets of subvolumes that share extents take more memory than allowed, so the numbers were not compared.";
    QuotaGroupMissing = 905 Error "a quota group that is part of another one does not exist"
        "A relation names a group without numbers. Linux may refuse to count.";
    QuotaRelationHalf = 906 Warning "that a quota group is part of another one is said by one of them only"
        "Relations stand in the quota tree twice. Linux goes by the member's; the other one is for looking it up.";
    QuotaStatusMissing = 907 Warning "there are quota groups and no status of quotas"
        "There is none, or of a version that was never: Linux takes quotas as switched off and counts no more.";
    QuotaGroupHalf = 908 Warning "a quota group has numbers and no limits, or the reverse"
        "Linux makes both at once. Without numbers it takes the quotas for inconsistent, without limits none can be set.";
    QuotaGroupNone = 909 Warning "a subvolume has no quota group"
        "What it uses is counted nowhere. Linux gives each subvolume a group; it was lost, or somebody destroyed it while the subvolume was there.";
    QuotaStatusFlags = 910 Error "the status of quotas has flags that mean nothing"
        "A newer program has counted in another way, or the status is damaged. Linux does not take it.";
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
        let page = include_str!("../../../docs/use/findings.md");
        assert!(Problem::ALL.windows(2).all(|pair| pair[0].number() < pair[1].number()));
        for problem in Problem::ALL {
            let (number, severity, title) = (problem.number(), problem.severity(), problem.title());
            let row = format!("| {number} | {severity} | {title} | {} |", problem.meaning());
            assert!(page.contains(&row), "docs/use/findings.md lacks: {row}");
        }
    }
}
