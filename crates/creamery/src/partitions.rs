//! Partitions of disk images and block devices: how they are named, and which there are.
//!
//! Whatever takes the path of an image takes a partition, too: `disk.raw@2` is the one with number 2, `disk.raw@@1M` what begins
//! at that byte ([`ImageName`]). Tables are read, GPT and MBR, and never written.

use std::path::Path;

use creamery_base::{Error, Result};
use creamery_device::{Access, BlockDevice, FileDevice};

pub use creamery_device::{ImageName, Partition, PartitionTable, PartitionType, TableKind};

/// A partition as it was found on its disk.
///
/// ```no_run
/// for found in creamery::partitions::list("disk.raw")?.partitions {
///     println!("{}{}", found.partition, if found.has_btrfs { ": a Btrfs" } else { "" });
/// }
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Listed {
    /// What the table says.
    pub partition: Partition,
    /// Whether all of it lies on the disk. Only such a one can be opened.
    pub fits: bool,
    /// Whether there is a Btrfs in it, or the mark of one.
    pub has_btrfs: bool,
}

/// What a disk is divided into.
///
/// ```no_run
/// let disk = creamery::partitions::list("disk.raw")?;
/// disk.notes.iter().for_each(|note| println!("{note}"));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Disk {
    /// How the table is written.
    pub kind: TableKind,
    /// Of a sector, bytes.
    pub sector_size: u64,
    /// Of the disk, bytes.
    pub len: u64,
    /// By their numbers.
    pub partitions: Vec<Listed>,
    /// What is wrong with the table and was got over.
    pub notes: Vec<String>,
}

/// The partitions of the disk image or block device at `path`, whoever else has it.
///
/// ```
/// use creamery::{Image, partitions};
/// use std::os::unix::fs::FileExt;
/// let dir = tempfile::tempdir()?;
/// let disk = dir.path().join("disk.raw");
/// let file = std::fs::File::create_new(&disk)?;
/// file.set_len(300 << 20)?;
/// // An MBR with one partition, type 83: 524288 sectors from sector 2048 on.
/// file.write_all_at(&[0, 0, 0, 0, 0x83, 0, 0, 0, 0, 8, 0, 0, 0, 0, 8, 0], 446)?;
/// file.write_all_at(&[0x55, 0xaa], 510)?;
/// Image::make(dir.path().join("disk.raw@1")).run()?;
/// let listed = partitions::list(&disk)?;
/// assert_eq!(listed.partitions[0].partition.to_string(), "1 (Linux, 256.00MiB)");
/// assert!(listed.partitions[0].has_btrfs);
/// Image::options().write().open(dir.path().join("disk.raw@@1M"))?.write("/note", "in a partition")?;
/// # Ok::<(), creamery::Error>(())
/// ```
///
/// # Errors
/// [`InvalidInput`](creamery_base::ErrorKind::InvalidInput) when there is no table, or a damaged one without another copy; and
/// those of opening and reading.
pub fn list(path: impl AsRef<Path>) -> Result<Disk> {
    let device = FileDevice::open(path, Access::ReadOnlyForced)?;
    let table = PartitionTable::read(&device)?;
    let table =
        table.ok_or_else(|| Error::invalid(format!("{} has no partition table", device.describe())))?;
    let PartitionTable { kind, sector_size, notes, partitions, .. } = table;
    let listed = partitions.into_iter().map(|partition| {
        let (fits, has_btrfs) = (partition.fits(&device), partition.has_btrfs(&device)?);
        Ok(Listed { partition, fits, has_btrfs })
    });
    Ok(Disk { kind, sector_size, len: device.len(), partitions: listed.collect::<Result<_>>()?, notes })
}

/// What is to be known of the partition table by which `name` was found: that it is damaged and its other copy was used. What
/// opens a filesystem has it among its notes; this is for who does something else with an image. Nothing for what is no
/// partition, or cannot be opened.
///
/// ```no_run
/// creamery::partitions::notes("disk.raw@2").iter().for_each(|note| eprintln!("{note}"));
/// ```
#[must_use]
pub fn notes(name: impl AsRef<Path>) -> Vec<String> {
    let name = name.as_ref();
    if !ImageName::find(name).is_ok_and(|name| name.is_part()) {
        return Vec::new();
    }
    FileDevice::open(name, Access::ReadOnlyForced).map(|device| device.notes()).unwrap_or_default()
}
