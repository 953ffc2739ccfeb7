//! The space of a live mount: block groups by kind and profile, devices, and the space that chunks use on each.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::Seek;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use creamery_base::{DevId, ErrorKind, ObjectId, Result, TreeId, Uuid};
use creamery_fs::DeviceErrors;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::LiveBtrfs;
use super::controls::{
    DEV_INFO, DEV_STATS_WORDS, FS_INFO, FS_INFO_WORDS, GET_DEV_STATS, PAGE_WORDS, bytes_of,
};
use crate::messages::{DEV_STATS_COUNTS, DEV_STATS_RESET, DEVICE_PATH};

const CHUNK_ITEM: u32 = 228;
const DEV_EXTENT: u32 = 204;
/// Number of error counters of a device.
const DEV_STATS_COUNT: u64 = 5;
/// `BTRFS_SPACE_INFO_GLOBAL_RSV`: not block groups, but the reserve that Linux keeps for commits.
const GLOBAL_RESERVE: u64 = 1 << 49;

/// Space of one kind and profile.
///
/// ```
/// let metadata = creamery_mount::LiveSpace { flags: 4, total: 1 << 30, used: 16384 };
/// assert!(metadata.used < metadata.total);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveSpace {
    /// The kind and the profile: the flags of block groups.
    pub flags: u64,
    /// Bytes; copies count once.
    pub total: u64,
    /// Bytes that are in use.
    pub used: u64,
}

/// Space of a mounted filesystem, bytes.
///
/// ```
/// let usage = creamery_mount::LiveUsage { total: 1 << 30, free: 1 << 20, available: 0 };
/// assert!(usage.free < usage.total);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveUsage {
    /// Size of the filesystem.
    pub total: u64,
    /// Bytes that are not in use.
    pub free: u64,
    /// Bytes that file data can still use.
    pub available: u64,
}

/// A device of a mounted filesystem.
///
/// ```no_run
/// let mount = creamery_mount::LiveBtrfs::at("/mnt".as_ref())?.expect("a mount of Btrfs");
/// for device in mount.devices()? {
///     println!("{} {}: {} bytes", device.id, device.path.display(), device.total_bytes);
/// }
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveDevice {
    /// Its number in the filesystem.
    pub id: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its size as the filesystem sees it, bytes.
    pub total_bytes: u64,
    /// Bytes of the device that chunks use.
    pub used_bytes: u64,
    /// The path of the device on the host; empty when it is missing.
    pub path: PathBuf,
    /// The actual length of the device, bytes; `None` if it is unknown.
    pub len: Option<u64>,
}

/// The share of a device that chunks of one kind and profile use.
///
/// ```
/// use creamery_base::DevId;
/// let share = creamery_mount::LiveShare { device: DevId::new(1), flags: 4 | 32, bytes: 64 << 20 };
/// assert_eq!(share.device.get(), 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LiveShare {
    /// The device.
    pub device: DevId,
    /// The flags of their block groups.
    pub flags: u64,
    /// Bytes.
    pub bytes: u64,
}

impl LiveBtrfs {
    /// Returns the space of the block groups, by kind and profile: of data, of the chunk tree, of metadata.
    /// Errors: the mount does not answer; on our mounts only a directory can be asked.
    pub fn spaces(&self) -> Result<Vec<LiveSpace>> {
        Ok(self.all_spaces()?.into_iter().filter(|space| space.flags & GLOBAL_RESERVE == 0).collect())
    }

    /// Returns the reserve of metadata space that Linux keeps for its commits; `None` on a mount of ours, which has no separate reserve.
    /// Errors: those of [`LiveBtrfs::spaces`].
    pub fn global_reserve(&self) -> Result<Option<LiveSpace>> {
        Ok(self.all_spaces()?.into_iter().find(|space| space.flags & GLOBAL_RESERVE != 0))
    }

    fn all_spaces(&self) -> Result<Vec<LiveSpace>> {
        let spaces = match self.is_linux() {
            true => self.answering.space_info().map_err(|errno| self.failed(errno))?,
            false => self.ours()?.spaces()?,
        };
        Ok(spaces.into_iter().map(|[flags, total, used]| LiveSpace { flags, total, used }).collect())
    }

    /// Returns the space of the filesystem, like statfs(2).
    /// Errors: the mount does not answer.
    pub fn usage(&self) -> Result<LiveUsage> {
        let told = rustix::fs::fstatvfs(self.answering.file()).map_err(|errno| self.failed(errno))?;
        let bytes = |blocks: u64| blocks.saturating_mul(told.f_frsize);
        Ok(LiveUsage {
            total: bytes(told.f_blocks),
            free: bytes(told.f_bfree),
            available: bytes(told.f_bavail),
        })
    }

    /// Returns the bytes that file data can still use, like statfs(2).
    /// Errors: the mount does not answer.
    pub fn available_bytes(&self) -> Result<u64> {
        Ok(self.usage()?.available)
    }

    /// Returns the devices of the filesystem, in the order of their numbers.
    /// Errors: the mount does not answer.
    pub fn devices(&self) -> Result<Vec<LiveDevice>> {
        let mut info = [0; FS_INFO_WORDS];
        self.answering.send::<FS_INFO, FS_INFO_WORDS>(&mut info).map_err(|errno| self.failed(errno))?;
        let (last, count) = (info[0], usize::try_from(info[1]).unwrap_or(usize::MAX));
        let mut devices = Vec::new();
        // A single device has the highest number, also for an image, whatever its superblock says.
        let first = if count == 1 { last } else { 0 };
        for id in first..=last {
            if devices.len() >= count {
                break;
            }
            let mut info = [0; PAGE_WORDS];
            info[0] = id;
            match self.answering.send::<DEV_INFO, PAGE_WORDS>(&mut info) {
                Ok(()) => devices.push(device(&info)),
                Err(Errno::NODEV) => {}
                Err(errno) => return Err(self.failed(errno)),
            }
        }
        Ok(devices)
    }

    /// Returns the error counters of a device. On a mount of ours they are the counters in the image.
    /// Errors: there is no such device; the mount does not answer.
    pub fn device_errors(&self, id: DevId) -> Result<DeviceErrors> {
        self.device_stats(id, 0)
    }

    /// Sets the counters of a device to 0, durably with the next commit. Returns their old values.
    /// Errors: those of [`LiveBtrfs::device_errors`]; permission denied, for all but root, and on our mounts the mounter; a mount of
    /// ours is read-only.
    pub fn reset_device_errors(&self, id: DevId) -> Result<DeviceErrors> {
        self.device_stats(id, DEV_STATS_RESET)
    }

    fn device_stats(&self, id: DevId, flags: u64) -> Result<DeviceErrors> {
        let mut stats = [0; DEV_STATS_WORDS];
        stats[..3].copy_from_slice(&[id.get(), DEV_STATS_COUNT, flags]);
        let asked = self.answering.send::<GET_DEV_STATS, DEV_STATS_WORDS>(&mut stats);
        asked.map_err(|errno| self.failed(errno))?;
        let count = usize::try_from(stats[1].min(DEV_STATS_COUNT)).unwrap_or(0);
        Ok(DeviceErrors::of_counts(&stats[DEV_STATS_COUNTS / 8..][..count]))
    }

    /// Returns the space that chunks use on each device, by kind and profile; `None` for a caller that may not read trees: all but root (and the mounter,
    /// on our mounts). Errors: the mount does not answer.
    pub fn shares(&self) -> Result<Option<Vec<LiveShare>>> {
        let all = ObjectId::FIRST_CHUNK_TREE.get();
        let chunks = match self.items(TreeId::CHUNK, all..=all, CHUNK_ITEM..=CHUNK_ITEM) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Ok(None),
            chunks => chunks?,
        };
        let mut kinds = BTreeMap::new();
        for chunk in &chunks {
            kinds.insert(chunk.offset, chunk.u64_at(24)?);
        }
        let mut sums: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        for extent in self.items(TreeId::DEV, 1..=u64::MAX, DEV_EXTENT..=DEV_EXTENT)? {
            let (chunk, len) = (extent.u64_at(16)?, extent.u64_at(24)?);
            if let Some(flags) = kinds.get(&chunk) {
                let sum = sums.entry((extent.objectid, *flags)).or_default();
                *sum = sum.saturating_add(len);
            }
        }
        let share = |((device, flags), bytes)| LiveShare { device: DevId::new(device), flags, bytes };
        Ok(Some(sums.into_iter().map(share).collect()))
    }
}

fn device(info: &[u64; PAGE_WORDS]) -> LiveDevice {
    let bytes = bytes_of(info);
    let mut path = bytes[DEVICE_PATH..].to_vec();
    path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
    let path = PathBuf::from(OsString::from_vec(path));
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&bytes[8..24]);
    // The length of a disk is the offset of its end.
    let len = len_of(&path);
    LiveDevice {
        id: DevId::new(info[0]),
        uuid: Uuid::from_bytes(uuid),
        used_bytes: info[3],
        total_bytes: info[4],
        path,
        len,
    }
}

/// The length of a block device or a file. Opens nothing else, because that may have effects, and the name may come from the server of a
/// mount.
fn len_of(path: &Path) -> Option<u64> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    if !kind.is_block_device() && !kind.is_file() {
        return None;
    }
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).ok()?;
    let mut file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    file.seek(std::io::SeekFrom::End(0)).ok()
}
