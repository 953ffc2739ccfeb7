//! Members beside a named one.

use std::path::Path;
use std::sync::Arc;

use creamery_base::{DevId, Generation};
use creamery_device::{Access, BlockDevice, FileDevice, MemoryDevice};
use creamery_format::Superblock;
use creamery_volume::{MemberState, Mode, NamedSet, Volume};

use crate::images::*;

/// Puts the bytes of a device into a file.
fn store(device: &Arc<MemoryDevice>, path: &Path) {
    let _ = std::fs::remove_file(path);
    let file = FileDevice::create(path, device.len()).unwrap();
    for offset in [FIRST, SECOND] {
        file.write_at(offset, &bytes_at(&**device, offset, 4096)).unwrap();
    }
    // The roots and the chunk tree need nothing behind this.
    file.write_at(1 << 20, &bytes_at(&**device, 1 << 20, 60 << 20)).unwrap();
}

fn open(set: &NamedSet) -> creamery_base::Result<Volume> {
    set.open(Access::ReadOnly, |devices| Volume::open(devices, Mode::ReadOnly))
}

fn state_of_second(volume: &Volume) -> MemberState {
    volume.member_state(DevId::new(2))
}

#[test]
fn what_is_found_leads_nothing_that_is_whole_without_it() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let superblock = Superblock::from_bytes(&bytes_at(&*pair[0], FIRST, 4096), FIRST).unwrap();
    let generation = superblock.generation();
    let newer: Vec<_> =
        pair.iter().map(|member| Arc::new(MemoryDevice::copy_of(&**member).unwrap())).collect();
    newer.iter().for_each(|member| go_on(member, &superblock));
    store(&pair[0], &path("m1.img"));
    store(&newer[1], &path("m2-copy.img"));
    let named = || NamedSet::new(path("m1.img"));
    // Alone beside it, a member that went on is the newest of one history, and leads.
    for set in [named(), named().device(path("m2-copy.img"))] {
        let volume = open(&set).unwrap();
        assert_eq!(volume.generation(), Generation::new(generation.get() + 1));
        assert_eq!(volume.member_state(DevId::new(1)), MemberState::Stale(generation));
    }
    // Beside a member of the same commit it does not count.
    store(&pair[1], &path("m2.img"));
    let volume = open(&named()).unwrap();
    assert_eq!((volume.generation(), state_of_second(&volume)), (generation, MemberState::Present));
    // Nor does an older one.
    std::fs::remove_file(path("m2-copy.img")).unwrap();
    store(&newer[0], &path("m1.img"));
    store(&newer[1], &path("m2-new.img"));
    let volume = open(&named()).unwrap();
    assert_eq!(state_of_second(&volume), MemberState::Present);
    // But if there is no other, it is one that missed writes.
    std::fs::remove_file(path("m2-new.img")).unwrap();
    assert_eq!(state_of_second(&open(&named()).unwrap()), MemberState::Stale(generation));
    // Two of the same commit are ambiguous, unless one of them is named.
    std::fs::copy(path("m2.img"), path("m2-again.img")).unwrap();
    let text = open(&named()).map(drop).unwrap_err().to_string();
    assert!(text.contains("both device 2 of the filesystem"), "{text}");
    assert!(open(&named().device(path("m2.img"))).is_ok());
    let volume = open(&named().degraded()).unwrap();
    assert_eq!(state_of_second(&volume), MemberState::Missing, "{:?}", volume.notes());
}

/// Returns the error of a set in which a member counts as missing, and the notes if it is allowed to be.
fn told_of_missing(named: &NamedSet) -> (String, String) {
    let error = open(named).map(drop).unwrap_err();
    let volume = open(&named.clone().degraded()).unwrap();
    assert_eq!(state_of_second(&volume), MemberState::Missing);
    (format!("{error}; {}", error.advice().unwrap_or_default()), volume.notes().join("; "))
}

#[test]
fn a_member_that_cannot_be_one_is_named_where_one_is_missing() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    store(&pair[0], &path("m1.img"));
    let second = Arc::new(MemoryDevice::copy_of(&*pair[1]).unwrap());
    let named = NamedSet::new(path("m1.img"));
    // No copy of its superblock is whole.
    for at in [FIRST, SECOND] {
        let mut byte = bytes_at(&*second, at + 300, 1);
        byte[0] ^= 1;
        second.write_at(at + 300, &byte).unwrap();
    }
    store(&second, &path("m2.img"));
    let (error, notes) = told_of_missing(&named);
    for said in [error, notes] {
        assert!(said.contains("m2.img") && said.contains("no superblock copy is whole"), "{said}");
    }
    // Another filesystem was made on it, which left a copy whole.
    let second = Arc::new(MemoryDevice::copy_of(&*pair[1]).unwrap());
    second.write_at(FIRST, &[0; 4096]).unwrap();
    second.write_at(0, b"XFSB").unwrap();
    let file = FileDevice::open(path("m2.img"), Access::ReadWrite).unwrap();
    for (at, len) in [(0, 4096), (FIRST, 4096), (SECOND, 4096)] {
        file.write_at(at, &bytes_at(&*second, at, len)).unwrap();
    }
    drop(file);
    let (error, notes) = told_of_missing(&named);
    for said in [error, notes] {
        assert!(said.contains("m2.img") && said.contains("XFS"), "{said}");
    }
    // Repaired, it is a member.
    store(&pair[1], &path("m2.img"));
    assert_eq!(state_of_second(&open(&named).unwrap()), MemberState::Present);
}

#[test]
fn the_end_of_a_search_is_told_where_a_member_is_missing() {
    let options = ["-q", "-m", "raid1", "-d", "raid1"];
    let Some(pair) = made_by("mkfs.btrfs", &options, &[256 << 20, 256 << 20]) else { return };
    let dir = tempfile::tempdir().unwrap();
    store(&pair[0], &dir.path().join("m1.img"));
    // 64 candidates are read.
    let others = |count: usize| {
        for number in 0..count {
            std::fs::write(dir.path().join(format!("m1.im{number}")), vec![0; 100_000]).unwrap();
        }
    };
    let named = NamedSet::new(dir.path().join("m1.img"));
    others(63);
    let (error, notes) = told_of_missing(&named);
    assert!(!error.contains("candidates") && !notes.contains("candidates"), "{error} {notes}");
    others(67);
    let (error, notes) = told_of_missing(&named);
    let said = "64 candidates beside it were looked at, and 4 were not";
    assert!(error.contains(said) && notes.contains(said), "{error} {notes}");
}
