//! Writes that must not wait: which ones begin, and which come back. The states are those of fstests' btrfs/226, made by Linux; the test
//! asks Linux and the library.

use std::fs::{File as HostFile, OpenOptions as HostOptions};
use std::io::IoSlice;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::channel;

use creamery::device::AlignedBuffer;
use creamery::{Image, Result};
use creamery_testkit::{Judge, Judges, LoopMount, Run, btrfs_check};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::write;

const KIB: u64 = 1 << 10;
const NAMES: [&str; 7] = ["copied", "snapshot", "reflink", "prealloc", "holes", "punched", "alone"];
/// Offset and length of each write, in KiB.
const WRITES: [(u64, u64); 7] = [(32, 64), (32, 64), (32, 32), (64, 64), (64, 128), (0, 128), (32, 64)];

/// A file with these parts, in KiB, each an extent of its own.
fn make(dir: &Path, name: &str, in_place: bool, parts: &[(u64, u64)]) -> HostFile {
    let path = dir.join(name);
    let file = HostOptions::new().create(true).truncate(true).write(true).open(&path).expect("room");
    if in_place {
        Run::new("chattr").arg("+C").arg(&path).ok().expect("it is empty");
    }
    for (at, len) in parts {
        file.write_all_at(&vec![0xab; (len * KIB) as usize], at * KIB).expect("room");
        file.sync_all().expect("it is durable");
    }
    file
}

/// The states, in a filesystem whose files have no checksums.
fn make_all(dir: &Path) {
    make(dir, "copied", false, &[(0, 128)]);
    let shared = make(dir, "snapshot", true, &[(0, 64), (64, 64)]);
    Run::new("btrfs").args(["subvolume", "snapshot"]).arg(dir).arg(dir.join("snap")).ok().expect("taken");
    shared.write_all_at(&vec![0xab; 64 << 10], 0).expect("room");
    shared.sync_all().expect("it is durable");
    make(dir, "reflink", true, &[(0, 128)]);
    let other = make(dir, "other", true, &[]);
    drop(other);
    Run::new("cp")
        .arg("--reflink=always")
        .arg(dir.join("reflink"))
        .arg(dir.join("other"))
        .ok()
        .expect("shared");
    let file = make(dir, "prealloc", false, &[(0, 64)]);
    fallocate(&file, FallocateFlags::KEEP_SIZE, 64 * KIB, 64 * KIB).expect("room");
    make(dir, "holes", true, &[(0, 64), (64, 64), (192, 64)]);
    let file = make(dir, "punched", true, &[(0, 128)]);
    fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 0, 64 * KIB).expect("room");
    make(dir, "alone", true, &[(0, 128)]);
}

fn data((_, len): (u64, u64)) -> Vec<u8> {
    vec![0xff; (len * KIB) as usize]
}

/// The writes that Linux begins.
fn of_linux(dir: &Path) -> Vec<bool> {
    let begins = |(name, at): (&&str, (u64, u64))| {
        let file = HostOptions::new()
            .read(true)
            .write(true)
            .custom_flags(rustix::fs::OFlags::DIRECT.bits().cast_signed())
            .open(dir.join(name))
            .expect("it is there");
        let buffer = AlignedBuffer::from_slice(&data(at));
        match pwritev2(&file, &[IoSlice::new(&buffer)], at.0 * KIB, ReadWriteFlags::NOWAIT) {
            Ok(len) => {
                assert_eq!(len, buffer.len(), "{name}: all or nothing");
                true
            }
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN, "{name}");
                false
            }
        }
    };
    NAMES.iter().zip(WRITES).map(begins).collect()
}

/// The writes that the library begins, with everything it needs in memory.
fn of_ours(image: &Path) -> Result<Vec<bool>> {
    let fs = Image::options().write().open(image)?;
    fs.write("/warm", vec![1; 4096])?;
    fs.sync()?;
    let begins = |(name, at): (&&str, (u64, u64))| -> Result<bool> {
        let file = creamery::OpenOptions::new().read(true).write(true).open(&fs, format!("/{name}"))?;
        file.overwrites()?;
        let (send, answers) = channel();
        let begun = file.try_submit(write(at.0 * KIB, &data(at)), move |done| drop(send.send(done)));
        if begun.is_ok() {
            let done = answers.recv().expect("an answer");
            assert_eq!(done.outcome?.len, data(at).len(), "{name}: all or nothing");
        }
        Ok(begun.is_ok())
    };
    let begun: Result<Vec<bool>> = NAMES.iter().zip(WRITES).map(begins).collect();
    assert_eq!(fs.statistics().nowait.blocked, 0);
    fs.close()?;
    begun
}

#[test]
fn the_writes_begin_at_once_that_linux_begins_at_once() -> Result<()> {
    let judges = [Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];
    assert!(Judges::here().have(&judges) || !Judges::required());
    if !Judges::here().have(&judges) {
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let [made, theirs, ours] = ["made.img", "theirs.img", "ours.img"].map(|name| dir.path().join(name));
    Image::make(&made).size(512 << 20).run()?;
    let point = dir.path().join("mount");
    let mount = LoopMount::mount(&made, &point, "nodatasum").expect("Linux takes it");
    make_all(mount.dir());
    mount.unmount().expect("no complaint");
    for copy in [&theirs, &ours] {
        std::fs::copy(&made, copy)?;
    }
    let begun = of_ours(&ours)?;
    assert_eq!(begun, [false, false, false, true, false, false, true]);
    btrfs_check(&ours).expect("no error");
    let mount = LoopMount::mount(&theirs, &point, "nodatasum").expect("Linux takes it");
    assert_eq!(of_linux(mount.dir()), begun, "{NAMES:?}");
    let content: Vec<_> = NAMES.map(|name| std::fs::read(mount.dir().join(name)).expect("a read")).into();
    mount.unmount().expect("no complaint");
    let mount = LoopMount::mount(&ours, &point, "ro").expect("Linux takes it");
    for (name, content) in NAMES.iter().zip(content) {
        assert!(
            std::fs::read(mount.dir().join(name))? == content,
            "{name}: what was refused was not written"
        );
    }
    mount.unmount().expect("no complaint");
    Ok(())
}
