//! Flags, by their names in dump-tree.

use std::fmt;

use crate::items::chunk::BlockGroupFlags;
use crate::items::extent::ExtentFlags;
use crate::items::inode::InodeFlags;

/// The purpose of a block group and its replication: `METADATA|DUP`.
pub(crate) fn block_group(f: &mut dyn fmt::Write, flags: BlockGroupFlags) -> fmt::Result {
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
        if flags.contains(flag) {
            write!(f, "{between}{name}")?;
            between = "|";
        }
    }
    let profile = PROFILES.iter().find(|(_, flag)| flags.contains(*flag)).map_or("single", |(name, _)| name);
    write!(f, "|{profile}")
}

/// Flags of an extent item: `TREE_BLOCK|FULL_BACKREF`.
pub(super) fn extent(w: &mut dyn fmt::Write, flags: ExtentFlags) -> fmt::Result {
    let data = if flags.contains(ExtentFlags::DATA) { "DATA" } else { "" };
    let block = if flags.contains(ExtentFlags::TREE_BLOCK) { "TREE_BLOCK" } else { "" };
    let between = if data.is_empty() || block.is_empty() { "" } else { "|" };
    let full = if flags.contains(ExtentFlags::FULL_BACKREF) { "|FULL_BACKREF" } else { "" };
    write!(w, "{data}{between}{block}{full}")
}

/// Flags of an inode: `0x3(NODATASUM|NODATACOW)`.
pub(super) fn inode(w: &mut dyn fmt::Write, flags: InodeFlags) -> fmt::Result {
    const NAMES: [(&str, InodeFlags); 13] = [
        ("NODATASUM", InodeFlags::NODATASUM),
        ("NODATACOW", InodeFlags::NODATACOW),
        ("READONLY", InodeFlags::READONLY),
        ("NOCOMPRESS", InodeFlags::NOCOMPRESS),
        ("PREALLOC", InodeFlags::PREALLOC),
        ("SYNC", InodeFlags::SYNC),
        ("IMMUTABLE", InodeFlags::IMMUTABLE),
        ("APPEND", InodeFlags::APPEND),
        ("NODUMP", InodeFlags::NODUMP),
        ("NOATIME", InodeFlags::NOATIME),
        ("DIRSYNC", InodeFlags::DIRSYNC),
        ("COMPRESS", InodeFlags::COMPRESS),
        ("ROOT_ITEM_INIT", InodeFlags::ROOT_ITEM_INIT),
    ];
    write!(w, "0x{:x}(", flags.bits())?;
    let mut between = "";
    let mut rest = flags;
    for (name, flag) in NAMES {
        if flags.contains(flag) {
            write!(w, "{between}{name}")?;
            between = "|";
            rest.remove(flag);
        }
    }
    if !rest.is_empty() {
        write!(w, "{between}UNKNOWN: 0x{:x}", rest.bits())?;
    }
    w.write_str(if flags.is_empty() { "none)" } else { ")" })
}
