//! The superblock's number of devices decides nothing: the chunk tree lists them, and a commit writes their number.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use creamery_base::{ErrorKind, ObjectId, Result, TreeId};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_format::{Key, KeyType, SUPERBLOCK_LEN, SUPERBLOCK_OFFSETS, Superblock};
use creamery_testkit::{Judge, Judges, LoopMount, Scratch, btrfs_check};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

const LEN: u64 = 256 << 20;

fn open(images: &[&Path], mode: Mode) -> Result<Arc<Engine>> {
    let read_only = mode == Mode::ReadOnly;
    let access = if read_only { Access::ReadOnly } else { Access::ReadWrite };
    let mut devices: Vec<Arc<dyn BlockDevice>> = Vec::new();
    for image in images {
        devices.push(Arc::new(FileDevice::open(image, access)?));
    }
    Engine::open(Volume::open(devices, mode)?, Options { read_only, ..Options::default() })
}

/// New images on which mkfs.btrfs made one filesystem; `None` without the tools to make and check it.
fn images(scratch: &Scratch, names: &[&str], options: &[&str]) -> Option<Vec<PathBuf>> {
    if !Judges::here().have(&[Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices]) {
        println!("skipped: root, btrfs-progs, kernel btrfs or loop devices missing");
        return None;
    }
    let images: Vec<PathBuf> = names.iter().map(|name| scratch.file(name)).collect();
    for image in &images {
        std::fs::File::create(image).and_then(|file| file.set_len(LEN)).expect("an image");
    }
    let done = Command::new("mkfs.btrfs").arg("-q").args(options).args(&images).output();
    let done = done.expect("mkfs.btrfs runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(images)
}

fn superblocks(image: &Path, mut each: impl FnMut(&std::fs::File, u64, Superblock)) {
    let file = std::fs::File::options().read(true).write(true).open(image).expect("the image opens");
    for at in SUPERBLOCK_OFFSETS.into_iter().filter(|at| at + SUPERBLOCK_LEN as u64 <= LEN) {
        let mut bytes = vec![0; SUPERBLOCK_LEN];
        file.read_exact_at(&mut bytes, at).expect("a superblock");
        each(&file, at, Superblock::from_bytes(&bytes, at).expect("a superblock"));
    }
}

fn set_number(image: &Path, number: u64) {
    superblocks(image, |file, at, mut superblock| {
        superblock.raw_mut().num_devices = number.into();
        file.write_all_at(&superblock.to_bytes(at), at).expect("a write");
    });
}

fn expect_number(image: &Path, number: u64) {
    superblocks(image, |_, at, superblock| assert_eq!(superblock.device_count(), number, "at {at}"));
}

/// Two commits that leave no item.
fn work(engine: &Engine) {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    let key = Key::new(ObjectId::new(1_000_000), KeyType::new(100), 0);
    for round in 0..2 {
        let handle = engine.start(ReserveItems::items(1)).expect("room");
        match round {
            0 => tree.insert(&handle, &key, b"there").expect("room"),
            _ => assert!(tree.remove(&handle, &key).expect("room")),
        }
        handle.end();
        engine.commit().expect("a commit");
    }
}

#[test]
fn a_number_that_is_too_large_is_corrected_by_a_commit() {
    let scratch = Scratch::new("too-large").expect("a scratch folder");
    let Some(images) = images(&scratch, &["image"], &[]) else { return };
    let (image, theirs) = (&images[0], scratch.file("theirs"));
    for number in [2, 8, u64::MAX] {
        set_number(image, number);
        let reading = open(&[image], Mode::ReadOnly).expect("its one device is there");
        let said = format!("number of devices is wrong, expected 1, found {number}");
        assert!(reading.volume().notes()[0].contains(&said), "{:?}", reading.volume().notes());
        drop(reading);
        expect_number(image, number);
        std::fs::copy(image, &theirs).expect("a copy");
        // Linux writes to one image.
        let mut mount = LoopMount::mount(&theirs, &scratch.file("mounted"), "").expect("Linux mounts it");
        std::fs::write(mount.dir().join("file"), "by Linux").expect("it writes");
        let complaints = mount.unmount_and_tell().expect("unmounts");
        let said = format!("num_devices {number} mismatch with DEV_ITEM count 1");
        assert!(complaints.iter().any(|line| line.contains(&said)), "{complaints:?}");
        expect_number(&theirs, 1);
        // Creamery writes to the other.
        let engine = open(&[image], Mode::ReadWrite).expect("its one device is there");
        work(&engine);
        engine.shut_down().expect("closed");
        expect_number(image, 1);
        btrfs_check(image).expect("after our writes");
        let mut mount = LoopMount::mount(image, &scratch.file("mounted"), "").expect("Linux mounts it");
        assert_eq!(mount.unmount_and_tell().expect("unmounts"), [""; 0]);
    }
    set_number(image, 1);
}

#[test]
fn no_devices_at_all_are_refused_as_by_linux() {
    let scratch = Scratch::new("none-at-all").expect("a scratch folder");
    let Some(images) = images(&scratch, &["image"], &[]) else { return };
    let image = &images[0];
    set_number(image, 0);
    assert!(LoopMount::mount(image, &scratch.file("mounted"), "").is_err(), "Linux mounts it");
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let error = open(&[image], mode).err().expect("refused");
        assert!(error.to_string().contains("no devices"), "{error}");
    }
}

#[test]
fn devices_are_missing_when_the_chunk_tree_lists_them() {
    let scratch = Scratch::new("too-small").expect("a scratch folder");
    for profile in ["raid1", "raid0", "single"] {
        let names = [format!("{profile}-1"), format!("{profile}-2")];
        let names = [&*names[0], &*names[1]];
        let Some(images) = images(&scratch, &names, &["-m", profile, "-d", "raid0"]) else { return };
        let (first, second) = (&*images[0], &*images[1]);
        for number in [2, 1] {
            images.iter().for_each(|image| set_number(image, number));
            for alone in [first, second] {
                let error = open(&[alone], Mode::ReadOnly).err().expect("one is missing");
                assert_eq!(error.kind(), ErrorKind::DeviceMissing, "{profile}, {number}: {error}");
                assert!(error.to_string().contains("device missing"), "{profile}, {number}: {error}");
            }
            let both = open(&[second, first], Mode::ReadOnly).expect("both are there");
            let notes = both.volume().notes();
            match number {
                2 => assert_eq!(notes, [""; 0]),
                _ => assert!(notes[0].contains("expected 2, found 1"), "{notes:?}"),
            }
        }
    }
}
