//! What a filesystem is as a whole: its ids, its sizes and features, and the devices it lies on.

use std::path::PathBuf;

use creamery_base::{DevId, Generation, Uuid};
use creamery_codec::ChecksumType;

use crate::Filesystem;

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
    /// The file or device of the host, or the name of a device of one's own; none when it is missing.
    pub path: Option<PathBuf>,
}

impl Filesystem {
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
        let superblock = self.fs.engine().volume().superblock();
        let (incompat, compat_ro) = (superblock.incompat(), superblock.compat_ro());
        let names = incompat.iter_names().map(|(name, _)| name);
        let names = names.chain(compat_ro.iter_names().map(|(name, _)| name));
        names.map(str::to_ascii_lowercase).collect()
    }

    /// The devices that it lies on, in the order of their numbers.
    #[must_use]
    pub fn devices(&self) -> Vec<MemberDevice> {
        let engine = self.fs.engine();
        let path = |id| engine.volume().device(id).map(|device| device.describe().into());
        let devices = engine.devices().into_iter();
        devices
            .map(|device| MemberDevice {
                id: device.id,
                uuid: device.uuid,
                total_bytes: device.total_bytes,
                used_bytes: device.used_bytes,
                path: path(device.id),
            })
            .collect()
    }
}
