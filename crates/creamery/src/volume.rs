//! The filesystem as a whole: its ids, sizes and features, and its devices.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use creamery_base::{DevId, Generation, Result, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::BlockGroupFlags;
use creamery_txn::GroupSum;

use crate::Filesystem;
use crate::rescue::EarlierRoot;

pub use creamery_fs::{DeviceErrors, NewSize, Resized};
pub use creamery_txn::{Conversion, DiscardPolicy};
pub use creamery_volume::SuperblockChange;

pub use crate::host_filesystems::{HostFilesystem, filesystem_of_superblocks, filesystems_of_host};
pub use crate::survey::{Loss, Survey};
pub use crate::uuid_change::UuidChange;

/// A device of a filesystem.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let devices = creamery::Image::open(&image)?.volume().devices();
/// assert_eq!((devices.len(), devices[0].id.get(), devices[0].total_bytes), (1, 1, 256 << 20));
/// assert_eq!(devices[0].path.as_deref(), Some(image.as_path()));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberDevice {
    /// The number of the device in the filesystem.
    pub id: DevId,
    /// The UUID of the device.
    pub uuid: Uuid,
    /// The size of the device as the filesystem sees it, bytes.
    pub total_bytes: u64,
    /// Bytes of the device that chunks use.
    pub used_bytes: u64,
    /// The actual length of the device, bytes; `None` when it is missing.
    pub len: Option<u64>,
    /// The file or device of the host, or the name of a device of your own; `None` when it is missing.
    pub path: Option<PathBuf>,
}

/// The share of a device that chunks of one kind and profile use.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// for share in creamery::Image::open(&image)?.volume().shares() {
///     println!("{} of device {} are for {}", share.bytes, share.device, share.kind);
/// }
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DeviceShare {
    /// The device, which may be missing.
    pub device: DevId,
    /// The kind of the chunks, as in [`BlockGroups::kind`].
    pub kind: String,
    /// The profile of the chunks, as in [`BlockGroups::profile`].
    pub profile: String,
    /// Bytes of the device that these chunks use; each copy counts.
    pub bytes: u64,
}

/// The block groups of one kind and profile together.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let groups = creamery::Image::open(&image)?.volume().block_groups();
/// let metadata = groups.iter().find(|sum| sum.kind == "Metadata").expect("there is metadata");
/// assert_eq!((metadata.profile.as_str(), metadata.copies), ("DUP", 2));
/// assert!(metadata.used <= metadata.total);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BlockGroups {
    /// The kind: `Data`, `System`, `Metadata`, or `Data+Metadata`.
    pub kind: String,
    /// The profile, as mkfs names it, in capitals except `single`.
    pub profile: String,
    /// The number of copies of the content of these block groups.
    pub copies: u64,
    /// The size of the block groups, bytes; copies count once.
    pub total: u64,
    /// Bytes in extents, as of the last commit.
    pub used: u64,
}

impl BlockGroups {
    /// The block groups with these flags, of `total` bytes, of which `used` are in use; bits that are not a kind or a profile are ignored.
    ///
    /// ```
    /// let metadata = creamery::volume::BlockGroups::with_flags(4 | 16, 1 << 30, 0);
    /// assert_eq!((metadata.kind.as_str(), metadata.profile.as_str(), metadata.copies), ("Metadata", "RAID1", 2));
    /// ```
    #[must_use]
    pub fn with_flags(flags: u64, total: u64, used: u64) -> Self {
        let flags = BlockGroupFlags::from_bits_retain(flags);
        let flags = flags & (BlockGroupFlags::TYPES | BlockGroupFlags::PROFILES);
        // `METADATA|DUP`
        let shown = flags.to_string();
        let (kinds, profile) = shown.rsplit_once('|').unwrap_or((&shown, "single"));
        let name = |kind: &str| {
            let mut letters = kind.chars();
            let first = letters.next().into_iter();
            first.chain(letters.flat_map(char::to_lowercase)).collect::<String>()
        };
        let kinds: Vec<String> = kinds.split('|').map(name).collect();
        let copies = match flags.profile() {
            BlockGroupFlags::DUP | BlockGroupFlags::RAID1 | BlockGroupFlags::RAID10 => 2,
            BlockGroupFlags::RAID1C3 => 3,
            BlockGroupFlags::RAID1C4 => 4,
            _ => 1,
        };
        Self { kind: kinds.join("+"), profile: profile.to_owned(), copies, total, used }
    }
}

/// How full a filesystem is, in bytes.
///
/// ```no_run
/// let usage = creamery::Image::open("disk.img")?.volume().usage();
/// println!("{} of {} bytes are free", usage.available, usage.total);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Size of the filesystem, bytes.
    pub total: u64,
    /// Bytes that are not in use.
    pub free: u64,
    /// Bytes that file data can still use.
    pub available: u64,
}

/// A filesystem as a whole: its label, ids, sizes and devices; [`Filesystem::volume`] returns it.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// # let fs = creamery::Image::options().write().open(&image)?;
/// fs.volume().set_label("backup")?;
/// assert_eq!(fs.volume().label(), b"backup");
/// assert_eq!(fs.volume().usage().total, 256 << 20);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Volume<'a>(pub(crate) &'a Filesystem);

impl Filesystem {
    /// Returns the filesystem as a whole: its label, ids, sizes and devices (btrfs-filesystem(8)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// println!("{} {:?}", fs.volume().uuid(), fs.volume().usage());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub const fn volume(&self) -> Volume<'_> {
        Volume(self)
    }
}

impl Volume<'_> {
    /// Returns the label, as `btrfs filesystem label` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.volume().label(), b"");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn label(self) -> Vec<u8> {
        self.0.fs.engine().volume().superblock().label().to_vec()
    }

    /// Sets the label, as `btrfs filesystem label IMAGE LABEL` does; an empty label removes it. The label and every change so far are
    /// durable when this returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// fs.volume().set_label("backup")?;
    /// assert_eq!(fs.volume().label(), b"backup");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the label has more than 255 bytes, or contains a newline or a zero byte; when the device fails.
    pub fn set_label(self, label: impl AsRef<[u8]>) -> Result<()> {
        self.0.fs.set_label(label.as_ref())?;
        self.0.fs.sync()
    }

    /// Returns how full the filesystem is, as statvfs(3) does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// let usage = fs.volume().usage();
    /// assert!(usage.available <= usage.total);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn usage(self) -> Usage {
        let figures = self.0.fs.statfs();
        let unit = u64::from(figures.block_size);
        Usage {
            total: figures.blocks * unit,
            free: figures.blocks_free * unit,
            available: figures.blocks_available * unit,
        }
    }

    /// Returns notes about defects that opening ignored, a sentence each: damaged superblock copies, a wrong number of devices, and states
    /// that only allow reading. Linux writes such notes to the kernel log.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert!(fs.volume().notes().is_empty());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn notes(self) -> Vec<String> {
        self.0.fs.engine().volume().notes()
    }

    /// Returns the earlier commit that is shown, if
    /// [`ImageOptions::use_backup_root`](crate::ImageOptions::use_backup_root) fell back to one (the mount option
    /// `rescue=usebackuproot`): the newest changes may be missing.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert!(fs.volume().earlier_root().is_none());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn earlier_root(self) -> Option<EarlierRoot> {
        self.0.fs.engine().volume().earlier_root()
    }

    /// Returns the size of a data block in bytes (`sectorsize` of mkfs.btrfs(8)): extents begin and end at its multiples.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.volume().sector_size(), 4096);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn sector_size(self) -> u32 {
        self.0.fs.engine().sector_size()
    }

    /// Returns the block groups by kind and profile, as `btrfs filesystem df` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// for groups in fs.volume().block_groups() {
    ///     println!("{}, {}: {} of {}", groups.kind, groups.profile, groups.used, groups.total);
    /// }
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn block_groups(self) -> Vec<BlockGroups> {
        let of = |sum: GroupSum| BlockGroups::with_flags(sum.flags.bits(), sum.total, sum.used);
        self.0.fs.engine().group_sums().into_iter().map(of).collect()
    }

    /// Returns the space that chunks use on each device, by kind and profile and ordered by device, as `btrfs filesystem usage` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// let all: u64 = fs.volume().shares().iter().map(|share| share.bytes).sum();
    /// assert_eq!(all, fs.volume().devices()[0].used_bytes);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn shares(self) -> Vec<DeviceShare> {
        let mut sums: BTreeMap<(u64, DevId), u64> = BTreeMap::new();
        for chunk in self.0.fs.engine().volume().chunks() {
            let flags = chunk.flags & (BlockGroupFlags::TYPES | BlockGroupFlags::PROFILES);
            for stripe in &chunk.stripes {
                let sum = sums.entry((flags.bits(), stripe.dev)).or_default();
                *sum = sum.saturating_add(chunk.stripe_bytes());
            }
        }
        let share = |((flags, device), bytes)| {
            let BlockGroups { kind, profile, .. } = BlockGroups::with_flags(flags, 0, 0);
            DeviceShare { device, kind, profile, bytes }
        };
        sums.into_iter().map(share).collect()
    }

    /// Returns the UUID that mounts use (`UUID=` of fstab(5)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// println!("UUID={}", fs.volume().uuid());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn uuid(self) -> Uuid {
        self.0.fs.engine().volume().fsid()
    }

    /// Returns the UUID in every tree block. It differs from [`uuid`](Self::uuid) only after a later change (`btrfstune -m`).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.volume().metadata_uuid(), fs.volume().uuid());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn metadata_uuid(self) -> Uuid {
        self.0.fs.engine().volume().metadata_uuid()
    }

    /// Returns the generation of the last commit.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let before = fs.volume().generation();
    /// fs.write("/file", "text")?;
    /// fs.sync()?;
    /// assert!(fs.volume().generation() > before);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn generation(self) -> Generation {
        self.0.fs.engine().volume().generation()
    }

    /// Returns the bytes in use by data and tree blocks, each copy once, as of the last commit: `bytes_used` of
    /// `btrfs inspect-internal dump-super`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert!(fs.volume().bytes_used() > 0);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn bytes_used(self) -> u64 {
        self.0.fs.engine().volume().superblock().bytes_used()
    }

    /// Returns the size of a tree block in bytes (`nodesize` of mkfs.btrfs(8)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.volume().node_size(), 16384);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn node_size(self) -> u32 {
        self.0.fs.engine().volume().node_size()
    }

    /// Returns the checksum type of tree blocks and data (`--csum` of mkfs.btrfs(8)).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.volume().checksum_type(), creamery::mkfs::ChecksumType::Crc32c);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn checksum_type(self) -> ChecksumType {
        self.0.fs.engine().volume().checksum_type()
    }

    /// Returns the on-disk features of the filesystem, by their names below `/sys/fs/btrfs/UUID/features` in Linux. Features that
    /// every filesystem has by now keep the name that they had there.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// let features = fs.volume().features();
    /// assert!(features.contains(&"no_holes".to_owned()) && !features.contains(&"raid56".to_owned()));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn features(self) -> Vec<String> {
        self.0.fs.engine().volume().superblock().feature_names()
    }

    /// Returns the error counters of a device, with the errors of Linux and of scrubs by this library, as `btrfs device stats` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert!(!fs.volume().device_errors(fs.volume().devices()[0].id)?.any());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn device_errors(self, id: DevId) -> Result<DeviceErrors> {
        self.0.fs.device_errors(id)
    }

    /// Sets the error counters of a device to 0, as `btrfs device stats -z` does. Returns their old values. The new counters and every
    /// change so far are durable when this returns.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::id::DevId;
    /// let were = fs.volume().reset_device_errors(DevId::new(1))?;
    /// println!("{} reads had failed", were.read);
    /// assert!(!fs.volume().device_errors(DevId::new(1))?.any());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such device, or no space; when the filesystem is not open for writing, like every filesystem on several devices.
    pub fn reset_device_errors(self, id: DevId) -> Result<DeviceErrors> {
        let were = self.0.fs.reset_device_errors(id)?;
        self.0.fs.sync()?;
        Ok(were)
    }

    /// Returns the devices of the filesystem, in the order of their numbers, as `btrfs filesystem show` does.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::open(&image)?;
    /// assert_eq!(fs.volume().devices().len(), 1);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn devices(self) -> Vec<MemberDevice> {
        let engine = self.0.fs.engine();
        let path = |id| engine.volume().device(id).map(|device| device.host_path());
        let len = |id| engine.volume().device(id).map(|device| device.len());
        let devices = engine.devices().into_iter();
        devices
            .map(|device| MemberDevice {
                id: device.id,
                uuid: device.uuid,
                total_bytes: device.total_bytes,
                used_bytes: device.used_bytes,
                len: len(device.id),
                path: path(device.id),
            })
            .collect()
    }

    /// Reports which files a further loss of devices would destroy. Calls `each` for every file of all subvolumes, with the
    /// losses that the file would not survive.
    ///
    /// ```no_run
    /// let fs = creamery::Image::options().degraded().open("member.img")?;
    /// let survey = fs.volume().survey(|path, losses| {
    ///     if let Some(loss) = losses.first() {
    ///         println!("{} needs device {:?}", path.display(), loss.devices);
    ///     }
    /// })?;
    /// assert_eq!(survey.losses[0].files, 0, "all can be read as it is");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn survey(self, each: impl FnMut(&Path, &[&Loss])) -> Result<Survey> {
        self.0.survey(each)
    }

    /// Grows the filesystem on a device, as `btrfs filesystem resize` does: on an image file, which becomes longer if it is too short; on a
    /// partition or a block device, up to its end. The change is durable when this returns, with every change so far. A crash in the
    /// middle may leave a file longer than its filesystem, which is harmless.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::id::DevId;
    /// use creamery::volume::NewSize;
    /// let resized = fs.volume().resize(DevId::new(1), NewSize::More(256 << 20))?;
    /// assert_eq!((resized.from, resized.to), (256 << 20, 512 << 20));
    /// assert_eq!(fs.volume().usage().total, 512 << 20);
    /// fs.close()?;
    /// assert_eq!(std::fs::metadata(&image)?.len(), 512 << 20);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When there is no such device or it is too short; when the filesystem would shrink, which is not supported.
    pub fn resize(self, device: DevId, size: NewSize) -> Result<Resized> {
        self.0.fs.resize(device, size)
    }

    /// Converts the trees that record free space (`btrfstune --convert-to-block-group-tree`), in one transaction: a crash leaves the old
    /// trees or the new ones. The change is durable when this returns, with every change so far. False when nothing changes.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// use creamery::volume::Conversion;
    /// assert!(fs.volume().convert(Conversion::FromBlockGroupTree)?);
    /// assert!(fs.volume().convert(Conversion::ToBlockGroupTree)?);
    /// assert!(!fs.volume().convert(Conversion::ToFreeSpaceTree)?, "it has one");
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the result would have a block group tree without a free space tree or with holes listed, which Linux does not mount; when there
    /// is no space for the tree.
    pub fn convert(self, conversion: Conversion) -> Result<bool> {
        self.0.fs.sync()?;
        self.0.fs.engine().convert(conversion)
    }

    /// Discards all free space in ranges of at least `min` bytes, 0 for all, as
    /// [`fstrim(8)`](https://man7.org/linux/man-pages/man8/fstrim.8.html) does: an image file gives it back to the host, and a disk may
    /// drop it. Returns the number of bytes; each copy counts. Every change so far is durable afterwards.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// # let fs = creamery::Image::options().write().open(&image)?;
    /// let discarded = fs.volume().trim(0)?;
    /// assert!(discarded <= 256 << 20);
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// When the filesystem is not open for writing, or the device fails or cannot discard.
    pub fn trim(self, min: u64) -> Result<u64> {
        Ok(self.0.fs.trim((0, u64::MAX), min)?.bytes)
    }
}
