//! The order of a commit against the platter, and the states after a crash.

use std::process::Command;
use std::sync::Arc;

use creamery_base::{ErrorKind, Result, Uuid};
use creamery_device::{Access, BlockDevice, FileDevice, MemoryDevice};
use creamery_format::Superblock;
use creamery_volume::{Committed, Mode, SuperblockChange, Volume};

use crate::faulty::{self, Event, Faulty};
use crate::images::*;

const SUPERBLOCK: u64 = 4096;

fn behind_faulty(device: &Arc<MemoryDevice>) -> (Arc<Faulty>, Volume) {
    let faulty = faulty::on(device);
    let volume = Volume::open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>], Mode::ReadWrite).unwrap();
    (faulty, volume)
}

/// The next superblock, recognisable by its label.
fn next(volume: &Volume) -> Superblock {
    let mut superblock = volume.superblock();
    let raw = superblock.raw_mut();
    raw.generation = (raw.generation.get() + 1).into();
    raw.label[..4].copy_from_slice(b"next");
    raw.super_roots[3].bytes_used = 1.into(); // something beyond the first 512 bytes
    superblock
}

fn commit(volume: &Volume) -> Result<Committed> {
    let durable = volume.flush(volume.nothing_written())?;
    let published = volume.publish(&mut next(volume), durable)?;
    volume.finish(published)
}

fn write(offset: u64) -> Event {
    Event::Write { offset, len: SUPERBLOCK }
}

#[test]
fn a_change_that_reaches_the_first_superblock_alone_is_made_and_says_so() {
    let Some(device) = btrfs(&[]) else { return };
    let faulty = faulty::on(&device);
    faulty.fail_writes(SECOND..SECOND + SUPERBLOCK);
    let new = Uuid::from_u128(1);
    let told = SuperblockChange::default().uuid(new).apply(&*faulty).unwrap_err();
    let want = format!("the superblock is written, but not its copy at {SECOND}");
    assert!(told.to_string().starts_with(&want), "{told}");
    assert_eq!(open(&device, Mode::ReadOnly).unwrap().fsid(), new);
    faulty.fail_writes(FIRST..FIRST + SUPERBLOCK);
    let told = SuperblockChange::default().uuid(Uuid::from_u128(2)).apply(&*faulty).unwrap_err();
    assert!(!told.to_string().contains("is written"), "{told}");
    assert_eq!(open(&device, Mode::ReadOnly).unwrap().fsid(), new);
}

#[test]
fn the_first_superblock_stands_between_two_flushes_and_the_other_after_them() {
    let Some(device) = btrfs(&[]) else { return };
    let (faulty, volume) = behind_faulty(&device);
    let generation = volume.generation();
    let _committed = commit(&volume).unwrap();
    assert_eq!(faulty.take_events(), [Event::Flush, write(FIRST), Event::Flush, write(SECOND)]);
    volume.close().unwrap();
    assert_eq!(faulty.take_events(), [Event::Flush]);
    assert_eq!((volume.generation(), volume.superblock().label()), (generation.next(), &b"next"[..]));
    let counters = volume.counters();
    assert_eq!((counters.flushes, counters.publishes), (3, 1));

    let again = open(&device, Mode::ReadWrite).unwrap();
    assert_eq!((again.generation(), again.notes().len()), (generation.next(), 0));
    let at = |offset| Superblock::from_bytes(&bytes_at(&*device, offset, 4096), offset).unwrap();
    assert_eq!((at(FIRST).label(), at(SECOND).label()), (&b"next"[..], &b"next"[..]));
}

#[test]
fn a_third_copy_is_written_where_it_fits() {
    let Some(device) = btrfs(&[]) else { return };
    grow(&device, 257 << 30);
    let (faulty, volume) = behind_faulty(&device);
    let _committed = commit(&volume).unwrap();
    assert_eq!(faulty.take_events()[2..], [Event::Flush, write(SECOND), write(256 << 30)]);
}

#[test]
fn a_filesystem_smaller_than_its_device_keeps_its_copies_inside() {
    let Some(device) = btrfs(&["-b", &(120 << 20).to_string()]) else { return };
    edit_superblock(&device, &[FIRST], |raw| raw.dev_item.total_bytes = (SECOND + 4095).into());
    let (faulty, volume) = behind_faulty(&device);
    let _committed = commit(&volume).unwrap();
    assert_eq!(faulty.take_events(), [Event::Flush, write(FIRST), Event::Flush]);
}

/// The platter if power fails after each number of writes of a commit, each torn or not.
#[test]
fn power_cut_anywhere_in_a_commit_leaves_this_or_the_last_one() {
    let Some(device) = btrfs(&[]) else { return };
    let old = open(&device, Mode::ReadOnly).unwrap().generation();
    let before = [FIRST, SECOND].map(|offset| bytes_at(&*device, offset, 4096));
    let _committed = commit(&open(&device, Mode::ReadWrite).unwrap()).unwrap();
    let after = [FIRST, SECOND].map(|offset| bytes_at(&*device, offset, 4096));
    let torn = |copy: usize| [&after[copy][..512], &before[copy][512..]].concat();
    // The first copy, the other one, and the generation to be found.
    let table = [
        (before[0].clone(), before[1].clone(), old),
        (torn(0), before[1].clone(), old),
        (after[0].clone(), before[1].clone(), old.next()),
        (after[0].clone(), torn(1), old.next()),
        (after[0].clone(), after[1].clone(), old.next()),
    ];
    for (row, (first, second, generation)) in table.into_iter().enumerate() {
        device.write_at(FIRST, &first).unwrap();
        device.write_at(SECOND, &second).unwrap();
        let volume = match open(&device, Mode::ReadWrite) {
            Err(error) => {
                // A torn first copy leads to nothing, and a device must not tear this one (media-assumptions 6).
                assert_eq!((row, error.kind()), (1, ErrorKind::Unsupported), "{error}");
                open_by_copy(&device).unwrap()
            }
            Ok(volume) => volume,
        };
        assert_eq!(volume.generation(), generation, "row {row}");
        read(&volume, &chunk_root(&volume)).unwrap();
        let _committed = commit(&volume).unwrap();
        assert_eq!(open(&device, Mode::ReadWrite).unwrap().notes().len(), 0, "row {row}: healed by a commit");
    }
}

#[test]
fn a_failed_step_stops_the_commit_before_the_next_one() {
    let Some(device) = btrfs(&[]) else { return };
    let generation = open(&device, Mode::ReadOnly).unwrap().generation();

    let (faulty, volume) = behind_faulty(&device);
    faulty.fail_flushes();
    assert_eq!(commit(&volume).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(faulty.take_events(), [Event::Flush], "no superblock without a flush");

    let (faulty, volume) = behind_faulty(&device);
    faulty.fail_writes(FIRST..FIRST + 1);
    let error = commit(&volume).unwrap_err();
    assert!(error.to_string().contains("writing the superblock copy at 65536"), "{error}");
    assert_eq!(faulty.take_events(), [Event::Flush, write(FIRST)], "no other copy without the first");
    assert_eq!(volume.generation(), generation);

    let (faulty, volume) = behind_faulty(&device);
    let durable = volume.flush(volume.nothing_written()).unwrap();
    let published = volume.publish(&mut next(&volume), durable).unwrap();
    faulty.fail_flushes();
    assert_eq!(volume.finish(published).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(
        faulty.take_events(),
        [Event::Flush, write(FIRST), Event::Flush],
        "no other copy before the flush"
    );
    assert_eq!(volume.generation(), generation, "not committed");
}

#[test]
fn another_copy_that_cannot_be_written_is_only_counted() {
    let Some(device) = btrfs(&[]) else { return };
    let (faulty, volume) = behind_faulty(&device);
    faulty.fail_writes(SECOND..SECOND + 1);
    let _committed = commit(&volume).unwrap();
    assert_eq!(volume.counters().superblock_copy_failures, 1);
}

#[test]
fn a_superblock_that_no_reader_would_accept_is_not_written() {
    let Some(device) = btrfs(&[]) else { return };
    let (faulty, volume) = behind_faulty(&device);
    let mut superblock = next(&volume);
    superblock.raw_mut().root_level = 9;
    let durable = volume.flush(volume.nothing_written()).unwrap();
    let error = volume.publish(&mut superblock, durable).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(faulty.take_events(), [Event::Flush]);
}

#[test]
fn btrfs_progs_accept_what_was_published_to_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = new_files(dir.path(), &[256 << 20]).remove(0);
    let run = |program: &str, options: &[&str]| Command::new(program).args(options).arg(&path).output();
    if run("mkfs.btrfs", &["-q"]).is_err() {
        return skipped("mkfs.btrfs");
    }
    let device = Arc::new(FileDevice::open(&path, Access::ReadWrite).unwrap());
    let volume = Volume::open(vec![device], Mode::ReadWrite).unwrap();
    let mut superblock = volume.superblock();
    superblock.raw_mut().label[..4].copy_from_slice(b"cone");
    let durable = volume.flush(volume.nothing_written()).unwrap();
    let published = volume.publish(&mut superblock, durable).unwrap();
    let _committed = volume.finish(published).unwrap();
    volume.close().unwrap();
    drop(volume);
    let check = run("btrfs", &["check"]).unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let dump = run("btrfs", &["inspect-internal", "dump-super", "-a"]).unwrap();
    let dump = String::from_utf8(dump.stdout).unwrap();
    assert_eq!(dump.matches("[match]").count(), 2 * 3, "checksum, magic and device of both copies: {dump}");
    assert_eq!(dump.matches("cone").count(), 2, "{dump}");
}
