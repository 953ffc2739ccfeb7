//! Converts attributes between the filesystem and the protocol.

use creamery_fs as fs;
use creamery_fuse::{Attr, DeviceNumber, SetAttr, SetTime};

use crate::options::Owner;

/// Unit of `st_blocks`.
const STAT_BLOCK: u64 = 512;

pub(crate) fn to_attr(number: u64, attributes: &fs::Attributes, owner: Owner, sector_size: u32) -> Attr {
    Attr {
        ino: number,
        size: attributes.size,
        blocks: attributes.allocated.div_ceil(u64::from(sector_size)).saturating_mul(u64::from(sector_size))
            / STAT_BLOCK,
        atime: attributes.times.access,
        mtime: attributes.times.modification,
        ctime: attributes.times.change,
        mode: attributes.mode,
        nlink: attributes.nlink,
        uid: owner.uid.unwrap_or(attributes.uid),
        gid: owner.gid.unwrap_or(attributes.gid),
        rdev: to_device(attributes.device),
        blksize: sector_size,
        flags: 0,
    }
}

pub(crate) fn to_device(device: fs::DeviceNumber) -> DeviceNumber {
    DeviceNumber { major: device.major, minor: device.minor }
}

pub(crate) fn from_device(device: DeviceNumber) -> fs::DeviceNumber {
    fs::DeviceNumber { major: device.major, minor: device.minor }
}

fn from_time(time: SetTime) -> fs::Time {
    match time {
        SetTime::Now => fs::Time::Now,
        SetTime::At(at) => fs::Time::At(at),
    }
}

pub(crate) fn from_set_attr(set: &SetAttr) -> fs::SetAttributes {
    // The kernel leaves it to the server that ftruncate(2), unlike truncate(2), counts as a modification even if the size stays.
    let truncated = set.handle.and(set.size).map(|_| fs::Time::Now);
    fs::SetAttributes {
        mode: set.mode.map(|mode| mode & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: set.atime.map(from_time),
        mtime: set.mtime.map(from_time).or(truncated),
        ctime: set.ctime.map(fs::Time::At),
        kill_suid_sgid: set.kill_suidgid,
        ..fs::SetAttributes::default()
    }
}
