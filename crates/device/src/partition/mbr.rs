//! MBR: four entries at the end of the first sector, one of which may be an extended partition with a chain of further sectors in it.

use std::collections::HashSet;

use creamery_base::Result;

use super::kinds::PartitionType;
use super::table::{Partition, PartitionTable, TableKind, bytes};
use crate::BlockDevice;

/// The bytes of a sector that the format uses, whatever the sector size.
pub(super) const SECTOR_LEN: usize = 512;
const ENTRIES: std::ops::Range<usize> = 446..510;
const ENTRY_LEN: usize = 16;
const PROTECTIVE: u8 = 0xee;
/// The number of the first logical partition.
const FIRST_LOGICAL: u32 = 5;
/// The largest number of sectors of the chain that are read. Linux names fewer.
pub(super) const LOGICAL_MAX: usize = 256;

/// One of the four entries, in sectors.
#[derive(Clone, Copy)]
struct Entry {
    kind: PartitionType,
    first: u32,
    count: u32,
}

impl Entry {
    /// Parses an entry; `None` if it is not in use.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let entry = Self { kind: PartitionType::Mbr(bytes[4]), first: number(8), count: number(12) };
        (bytes[4] != 0 && entry.count != 0).then_some(entry)
    }
}

/// A first sector that holds a table.
pub(super) struct Mbr([Option<Entry>; 4]);

/// Returns the four entries of a sector that has the mark of a table.
fn entries(sector: &[u8; SECTOR_LEN]) -> Option<[Option<Entry>; 4]> {
    if !sector.ends_with(&[0x55, 0xaa]) {
        return None;
    }
    let mut slots = sector[ENTRIES].chunks_exact(ENTRY_LEN).map(Entry::parse);
    Some(std::array::from_fn(|_| slots.next().flatten()))
}

impl Mbr {
    /// Parses the first sector. `None` if it is no table, or a table without an entry, because boot sectors look like that as well.
    pub(super) fn parse(sector: &[u8; SECTOR_LEN]) -> Option<Self> {
        // Active or not: any other value is code.
        let is_table = sector[ENTRIES].chunks_exact(ENTRY_LEN).all(|entry| matches!(entry[0], 0 | 0x80));
        let slots = entries(sector).filter(|_| is_table)?;
        slots.iter().any(Option::is_some).then_some(Self(slots))
    }

    /// Whether it declares a GPT.
    pub(super) fn is_protective(&self) -> bool {
        self.0.iter().flatten().any(|entry| entry.kind == PartitionType::Mbr(PROTECTIVE))
    }

    /// Reads all partitions of `device`.
    ///
    /// # Errors
    /// The device cannot be read.
    pub(super) fn read(&self, device: &dyn BlockDevice, sector: u64) -> Result<PartitionTable> {
        let mut table = PartitionTable::new(TableKind::Mbr, sector);
        for (number, entry) in (1..).zip(&self.0) {
            let Some(entry) = entry else { continue };
            push(&mut table, number, u64::from(entry.first), entry);
        }
        let mut number = FIRST_LOGICAL;
        for extended in self.0.iter().flatten().filter(|entry| entry.kind.is_extended()) {
            read_chain(device, &mut table, *extended, &mut number)?;
        }
        Ok(table)
    }
}

/// Adds a partition. `first` is counted from the start of the disk.
fn push(table: &mut PartitionTable, number: u32, first: u64, entry: &Entry) {
    let range = bytes(first, u64::from(entry.count), table.sector_size);
    let (start, len) = range.expect("PARTITION-2: numbers of 32 bits, some of them added, times a sector");
    let (kind, name) = (entry.kind, String::new());
    table.partitions.push(Partition { number, start, len, kind, name, uuid: None });
}

/// Reads the logical partitions in `extended`. In each sector of the chain, one entry is a partition, counted from that sector, and
/// one leads to the next sector, counted from the start of the chain.
fn read_chain(
    device: &dyn BlockDevice,
    table: &mut PartitionTable,
    extended: Entry,
    number: &mut u32,
) -> Result<()> {
    let begin = u64::from(extended.first);
    let (mut seen, mut next) = (HashSet::new(), 0);
    loop {
        let at = begin + u64::from(next);
        let broken = match () {
            () if !seen.insert(next) => "it is a loop",
            () if seen.len() > LOGICAL_MAX => "it is too long",
            () if next >= extended.count => "it leaves the extended partition",
            () => "",
        };
        if !broken.is_empty() {
            table.note(format!("the chain of logical partitions ends at sector {at}: {broken}"));
            return Ok(());
        }
        let mut sector = [0; SECTOR_LEN];
        let start = at * table.sector_size;
        let is_there = start.checked_add(SECTOR_LEN as u64).is_some_and(|end| end <= device.len());
        if is_there {
            device.read_at(start, &mut sector)?;
        }
        let Some(slots) = entries(&sector) else {
            table.note(format!("the chain of logical partitions ends at sector {at}: no table is there"));
            return Ok(());
        };
        table.edges.extend([start, start + table.sector_size]);
        let is_link = |entry: &&Entry| entry.kind.is_extended();
        if let Some(entry) = slots.iter().flatten().find(|entry| !is_link(entry)) {
            push(table, *number, at + u64::from(entry.first), entry);
            *number += 1;
        }
        match slots.iter().flatten().find(is_link) {
            Some(link) => next = link.first,
            None => return Ok(()),
        }
    }
}
