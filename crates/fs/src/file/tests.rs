//! Tests of files with delayed data.

mod cuts;
mod line;
mod losses;
mod on_the_way;
mod sharing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_device::{AlignedBuffer, Hook, Request};
use creamery_txn::Engine;

use crate::data::tests::model::FileModel;
use crate::data::tests::support::*;
use crate::direct::DirectAt;
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, InodeFlags};
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::ops::{SetAttributes, set_attributes};
use crate::options::FsOptions;
use crate::seek::SeekTarget;

const MIB: u64 = 1 << 20;

fn delayed(inode: &Inode) -> u64 {
    inode.context().writeback().bytes()
}

/// Compares the file with the model, by all ways of reading, and checks the room that is kept for it.
fn compare(engine: &Engine, file: &OpenFile, model: &FileModel, random: &mut Random) {
    let inode = file.inode();
    assert_eq!(file.stat(Wait::Yes).expect("it lives").size, model.size());
    let (at, count) = match random.below(2) {
        0 => (0, model.size() + 10),
        _ => (random.below(model.size() + 5000), random.below(90_000)),
    };
    let mut out = vec![0xaa; count as usize];
    let got = file.read_at(at, &mut out, Wait::Yes).expect("a read");
    let (start, end) = (at.min(model.size()) as usize, (at + count).min(model.size()) as usize);
    assert!(out[..got] == model.bytes[start..end], "content differs in {at}+{count}");
    for _ in 0..4 {
        let at = random.below(model.size() + SECTOR);
        for want in [SeekTarget::Data, SeekTarget::Hole] {
            let found = match want {
                SeekTarget::Data => file.seek_data(at),
                SeekTarget::Hole => file.seek_hole(at),
            };
            let found = found.map(Some).or_else(|error| match error.kind() {
                ErrorKind::NotFound => Ok(None),
                _ => Err(error),
            });
            assert_eq!(found.expect("a search"), model.seek(at, want), "{want:?} at {at}");
        }
    }
    assert_eq!(delayed(inode), inode.file().delalloc().bytes());
    assert_eq!(
        engine.delalloc_bytes(),
        delayed(inode),
        "nothing is in flight, so room is kept for all of it"
    );
    assert!((engine.delalloc_metadata_bytes() > 0) == (delayed(inode) > 0));
}

fn change(file: &OpenFile, model: &mut FileModel, scale: u64, random: &mut Random) {
    let size = model.size();
    let place = |random: &mut Random| match random.below(3) {
        0 => size,
        1 => random.below(scale) / SECTOR * SECTOR,
        _ => random.below(scale),
    };
    match random.below(17) {
        0 => {
            let to = random.below(scale * 3 / 2);
            set_attributes(file.inode(), &SetAttributes::truncate(to)).expect("room");
            model.truncate(to);
        }
        1 => {
            let (one, other) = (place(random), place(random));
            let (at, end) = (one.min(other), one.max(other).max(one.min(other) + 1));
            let keep_size = random.below(2) == 0;
            match random.below(3) {
                0 => {
                    file.fallocate(Fallocate::Allocate { keep_size }, at, end - at).expect("room");
                    model.allocate(end, keep_size);
                }
                1 => {
                    file.fallocate(Fallocate::ZeroRange { keep_size }, at, end - at).expect("room");
                    model.allocate(end, keep_size);
                    model.zero(at, end);
                }
                _ => {
                    file.fallocate(Fallocate::PunchHole, at, end - at).expect("room");
                    model.zero(at, end);
                }
            }
        }
        2 => file.inode().flush().expect("room"),
        3 | 4 => drop(file.inode().context().writeback().step()),
        6 => {
            let at = place(random) / SECTOR * SECTOR;
            let count = (random.below(scale / SECTOR + 1) + 1) * SECTOR - random.below(5) / 4;
            let salt = random.next();
            let data: Vec<u8> = (0..count).map(|index| ((index ^ salt) % 251) as u8 + 1).collect();
            let done = file.write_direct(DirectAt::Offset(at), AlignedBuffer::from_slice(&data));
            assert_eq!(done.outcome.expect("room").len, data.len());
            model.write(at, &data);
        }
        5 if size > 0 => {
            let from = random.below(size) / SECTOR * SECTOR;
            let len = size - from;
            let to = size.next_multiple_of(SECTOR) + random.below(2) * SECTOR;
            file.clone_range(file, from, len, to).expect("room");
            let shown = model.range_of(from, size);
            model.clone_range(&shown, to);
        }
        _ => {
            let at = place(random);
            let count = match random.below(3) {
                0 => random.below(200) + 1,
                1 => random.below(scale) + 1,
                _ => (random.below(scale / SECTOR + 1) + 1) * SECTOR,
            };
            let salt = random.next();
            let data: Vec<u8> = (0..count).map(|index| ((index ^ salt) % 251) as u8 + 1).collect();
            assert_eq!(file.write_at(at, &data).expect("room"), data.len());
            model.write(at, &data);
        }
    }
}

#[test]
fn random_changes_in_memory_read_back_as_a_vector_of_bytes() {
    for (seed, kind) in (0..24).zip([Kind::DEFAULT, Kind::OLD].into_iter().cycle()) {
        println!("seed {seed}");
        let Some(mut fixture) = fixture(kind) else { return };
        let mut random = Random(seed);
        let mut model = FileModel::default();
        let scale = [3000, 20_000, 400_000][seed as usize % 3];
        let most = [64 << 10, MIB, 64 * MIB][seed as usize / 3 % 3];
        for _ in 0..4 {
            let file = opened(Arc::new(fixture.named_delayed("f1", most)));
            for _ in 0..40 {
                change(&file, &mut model, scale, &mut random);
                compare(&fixture, &file, &model, &mut random);
            }
            file.sync().expect("room");
            assert_eq!((fixture.delalloc_bytes(), fixture.delalloc_metadata_bytes()), (0, 0));
            assert_eq!(file.stat(Wait::Yes).expect("it lives").size, model.size());
            drop(file);
            fixture.reopen();
            let inode = fixture.named("f1");
            audit(&fixture, &inode, &inode.item(Wait::Yes).expect("it lives"));
        }
        fixture.judge(|mounted| model.compare_mounted(&mounted.join("f1")));
    }
}

#[test]
fn small_writes_on_end_become_one_extent() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    for at in (0..8 * MIB).step_by(1000) {
        file.write_at(at, &vec![7; 1000.min(8 * MIB - at) as usize]).expect("room");
    }
    assert_eq!(items(file.inode()), "", "nothing is in the tree yet");
    let stat = file.stat(Wait::Yes).expect("it lives");
    assert_eq!((stat.size, stat.allocated), (8 * MIB, 8 * MIB));
    file.sync().expect("room");
    assert_eq!(items(file.inode()), "0+2048 a@0");
    let stat = file.stat(Wait::Yes).expect("it lives");
    assert_eq!((stat.size, stat.allocated), (8 * MIB, 8 * MIB));
}

#[test]
fn a_file_that_grows_stays_together_on_the_volume() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let [other, file] =
        [300, 301].map(|ino| opened(Arc::new(new_delayed_file(&fixture, ino, InodeFlags::empty(), MIB))));
    let append = |file: &OpenFile, at: u64| {
        file.write_at(at, &[7; 4 * SECTOR as usize]).expect("room");
        file.sync().expect("room");
        file.inode().file().data_behind().expect("it has data")
    };
    let hole = append(&other, 0);
    let behind = append(&file, 0);
    // A hole that is as large as the following data.
    other.fallocate(Fallocate::PunchHole, 0, 4 * SECTOR).expect("room");
    fixture.commit().expect("room");
    assert_eq!(append(&file, 4 * SECTOR), behind + 4 * SECTOR);
    let again = append(&file, 0);
    assert_eq!(again, behind + 8 * SECTOR, "also what is written anew");
    assert_eq!(append(&other, 0), hole + 4 * SECTOR, "where the other one was first");
}

#[test]
fn a_small_file_is_written_back_inline_and_grows_out_of_it() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    file.write_at(0, b"small").expect("room");
    file.inode().flush().expect("room");
    assert_eq!(items(file.inode()), "0+1 inline 5");
    // The range in between is a hole, and the inline data moves to a sector of its own.
    file.write_at(5 * SECTOR, b"far").expect("room");
    file.inode().flush().expect("room");
    assert_eq!(items(file.inode()), "0+1 a@0, 5+1 b@0");
    let mut out = vec![1; 5 * SECTOR as usize + 3];
    assert_eq!(file.read_at(0, &mut out, Wait::Yes).expect("data"), out.len());
    assert!(out.starts_with(b"small\0") && out.ends_with(b"\0far"));
}

#[test]
fn times_that_are_set_are_not_overtaken_by_those_of_writes_before() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let file = opened(Arc::new(new_delayed_file(&fixture, 300, InodeFlags::empty(), 64 * MIB)));
    let before = file.stat(Wait::Yes).expect("it lives");
    file.write_at(0, b"written").expect("room");
    let written = file.stat(Wait::Yes).expect("it lives");
    assert!(written.times.modification > before.times.modification);
    assert!(written.change_counter > before.change_counter);
    let old = creamery_base::Timespec { sec: 1000, nsec: 5 };
    let times = SetAttributes { mtime: Some(crate::ops::Time::At(old)), ..SetAttributes::default() };
    set_attributes(file.inode(), &times).expect("room");
    file.inode().flush().expect("room");
    let after = file.stat(Wait::Yes).expect("it lives");
    assert_eq!(after.times.modification, old);
    assert!(after.times.change >= written.times.change && after.change_counter > written.change_counter);
}

/// Lets writes of data pass, or fails them.
#[derive(Default)]
struct FailsData(AtomicBool);

const MARK: u8 = 0xee;

impl Hook for FailsData {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. } if self.0.load(Ordering::Acquire) && data.iter().all(is_marked) => {
                Err(Error::new(ErrorKind::Io, "the device fails"))
            }
            _ => Ok(()),
        }
    }
}

fn is_marked(data: &[u8]) -> bool {
    data.iter().all(|byte| *byte == MARK)
}

#[test]
fn a_write_that_fails_later_is_told_once_to_each_who_had_the_file_open() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(FailsData::default());
    let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB));
    let [one, other] = [(); 2].map(|()| opened(Arc::clone(&inode)));
    one.write_at(0, &vec![1; 64 << 10]).expect("room");
    one.sync().expect("the device works");
    let used = engine.space().data_used;
    device.0.store(true, Ordering::Release);
    one.write_at(8192, &vec![MARK; 256 << 10]).expect("it is in memory");
    assert_eq!(one.stat(Wait::Yes).expect("it lives").size, 264 << 10);
    assert_eq!(other.sync().map_err(|error| error.kind()), Err(ErrorKind::Io));
    device.0.store(false, Ordering::Release);
    let late = opened(Arc::clone(&inode));
    assert_eq!(one.sync().map_err(|error| error.kind()), Err(ErrorKind::Io));
    for told in [&one, &other, &late] {
        told.sync().expect("it was told, or is none of its business");
    }
    // The extent is referenced nowhere: the file is as if the write had never been.
    let mut out = vec![0; 64 << 10];
    assert_eq!(one.stat(Wait::Yes).expect("it lives").size, 64 << 10);
    one.read_at(0, &mut out, Wait::Yes).expect("data");
    assert!(out.iter().all(|byte| *byte == 1));
    assert_eq!((engine.delalloc_bytes(), engine.delalloc_metadata_bytes(), delayed(&inode)), (0, 0, 0));
    engine.commit().expect("nothing was aborted");
    assert_eq!(engine.space().data_used, used);
    audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
}

fn open(engine: &Arc<Engine>, options: FsOptions) -> Arc<Filesystem> {
    Filesystem::open(Arc::clone(engine), options).expect("it opens")
}

#[test]
fn files_with_delayed_data_stay_in_memory() {
    const FILES: u64 = 1000;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions { inodes_cached: 1, ..FsOptions::default() });
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let dir = fs.create(root, b"dir", &NewInode::directory(0o755)).expect("room").id;
    let ids: Vec<_> = (0..FILES)
        .map(|number| {
            let name = format!("file {number}");
            let (made, file) = fs.create_open(dir, name.as_bytes(), &NewInode::file(0o644)).expect("room");
            file.write_at(0, name.as_bytes()).expect("room");
            made.id
        })
        .collect();
    assert!(fs.statistics().writeback.delayed_bytes > 0);
    for (number, id) in ids.iter().enumerate() {
        let name = format!("file {number}");
        let mut out = vec![0; 100];
        let file = fs.open_file(*id).expect("it is there");
        let read = file.read_at(0, &mut out, Wait::Yes).expect("data");
        assert_eq!(&out[..read], name.as_bytes());
        assert_eq!(fs.stat(*id, Wait::Yes).expect("it is there").size, name.len() as u64);
    }
    fs.sync().expect("room");
    assert_eq!(fs.statistics().writeback.delayed_bytes, 0);
    fs.shut_down().expect("it closes");
}

#[test]
fn delayed_data_is_counted_until_it_is_on_disk() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let counted = || {
        let memory = fs.memory().delayed_data_bytes;
        assert_eq!(fs.statistics().writeback.delayed_bytes, memory);
        assert_eq!(fixture.delalloc_bytes(), memory);
        memory
    };
    let make = |name: &[u8]| fs.create_open(root, name, &NewInode::file(0o644)).expect("room").1;
    let (cut, unlinked, closed, kept) = (make(b"cut"), make(b"unlinked"), make(b"closed"), make(b"kept"));
    let free = fs.statfs().blocks_free;
    for file in [&cut, &unlinked, &closed, &kept] {
        file.write_at(0, &vec![7; MIB as usize]).expect("room");
    }
    assert_eq!(counted(), 4 * MIB);
    assert_eq!(fs.statfs().blocks_free, free - 4 * MIB / SECTOR);
    fs.set_attributes(cut.id(), &SetAttributes::truncate(100_000)).expect("room");
    assert_eq!(counted(), 3 * MIB, "what is left of a file that is cut is written back");
    fs.unlink(root, b"unlinked").expect("it is there");
    assert_eq!(counted(), 3 * MIB, "somebody has it open");
    fs.close(unlinked);
    assert_eq!(counted(), 2 * MIB);
    fs.close(closed);
    fs.unlink(root, b"closed").expect("it is there");
    assert_eq!(counted(), MIB, "what is gone is never written");
    let written = fixture.volume().counters().write_bytes;
    kept.sync().expect("room");
    assert_eq!(counted(), 0);
    assert!(fixture.volume().counters().write_bytes - written < 2 * MIB);
    assert_eq!(fixture.delalloc_metadata_bytes(), 0);
    fs.shut_down().expect("it closes");
}

#[test]
fn a_commit_has_the_data_with_it_where_that_is_wanted() {
    for flush_on_commit in [false, true] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let fs = open(&fixture, FsOptions { flush_on_commit, ..FsOptions::default() });
        let root = fs.root(fs.default_subvolume()).expect("a root");
        let file = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room").1;
        file.write_at(0, &[7; 100_000]).expect("room");
        fixture.commit().expect("it works");
        assert_eq!(items(file.inode()) == "0+25 a@0", flush_on_commit);
        assert_eq!(fs.statistics().writeback.delayed_bytes == 0, flush_on_commit);
        fs.shut_down().expect("it closes");
    }
}

#[test]
fn who_writes_more_than_may_be_delayed_writes_back_first() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions { delayed_bytes: MIB, ..FsOptions::default() });
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let file = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room").1;
    for at in (0..16 * MIB).step_by(64 << 10) {
        file.write_at(at, &[7; 64 << 10]).expect("room");
        assert!(fs.statistics().writeback.delayed_bytes <= MIB);
    }
    let done = fs.statistics().writeback;
    assert!(done.throttled > 10 && done.runs >= 14 && done.at_once == 0, "{done:?}");
    fs.shut_down().expect("it closes");
}

#[test]
fn a_full_filesystem_takes_what_fits_and_loses_nothing_of_it() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let mut wanted = Vec::new();
    'full: for number in 0_u8.. {
        let name = format!("file {number}");
        let (made, file) = fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room");
        for piece in 0..64 {
            match file.write_at(piece * 100_000, &[number + 1; 100_000]) {
                Ok(100_000) => {}
                Ok(some) => {
                    wanted.push((made.id, number + 1, piece * 100_000 + some as u64));
                    break 'full;
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace);
                    wanted.push((made.id, number + 1, piece * 100_000));
                    break 'full;
                }
            }
        }
        wanted.push((made.id, number + 1, 6_400_000));
    }
    fs.sync().expect("what was taken has room");
    let done = fs.statistics().writeback;
    assert!(done.failures == 0 && done.delayed_bytes == 0 && done.at_once > 0, "{done:?}");
    for (id, byte, size) in wanted {
        let mut out = vec![0; 6_400_000];
        let file = fs.open_file(id).expect("it is there");
        let read = file.read_at(0, &mut out, Wait::Yes).expect("data");
        assert!(read as u64 == size && out[..read].iter().all(|found| *found == byte), "{read} of {size}");
    }
    fs.shut_down().expect("it closes");
}

/// Synced files stand in front of others in line, and delay no writeback that is due.
#[test]
fn what_is_dirty_for_long_is_due_wherever_it_stands() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let make = |name: String| {
        let file = fs.create_open(root, name.as_bytes(), &NewInode::file(0o644)).expect("room").1;
        file.write_at(0, b"data").expect("room");
        file
    };
    let synced: Vec<_> = (0..40).map(|number| make(format!("synced {number}"))).collect();
    synced.iter().for_each(|file| file.sync().expect("room"));
    let last = make("last".to_owned());
    let writeback = last.inode().context().writeback();
    assert!(matches!(writeback.due(&fixture), creamery_txn::Due::In(_)));
    last.inode().start_writeback();
    assert_eq!(writeback.due(&fixture), creamery_txn::Due::Now);
    assert!(writeback.step() && !writeback.step());
    assert_eq!(writeback.due(&fixture), creamery_txn::Due::Never);
    fs.shut_down().expect("it closes");
}

/// Panics on a write of data.
struct Panicking;

impl Hook for Panicking {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. } if data.iter().all(is_marked) => panic!("a bug of our own"),
            _ => Ok(()),
        }
    }
}

#[test]
fn who_dies_writing_back_keeps_nobody() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, _device) = fixture.behind(Panicking);
    let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), 64 * MIB));
    let file = opened(Arc::clone(&inode));
    file.write_at(0, &vec![MARK; 64 << 10]).expect("it is in memory");
    let died = creamery_base::panics::catch(|| inode.context().writeback().step());
    assert!(died.is_err());
    assert!(file.sync().is_err(), "the data is lost, which is told");
    assert_eq!((engine.delalloc_bytes(), engine.delalloc_metadata_bytes(), delayed(&inode)), (0, 0, 0));
}

#[test]
fn dirty_pages_without_room_are_a_bug() {
    assert_noticed("DELALLOC-2", |engine| {
        let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), MIB));
        inode.file().delalloc().begin(0, std::time::Duration::ZERO, |state| {
            state.insert(0, &[0; SECTOR as usize], &crate::delalloc::PageRanges::new());
            state.written(SECTOR, creamery_base::Timespec::default(), None);
        });
    });
}

#[test]
fn what_is_complete_and_was_not_in_flight_is_a_bug() {
    assert_noticed("DELALLOC-3", |engine| {
        let file = opened(Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), MIB)));
        file.write_at(0, b"data").expect("room");
        file.inode().file().delalloc().complete_to(SECTOR);
    });
}

#[test]
fn who_writes_back_in_the_midst_of_that_is_noticed() {
    assert_noticed("LOCK-1", |engine| {
        use creamery_base::lock::{HeldNote, LockPosition, rank};
        let file = opened(Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), MIB)));
        file.write_at(0, b"data").expect("room");
        let _step = HeldNote::wait(LockPosition::of(rank::WRITEBACK));
        file.inode().context().writeback().step();
    });
}
