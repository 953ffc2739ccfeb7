//! Requests in flight where room is scarce.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;

use creamery_base::{QgroupId, Result, TreeId, Wait};
use creamery_txn::{DelallocReservation, QuotaMode};

use super::answering::{Answering, How, MARKED};
use super::submitted::submit_sectors;
use super::{content, direct, queued, sectors};
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectDone};
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::options::FsOptions;

/// Keeps all the room that there is for changing items: then there is none to make a directory.
fn keep_all(fs: &Filesystem) -> Vec<DelallocReservation> {
    let mut kept = Vec::new();
    for number in 0..64 {
        kept.extend(std::iter::from_fn(|| keep_one(fs)));
        // Making a directory commits, and then there may be more.
        if make_directory(fs, &format!("filler{number}")).is_err() {
            return kept;
        }
    }
    panic!("there is always more");
}

fn keep_one(fs: &Filesystem) -> Option<DelallocReservation> {
    fs.engine().reserve_delalloc(TreeId::FS, 0, 1).expect("no limit")
}

fn make_directory(fs: &Filesystem, name: &str) -> Result<()> {
    let root = fs.root(fs.default_subvolume())?;
    fs.create(root, name.as_bytes(), &NewInode::directory(0o755)).map(drop)
}

/// A filesystem with a file of so many sectors in two extents. Its device answers a marked request when the test calls `answer`.
fn on_answering(count: u64, options: FsOptions) -> Option<(Arc<Filesystem>, Arc<Answering>, Arc<OpenFile>)> {
    let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
    let fs = Filesystem::open(engine, options).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (_, file) = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room");
    (0..2).for_each(|half| direct(&file, half * (count / 2) * SECTOR, &sectors(count / 2, 1)));
    fs.sync().expect("room");
    Some((fs, device, file))
}

/// Makes a directory beside a request that no device has answered. It takes until that has ended.
fn assert_waits_for(fs: &Filesystem, device: &Answering, answer: &Receiver<DirectDone>) {
    thread::scope(|scope| {
        let makes = scope.spawn(|| make_directory(fs, "dir"));
        (0..1000).for_each(|_| thread::yield_now());
        device.answer(0, How::Done);
        makes.join().expect("it ends well").expect("DIRECT-12: there is room when the request has ended");
        answer.try_recv().expect("DIRECT-12: it has ended before").outcome.expect("room");
    });
}

/// A filesystem with a direct write in flight, and all the room beside it kept.
struct Crowded {
    fs: Arc<Filesystem>,
    device: Arc<Answering>,
    file: Arc<OpenFile>,
    kept: Vec<DelallocReservation>,
    answer: Receiver<DirectDone>,
}

impl Crowded {
    fn new() -> Option<Self> {
        let (fs, device, file) = on_answering(8, queued())?;
        let mut kept = keep_all(&fs);
        kept.truncate(kept.len() - 16);
        let answer = submit_sectors(&file, DirectAt::Offset(0), MARKED, 2);
        assert_eq!(device.kept(), 1);
        kept.extend(std::iter::from_fn(|| keep_one(&fs)));
        Some(Self { fs, device, file, kept, answer })
    }
}

#[test]
fn nobody_finds_no_room_because_of_requests_in_flight() {
    let Some(Crowded { fs, device, file, kept, answer }) = Crowded::new() else { return };
    assert_waits_for(&fs, &device, &answer);
    drop(kept);
    fs.close(file);
    fs.shut_down().expect("it closes");
}

/// A thread has found no room and waits for writes on their way. Later requests do not take the room that comes back meanwhile.
#[test]
fn room_that_comes_back_is_not_kept_by_those_who_come_later() {
    let Some(Crowded { fs, device, file, mut kept, answer }) = Crowded::new() else { return };
    let may_keep = || fs.engine().keep_at_once(0).is_some();
    thread::scope(|scope| {
        let makes = scope.spawn(|| make_directory(&fs, "dir"));
        while may_keep() {
            thread::yield_now();
        }
        kept.truncate(kept.len() - 16);
        assert!(keep_one(&fs).is_none() && fs.engine().keep_at_once(1).is_none(), "RECLAIM-4");
        device.answer(0, How::Done);
        makes.join().expect("it ends well").expect("DIRECT-12: there is room when the request has ended");
        answer.try_recv().expect("DIRECT-12: it has ended before").outcome.expect("room");
    });
    assert!(may_keep() && keep_one(&fs).is_some(), "nobody claims it any more");
    drop(kept);
    fs.close(file);
    fs.shut_down().expect("it closes");
}

/// Two threads look for room at once. Neither takes from the other the sign that some came back.
#[test]
fn what_ends_in_flight_is_for_all_who_look_for_room() {
    let Some((fs, device, file)) = on_answering(8, queued()) else { return };
    let parents = ["one", "two"].map(|name| {
        make_directory(&fs, name).expect("room");
        let root = fs.root(fs.default_subvolume()).expect("a root");
        fs.lookup(root, name.as_bytes(), Wait::Yes).expect("it is there")
    });
    let mut kept = keep_all(&fs);
    kept.truncate(kept.len() - 48);
    // One has ended already, and no commit has freed its old space.
    direct(&file, 6 * SECTOR, &sectors(2, 3));
    let answers = [0, 2, 4].map(|at| submit_sectors(&file, DirectAt::Offset(at * SECTOR), MARKED, 2));
    kept.extend(std::iter::from_fn(|| keep_one(&fs)));
    thread::scope(|scope| {
        let makes = parents.map(|parent| {
            let fs = &fs;
            scope.spawn(move || fs.create(parent, b"dir", &NewInode::directory(0o755)).map(drop))
        });
        (0..1000).for_each(|_| thread::yield_now());
        answers.iter().for_each(|_| device.answer(0, How::Done));
        for made in makes {
            made.join().expect("it ends well").expect("DIRECT-12: there is room for both");
        }
    });
    for answer in answers {
        answer.try_recv().expect("DIRECT-12: it has ended before").outcome.expect("room");
    }
    drop(kept);
    fs.close(file);
    fs.shut_down().expect("it closes");
}

#[test]
fn nobody_meets_a_limit_because_of_requests_in_flight() {
    let Some((fs, device, file)) = on_answering(128, queued()) else { return };
    let engine = fs.engine();
    engine.quotas().enable(QuotaMode::Full).expect("room");
    while engine.quotas().rescan_step().expect("no damage") {}
    // The size of the file and of the write in flight, and less than making a directory may take.
    let limit = (128 + 64 + 12) * SECTOR;
    engine.quotas().limit(QgroupId::of(TreeId::FS), Some(limit), false).expect("room");
    make_directory(&fs, "before").expect("room");
    fs.sync().expect("room");
    let answer = submit_sectors(&file, DirectAt::Offset(0), MARKED, 64);
    assert_eq!(device.kept(), 1);
    assert_waits_for(&fs, &device, &answer);
    fs.close(file);
    fs.shut_down().expect("it closes");
}

/// Half of the sectors are holes, so each sector is a piece of its own. Room is kept for all of them before anything is written; where
/// there is none, they are written one by one.
#[test]
fn a_write_of_many_pieces_keeps_room_for_all_of_them_or_is_made_at_once() {
    for is_scarce in [false, true] {
        let options = FsOptions { nodatacow: true, ..queued() };
        let Some((fs, device, file)) = on_answering(64, options) else { return };
        for hole in 0..32 {
            file.fallocate(Fallocate::PunchHole, 2 * hole * SECTOR, SECTOR).expect("room");
        }
        fs.sync().expect("room");
        let kept = is_scarce.then(|| {
            let mut kept = keep_all(&fs);
            kept.truncate(kept.len() - 16);
            kept
        });
        let (engine, before) = (fs.engine(), fs.engine().delalloc_metadata_bytes());
        // The device answers unmarked writes at once.
        let byte = if is_scarce { 7 } else { MARKED };
        let answer = submit_sectors(&file, DirectAt::Offset(0), byte, 64);
        let at_once = file.inode().context().counters().direct.counters().at_once;
        if is_scarce {
            assert_eq!((at_once, engine.delalloc_metadata_bytes()), (1, before));
        } else {
            // A new extent takes three items at least, one in place the inode's.
            let item = keep_one(&fs).expect("room").metadata_bytes();
            assert!(at_once == 0 && device.kept() > 30);
            assert!(engine.delalloc_metadata_bytes() - before >= 32 * (3 + 1) * item, "room for all of it");
            while device.kept() > 0 {
                device.answer(0, How::Done);
            }
            assert!(file.inode().context().in_flight().help());
        }
        let part = answer.recv().expect("DIRECT-2").outcome.expect("room");
        assert_eq!((part.offset, part.len as u64), (0, 64 * SECTOR), "all of it");
        assert!(content(&file) == sectors(64, byte));
        file.inode().write_overwritten_times().expect("room is kept");
        assert_eq!(engine.delalloc_metadata_bytes(), before, "DIRECT-1: room is back");
        drop(kept);
        fs.close(file);
        fs.shut_down().expect("it closes");
    }
}
