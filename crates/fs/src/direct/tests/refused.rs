//! Refused writes, and errors that are not a write's.

use std::sync::Arc;

use creamery_base::{ErrorKind, QgroupId, TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_txn::QuotaMode;

use super::{content, counted, direct, open_named, sectors, try_direct};
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectPart};
use crate::filesystem::Filesystem;
use crate::inode::{FILE_SIZE_MAX, InodeFlags};
use crate::names::NewInode;
use crate::options::FsOptions;

#[test]
fn marks_forbid_direct_writes_as_any_others() {
    const DENIED: Option<ErrorKind> = Some(ErrorKind::PermissionDenied);
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let rows = [
        (InodeFlags::IMMUTABLE, DENIED, DENIED),
        (InodeFlags::VERITY, DENIED, DENIED),
        (InodeFlags::APPEND, DENIED, None),
        (InodeFlags::NODUMP, None, None),
    ];
    for (number, (flags, over, behind)) in (300..).zip(rows) {
        let file = opened(Arc::new(new_delayed_file(&fixture, number, InodeFlags::empty(), 1 << 20)));
        direct(&file, 0, &sectors(3, 1));
        set_flags(file.inode(), flags);
        // Beside others, and alone.
        for at in [DirectAt::Offset(SECTOR), DirectAt::Offset(2 * SECTOR)] {
            let outcome = try_direct(&file, at, &sectors(2, 2));
            assert_eq!(outcome.err().map(|error| error.kind()), over, "{flags:?} {at:?}");
        }
        let outcome = try_direct(&file, DirectAt::End, &sectors(1, 3));
        assert_eq!(outcome.err().map(|error| error.kind()), behind, "{flags:?}");
    }
}

#[test]
fn a_direct_write_of_nothing_changes_nothing() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    direct(&file, 0, &sectors(2, 1));
    // No request waits for this write, or reports its loss.
    file.write_at(2 * SECTOR, &[2; 100]).expect("room");
    let before = file.stat(Wait::Yes).expect("it lives");
    for (at, offset) in [
        (DirectAt::Offset(SECTOR), SECTOR),
        (DirectAt::Offset(64 * SECTOR), 64 * SECTOR),
        (DirectAt::Offset(7), 7),
        (DirectAt::End, 2 * SECTOR + 100),
    ] {
        let part = try_direct(&file, at, &[]).expect("it is nothing");
        assert_eq!(part, DirectPart { offset, len: 0 });
    }
    assert_eq!(file.inode().file().delalloc().bytes(), SECTOR);
    let error = try_direct(&file, DirectAt::Offset(FILE_SIZE_MAX + 1), &[]).expect_err("no file has that");
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
    let immutable = open_named(&fixture, "f1", InodeFlags::IMMUTABLE);
    for at in [DirectAt::Offset(7), DirectAt::End] {
        let error = try_direct(&immutable, at, &[]).expect_err("it is marked");
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{at:?}");
    }
    let after = file.stat(Wait::Yes).expect("it lives");
    assert_eq!(
        (after.size, after.times, counted(&file)),
        (before.size, before.times, [0, 2 * SECTOR, 0, 0, 0])
    );
}

#[test]
fn no_direct_write_goes_beyond_the_largest_file() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    let last = FILE_SIZE_MAX - FILE_SIZE_MAX % SECTOR - SECTOR;
    for at in [last + SECTOR, u64::MAX - SECTOR + 1] {
        let error = try_direct(&file, DirectAt::Offset(at), &sectors(1, 1)).expect_err("no file has that");
        assert_eq!(error.kind(), ErrorKind::FileTooLarge, "{at}");
    }
    direct(&file, last, &sectors(1, 1));
    assert_eq!(file.stat(Wait::Yes).expect("it lives").size, last + SECTOR);
    let error = try_direct(&file, DirectAt::End, &sectors(1, 1)).expect_err("no file has that");
    assert_eq!(error.kind(), ErrorKind::FileTooLarge);
}

#[test]
fn what_is_no_file_or_read_only_takes_no_direct_write() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (made, file) = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room");
    direct(&file, 0, &sectors(2, 1));
    let dir = fs.create(root, b"dir", &NewInode::directory(0o755)).expect("room").id;
    let dir = fs.open_file(dir).expect("it is there");
    let outcome = try_direct(&dir, DirectAt::Offset(0), &sectors(1, 1));
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::IsADirectory));
    let outcome = dir.read_direct(0, AlignedBuffer::zeroed(8)).outcome;
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::IsADirectory));
    let counters = dir.inode().context().counters().direct.counters();
    assert_eq!((counters.reads, counters.writes), (0, 1), "what is no file is not counted");
    assert!(content(&file) == sectors(2, 1));
    fs.close(file);
    fs.close(dir);
    fs.shut_down().expect("it closes");
    drop(fs);
    fixture.reopen_for_reading();
    let fs = Filesystem::open(Arc::clone(&fixture.engine), FsOptions::default()).expect("it opens");
    let file = fs.open_file(made.id).expect("it is there");
    for at in [DirectAt::Offset(0), DirectAt::End] {
        let outcome = try_direct(&file, at, &sectors(1, 2));
        assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::ReadOnly), "{at:?}");
    }
    assert!(content(&file) == sectors(2, 1));
}

/// Overwritten data counts until the new data has its space, also when other writes stand in line before it.
#[test]
fn what_is_delayed_keeps_no_direct_write_from_what_a_limit_leaves() {
    const LIMIT: u64 = 16 << 20;
    let Some(fixture) = fixture(Kind("-m single --nodesize 4096")) else { return };
    let (engine, options) = (&fixture.engine, FsOptions { delayed_bytes: 64 << 20, ..FsOptions::default() });
    engine.quotas().enable(QuotaMode::Full).expect("room");
    while engine.quotas().rescan_step().expect("no damage") {}
    engine.quotas().limit(QgroupId::of(TreeId::FS), Some(LIMIT), false).expect("room");
    let fs = Filesystem::open(Arc::clone(engine), options).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let other = fs.create_subvolume(root, b"other", &NewInode::directory(0o755)).expect("room");
    let small = |dir, count: u32| -> Vec<_> {
        let names = (0..count).map(|number| format!("small{number}").into_bytes());
        names.map(|name| fs.create_open(dir, &name, &NewInode::file(0o644)).expect("room").1).collect()
    };
    // More bytes than threads that look for room write back.
    let files = [small(other, 550), small(root, 64)].concat();
    let (_, file) = fs.create_open(root, b"direct", &NewInode::file(0o644)).expect("room");
    direct(&file, 0, &sectors(4, 1));
    let write_all = |byte| {
        files.iter().for_each(|file| {
            file.write_at(0, &sectors(1, byte)).expect("room");
        })
    };
    write_all(1);
    fs.sync().expect("room");
    write_all(2);
    // One owner keeps all the rest.
    let mut kept = Vec::new();
    for bytes in [1 << 20, SECTOR] {
        while let Ok(room) = engine.reserve_delalloc(TreeId::FS, bytes, 0) {
            kept.push(room.expect("the filesystem has room"));
        }
    }
    direct(&file, SECTOR, &sectors(2, 3));
    drop(kept);
    files.into_iter().for_each(|file| fs.close(file));
    fs.close(file);
    fs.shut_down().expect("it closes");
}
