//! Flags, by their names in dump-tree.

use std::fmt;

use crate::items::extent::ExtentFlags;
use crate::items::inode::InodeFlags;

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
