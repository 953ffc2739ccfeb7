//! Flags, as dump-tree names them.

use std::fmt;

use crate::items::chunk::BlockGroupFlags;

/// What a block group is for and how it is replicated: `METADATA|DUP`.
pub(crate) fn block_group(f: &mut dyn fmt::Write, flags: BlockGroupFlags) -> fmt::Result {
    const NAMES: [(&str, BlockGroupFlags); 11] = [
        ("DATA", BlockGroupFlags::DATA),
        ("SYSTEM", BlockGroupFlags::SYSTEM),
        ("METADATA", BlockGroupFlags::METADATA),
        ("RAID0", BlockGroupFlags::RAID0),
        ("RAID1", BlockGroupFlags::RAID1),
        ("DUP", BlockGroupFlags::DUP),
        ("RAID10", BlockGroupFlags::RAID10),
        ("RAID5", BlockGroupFlags::RAID5),
        ("RAID6", BlockGroupFlags::RAID6),
        ("RAID1C3", BlockGroupFlags::RAID1C3),
        ("RAID1C4", BlockGroupFlags::RAID1C4),
    ];
    let mut between = "";
    for (name, flag) in NAMES {
        if flags.contains(flag) {
            write!(f, "{between}{name}")?;
            between = "|";
        }
    }
    if flags.profile().is_empty() {
        write!(f, "{between}single")?;
    }
    Ok(())
}
