//! Bad copies are skipped, repaired if writing is allowed, and named if there is no good one.

use std::sync::Arc;

use creamery_base::{ErrorKind, Logical, Wait, gate};
use creamery_device::{BlockDevice, MemoryDevice};
use creamery_format::{BlockGroupFlags, BlockMut, BlockRef, Expected, seal};
use creamery_volume::{Mode, Verdict, Volume};

use crate::faulty::{self, Event};
use crate::images::*;

const SECTOR: usize = 4096;

/// The places of the two copies of a block on the only device.
fn places(volume: &Volume, want: &Expected) -> [u64; 2] {
    let set = volume.map(want.logical, u64::from(volume.node_size())).unwrap();
    [set.mirrors()[0][0].at.offset, set.mirrors()[1][0].at.offset]
}

fn dup(mode: Mode) -> Option<(Arc<MemoryDevice>, Volume)> {
    let device = btrfs(&["-m", "dup", "-d", "dup"])?;
    let volume = mapped(&device, mode);
    volume.decide_repairs(true);
    if mode == Mode::ReadWrite {
        volume.begin_writing().unwrap();
    }
    Some((device, volume))
}

#[test]
fn one_bad_copy_of_a_root_is_served_from_the_other_and_repaired() {
    for copy in 0..2 {
        let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
        let root = root_root(&volume);
        let places = places(&volume, &root);
        let good = bytes_at(&*device, places[0], 16384);
        damage(&*device, places[copy] + 300);
        assert_eq!(read(&volume, &root).unwrap()[..], good[..]);
        let counters = volume.counters();
        // The second copy is not read while the first one is good.
        let expected = if copy == 0 { (1, 1) } else { (0, 0) };
        assert_eq!((counters.mirror_fallbacks, counters.repaired), expected);
        if copy == 0 {
            assert_eq!(bytes_at(&*device, places[0], 16384), good);
        }
        read(&volume, &root).unwrap();
        assert_eq!(volume.counters().repaired, counters.repaired, "there is nothing left to repair");
    }
}

#[test]
fn a_reader_repairs_nothing() {
    let Some((device, volume)) = dup(Mode::ReadOnly) else { return };
    let root = root_root(&volume);
    let place = places(&volume, &root)[0];
    damage(&*device, place + 300);
    let before = bytes_at(&*device, place, 16384);
    read(&volume, &root).unwrap();
    read(&volume, &root).unwrap();
    assert_eq!((volume.counters().mirror_fallbacks, volume.counters().repaired), (2, 0));
    assert_eq!(bytes_at(&*device, place, 16384), before);
}

/// In a volume that is open for writing, the bytes are found in the other copy, and the bad one is left to a mender.
#[test]
fn what_only_looks_for_good_bytes_repairs_nothing() {
    let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
    let root = root_root(&volume);
    let place = places(&volume, &root)[0];
    let good = bytes_at(&*device, place, 16384);
    damage(&*device, place + 300);
    let before = bytes_at(&*device, place, 16384);
    assert_eq!(volume.find_tree_block(root.logical, &root, Wait::Yes).unwrap()[..], good[..]);
    let mut found = vec![0; good.len()];
    let verify = |number: usize, bytes: &[u8]| {
        Verdict::of_checksum(*bytes == good[number * SECTOR..(number + 1) * SECTOR])
    };
    volume.find_data(root.logical, &mut found, &verify, Wait::Yes).unwrap();
    assert_eq!((found, bytes_at(&*device, place, 16384)), (good, before));
    assert_eq!(volume.counters().repaired, 0);
}

#[test]
fn two_bad_copies_are_one_line_with_what_each_had() {
    let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
    let root = root_root(&volume);
    let places = places(&volume, &root);
    damage(&*device, places[0] + 300);
    device.zero(places[1], 16384).unwrap();
    let error = read(&volume, &root).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreadable);
    let text = error.to_string();
    for part in [
        format!("reading the tree block at logical {}: no good copy", root.logical),
        format!("copy 1 (devid 1 offset {})", places[0]),
        format!("copy 2 (devid 1 offset {})", places[1]),
        "checksum mismatch".to_owned(),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(!text.contains('\n'));
    assert_eq!(text.matches("content is damaged").count(), 1, "{text}");
    assert_eq!(volume.counters().unreadable, 1);
}

#[test]
fn a_lost_write_is_repaired_but_a_newer_block_is_not_undone() {
    let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
    let root = root_root(&volume);
    let place = places(&volume, &root)[0];
    let good = bytes_at(&*device, place, 16384);
    let with_generation = |generation: u64| {
        let mut bytes = good.clone();
        BlockMut::new(&mut bytes).set_generation(generation.into());
        seal(&mut bytes, volume.checksum_type());
        bytes
    };
    let generation = volume.generation().get();
    device.write_at(place, &with_generation(generation - 1)).unwrap();
    assert_eq!(read(&volume, &root).unwrap()[..], good[..]);
    assert_eq!(bytes_at(&*device, place, 16384), good, "an older block is a write that got lost");

    let newer = with_generation(generation + 1);
    device.write_at(place, &newer).unwrap();
    assert_eq!(BlockRef::new(&read(&volume, &root).unwrap()).generation(), volume.generation());
    assert_eq!(bytes_at(&*device, place, 16384), newer, "a newer block belongs to somebody else");
    assert_eq!(volume.counters().repaired, 1);
}

#[test]
fn many_readers_of_one_bad_copy_repair_it_once() {
    let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
    let root = root_root(&volume);
    damage(&*device, places(&volume, &root)[0] + 300);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..50).for_each(|_| drop(read(&volume, &root).unwrap())));
        }
    });
    assert_eq!(volume.counters().repaired, 1);
    assert_eq!(volume.counters().tree_block_reads, 200 + 1, "and one for the chunk tree");
}

#[test]
fn who_must_not_wait_is_told_so_and_nothing_is_touched() {
    let Some((_, volume)) = dup(Mode::ReadWrite) else { return };
    let root = root_root(&volume);
    let (waits, counters) = (gate::waits_of_this_thread(), volume.counters());
    let error = volume.read_tree_block(root.logical, &root, Wait::No).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    let error =
        volume.read_data(root.logical, &mut [0; SECTOR], &|_, _| Verdict::Unknown, Wait::No).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert_eq!((gate::waits_of_this_thread(), volume.counters()), (waits, counters));
}

#[test]
fn a_pointer_to_nowhere_is_damage() {
    let Some((_, volume)) = dup(Mode::ReadOnly) else { return };
    let root = root_root(&volume);
    let end = volume.chunks().last().unwrap().end();
    for logical in [0, 4096, root.logical.get() + 1, end.get() - 4096, end.get(), 1 << 60, u64::MAX - 4095] {
        let want = Expected { logical: Logical::new(logical), ..root };
        let error = read(&volume, &want).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(&logical.to_string()), "{error}");
    }
}

/// A range of data in two copies, each sector filled with its number, and the check of a good sector.
struct Data {
    at: Logical,
    bytes: Vec<u8>,
    places: [u64; 2],
}

impl Data {
    const SECTORS: usize = 32;

    fn written(volume: &Volume) -> Self {
        let chunk = chunk_of(volume, BlockGroupFlags::DATA);
        let at = chunk.start + (1 << 20);
        let bytes: Vec<u8> = (0..Self::SECTORS * SECTOR).map(|n| (n / SECTOR + 1) as u8).collect();
        let _written = volume.write_data(at, &bytes).unwrap();
        let places = [0, 1].map(|copy: usize| chunk.stripes[copy].offset + (1 << 20));
        Self { at, bytes, places }
    }

    fn good(number: usize, sector: &[u8]) -> Verdict {
        Verdict::of_checksum(sector.iter().all(|&byte| byte == (number + 1) as u8))
    }

    fn read(&self, volume: &Volume) -> creamery_base::Result<()> {
        let mut out = vec![0; self.bytes.len()];
        volume.read_data(self.at, &mut out, &Self::good, Wait::Yes)?;
        assert_eq!(out, self.bytes);
        Ok(())
    }
}

#[test]
fn sectors_bad_in_different_copies_are_put_together_and_repaired() {
    let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
    let data = Data::written(&volume);
    let spoil = |copy: usize, sectors: &[usize]| {
        sectors.iter().for_each(|sector| damage(&*device, data.places[copy] + (sector * SECTOR) as u64 + 7));
    };
    spoil(0, &[0, 1, 2, 9, 31]);
    spoil(1, &[3, 4, 30]);
    data.read(&volume).unwrap();
    let counters = volume.counters();
    assert_eq!((counters.mirror_fallbacks, counters.repaired), (5, 5));
    assert_eq!(
        bytes_at(&*device, data.places[0], data.bytes.len()),
        data.bytes,
        "the first copy is whole again"
    );
    data.read(&volume).unwrap();
    assert_eq!(volume.counters().repaired, 5);
}

#[test]
fn a_sector_bad_in_both_copies_is_named_by_its_logical_address() {
    let Some((device, volume)) = dup(Mode::ReadWrite) else { return };
    let data = Data::written(&volume);
    for sector in [5, 6, 20] {
        data.places.iter().for_each(|place| damage(&*device, place + sector * SECTOR as u64));
    }
    damage(&*device, data.places[0] + 10 * SECTOR as u64);
    let error = data.read(&volume).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreadable);
    let text = error.to_string();
    let first = data.at.get() + 5 * SECTOR as u64;
    for part in
        [format!("data at logical {first}"), "3 of 32 sectors".to_owned(), "checksum mismatch".to_owned()]
    {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert_eq!(text.matches("content is damaged").count(), 1, "{text}");
    assert_eq!((volume.counters().unreadable, volume.counters().repaired), (3, 1));
}

#[test]
fn an_unreadable_sector_costs_only_itself_and_is_rewritten() {
    let Some(device) = btrfs(&["-m", "dup", "-d", "dup"]) else { return };
    let data = Data::written(&mapped(&device, Mode::ReadWrite));
    let faulty = faulty::on(&device);
    let volume = Volume::open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>], Mode::ReadWrite).unwrap();
    volume.decide_repairs(true);
    volume.begin_writing().unwrap();
    push_all_chunks(&volume);
    let bad = data.places[0] + 3 * SECTOR as u64;
    faulty.fail_reads(bad..bad + 1);
    // A neighbour that can be read in both copies, but is bad in the second: it must come from the first.
    damage(&*device, data.places[1] + 4 * SECTOR as u64);
    data.read(&volume).unwrap();
    assert_eq!(faulty.take_events(), [Event::Write { offset: bad, len: SECTOR as u64 }]);

    faulty.fail_reads(data.places[1]..data.places[1] + (1 << 20));
    let error = data.read(&volume).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains(&format!("logical {}", data.at.get() + 3 * SECTOR as u64)), "{error}");
}

#[test]
fn a_repair_that_fails_does_not_fail_the_read() {
    let Some(device) = btrfs(&["-m", "dup"]) else { return };
    let faulty = faulty::on(&device);
    let volume = Volume::open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>], Mode::ReadWrite).unwrap();
    volume.decide_repairs(true);
    push_all_chunks(&volume);
    let root = root_root(&volume);
    damage(&*device, places(&volume, &root)[0]);
    faulty.fail_writes(0..device.len());
    read(&volume, &root).unwrap();
    // It is held, and tried with the first change, which does not fail if the repair does.
    assert_eq!((volume.counters().repaired, volume.counters().repair_failures), (0, 0));
    volume.begin_writing().unwrap();
    assert_eq!((volume.counters().repaired, volume.counters().repair_failures), (0, 1));
    read(&volume, &root).unwrap();
    assert_eq!((volume.counters().repaired, volume.counters().repair_failures), (0, 2));
}
