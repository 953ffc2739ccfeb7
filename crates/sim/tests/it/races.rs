//! Threads aimed at each other: what one of them does lies between two steps of the other as often as can be.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::{ErrorKind, InodeId, Timespec, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_fs::{Filesystem, FsOptions, NewInode, SetAttributes, Time};
use creamery_sim::{MadeBy, SimDevice, fresh_image, open, watched};
use creamery_testkit::{Random, seed_of};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

/// More directories than may have delayed items.
const DIRECTORIES: u64 = 80;

fn device() -> Arc<SimDevice> {
    Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")))
}

fn top(fs: &Filesystem) -> InodeId {
    fs.root(TreeId::FS).expect("the top level is there")
}

fn directories(fs: &Filesystem, count: u64) -> Vec<InodeId> {
    let make = |number: u64| {
        let name = format!("dir{number}").into_bytes();
        fs.create(top(fs), &name, &NewInode::directory(0o755)).expect("a directory").id
    };
    (0..count).map(make).collect()
}

/// Makes a file in one directory after the other until `stop`, so that each has delayed items and is the next but some
/// to be written.
fn keep_busy(fs: &Filesystem, directories: &[InodeId], stop: &AtomicBool) {
    for number in 0_u64.. {
        let name = format!("busy{number}").into_bytes();
        for dir in directories {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            fs.create(*dir, &name, &NewInode::file(0o644)).expect("it works on");
            fs.unlink(*dir, &name).expect("it was just made");
        }
    }
}

/// Runs `work` beside a thread that keeps `directories` busy.
fn beside_busy_directories(fs: &Filesystem, directories: &[InodeId], work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| keep_busy(fs, directories, &stop));
        work();
        stop.store(true, Ordering::Relaxed);
    });
}

/// Attributes set on directories while others of them are written, and what is in the tree after the next commit.
fn attributes_of_directories(seed: u64) {
    const ROUNDS: u64 = 60;
    let device = device();
    let fs = open(&device).expect("it opens");
    let mine = directories(&fs, DIRECTORIES);
    let home = fs.create(top(&fs), b"home", &NewInode::directory(0o755)).expect("a directory").id;
    let busy: Vec<InodeId> = (0..DIRECTORIES)
        .map(|number| {
            let name = format!("dir{number}").into_bytes();
            fs.create(home, &name, &NewInode::directory(0o755)).expect("a directory").id
        })
        .collect();
    let mut random = Random::new(seed);
    beside_busy_directories(&fs, &busy, || {
        for round in 0..ROUNDS {
            for dir in &mine {
                fs.create(*dir, format!("file{round}").as_bytes(), &NewInode::file(0o644)).expect("a file");
            }
            // Those that wait longest are written by the other thread just now.
            for dir in &mine {
                let (mode, time) = (random.below(0o1000) as u32, i64::from(random.below(1 << 30) as u32));
                let time = Some(Time::At(Timespec { sec: time, nsec: 0 }));
                let set =
                    SetAttributes { mode: Some(mode), atime: time, mtime: time, ..SetAttributes::default() };
                fs.set_attributes(*dir, &set).expect("it is changed");
            }
            fs.sync().expect("it commits");
            let again = open(&Arc::new(SimDevice::new(device.image()))).expect("it opens again");
            for dir in &mine {
                let (told, kept) = (fs.stat(*dir, Wait::Yes), again.stat(*dir, Wait::Yes));
                let (told, kept) = (told.expect("it is there"), kept.expect("it was committed"));
                assert_eq!(kept, told, "seed {seed}, round {round}: directory {dir} after a new start");
            }
        }
    });
    drop(fs);
}

#[test]
fn attributes_of_directories_stay_with_more_of_them_delayed_than_there_is_room_for() {
    watched(|_| attributes_of_directories(1));
}

/// Directories that lose their last name while they have delayed items.
fn removed_directories() {
    const ROUNDS: u64 = 60;
    let device = device();
    let fs = open(&device).expect("it opens");
    let busy = directories(&fs, DIRECTORIES);
    beside_busy_directories(&fs, &busy, || {
        for round in 0..ROUNDS {
            let name = |number: u64| format!("short-lived{number}").into_bytes();
            for number in 0..DIRECTORIES {
                let dir = fs.create(top(&fs), &name(number), &NewInode::directory(0o755)).expect("made").id;
                fs.create(dir, b"file", &NewInode::file(0o644)).expect("made");
                fs.unlink(dir, b"file").expect("it was just made");
            }
            for number in 0..DIRECTORIES {
                // Open ones become orphans, the others go at once.
                let dir = fs.lookup(top(&fs), &name(number), Wait::Yes).expect("it was just made");
                let open = number.is_multiple_of(2).then(|| fs.inode(dir, Wait::Yes).expect("it is there"));
                fs.rmdir(top(&fs), &name(number)).unwrap_or_else(|error| panic!("round {round}: {error}"));
                if let Some(open) = open {
                    fs.release(open);
                }
            }
        }
    });
    fs.sync().expect("nothing was aborted");
    fs.engine().volume().close().expect("nothing failed");
    drop(fs);
    crate::refill::judge(&device).expect("btrfs check accepts it");
}

#[test]
fn directories_with_delayed_items_are_removed_whole() {
    watched(|_| removed_directories());
}

/// Opens it with room for few inodes, so that most are read from the tree.
fn open_forgetful(device: &Arc<SimDevice>) -> Arc<Filesystem> {
    let device: Arc<dyn BlockDevice> = Arc::<SimDevice>::clone(device);
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    Filesystem::open(engine, FsOptions { inodes_cached: 1, ..FsOptions::default() }).expect("it opens")
}

/// Files that some threads change while another takes their only names away.
fn removed_files() {
    const ROUNDS: u64 = 150;
    const FILES: u64 = 128;
    const THREADS: u64 = 4;
    let device = device();
    let fs = open_forgetful(&device);
    for round in 0..ROUNDS {
        let name = |number: u64| format!("file{number}").into_bytes();
        let make = |number| fs.create(top(&fs), &name(number), &NewInode::file(0o644)).expect("made").id;
        let files: Vec<InodeId> = (0..FILES).map(make).collect();
        // All are about at the same file.
        let at = AtomicU64::new(0);
        let change = || {
            loop {
                let number = at.load(Ordering::Relaxed);
                let Some(file) = files.get(number as usize) else { return };
                let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
                match fs.set_attributes(*file, &set) {
                    Err(error) if error.kind() == ErrorKind::Stale => {}
                    done => drop(done.unwrap_or_else(|error| panic!("round {round}: {error}"))),
                }
            }
        };
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|_| drop(scope.spawn(change)));
            for number in 0..FILES {
                at.store(number, Ordering::Relaxed);
                let done = fs.unlink(top(&fs), &name(number));
                if done.is_err() {
                    at.store(FILES, Ordering::Relaxed);
                }
                done.unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
            at.store(FILES, Ordering::Relaxed);
        });
    }
    fs.sync().expect("nothing was aborted");
}

#[test]
fn an_inode_that_is_removed_while_it_is_looked_at_stays_removed() {
    watched(|_| removed_files());
}

/// Looks up, links and unlinks in a directory whose entries have no types, and which is younger than what it has.
fn entries_without_types() {
    const ROUNDS: u64 = 10_000;
    let device = device();
    let fs = open(&device).expect("it opens");
    let file = fs.create(top(&fs), b"old", &NewInode::file(0o644)).expect("made").id;
    let dir = fs.create(top(&fs), b"dir", &NewInode::directory(0o755)).expect("made").id;
    fs.link(file, dir, b"untyped").expect("linked");
    crate::untyped::forget_type(&fs, dir, b"untyped");
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let fs = &fs;
            scope.spawn(move || {
                let name = format!("name{thread}").into_bytes();
                for _ in 0..ROUNDS {
                    fs.link(file, dir, &name).expect("linked");
                    fs.unlink(dir, &name).expect("it was just made");
                }
            });
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    let (id, kind) = fs.lookup_kind(dir, b"untyped", Wait::Yes).expect("it is there");
                    assert_eq!((id, kind), (file, creamery_fs::FileType::File));
                }
            });
        }
    });
    assert!(fs.engine().read_only().is_none());
}

#[test]
fn looking_up_an_entry_without_a_type_stands_in_nobodys_way() {
    watched(|_| entries_without_types());
}

#[test]
fn attributes_of_directories_stay_with_the_asked_seed() {
    let seed = seed_of("attributes");
    watched(move |_| attributes_of_directories(seed));
}
