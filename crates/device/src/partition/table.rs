//! The partitions of a disk, for all kinds of tables.

use std::fmt;

use creamery_base::{Error, Escaped, HumanSize, Result, Uuid};

use super::kinds::PartitionType;
use crate::BlockDevice;

/// The largest number of notes; more would add no information.
const NOTES_MAX: usize = 8;
/// The offset and the magic number of a Btrfs. This room knows nothing else about a partition's content; users look for it.
const BTRFS: (u64, &[u8; 8]) = (65536 + 64, b"_BHRfS_M");

/// The format of a table.
///
/// ```
/// assert_eq!(creamery_device::TableKind::Gpt.to_string(), "GPT");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableKind {
    /// The format of UEFI.
    Gpt,
    /// The format of DOS, in the first sector.
    Mbr,
}

impl fmt::Display for TableKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpt => "GPT",
            Self::Mbr => "MBR",
        })
    }
}

/// A part of a disk.
///
/// ```
/// use creamery_device::{Partition, PartitionType};
/// let (kind, name) = (PartitionType::Mbr(0x83), String::new());
/// let root = Partition { number: 2, start: 1 << 20, len: 64 << 20, kind, name, uuid: None };
/// assert_eq!(root.to_string(), "2 (Linux, 64.00MiB)");
/// assert_eq!(root.end(), 65 << 20);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Partition {
    /// From 1 on, with gaps; logical partitions have 5 and more.
    pub number: u32,
    /// The start, bytes from the start of the disk.
    pub start: u64,
    /// Bytes; not 0.
    pub len: u64,
    /// The declared type.
    pub kind: PartitionType,
    /// The name, as in the table; empty in an MBR.
    pub name: String,
    /// The partition's UUID, in a GPT.
    pub uuid: Option<Uuid>,
}

impl Partition {
    /// Returns the end, bytes from the start of the disk.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start + self.len // PARTITION-2
    }

    /// Whether all of it lies on `device`.
    #[must_use]
    pub fn fits(&self, device: &dyn BlockDevice) -> bool {
        self.end() <= device.len()
    }

    /// Whether it has the magic number of a Btrfs on `device`. The rest of a former Btrfs has it, too.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn has_btrfs(&self, device: &dyn BlockDevice) -> Result<bool> {
        let (offset, mark) = BTRFS;
        let end = offset + mark.len() as u64;
        if self.kind.is_extended() || self.len < end || self.start.saturating_add(end) > device.len() {
            return Ok(false);
        }
        let mut found = [0; 8];
        device.read_at(self.start + offset, &mut found)?;
        Ok(found == *mark)
    }
}

impl fmt::Display for Partition {
    /// Shows number, name, type and size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, .. } = self;
        write!(f, "{number} (")?;
        if !self.name.is_empty() {
            write!(f, "'{}', ", Escaped(self.name.as_bytes()))?;
        }
        write!(f, "{kind}, {})", HumanSize(self.len))
    }
}

/// The partitions of a disk.
///
/// ```
/// use creamery_device::{BlockDevice, MemoryDevice, PartitionTable, TableKind};
/// let disk = MemoryDevice::new(1 << 20);
/// // One entry of type 83, active: 512 sectors from sector 64 on.
/// disk.write_at(446, &[0x80, 0, 0, 0, 0x83, 0, 0, 0, 64, 0, 0, 0, 0, 2, 0, 0])?;
/// disk.write_at(510, &[0x55, 0xaa])?;
/// let table = PartitionTable::read(&disk)?.expect("there is one");
/// assert_eq!((table.kind, table.partitions[0].start, table.partitions[0].len), (TableKind::Mbr, 32768, 262144));
/// assert!(PartitionTable::read(&MemoryDevice::new(1 << 20))?.is_none());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartitionTable {
    /// The format of the table.
    pub kind: TableKind,
    /// The size of a sector, the unit of the table; bytes.
    pub sector_size: u64,
    /// In ascending order of their numbers.
    pub partitions: Vec<Partition>,
    /// Errors in the table that reading survived.
    pub notes: Vec<String>,
    /// The end of the space for partitions, and the begin and end of sectors of the table between them; bytes.
    pub(super) edges: Vec<u64>,
}

impl PartitionTable {
    pub(super) const fn new(kind: TableKind, sector_size: u64) -> Self {
        Self { kind, sector_size, partitions: Vec::new(), notes: Vec::new(), edges: Vec::new() }
    }

    pub(super) fn note(&mut self, note: impl Into<String>) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note.into());
        }
    }

    /// The partition with this number.
    #[must_use]
    pub fn partition(&self, number: u64) -> Option<&Partition> {
        self.partitions.iter().find(|partition| u64::from(partition.number) == number)
    }

    /// Returns the partitions with the name or UUID `name`. Several may have the same name.
    pub fn called<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Partition> {
        let uuid = Uuid::parse_str(name).ok();
        self.partitions
            .iter()
            .filter(move |partition| partition.name == name || uuid.is_some() && partition.uuid == uuid)
    }

    /// Returns the end of the stretch that contains `offset`: the next place where a partition, a sector of the table itself, or the
    /// space for partitions begins or ends.
    /// `None` if there is no such place behind `offset`; the stretch then ends with the device.
    #[must_use]
    pub fn stretch_end(&self, offset: u64) -> Option<u64> {
        let edges = self.partitions.iter().flat_map(|partition| [partition.start, partition.end()]);
        edges.chain(self.edges.iter().copied()).filter(|edge| *edge > offset).min()
    }

    /// Describes the partitions in words.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn tell(&self, device: &dyn BlockDevice) -> Result<String> {
        let told = self.partitions.iter().map(|partition| {
            let has = if partition.has_btrfs(device)? { ", which has a Btrfs" } else { "" };
            Ok(format!("{partition}{has}"))
        });
        let told: Vec<String> = told.collect::<Result<_>>()?;
        Ok(if told.is_empty() { "none".to_owned() } else { told.join("; ") })
    }

    /// Returns an example of a partition's name, for a user that named the whole `device`: one with a Btrfs if there is one.
    ///
    /// # Errors
    /// The device cannot be read.
    pub fn advice(&self, device: &dyn BlockDevice) -> Result<String> {
        let name = device.describe();
        for partition in &self.partitions {
            if partition.has_btrfs(device)? {
                let number = partition.number;
                return Ok(format!("name a partition, as in {name}@{number}, which has a Btrfs"));
            }
        }
        let those_that_hold = self.partitions.iter().filter(|partition| !partition.kind.is_extended());
        let number =
            those_that_hold.max_by_key(|partition| partition.len).map_or(1, |largest| largest.number);
        let told = self.tell(device)?;
        Ok(format!("name a partition, as in {name}@{number}; none has a Btrfs, and there are: {told}"))
    }
}

/// Returns start and length of `sectors` sectors from `first` on, bytes. `None` if the end exceeds 64 bits (PARTITION-2).
pub(super) fn bytes(first: u64, sectors: u64, sector: u64) -> Option<(u64, u64)> {
    let (start, len) = (first.checked_mul(sector)?, sectors.checked_mul(sector)?);
    start.checked_add(len).filter(|_| len > 0).map(|_| (start, len))
}

/// Returns the error for a table without the partition `which`, a number or a name.
pub(crate) fn no_such(device: &dyn BlockDevice, table: &PartitionTable, which: impl fmt::Display) -> Error {
    let told = match table.tell(device) {
        Ok(told) => told,
        Err(error) => return error,
    };
    let notes: String = table.notes.iter().map(|note| format!("; {note}")).collect();
    Error::invalid(format!("{} has no partition {which}; there are: {told}{notes}", device.describe()))
}
