//! Tests of listings.

mod beside;
mod model;
mod shared;

use std::sync::Arc;

use creamery_base::{ErrorKind, Generation, Logical, ObjectId, Result};
use creamery_format::file_extent::{Extent, encode_hole, encode_inline};

use super::layout::{BatchStart, ENTRIES_MAX, Layout};
use super::{FiemapExtent, FiemapFlags, FiemapRequest};
use crate::data::tests::support::*;
use crate::fallocate::Fallocate;
use crate::inode::InodeFlags;
use crate::keys::extent_data;
use crate::names::{NewInode, NewKind};
use crate::open_file::OpenFile;

const MIB: u64 = 1 << 20;

fn list(file: &OpenFile, request: &FiemapRequest) -> Result<Vec<FiemapExtent>> {
    file.fiemap(request).collect()
}

fn all(file: &OpenFile) -> Vec<FiemapExtent> {
    list(file, &FiemapRequest::default()).expect("a listing")
}

/// The entries as text: `start+len`, in sectors, and the flags.
fn text_of(entries: &[FiemapExtent]) -> String {
    let one = |entry: &FiemapExtent| {
        let flags: Vec<_> = entry.flags.names().collect();
        format!("{}+{} {}", entry.logical / SECTOR, entry.length / SECTOR, flags.join(","))
    };
    entries.iter().map(|entry| one(entry).trim_end().to_owned()).collect::<Vec<_>>().join("; ")
}

fn write(file: &OpenFile, at: u64, sectors: u64) {
    let data = vec![7; (sectors * SECTOR) as usize];
    assert_eq!(file.write_at(at * SECTOR, &data).expect("room"), data.len());
}

fn delayed_file(fixture: &Fixture) -> OpenFile {
    opened(Arc::new(new_delayed_file(fixture, 300, InodeFlags::empty(), 64 * MIB)))
}

/// What Linux tells of the same operations.
#[test]
fn what_is_delayed_is_listed_where_nothing_is_in_the_tree() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = delayed_file(&fixture);
    write(&file, 0, 10);
    file.inode().flush().expect("room");
    file.fallocate(Fallocate::Allocate { keep_size: false }, 20 * SECTOR, 10 * SECTOR).expect("room");
    for (at, len) in [(2, 2), (12, 3), (22, 2)] {
        write(&file, at, len);
    }
    let delayed = "unknown_loc,delalloc";
    assert_eq!(
        text_of(&all(&file)),
        format!("0+10; 12+3 {delayed}; 20+2 unwritten; 22+2 {delayed}; 24+6 last,unwritten")
    );
    let entries = all(&file);
    let places: Vec<bool> = entries.iter().map(|entry| entry.physical == 0).collect();
    assert_eq!(places, [false, true, false, true, false]);
    assert_eq!(entries[4].physical, entries[2].physical + 4 * SECTOR);
    let synced = list(&file, &FiemapRequest { sync: true, ..FiemapRequest::default() }).expect("a listing");
    assert_eq!(text_of(&synced), "0+2; 2+2; 4+6; 12+3; 20+2 unwritten; 22+2; 24+6 last,unwritten");
    assert_eq!(synced[2].physical, synced[0].physical + 4 * SECTOR);
    assert_eq!(all(&file), synced);
}

#[test]
fn small_files_are_listed_as_a_block_in_the_tree() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = delayed_file(&fixture);
    assert_eq!(all(&file), []);
    file.write_at(0, b"x").expect("room");
    assert_eq!(text_of(&all(&file)), "0+1 last,unknown_loc,delalloc");
    file.inode().flush().expect("room");
    let inline = FiemapFlags::INLINE;
    assert_eq!(all(&file), [FiemapExtent::new(0, 0, SECTOR, inline | FiemapFlags::LAST)]);
    file.write_at(1, &[7; 20_000]).expect("room");
    assert_eq!(text_of(&all(&file)), "0+1 not_aligned,inline; 1+4 last,unknown_loc,delalloc");
    file.inode().flush().expect("room");
    assert_eq!(text_of(&all(&file)), "0+5 last");
}

#[test]
fn a_range_lists_what_touches_it() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = delayed_file(&fixture);
    write(&file, 0, 10);
    file.inode().flush().expect("room");
    file.fallocate(Fallocate::Allocate { keep_size: false }, 20 * SECTOR, 10 * SECTOR).expect("room");
    write(&file, 12, 3);
    write(&file, 22, 2);
    let (delayed, whole) =
        ("unknown_loc,delalloc", "20+2 unwritten; 22+2 unknown_loc,delalloc; 24+6 last,unwritten");
    let rows = [
        ((0, 1), "0+10".to_owned()),
        ((5000, 1), "0+10".to_owned()),
        ((5000, 100_000), format!("0+10; 12+3 {delayed}; {whole}")),
        ((10 * SECTOR, SECTOR), String::new()),
        ((10 * SECTOR, 10_000), format!("12+1 {delayed}")),
        ((13 * SECTOR, 1), format!("13+1 {delayed}")),
        ((23 * SECTOR, 1), whole.to_owned()),
        ((29 * SECTOR, u64::MAX), whole.to_owned()),
        ((30 * SECTOR, 1), String::new()),
        (((1 << 63) - 1, u64::MAX), String::new()),
    ];
    for ((offset, len), expected) in rows {
        let found = list(&file, &FiemapRequest { offset, len, sync: false }).expect("a listing");
        assert_eq!(text_of(&found), expected, "{offset}+{len}");
    }
    let refused = [((0, 0), ErrorKind::InvalidInput), ((1 << 63, 1), ErrorKind::FileTooLarge)];
    let more = [((u64::MAX, u64::MAX), ErrorKind::FileTooLarge), ((u64::MAX, 0), ErrorKind::InvalidInput)];
    for ((offset, len), kind) in refused.into_iter().chain(more) {
        let found = list(&file, &FiemapRequest { offset, len, sync: false });
        assert_eq!(found.map_err(|error| error.kind()), Err(kind), "{offset}+{len}");
    }
    // What is delayed behind the range keeps an entry from being the last.
    write(&file, 40, 1);
    let found = list(&file, &FiemapRequest { offset: 20 * SECTOR, len: 1, sync: false }).expect("a listing");
    assert_eq!(text_of(&found), whole.replace("last,", ""));
}

#[test]
fn many_extents_come_in_many_batches() {
    const EXTENTS: u64 = 3 * ENTRIES_MAX as u64 + 1;
    for kind in [Kind::DEFAULT, Kind::OLD] {
        let Some(fixture) = fixture(kind) else { return };
        let file = delayed_file(&fixture);
        for number in 0..EXTENTS {
            write(&file, 2 * number, 1);
        }
        for delayed in [true, false] {
            let entries = all(&file);
            assert_eq!(entries.len() as u64, EXTENTS);
            for (number, entry) in (0..).zip(&entries) {
                assert_eq!((entry.logical, entry.length), (2 * number * SECTOR, SECTOR));
                assert_eq!(entry.flags.contains(FiemapFlags::LAST), number == EXTENTS - 1);
            }
            let is_delayed = |entry: &FiemapExtent| entry.flags.contains(FiemapFlags::DELALLOC);
            assert_eq!(entries.iter().any(is_delayed), delayed);
            file.inode().flush().expect("room");
        }
        // Half of one extent that was set aside: more pieces than a batch has room for.
        let behind = 4 * EXTENTS;
        file.fallocate(Fallocate::Allocate { keep_size: true }, behind * SECTOR, 300 * SECTOR).expect("room");
        for at in (0..300).step_by(2) {
            write(&file, behind + at, 1);
        }
        let from = FiemapRequest { offset: behind * SECTOR, ..FiemapRequest::default() };
        let entries = list(&file, &from).expect("a listing");
        let is_unwritten = |entry: &FiemapExtent| entry.flags.contains(FiemapFlags::UNWRITTEN);
        for (number, entry) in (0..).zip(&entries) {
            assert_eq!(entry.logical, (behind + number) * SECTOR);
            assert_eq!(is_unwritten(entry), number % 2 == 1, "{entry:?}");
        }
        assert_eq!(entries.len(), 300);
    }
}

#[test]
fn what_touches_in_file_and_on_the_device_is_one_entry_also_over_batches() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_file(&fixture, 300, InodeFlags::empty())));
    let place = |at: u64| Logical::new(MIB + at * SECTOR);
    // Items that are side by side: three batches of them, then one that lies elsewhere.
    let items = 3 * ENTRIES_MAX as u64 + 5;
    for at in 0..items {
        put(
            &fixture,
            file.inode(),
            at * SECTOR,
            &Extent::whole(Generation::new(1), place(at), SECTOR).encode(),
        );
    }
    let apart = Extent::whole(Generation::new(1), place(items + 1), SECTOR);
    put(&fixture, file.inode(), items * SECTOR, &apart.encode());
    let entries = all(&file);
    let expected = [(0, MIB, items * SECTOR), (items * SECTOR, apart.disk_bytenr.get(), SECTOR)];
    let found: Vec<_> = entries.iter().map(|entry| (entry.logical, entry.physical, entry.length)).collect();
    assert_eq!(found, expected);
}

#[test]
fn holes_that_are_items_make_no_entries_however_many_they_are() {
    let Some(fixture) = fixture(Kind::OLD) else { return };
    let file = opened(Arc::new(new_file(&fixture, 300, InodeFlags::empty())));
    let hole = encode_hole(Generation::new(1), SECTOR);
    for at in 0..5000 {
        put(&fixture, file.inode(), at * SECTOR, &hole);
    }
    assert_eq!(all(&file), []);
    let data = Extent::whole(Generation::new(1), Logical::new(MIB), SECTOR);
    put(&fixture, file.inode(), 4999 * SECTOR, &data.encode());
    assert_eq!(text_of(&all(&file)), "4999+1 last");
    put(&fixture, file.inode(), 10 * SECTOR, &data.encode());
    let some = FiemapRequest { offset: 0, len: 20 * SECTOR, sync: false };
    assert_eq!(text_of(&list(&file, &some).expect("a listing")), "10+1");
}

#[test]
fn compressed_data_begins_where_its_extent_does() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_file(&fixture, 300, InodeFlags::empty())));
    let mut extent = Extent::whole(Generation::new(1), Logical::new(MIB), SECTOR);
    (extent.ram_bytes, extent.num_bytes) = (8 * SECTOR, 8 * SECTOR);
    extent.compression = creamery_format::Compression::Zstd;
    let shown = Extent { offset: 6 * SECTOR, num_bytes: 2 * SECTOR, ..extent };
    put(&fixture, file.inode(), 0, &Extent { num_bytes: SECTOR, ..extent }.encode());
    put(&fixture, file.inode(), SECTOR, &shown.encode());
    let encoded = FiemapFlags::ENCODED;
    // They touch as numbers, and are joined as Linux joins them only where the second one begins on the device behind the first.
    let expected = [
        FiemapExtent::new(0, MIB, SECTOR, encoded),
        FiemapExtent::new(SECTOR, MIB, 2 * SECTOR, encoded | FiemapFlags::LAST),
    ];
    assert_eq!(all(&file), expected);
}

#[test]
fn damage_ends_a_listing_and_nothing_is_made_up() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let whole = |at: u64, sectors: u64| {
        Extent::whole(Generation::new(1), Logical::new(MIB + at * SECTOR), sectors * SECTOR).encode().to_vec()
    };
    let mut wraps = whole(0, 1);
    wraps[45..53].copy_from_slice(&(1_u64 << 63).to_le_bytes());
    let mut unknown = whole(0, 1);
    unknown[20] = 9;
    let rows: [(&str, u64, Vec<u8>); 5] = [
        ("overlaps", 1, whole(9, 1)),
        ("shows more than its extent has", 4, wraps),
        ("unknown type", 4, unknown),
        ("item has a wrong size", 4, whole(5, 1)[..50].to_vec()),
        ("inline extent is not at offset 0", 4, encode_inline(Generation::new(1), b"abc")),
    ];
    for (number, (words, at, bytes)) in (0..).zip(rows) {
        let file = opened(Arc::new(new_file(&fixture, 300 + number, InodeFlags::empty())));
        put(&fixture, file.inode(), 0, &whole(0, 2));
        put(&fixture, file.inode(), at * SECTOR, &bytes);
        let mut listing = file.fiemap(&FiemapRequest::default());
        let failed = listing.by_ref().find_map(Result::err).expect("damage");
        assert_eq!(failed.kind(), ErrorKind::Corrupt);
        assert!(failed.to_string().contains(words), "{failed}");
        assert!(
            failed.to_string().contains(&extent_data(ObjectId::new(300 + number), at * SECTOR).to_string())
        );
        assert!(listing.next().is_none(), "nothing follows");
    }
}

#[test]
fn random_items_never_panic_and_entries_stay_in_order() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let mut random = Random(5);
    for round in 0..400 {
        let file = opened(Arc::new(new_delayed_file(&fixture, 1000 + round, InodeFlags::empty(), 64 * MIB)));
        for _ in 0..=random.below(4) {
            let number = |random: &mut Random| match random.below(5) {
                0 => u64::MAX - random.below(9000),
                1 => random.next(),
                _ => random.below(20) * SECTOR,
            };
            let mut bytes =
                Extent::whole(Generation::new(9), Logical::new(MIB), 2 * SECTOR).encode().to_vec();
            for field in [8, 21, 29, 37, 45] {
                if random.below(3) == 0 {
                    bytes[field..field + 8].copy_from_slice(&number(&mut random).to_le_bytes());
                }
            }
            (bytes[16], bytes[20]) = (random.below(5) as u8, random.below(4) as u8);
            bytes.truncate(21 + random.below(70) as usize);
            put(&fixture, file.inode(), number(&mut random), &bytes);
        }
        if random.below(2) == 0 {
            let _ = file.write_at(random.below(10) * SECTOR, &[7; 5000]);
        }
        let request =
            FiemapRequest { offset: random.below(30_000), len: 1 + random.below(90_000), sync: false };
        for FiemapRequest { offset, len, .. } in [FiemapRequest::default(), request] {
            // No commit: it refuses to write such items.
            let end = offset.saturating_add(len).checked_next_multiple_of(SECTOR).unwrap_or(u64::MAX);
            let Ok(layout) = Layout::of(&file.inode().file(), BatchStart::Anew(offset), end) else {
                continue;
            };
            let pieces = layout.pieces;
            assert!(pieces.windows(2).all(|pair| pair[0].entry.end() <= pair[1].entry.logical));
        }
    }
}

#[test]
fn what_is_no_file_has_no_extents() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = crate::Filesystem::open(Arc::clone(&fixture), crate::FsOptions::default()).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let new = NewInode { kind: NewKind::Symlink(b"f0"), ..NewInode::file(0) };
    let link = fs.create(root, b"link", &new).expect("room").id;
    for (id, kind) in [(root, ErrorKind::IsADirectory), (link, ErrorKind::InvalidInput)] {
        let found = list(&fs.open_file(id).expect("it opens"), &FiemapRequest::default());
        assert_eq!(found.map_err(|error| error.kind()), Err(kind));
    }
    fs.shut_down().expect("it closes");
}
