//! Partitions of disk images and block devices: their names, and a list of them.
//!
//! Every function that takes the path of an image also takes a partition: `disk.raw@2` is the partition with number 2, `disk.raw@@1M` the
//! filesystem that begins at that byte ([`ImageName`]). GPT and MBR tables are read, and never written.

use std::path::Path;

use creamery_base::{Error, Result};
use creamery_device::{Access, BlockDevice, FileDevice};

pub use creamery_device::{ImageName, Partition, PartitionTable, PartitionType, TableKind};

/// A partition that was found on a disk.
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
    /// The entry of the partition table.
    pub partition: Partition,
    /// Whether the whole partition lies on the disk. Only such a partition can be opened.
    pub fits: bool,
    /// Whether the partition contains the Btrfs magic number.
    pub has_btrfs: bool,
}

/// The partitions of a disk.
///
/// ```no_run
/// let disk = creamery::partitions::list("disk.raw")?;
/// disk.notes.iter().for_each(|note| println!("{note}"));
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Disk {
    /// The format of the table.
    pub kind: TableKind,
    /// The size of a sector, bytes.
    pub sector_size: u64,
    /// The size of the disk, bytes.
    pub len: u64,
    /// The partitions, by number.
    pub partitions: Vec<Listed>,
    /// Defects of the table that did not keep it from being read.
    pub notes: Vec<String>,
}

/// Lists the partitions of the disk image or block device at `path`, even if it is open elsewhere.
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
/// the errors of opening and reading.
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

/// Notes about the partition table that `name` refers to: the table is damaged and its other copy was used. An open filesystem
/// has them among its own notes; use this function if you do something else with an image. Empty if `name` is not a
/// partition or cannot be opened.
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
