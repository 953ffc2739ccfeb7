//! Tables made by hand, and tables made by sfdisk and sgdisk, which then check the results.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use creamery_base::{ErrorKind, Uuid};

use super::crc32::crc32;
use super::gpt::ENTRIES_MAX;
use super::mbr::LOGICAL_MAX;
use super::*;
use crate::{Access, BlockDevice, FileDevice, MemoryDevice};

const MIB: u64 = 1 << 20;
const LINUX: &str = "0fc63daf-8483-4772-8e79-3d69d8477de4";

fn read(device: &MemoryDevice) -> PartitionTable {
    PartitionTable::read(device).expect("no damage").expect("a table")
}

/// Number, start and length of each.
fn ranges(table: &PartitionTable) -> Vec<(u32, u64, u64)> {
    table.partitions.iter().map(|partition| (partition.number, partition.start, partition.len)).collect()
}

/// An entry of an MBR: type, first sector, sectors.
type Slot = (u8, u32, u32);

/// Puts a sector with a table at `at`, bytes.
fn put_mbr(device: &MemoryDevice, at: u64, slots: &[Slot]) {
    let mut sector = [0; 512];
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    for (slot, &(kind, first, count)) in sector[446..510].chunks_mut(16).zip(slots) {
        slot[4] = kind;
        slot[8..12].copy_from_slice(&first.to_le_bytes());
        slot[12..].copy_from_slice(&count.to_le_bytes());
    }
    device.write_at(at, &sector).expect("it is there");
}

/// The content of a GPT; tests damage parts of it.
#[derive(Clone)]
struct Gpt {
    sector: u64,
    /// First and last sector, and name; a first sector of 0 is an entry that is not in use.
    parts: Vec<(u64, u64, &'static str)>,
    entry_len: u32,
    entry_count: u32,
    header_len: u32,
    revision: u32,
}

impl Gpt {
    fn of(parts: &[(u64, u64, &'static str)]) -> Self {
        let (entry_len, entry_count, header_len, revision) = (128, 128, 92, 0x1_0000);
        Self { sector: 512, parts: parts.to_vec(), entry_len, entry_count, header_len, revision }
    }

    fn entries(&self) -> Vec<u8> {
        let len = self.entry_len.max(128) as usize;
        let mut bytes = vec![0; len * self.parts.len().max(self.entry_count.min(ENTRIES_MAX) as usize)];
        for (entry, (first, last, name)) in bytes.chunks_mut(len).zip(&self.parts) {
            if *first == 0 {
                continue;
            }
            entry[..16].copy_from_slice(&Uuid::parse_str(LINUX).unwrap().to_bytes_le());
            entry[16] = 7;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
            let units = name.encode_utf16().flat_map(u16::to_le_bytes);
            entry[56..128].iter_mut().zip(units).for_each(|(to, from)| *to = from);
        }
        bytes
    }

    fn put_copy(&self, device: &MemoryDevice, at: u64, entries_at: u64) {
        let (entries, sectors) = (self.entries(), device.len() / self.sector);
        let mut header = vec![0; self.sector as usize];
        header[..8].copy_from_slice(b"EFI PART");
        let longs = [(24, at), (32, sectors - at), (40, 40), (48, sectors - 40), (72, entries_at)];
        for (offset, value) in longs {
            header[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
        }
        let words = [(8, self.revision), (12, self.header_len), (80, self.entry_count)];
        for (offset, value) in words.into_iter().chain([(84, self.entry_len), (88, crc32(&entries))]) {
            header[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        }
        let used = (self.header_len as usize).min(header.len());
        let sum = crc32(&header[..used]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        device.write_at(at * self.sector, &header).expect("it is there");
        device.write_at(entries_at * self.sector, &entries).expect("they are there");
    }

    /// Writes the protective MBR and both copies.
    fn put(&self, device: &MemoryDevice) {
        let last = device.len() / self.sector - 1;
        put_mbr(device, 0, &[(0xee, 1, u32::try_from(last).unwrap_or(u32::MAX))]);
        self.put_copy(device, 1, 2);
        let len = self.entries().len() as u64;
        self.put_copy(device, last, last - len.div_ceil(self.sector));
    }
}

fn gpt_disk() -> MemoryDevice {
    let device = MemoryDevice::new(64 * MIB);
    Gpt::of(&[(2048, 4095, "boot"), (0, 0, ""), (4096, 100_000, "root \u{e4}\u{1f404}")]).put(&device);
    device
}

fn flip(device: &MemoryDevice, at: u64) {
    let mut byte = [0];
    device.read_at(at, &mut byte).unwrap();
    device.write_at(at, &[byte[0] ^ 1]).unwrap();
}

#[test]
fn a_gpt_tells_numbers_places_names_and_types() {
    let device = gpt_disk();
    let table = read(&device);
    assert_eq!((table.kind, table.sector_size, &table.notes[..]), (TableKind::Gpt, 512, &[][..]));
    assert_eq!(ranges(&table), [(1, MIB, MIB), (3, 2 * MIB, 95_905 * 512)]);
    let root = &table.partitions[1];
    assert_eq!((root.name.as_str(), root.kind.name()), ("root \u{e4}\u{1f404}", Some("Linux filesystem")));
    assert_eq!(root.kind.code(), LINUX);
    assert!(root.uuid.is_some_and(|uuid| !uuid.is_nil()));
    assert_eq!(
        table.tell(&device).unwrap(),
        "1 ('boot', Linux filesystem, 1.00MiB); 3 ('root \u{e4}\u{1f404}', Linux filesystem, 46.83MiB)"
    );
    device.write_at(2 * MIB + 65600, b"_BHRfS_M").unwrap();
    assert!(table.tell(&device).unwrap().ends_with("46.83MiB), which has a Btrfs"));
    assert_eq!(
        table.advice(&device).unwrap(),
        format!("name a partition, as in {}@3, which has a Btrfs", device.describe())
    );
}

#[test]
fn a_gpt_is_found_by_sectors_of_either_size_and_entries_may_be_long_or_few() {
    for (sector, entry_len, entry_count) in
        [(512, 128, 128), (4096, 128, 128), (512, 4096, 16), (4096, 256, 1), (512, 128, ENTRIES_MAX)]
    {
        let device = MemoryDevice::new(64 * MIB);
        let first = 8 * MIB / sector;
        Gpt { sector, entry_len, entry_count, ..Gpt::of(&[(first, first, "")]) }.put(&device);
        let table = read(&device);
        assert_eq!((table.sector_size, ranges(&table)), (sector, vec![(1, 8 * MIB, sector)]));
    }
}

#[test]
fn a_damaged_gpt_gives_way_to_the_one_at_the_end_which_is_told() {
    let want = ranges(&read(&gpt_disk()));
    // A byte of the signature, of the header, of the entries; all of the start.
    for at in [512, 512 + 40, 1024 + 200, u64::MAX] {
        let device = gpt_disk();
        match at {
            u64::MAX => device.zero(0, 34 * 512).unwrap(),
            at => flip(&device, at),
        }
        let table = read(&device);
        assert_eq!(ranges(&table), want, "byte {at}");
        assert_eq!(table.notes.len(), 1, "byte {at}: {:?}", table.notes);
        assert!(table.notes[0].contains("the one at the end was used"), "byte {at}: {:?}", table.notes);
    }
}

#[test]
fn a_gpt_without_its_mbr_is_one_and_says_so() {
    let device = gpt_disk();
    device.zero(0, 512).unwrap();
    let table = read(&device);
    assert_eq!(table.partitions.len(), 2);
    assert!(table.notes[0].contains("no protective MBR"), "{:?}", table.notes);
}

#[test]
fn a_gpt_that_is_damaged_at_both_ends_is_an_error_that_says_why() {
    let device = gpt_disk();
    let last = device.len() - 512;
    for at in [512 + 40, last + 40] {
        flip(&device, at);
    }
    let error = PartitionTable::read(&device).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("its header has checksum"), "{error}");
    device.zero(512, 512).unwrap();
    device.zero(last, 512).unwrap();
    let error = PartitionTable::read(&device).unwrap_err().to_string();
    assert!(error.contains("neither the second nor the last sector"), "{error}");
    // The start declares no table: the rest at the end is from a former use.
    let device = gpt_disk();
    device.zero(0, 34 * 512).unwrap();
    device.write_at(0, b"something").unwrap();
    assert_eq!(PartitionTable::read(&device).unwrap(), None);
}

#[test]
fn a_hybrid_mbr_leads_to_the_gpt_and_an_older_gpt_behind_an_mbr_does_not_count() {
    let device = gpt_disk();
    put_mbr(&device, 0, &[(0xee, 1, 2047), (0x83, 4096, 10)]);
    assert_eq!(read(&device).kind, TableKind::Gpt);
    put_mbr(&device, 0, &[(0x83, 4096, 10)]);
    assert_eq!((read(&device).kind, ranges(&read(&device))), (TableKind::Mbr, vec![(1, 2 * MIB, 5120)]));
}

#[test]
fn a_table_that_claims_the_most_is_refused_or_bounded() {
    let gpt = Gpt::of(&[(2048, 4095, "")]);
    let rows: [(Gpt, &str); 9] = [
        (Gpt { entry_count: u32::MAX, ..gpt.clone() }, "4294967295 entries"),
        (Gpt { entry_count: ENTRIES_MAX + 1, ..gpt.clone() }, "4097 entries"),
        (Gpt { entry_len: 127, ..gpt.clone() }, "127 bytes"),
        (Gpt { entry_len: 384, ..gpt.clone() }, "384 bytes"),
        (Gpt { entry_len: 8192, ..gpt.clone() }, "8192 bytes"),
        (Gpt { header_len: 91, ..gpt.clone() }, "91 bytes"),
        (Gpt { header_len: 513, ..gpt.clone() }, "513 bytes"),
        (Gpt { header_len: u32::MAX, ..gpt.clone() }, "4294967295 bytes"),
        (Gpt { revision: 0x2_0000, ..gpt.clone() }, "revision is 2.0"),
    ];
    for (gpt, why) in rows {
        let device = MemoryDevice::new(64 * MIB);
        put_mbr(&device, 0, &[(0xee, 1, 1)]);
        // The entries have a real size; the claim is in the header.
        gpt.put_copy(&device, 1, 40);
        let error = PartitionTable::read(&device).unwrap_err().to_string();
        assert!(error.contains(why), "{error}, want {why}");
    }
    for (entries_at, why) in [(0, "in sector 0"), (1, "in sector 1"), (131_071, "expected at most 512")] {
        let device = MemoryDevice::new(64 * MIB);
        Gpt { entry_count: 4, ..gpt.clone() }.put_copy(&device, 1, 40);
        let mut header = [0; 512];
        device.read_at(512, &mut header).unwrap();
        header[72..80].copy_from_slice(&u64::to_le_bytes(entries_at));
        if entries_at == 131_071 {
            header[80..84].copy_from_slice(&5_u32.to_le_bytes());
        }
        header[16..20].fill(0);
        let sum = crc32(&header[..92]);
        header[16..20].copy_from_slice(&sum.to_le_bytes());
        device.write_at(512, &header).unwrap();
        let error = PartitionTable::read(&device).unwrap_err().to_string();
        assert!(error.contains(why), "{error}, want {why}");
    }
}

#[test]
fn numbers_at_their_edges_make_no_partition_without_end() {
    let last = u64::MAX / 512;
    let rows = [
        ((1, u64::MAX), None),
        ((u64::MAX, u64::MAX), None),
        ((2, 1), None),
        ((u64::MAX, 0), None),
        ((last, last), None),
        ((last - 1, last - 1), Some(512)),
        ((1, last - 1), Some((last - 1) * 512)),
        ((1, 1), Some(512)),
    ];
    for ((first, end), len) in rows {
        let device = MemoryDevice::new(64 * MIB);
        Gpt::of(&[(2048, 4095, "good"), (first, end, "odd")]).put(&device);
        let table = read(&device);
        assert_eq!(table.partitions.get(1).map(|odd| odd.len), len, "{first} to {end}");
        assert_eq!(table.notes.is_empty(), len.is_some() && first > 40, "{:?}", table.notes);
        for partition in &table.partitions {
            assert!(partition.start < partition.end());
            assert_eq!(partition.fits(&device), partition.end() <= 64 * MIB);
            assert!(!partition.has_btrfs(&device).unwrap());
        }
    }
    let device = MemoryDevice::new(64 * MIB);
    put_mbr(&device, 0, &[(0x83, u32::MAX, u32::MAX), (0x83, 1, 0), (0, 5, 5), (0x83, 0, 1)]);
    let most = u64::from(u32::MAX) * 512;
    assert_eq!(ranges(&read(&device)), [(1, most, most), (4, 0, 512)]);
}

#[test]
fn logical_partitions_are_a_chain_that_is_followed_to_its_end() {
    let device = MemoryDevice::new(64 * MIB);
    put_mbr(&device, 0, &[(0x83, 8, 8), (0x05, 1000, 5000)]);
    // A partition and a link; an empty link in between takes no number.
    put_mbr(&device, 1000 * 512, &[(0x83, 2, 10), (0x05, 100, 50)]);
    put_mbr(&device, 1100 * 512, &[(0, 0, 0), (0x05, 50, 50)]);
    put_mbr(&device, 1050 * 512, &[(0x82, 3, 20)]);
    let table = read(&device);
    let want = [(1, 8, 8), (2, 1000, 5000), (5, 1002, 10), (6, 1053, 20)];
    assert_eq!(ranges(&table), want.map(|(number, first, count)| (number, first * 512, count * 512)));
    assert!(table.notes.is_empty() && table.partitions[1].kind.is_extended());
    assert_eq!(table.stretch_end(1002 * 512), Some(1012 * 512));
    for (slot, why) in [
        ((0x05, 0, 50), "is a loop"),
        ((0x05, 100, 50), "is a loop"),
        ((0x05, 5000, 50), "leaves the extended partition"),
        ((0x05, u32::MAX, 50), "leaves the extended partition"),
        ((0x05, 60, 50), "no table is there"),
    ] {
        put_mbr(&device, 1050 * 512, &[(0x82, 3, 20), slot]);
        let table = read(&device);
        assert_eq!(table.partitions.len(), 4);
        assert!(table.notes[0].contains(why), "{:?}, want {why}", table.notes);
    }
}

#[test]
fn a_chain_without_end_ends() {
    let device = MemoryDevice::new(64 * MIB);
    put_mbr(&device, 0, &[(0x0f, 1000, 50_000), (0x0f, u32::MAX, u32::MAX)]);
    for link in 0..LOGICAL_MAX as u32 + 5 {
        put_mbr(&device, u64::from(1000 + link) * 512, &[(0x83, 1, 1), (0x05, link + 1, 1)]);
    }
    let table = read(&device);
    assert_eq!(table.partitions.len(), 2 + LOGICAL_MAX);
    assert!(
        table.notes[0].contains("too long") && table.notes[1].contains("no table is there"),
        "{:?}",
        table.notes
    );
}

#[test]
fn what_is_no_table_is_none() {
    let device = MemoryDevice::new(64 * MIB);
    assert_eq!(PartitionTable::read(&device).unwrap(), None);
    // A boot sector; code where the entries would be; an entry without sectors.
    put_mbr(&device, 0, &[]);
    assert_eq!(PartitionTable::read(&device).unwrap(), None);
    put_mbr(&device, 0, &[(0x83, 8, 0)]);
    assert_eq!(PartitionTable::read(&device).unwrap(), None);
    put_mbr(&device, 0, &[(0x83, 8, 8)]);
    device.write_at(446 + 16, &[0x7f]).unwrap();
    assert_eq!(PartitionTable::read(&device).unwrap(), None);
    for len in [0, 1, 511, 512, 513, 1023, 1024, 4096, 8191] {
        let device = MemoryDevice::new(len);
        assert_eq!(PartitionTable::read(&device).unwrap(), None, "{len} bytes");
        if len >= 512 {
            put_mbr(&device, 0, &[(0xee, 1, u32::MAX)]);
            assert!(PartitionTable::read(&device).is_err(), "{len} bytes");
            put_mbr(&device, 0, &[(0x05, 1, u32::MAX)]);
            assert_eq!(read(&device).notes.len(), 1, "{len} bytes");
        }
    }
}

#[test]
fn a_stretch_ends_where_the_next_partition_does_or_the_space_for_them() {
    let table = read(&gpt_disk());
    let space = (64 * MIB / 512 - 39) * 512;
    for (offset, end) in [
        (0, Some(MIB)),
        (MIB, Some(2 * MIB)),
        (2 * MIB - 1, Some(2 * MIB)),
        (2 * MIB, Some(100_001 * 512)),
        (60 * MIB, Some(space)),
        (space, None),
        (u64::MAX, None),
    ] {
        assert_eq!(table.stretch_end(offset), end, "{offset}");
    }
}

/// Runs `program` with `script` as input on a file of this size. `None`, with a message, if it is not installed.
fn made_by(program: &str, args: &[&str], script: &str, path: &Path) -> Option<FileDevice> {
    drop(FileDevice::create(path, 100 * MIB).unwrap());
    let child =
        Command::new(program).args(args).arg(path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        let required = std::env::var_os("CREAMERY_REQUIRE_JUDGES").is_some_and(|value| value == "1");
        assert!(!required, "{program} missing");
        println!("skipped: {program} missing");
        return None;
    };
    child.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{program}");
    Some(FileDevice::open(path, Access::ReadOnly).unwrap())
}

/// Number, start and size of each in sectors, its type and its name, from `sfdisk --dump`.
fn told_by_sfdisk(path: &Path) -> Vec<(u32, u64, u64, String, String)> {
    let output = Command::new("sfdisk").arg("--dump").arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix(path.to_str().unwrap())?.split_once(" : "));
    let rows = rows.map(|(number, fields)| {
        let field = |name: &str| {
            let mut fields = fields.split(", ").map(str::trim);
            fields.find_map(|field| Some(field.strip_prefix(name)?.trim().trim_matches('"').to_lowercase()))
        };
        let number_of = |name: &str| field(name).unwrap().parse().unwrap();
        let kind = field("type=").unwrap();
        (
            number.parse().unwrap(),
            number_of("start="),
            number_of("size="),
            kind,
            field("name=").unwrap_or_default(),
        )
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort();
    rows
}

#[test]
fn what_sfdisk_and_sgdisk_make_is_read_as_sfdisk_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let mbr = "label: dos\nsize=10M, type=83\nsize=10M, type=82\nsize=70M, type=5\nsize=5M, type=ef\n\
               size=10M, type=83\nsize=20M, type=7\nsize=5M, type=8e\n";
    let gpt = "label: gpt\nsize=1M, type=21686148-6449-6E6F-744E-656564454649, name=boot\nsize=20M, name=root\n\
               7: size=1M, type=uefi\n";
    let sgdisk = ["-n", "1:0:+5M", "-n", "5:0:+9M", "-c", "5:root", "-t", "1:ef00", "-h", "1:EE"];
    let cases: [(&str, &[&str], &str, TableKind, usize); 3] = [
        ("sfdisk", &["-q"], mbr, TableKind::Mbr, 7),
        ("sfdisk", &["-q"], gpt, TableKind::Gpt, 3),
        ("sgdisk", &sgdisk, "", TableKind::Gpt, 2),
    ];
    for (row, (program, args, script, kind, count)) in cases.into_iter().enumerate() {
        let path = path(["a", "b", "c"][row]);
        let Some(device) = made_by(program, args, script, &path) else { continue };
        let table = PartitionTable::read(&device).unwrap().unwrap();
        assert_eq!(
            (table.kind, table.partitions.len(), &table.notes[..]),
            (kind, count, &[][..]),
            "{script}"
        );
        drop(device);
        let ours = table.partitions.iter().map(|it| {
            let code = it.kind.code();
            let code = code.strip_prefix('0').unwrap_or(&code).to_owned();
            let code = if it.uuid.is_some() { it.kind.code() } else { code };
            (it.number, it.start / 512, it.len / 512, code, it.name.clone())
        });
        assert_eq!(ours.collect::<Vec<_>>(), told_by_sfdisk(&path), "{script}");
    }
}

#[test]
fn types_are_called_as_sfdisk_calls_them() {
    for (label, code_len) in [("gpt", 36), ("dos", 2)] {
        let output =
            Command::new("sfdisk").args(["--list-types", "--label", label]).env("LC_ALL", "C").output();
        let Ok(output) = output else {
            println!("skipped: sfdisk missing");
            return;
        };
        let text = String::from_utf8(output.stdout).unwrap();
        let mut known = 0;
        for line in text.lines() {
            let Some((code, name)) = line.trim().split_once("  ") else { continue };
            let kind = match code_len {
                2 => u8::from_str_radix(code, 16).ok().map(PartitionType::Mbr),
                _ => Uuid::parse_str(code).ok().map(PartitionType::Gpt),
            };
            if let Some(ours) = kind.and_then(PartitionType::name) {
                assert_eq!(ours, name.trim(), "{code}");
                known += 1;
            }
        }
        assert!(known >= 16, "{known} of {label} were compared");
    }
}
