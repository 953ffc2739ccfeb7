//! GPT: a header with a checksum of itself and of an array of entries, at the start and at the end of a disk.

use creamery_base::{Error, Result, Uuid};

use super::crc32::{Crc32, crc32};
use super::kinds::PartitionType;
use super::table::{Partition, PartitionTable, TableKind, bytes};
use crate::BlockDevice;

const SIGNATURE: &[u8] = b"EFI PART";
/// A header of revision 1.0 has this many bytes.
const HEADER_LEN: u32 = 92;
/// An entry has this many bytes, or a power of two times as many.
const ENTRY_LEN: u32 = 128;
const ENTRY_LEN_MAX: u32 = 4096;
/// The largest number of entries that is read. Most tables have 128, and Linux names at most 255 partitions.
pub(super) const ENTRIES_MAX: u32 = 4096;
/// Bytes of a name, UTF-16.
const NAME: std::ops::Range<usize> = 56..128;
/// The part of the entries that is in memory at once, bytes; a multiple of every length of an entry.
const PIECE: u64 = 64 << 10;

/// One of the two copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Copy {
    First,
    Last,
}

/// The result of a search for a GPT at one place.
pub(super) enum Found {
    Nothing,
    /// A damaged GPT, with the reason.
    Damaged(String),
    Whole(PartitionTable),
}

/// The fields of the header, in sectors.
struct Header {
    first_usable: u64,
    last_usable: u64,
    entries: u64,
    entry_count: u32,
    entry_len: u32,
    entries_sum: u32,
}

/// Reads the GPT of `device`, if its sectors have `sector` bytes.
///
/// # Errors
/// The device cannot be read.
pub(super) fn read(device: &dyn BlockDevice, sector: u64, copy: Copy) -> Result<Found> {
    let sectors = device.len() / sector;
    let at = match copy {
        Copy::First => 1,
        Copy::Last => sectors.saturating_sub(1),
    };
    if at == 0 || at >= sectors {
        return Ok(Found::Nothing);
    }
    let mut bytes = vec![0; usize::try_from(sector).expect("a sector is small")];
    device.read_at(at * sector, &mut bytes)?;
    if !bytes.starts_with(SIGNATURE) {
        return Ok(Found::Nothing);
    }
    match parse(&bytes, at, sectors) {
        Ok(header) => read_entries(device, sector, &header),
        Err(why) => Ok(Found::Damaged(why)),
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Parses the header in the sector `bytes`, which is number `at` of `sectors`. Errors: the invalid field.
fn parse(bytes: &[u8], at: u64, sectors: u64) -> Result<Header, String> {
    let len = u32_at(bytes, 12);
    let in_sector = usize::try_from(len).ok().filter(|len| *len <= bytes.len());
    let Some(used) = in_sector.filter(|_| len >= HEADER_LEN).map(|len| &bytes[..len]) else {
        return Err(format!("its header has {len} bytes, expected {HEADER_LEN} to {}", bytes.len()));
    };
    let (found, mut blank) = (u32_at(bytes, 16), used.to_vec());
    blank[16..20].fill(0);
    let sum = crc32(&blank);
    if found != sum {
        return Err(format!("its header has checksum {found:08x}, expected {sum:08x}"));
    }
    let (revision, own) = (u32_at(bytes, 8), u64_at(bytes, 24));
    if revision >> 16 != 1 {
        return Err(format!("its revision is {}.{}, expected 1.0", revision >> 16, revision & 0xffff));
    }
    if own != at {
        return Err(format!("its header is in sector {at} and says that it is in {own}"));
    }
    let header = Header {
        first_usable: u64_at(bytes, 40),
        last_usable: u64_at(bytes, 48),
        entries: u64_at(bytes, 72),
        entry_count: u32_at(bytes, 80),
        entry_len: u32_at(bytes, 84),
        entries_sum: u32_at(bytes, 88),
    };
    let times = header.entry_len / ENTRY_LEN;
    let is_multiple = header.entry_len.is_multiple_of(ENTRY_LEN) && times.is_power_of_two();
    if !is_multiple || header.entry_len > ENTRY_LEN_MAX {
        return Err(format!(
            "its entries have {} bytes, expected 128 times a power of two",
            header.entry_len
        ));
    }
    if header.entry_count > ENTRIES_MAX {
        return Err(format!("it has {} entries, expected at most {ENTRIES_MAX}", header.entry_count));
    }
    if header.entries < 2 || header.entries >= sectors {
        return Err(format!("its entries are in sector {}, expected 2 to {}", header.entries, sectors - 1));
    }
    Ok(header)
}

fn read_entries(device: &dyn BlockDevice, sector: u64, header: &Header) -> Result<Found> {
    // `entries` is below the number of sectors, and the largest array has 16 MiB.
    let start = header.entries * sector;
    let len = u64::from(header.entry_count) * u64::from(header.entry_len);
    if device.len() - start < len {
        let why = format!("its entries have {len} bytes, expected at most {}", device.len() - start);
        return Ok(Found::Damaged(why));
    }
    let entry_len = usize::try_from(header.entry_len).expect("an entry is small");
    let mut table = PartitionTable::new(TableKind::Gpt, sector);
    table.edges.extend(header.last_usable.checked_add(1).and_then(|end| end.checked_mul(sector)));
    let (mut sum, mut number, mut done) = (Crc32::new(), 0, 0);
    let mut piece = vec![0; usize::try_from(len.min(PIECE)).expect("a piece is small")];
    while done < len {
        let now = &mut piece[..usize::try_from((len - done).min(PIECE)).expect("a piece is small")];
        device.read_at(start + done, now)?;
        sum = sum.with(now);
        for entry in now.chunks_exact(entry_len) {
            number += 1;
            match parse_entry(entry, number, sector) {
                None => {}
                Some(Ok(partition)) => table.partitions.push(partition),
                // The checksum is right, so a program wrote this entry like this. The others stay usable.
                Some(Err(why)) => table.note(why),
            }
        }
        done += now.len() as u64;
    }
    if sum.get() != header.entries_sum {
        let (found, want) = (sum.get(), header.entries_sum);
        return Ok(Found::Damaged(format!("its entries have checksum {found:08x}, expected {want:08x}")));
    }
    let out = table.partitions.iter().find(|partition| partition.start / sector < header.first_usable);
    if let Some(Partition { number, .. }) = out {
        table.note(format!("partition {number} begins where the table itself may lie"));
    }
    Ok(Found::Whole(table))
}

/// Parses an entry. `None`: the entry is not in use. Errors: the invalid field.
fn parse_entry(entry: &[u8], number: u32, sector: u64) -> Option<Result<Partition, String>> {
    let uuid = |at: usize| Uuid::from_bytes_le(entry[at..at + 16].try_into().expect("sixteen bytes"));
    let kind = uuid(0);
    if kind.is_nil() {
        return None;
    }
    let (first, last) = (u64_at(entry, 32), u64_at(entry, 40));
    let sectors = last.checked_sub(first).and_then(|sectors| sectors.checked_add(1));
    let range = sectors.and_then(|sectors| bytes(first, sectors, sector));
    let Some((start, len)) = range else {
        return Some(Err(format!(
            "partition {number} reaches from sector {first} to {last} and is left out"
        )));
    };
    let units = entry[NAME].chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let name = char::decode_utf16(units.take_while(|unit| *unit != 0));
    let name = name.map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
    let (kind, uuid) = (PartitionType::Gpt(kind), Some(uuid(16)));
    Some(Ok(Partition { number, start, len, kind, name, uuid }))
}

/// Returns the error for a missing GPT that an MBR declares.
pub(super) fn damaged(device: &dyn BlockDevice, why: Option<&str>) -> Error {
    let why =
        why.unwrap_or("the first sector announces it, but neither the second nor the last sector has it");
    let what = format!("{}: the GPT partition table is damaged: {why}", device.describe());
    Error::invalid(what)
}
