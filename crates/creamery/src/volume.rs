//! What a filesystem is as a whole: its ids, its sizes and features, and the devices it lies on.

use std::path::PathBuf;

use creamery_base::{DevId, Generation, Result, Uuid};
use creamery_codec::ChecksumType;
use creamery_format::BlockGroupFlags;
use creamery_txn::GroupSum;

use crate::Filesystem;

pub use creamery_fs::{DeviceErrors, NewSize, Resized};
pub use creamery_txn::{Conversion, DiscardPolicy};
pub use creamery_volume::SuperblockChange;

pub use crate::filesystem::Usage;
pub use crate::uuid_change::UuidChange;

/// A device of a filesystem.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let devices = creamery::Image::open(&image)?.devices();
/// assert_eq!((devices.len(), devices[0].id.get(), devices[0].total_bytes), (1, 1, 256 << 20));
/// assert_eq!(devices[0].path.as_deref(), Some(image.as_path()));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberDevice {
    /// Its number in the filesystem.
    pub id: DevId,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its size as the filesystem sees it.
    pub total_bytes: u64,
    /// What chunks have of it.
    pub used_bytes: u64,
    /// How long the device is itself; none when it is missing.
    pub len: Option<u64>,
    /// The file or device of the host, or the name of a device of one's own; none when it is missing.
    pub path: Option<PathBuf>,
}

/// The block groups of one kind and profile, together.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// let groups = creamery::Image::open(&image)?.block_groups();
/// let metadata = groups.iter().find(|sum| sum.kind == "Metadata").expect("there is metadata");
/// assert_eq!((metadata.profile.as_str(), metadata.copies), ("DUP", 2));
/// assert!(metadata.used <= metadata.total);
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BlockGroups {
    /// What they are for: `Data`, `System`, `Metadata`, or `Data+Metadata`.
    pub kind: String,
    /// Their profile, as mkfs names it, in capitals but for `single`.
    pub profile: String,
    /// How many copies are kept of what is in them.
    pub copies: u64,
    /// Bytes of them, each copy counted once.
    pub total: u64,
    /// Bytes in extents, as of the last commit.
    pub used: u64,
}

impl BlockGroups {
    /// Those with these flags, of `total` bytes, of which `used` are in use; bits that are none of a kind or a profile count for nothing.
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

impl Filesystem {
    /// The block groups by kind and profile: those of data, of the chunk tree, of metadata.
    #[must_use]
    pub fn block_groups(&self) -> Vec<BlockGroups> {
        let of = |sum: GroupSum| BlockGroups::with_flags(sum.flags.bits(), sum.total, sum.used);
        self.fs.engine().group_sums().into_iter().map(of).collect()
    }

    /// Its UUID, which a mount goes by.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.fs.engine().volume().fsid()
    }

    /// The UUID in every tree block: another one only where the filesystem's was changed later.
    #[must_use]
    pub fn metadata_uuid(&self) -> Uuid {
        self.fs.engine().volume().metadata_uuid()
    }

    /// The generation of the last commit.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.fs.engine().volume().generation()
    }

    /// Bytes that data and tree blocks take, each copy once, as of the last commit.
    #[must_use]
    pub fn bytes_used(&self) -> u64 {
        self.fs.engine().volume().superblock().bytes_used()
    }

    /// Bytes of a tree block.
    #[must_use]
    pub fn node_size(&self) -> u32 {
        self.fs.engine().volume().node_size()
    }

    /// The checksum of tree blocks and data.
    #[must_use]
    pub fn checksum_type(&self) -> ChecksumType {
        self.fs.engine().volume().checksum_type()
    }

    /// The on-disk features that it uses, by the names that Linux has for them below `/sys/fs/btrfs/UUID/features`, or had
    /// there as long as not every filesystem had them.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let features = creamery::Image::open(&image)?.features();
    /// assert!(features.contains(&"no_holes".to_owned()) && !features.contains(&"raid56".to_owned()));
    /// # Ok::<(), creamery::Error>(())
    /// ```
    #[must_use]
    pub fn features(&self) -> Vec<String> {
        self.fs.engine().volume().superblock().feature_names()
    }

    /// The errors that Linux has counted of a device, as of the last commit. Ours are not counted.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let image = dir.path().join("disk.img");
    /// # creamery::Image::make(&image).size(256 << 20).run()?;
    /// let fs = creamery::Image::open(&image)?;
    /// assert!(!fs.device_errors(fs.devices()[0].id)?.any());
    /// # Ok::<(), creamery::Error>(())
    /// ```
    ///
    /// # Errors
    /// Device errors; damage.
    pub fn device_errors(&self, id: DevId) -> Result<DeviceErrors> {
        self.fs.device_errors(id)
    }

    /// The devices that it lies on, in the order of their numbers.
    #[must_use]
    pub fn devices(&self) -> Vec<MemberDevice> {
        let engine = self.fs.engine();
        let path = |id| engine.volume().device(id).map(|device| device.describe().into());
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
}
