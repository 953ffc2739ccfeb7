//! Partition tables: a GPT at both ends, an MBR, and a chain of logical partitions.

use creamery_device::{BlockDevice, MemoryDevice, PartitionTable, TableKind};

use crate::input::Input;

const LEN: u64 = 4 << 20;
const ENTRY_LEN: usize = 128;
const ENTRY_COUNT: usize = 128;
const SLOTS: usize = 446;
/// Offset and width of numbers in a slot of an MBR, in the header of a GPT, and in an entry.
const SLOT_FIELDS: [(usize, usize); 4] = [(0, 1), (4, 1), (8, 4), (12, 4)];
const HEADER_FIELDS: [(usize, usize); 9] =
    [(0, 8), (8, 4), (12, 4), (24, 8), (40, 8), (48, 8), (72, 8), (80, 4), (84, 4)];
const ENTRY_FIELDS: [(usize, usize); 5] = [(0, 8), (8, 8), (32, 8), (40, 8), (56, 8)];
/// Sectors of the area of the chain.
const CHAIN: usize = 64;
/// Maximum number of partitions of a table: those of a GPT, or four and four chains.
const PARTITIONS_MAX: usize = 4096;

/// Reads a table made from the input, sealed or not.
///
/// ```
/// creamery_fuzzing::partition_table(b"\x07\x03\x00\x02");
/// ```
pub fn partition_table(data: &[u8]) {
    let mut input = Input::new(data);
    let how = input.byte();
    let device = Disk::of(how, &mut input).put(how);
    let table = PartitionTable::read(&device);
    assert_eq!(
        format!("{table:?}"),
        format!("{:?}", PartitionTable::read(&device)),
        "it is read the same again"
    );
    let Ok(Some(table)) = table else { return };
    assert!(table.partitions.len() <= PARTITIONS_MAX, "{} partitions", table.partitions.len());
    assert!(table.notes.len() <= 8, "{} notes", table.notes.len());
    for partition in &table.partitions {
        assert!(partition.len > 0 && partition.start.checked_add(partition.len) == Some(partition.end()));
        assert!(partition.start.is_multiple_of(table.sector_size) && partition.number > 0);
        assert_eq!(partition.fits(&device), partition.end() <= LEN);
        assert!(partition.has_btrfs(&device).is_ok(), "what is looked at lies on the disk");
        for offset in [0, partition.start, partition.end() - 1, partition.end()] {
            assert!(table.stretch_end(offset).is_none_or(|end| end > offset), "a stretch is not empty");
        }
        assert!(table.partition(partition.number.into()).is_some());
    }
    let numbers: Vec<u32> = table.partitions.iter().map(|partition| partition.number).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "numbers are there once, in order: {numbers:?}");
    assert!(table.kind == TableKind::Gpt || numbers.iter().all(|number| *number < 5 + 4 * 256));
    let told = table.tell(&device).and_then(|told| Ok((told, table.advice(&device)?)));
    assert!(told.is_ok_and(|(told, advice)| !told.is_empty() && !advice.is_empty()));
}

/// The parts of the disk, before they are put together.
struct Disk {
    sector: usize,
    mbr: Vec<u8>,
    /// The sectors of the extended partition.
    chain: Vec<u8>,
    header: Vec<u8>,
    entries: Vec<u8>,
}

fn set(bytes: &mut [u8], (at, width): (usize, usize), value: u64) {
    bytes[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
}

fn get(bytes: &[u8], (at, width): (usize, usize)) -> u64 {
    let mut value = [0; 8];
    value[..width].copy_from_slice(&bytes[at..at + width]);
    u64::from_le_bytes(value)
}

/// Overwrites one of `fields` of the structure at `at` with a number from the input.
fn change(bytes: &mut [u8], at: usize, fields: &[(usize, usize)], input: &mut Input<'_>) {
    let (offset, width) = fields[usize::from(input.byte()) % fields.len()];
    let value = input.number(width, get(bytes, (at + offset, width)));
    set(bytes, (at + offset, width), value);
}

impl Disk {
    /// A valid disk, changed by the input.
    fn of(how: u8, input: &mut Input<'_>) -> Self {
        let sector = if how & 1 == 0 { 512 } else { 4096 };
        let mut disk = Self {
            sector,
            mbr: vec![0; 512],
            chain: vec![0; CHAIN * 512],
            header: vec![0; sector],
            entries: vec![0; ENTRY_LEN * ENTRY_COUNT],
        };
        disk.make(how);
        while !input.is_empty() {
            match input.byte() % 5 {
                0 => {
                    let slot = SLOTS + 16 * input.below(4);
                    change(&mut disk.mbr, slot, &SLOT_FIELDS, input);
                }
                1 => {
                    let at = 512 * input.below(CHAIN);
                    disk.chain[at + 510..at + 512].copy_from_slice(&[0x55, 0xaa]);
                    let slot = at + SLOTS + 16 * input.below(4);
                    change(&mut disk.chain, slot, &SLOT_FIELDS, input);
                }
                2 => change(&mut disk.header, 0, &HEADER_FIELDS, input),
                3 => {
                    let entry = ENTRY_LEN * input.below(ENTRY_COUNT);
                    change(&mut disk.entries, entry, &ENTRY_FIELDS, input);
                }
                _ => {
                    let at = input.below(512);
                    disk.mbr[at] = input.byte();
                }
            }
        }
        disk
    }

    fn make(&mut self, how: u8) {
        self.mbr[510..].copy_from_slice(&[0x55, 0xaa]);
        let slots: [(u64, u64, u64); 2] = match how & 2 {
            0 => [(0x83, 8, 8), (0x05, 64, 512)],
            _ => [(0xee, 1, 8191), (0, 0, 0)],
        };
        for (slot, (kind, first, count)) in (SLOTS..).step_by(16).zip(slots) {
            [(4, 1, kind), (8, 4, first), (12, 4, count)]
                .into_iter()
                .for_each(|(at, width, value)| set(&mut self.mbr, (slot + at, width), value));
        }
        self.header[..8].copy_from_slice(b"EFI PART");
        let last = LEN / self.sector as u64 - 1;
        let fields = [
            (8, 4, 0x1_0000),
            (12, 4, 92),
            (40, 8, 40),
            (48, 8, last - 40),
            (72, 8, 2),
            (80, 4, 128),
            (84, 4, 128),
        ];
        fields.into_iter().for_each(|(at, width, value)| set(&mut self.header, (at, width), value));
        for (number, entry) in self.entries.chunks_mut(ENTRY_LEN).take(2).enumerate() {
            entry[..16].fill(1);
            set(entry, (32, 8), 100 * (number as u64 + 1));
            set(entry, (40, 8), 100 * (number as u64 + 2) - 1);
        }
    }

    /// The header for the place `at`, with the right checksums if `seal` is set.
    fn sealed(&self, at: u64, entries: Option<u64>, seal: bool) -> Vec<u8> {
        let mut header = self.header.clone();
        let own = get(&header, (24, 8));
        set(&mut header, (24, 8), at ^ own);
        if let Some(entries) = entries {
            set(&mut header, (72, 8), entries);
        }
        if !seal {
            return header;
        }
        let claimed = get(&header, (80, 4)).saturating_mul(get(&header, (84, 4)));
        let mut sum = Crc32::new();
        let there = self.entries.len().min(usize::try_from(claimed).unwrap_or(usize::MAX));
        sum.add(&self.entries[..there]);
        set(&mut header, (88, 4), sum.get());
        set(&mut header, (16, 4), 0);
        let used = usize::try_from(get(&header, (12, 4))).unwrap_or(usize::MAX).min(header.len());
        let mut sum = Crc32::new();
        sum.add(&header[..used]);
        set(&mut header, (16, 4), sum.get());
        header
    }

    fn put(&self, how: u8) -> MemoryDevice {
        let (device, sector) = (MemoryDevice::new(LEN), self.sector as u64);
        let last = LEN / sector - 1;
        let behind = last - (self.entries.len() as u64).div_ceil(sector);
        let pieces = [
            (0, self.mbr.clone()),
            (sector, self.sealed(1, None, how & 4 != 0)),
            (2 * sector, self.entries.clone()),
            (64 * 512, self.chain.clone()),
            (last * sector, self.sealed(last, Some(behind), how & 8 != 0)),
            (behind * sector, self.entries.clone()),
        ];
        for (at, bytes) in pieces {
            device.write_at(at, &bytes).expect("it fits");
        }
        device
    }
}

/// The checksum of a GPT, computed a bit at a time.
struct Crc32(u32);

impl Crc32 {
    const fn new() -> Self {
        Self(u32::MAX)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 ^= u32::from(*byte);
            for _ in 0..8 {
                self.0 = (self.0 >> 1) ^ (0xedb8_8320 & (self.0 & 1).wrapping_neg());
            }
        }
    }

    fn get(&self) -> u64 {
        u64::from(!self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unchanged disk can be read, so changes reach the code behind the checksum tests.
    #[test]
    fn what_is_sealed_is_read() {
        for (how, kind, count, notes) in [
            (0b0100, TableKind::Mbr, 2, 1),
            (0b0110, TableKind::Gpt, 2, 0),
            (0b0111, TableKind::Gpt, 2, 0),
            (0b1010, TableKind::Gpt, 2, 1),
            (0b1011, TableKind::Gpt, 2, 1),
        ] {
            let device = Disk::of(how, &mut Input::new(&[])).put(how);
            let table = PartitionTable::read(&device).expect("it is whole").expect("it is there");
            assert_eq!(
                (table.kind, table.partitions.len(), table.notes.len()),
                (kind, count, notes),
                "{how:b}"
            );
        }
        let device = Disk::of(2, &mut Input::new(&[])).put(2);
        assert!(PartitionTable::read(&device).is_err(), "nothing is sealed");
    }
}
