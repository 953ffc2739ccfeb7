//! The space of a filesystem, from an image or from a live mount.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use creamery::id::DevId;
use creamery::volume::{BlockGroups, DeviceShare, MemberDevice};
use creamery::{Error, Filesystem};
use creamery_mount::{LiveBtrfs, LiveDevice};

use crate::failure::Failure;
use crate::images::{Images, Purpose};
use crate::live::live_btrfs;

/// The space of a filesystem.
pub(super) struct FilesystemUsage {
    /// The image, or the path on the mount.
    pub(super) place: PathBuf,
    /// The block groups by kind and profile, in Linux' order.
    pub(super) groups: Vec<Groups>,
    pub(super) devices: Vec<UsageDevice>,
    /// Bytes available for data of files, as in statfs(2).
    pub(super) available: u64,
    /// Bytes that Linux reserves for commits, and the used part of them.
    pub(super) reserve: Option<(u64, u64)>,
    /// Whether the share of chunks on each device is known.
    pub(super) has_shares: bool,
}

/// Block groups of one kind and profile.
pub(super) struct Groups {
    pub(super) sum: BlockGroups,
    /// Bytes that their chunks occupy, by device.
    pub(super) on: Vec<(DevId, u64)>,
}

impl Groups {
    /// Bytes of devices for each byte of a chunk: copies and parity.
    pub(super) fn ratio(&self) -> f64 {
        let on: u64 = self.on.iter().map(|(_, bytes)| bytes).sum();
        let has_parity = matches!(&*self.sum.profile, "RAID5" | "RAID6");
        match has_parity && on > 0 && self.sum.total > 0 {
            true => on as f64 / self.sum.total as f64,
            false => self.sum.copies as f64,
        }
    }

    /// Converts bytes of a chunk to bytes of devices.
    pub(super) fn on_devices(&self, bytes: u64) -> u64 {
        (bytes as f64 * self.ratio()) as u64
    }
}

/// A device.
pub(super) struct UsageDevice {
    pub(super) id: DevId,
    pub(super) path: Option<PathBuf>,
    pub(super) total: u64,
    pub(super) used: u64,
    /// Bytes of the device beyond the filesystem.
    pub(super) slack: u64,
}

impl FilesystemUsage {
    /// Reads the space of the image or mount that `text` names. A mounted image is asked through its mount.
    pub(super) fn of(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        let of_mount = |images: &mut Images<'_>, point: &Path| Self::of_named(images, point.as_os_str());
        images.image_or_mount(text, |images| Self::of_named(images, text), of_mount)
    }

    fn of_named(images: &mut Images<'_>, text: &OsStr) -> Result<Self, Failure> {
        let command = images.command();
        if let Some(live) = live_btrfs(command, text)? {
            return Self::of_mount(&live).map_err(|error| Failure::new(command, error));
        }
        let place = images.place(text)?;
        let fs = images.open_at(&place, Purpose::Read)?;
        Ok(Self::of_image(place.image, fs))
    }

    fn of_image(place: PathBuf, fs: &Filesystem) -> Self {
        let shares = fs.volume().shares();
        let groups = fs.volume().block_groups().into_iter().map(|sum| {
            let of_sum = |share: &&DeviceShare| share.kind == sum.kind && share.profile == sum.profile;
            let on = shares.iter().filter(of_sum).map(|share| (share.device, share.bytes)).collect();
            Groups { sum, on }
        });
        Self {
            place,
            groups: groups.collect(),
            devices: fs.volume().devices().into_iter().map(UsageDevice::from).collect(),
            available: fs.volume().usage().available,
            reserve: None,
            has_shares: true,
        }
    }

    fn of_mount(live: &LiveBtrfs) -> Result<Self, Error> {
        live.check_directory()?;
        let shares = live.shares()?;
        let on = |flags: u64| {
            let shares = shares.iter().flatten().filter(|share| share.flags == flags);
            shares.map(|share| (share.device, share.bytes)).collect()
        };
        let groups = live.spaces()?.into_iter().map(|space| Groups {
            sum: BlockGroups::with_flags(space.flags, space.total, space.used),
            on: on(space.flags),
        });
        Ok(Self {
            place: live.path().to_owned(),
            groups: groups.collect(),
            devices: live.devices()?.into_iter().map(UsageDevice::from).collect(),
            available: live.available_bytes()?,
            reserve: live.global_reserve()?.map(|reserve| (reserve.total, reserve.used)),
            has_shares: shares.is_some(),
        })
    }

    /// Bytes of all devices, and the part of them that chunks occupy.
    pub(super) fn on_devices(&self) -> (u64, u64) {
        self.devices.iter().fold((0, 0), |(total, used), device| (total + device.total, used + device.used))
    }

    /// Bytes of missing devices.
    pub(super) fn missing(&self) -> u64 {
        self.devices.iter().filter(|device| device.path.is_none()).map(|device| device.total).sum()
    }

    /// The block groups in the order of output: data first, the chunk tree last.
    pub(super) fn in_order(&self) -> Vec<&Groups> {
        let mut groups: Vec<_> = self.groups.iter().collect();
        groups.sort_by_key(|group| group.sum.kind == "System");
        groups
    }
}

impl UsageDevice {
    /// Bytes of the device that no chunk occupies.
    pub(super) const fn unallocated(&self) -> u64 {
        self.total.saturating_sub(self.used)
    }
}

impl From<MemberDevice> for UsageDevice {
    fn from(device: MemberDevice) -> Self {
        let MemberDevice { id, path, total_bytes, used_bytes, len, .. } = device;
        let slack = len.unwrap_or(0).saturating_sub(total_bytes);
        Self { id, path, total: total_bytes, used: used_bytes, slack }
    }
}

impl From<LiveDevice> for UsageDevice {
    fn from(device: LiveDevice) -> Self {
        let LiveDevice { id, path, total_bytes, used_bytes, len, .. } = device;
        let slack = len.unwrap_or(0).saturating_sub(total_bytes);
        let path = Some(path).filter(|path| !path.as_os_str().is_empty());
        Self { id, path, total: total_bytes, used: used_bytes, slack }
    }
}
