//! Power cuts while files are written in place: what was acknowledged is there, and what is frozen stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{InodeId, TreeId, Wait};
use creamery_device::{AlignedBuffer, BlockDevice};
use creamery_fs::{Cleaning, DirectAt, Filesystem, FsOptions, InodeFlags, NewInode, SetAttributes};
use creamery_sim::{Canary, MadeBy, SimDevice, fresh_image, in_place_run};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

fn survive(made_by: &MadeBy, seed: u64) {
    let base = fresh_image(made_by).expect("an image");
    let report = in_place_run(&base, seed, 200, None).unwrap_or_else(|error| panic!("{error:#}"));
    println!("{report:?}");
    assert!(report.written > 30 && report.shared > 5, "{report:?}");
    assert!(report.direct > 0 && report.durable > 20, "{report:?}");
    assert!(report.logged > 10 && report.replayed > 10, "{report:?}");
    assert!(report.states == 200 && report.frozen > 50 && report.newer > 0, "{report:?}");
}

#[test]
fn what_is_written_in_place_survives_every_power_cut() {
    (1..4).for_each(|seed| survive(&MadeBy::default(), seed));
}

#[test]
fn what_is_written_in_place_survives_every_power_cut_in_small_nodes() {
    survive(&MadeBy { node_size: 4096, ..MadeBy::default() }, 4);
}

/// A device that takes no notice of the flush before a commit loses what was acknowledged, and that is noticed.
#[test]
fn data_in_place_that_nobody_flushes_is_noticed() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    let found =
        (1..6).any(|seed| in_place_run(&base, seed, 200, Some(Canary::NoFlushBeforeSuperblock)).is_err());
    assert!(found, "200 states of 5 runs went well");
}

const LEN: usize = 64 * 4096;
const WRITERS: u8 = 3;
const SNAPSHOTS: usize = 25;

fn read(fs: &Filesystem, id: InodeId) -> Vec<u8> {
    let open = fs.open_file(id).expect("it is there");
    let mut found = vec![0; LEN];
    assert_eq!(open.read_at(0, &mut found, Wait::Yes).expect("a read"), LEN);
    fs.close(open);
    found
}

/// Snapshots are taken while others write in place: what one shows when it is there it shows for ever.
#[test]
fn what_a_snapshot_shows_stays_while_others_write_in_place() {
    let made_by = MadeBy { len: 1 << 30, ..MadeBy::default() };
    let device = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
    let volume = Volume::open(vec![device as Arc<dyn BlockDevice>], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    // At once, and by writing back what was delayed; directly in either.
    for delayed_bytes in [0, 1 << 20] {
        let options = FsOptions { delayed_bytes, ..FsOptions::default() };
        let fs = Filesystem::open(Arc::clone(&engine), options).expect("it opens");
        let top = fs.root(TreeId::FS).expect("the top level");
        let names: Vec<String> = (0..WRITERS).map(|writer| format!("{delayed_bytes}-{writer}")).collect();
        let files: Vec<InodeId> = names.iter().map(|name| in_place(&fs, top, name)).collect();
        fs.sync().expect("it commits");
        let is_over = AtomicBool::new(false);
        let shown = std::thread::scope(|scope| {
            for (writer, file) in files.iter().enumerate() {
                let (fs, is_over) = (&fs, &is_over);
                scope.spawn(move || {
                    let open = fs.open_file(*file).expect("it is there");
                    for round in (0..=u8::MAX).cycle() {
                        if is_over.load(Ordering::Relaxed) {
                            break;
                        }
                        let at = (usize::from(round) * 7 + writer) % 64 * 4096;
                        let len = (LEN - at).min(20 * 4096);
                        if round % 3 == 0 {
                            let data = AlignedBuffer::from_slice(&vec![round; len]);
                            let done = open.write_direct(DirectAt::Offset(at as u64), data);
                            assert_eq!(done.outcome.expect("room").len, len);
                        } else {
                            open.write_at(at as u64, &vec![round; len]).expect("room");
                        }
                        if delayed_bytes > 0 && round % 4 == 0 {
                            open.sync().expect("it is durable");
                        }
                    }
                    fs.close(open);
                });
            }
            let take = |number: usize| {
                // What the last snapshot has is written to new space first.
                let seen = fs.statistics().nocow.written;
                while fs.statistics().nocow.written < seen + 4 {
                    std::thread::yield_now();
                }
                let name = format!("{delayed_bytes}-snapshot-{number}");
                let id = fs.create_snapshot(TreeId::FS, top, name.as_bytes(), true).expect("taken");
                let frozen: Vec<InodeId> = names
                    .iter()
                    .map(|name| fs.lookup(id, name.as_bytes(), Wait::Yes).expect("it is there"))
                    .collect();
                let content: Vec<Vec<u8>> = frozen.iter().map(|file| read(&fs, *file)).collect();
                (frozen, content)
            };
            let shown: Vec<_> = (0..SNAPSHOTS).map(take).collect();
            is_over.store(true, Ordering::Relaxed);
            shown
        });
        fs.sync().expect("it commits");
        for (number, (files, content)) in shown.iter().enumerate() {
            for (file, content) in files.iter().zip(content) {
                assert!(read(&fs, *file) == *content, "snapshot {number} changed");
            }
        }
        let counters = fs.statistics().nocow;
        assert!(counters.written > SNAPSHOTS as u64, "{counters:?}");
    }
}

fn in_place(fs: &Filesystem, dir: InodeId, name: &str) -> InodeId {
    let id = fs.create(dir, name.as_bytes(), &NewInode::file(0o600)).expect("made").id;
    let flags = Some(InodeFlags::NODATACOW);
    fs.set_attributes(id, &SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
    let open = fs.open_file(id).expect("it is there");
    open.write_at(0, &vec![0; LEN]).expect("room");
    fs.close(open);
    id
}

/// What power leaves that fails now, opened: the log is replayed.
fn after_a_power_cut(device: &SimDevice) -> Arc<Filesystem> {
    creamery_sim::open(&Arc::new(SimDevice::new(device.image()))).expect("it opens")
}

/// A filesystem in which nothing is delayed, with a file in place and a clone of it, both durable.
fn cloned() -> (Arc<SimDevice>, Arc<Filesystem>, [InodeId; 2]) {
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
    let volume = Volume::open(vec![Arc::clone(&device)], Mode::ReadWrite).expect("it opens");
    // From 15 references on operations run them; a commit falls due at 60.
    let engine = Engine::open(volume, Options { delayed_refs_max: 60, ..Options::default() });
    let engine = engine.expect("it opens");
    let options = FsOptions { delayed_bytes: 0, ..FsOptions::default() };
    let fs = Filesystem::open(engine, options).expect("it opens");
    let top = fs.root(TreeId::FS).expect("the top level");
    let file = in_place(&fs, top, "file");
    let new = fs.create(top, b"clone", &NewInode::file(0o600)).expect("made").id;
    let flags = Some(InodeFlags::NODATACOW);
    fs.set_attributes(new, &SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
    let (from, to) = (fs.open_file(file).expect("there"), fs.open_file(new).expect("there"));
    to.clone_range(&from, 0, 0, 0).expect("room");
    fs.close(from);
    fs.close(to);
    (device, fs, [file, new])
}

/// Writes all of a file anew.
type Overwrite = fn(&Filesystem, InodeId, u8);

const WAYS: [Overwrite; 2] = [
    |fs, file, byte| {
        let open = fs.open_file(file).expect("there");
        open.write_at(0, &vec![byte; LEN]).expect("room");
        fs.close(open);
    },
    |fs, file, byte| {
        let open = fs.open_file(file).expect("there");
        let done = open.write_direct(DirectAt::Offset(0), AlignedBuffer::from_slice(&vec![byte; LEN]));
        assert_eq!(done.outcome.expect("room").len, LEN);
        fs.close(open);
    },
];

#[test]
fn a_committed_file_keeps_its_data_until_its_removal_is_durable() {
    WAYS.into_iter().for_each(a_removal_is_undone);
}

fn a_removal_is_undone(overwrite: Overwrite) {
    let (device, fs, [_, clone]) = cloned();
    fs.sync().expect("it commits");
    let top = fs.root(TreeId::FS).expect("the top level");
    fs.unlink(top, b"file").expect("room");
    let commits = fs.engine().counters().commits;
    while fs.clean_step().expect("no damage") == Cleaning::More {}
    for number in 0..40 {
        let other = fs.create(top, &[b'0' + number], &NewInode::file(0o600)).expect("room").id;
        let open = fs.open_file(other).expect("there");
        open.write_at(0, &[number; 8192]).expect("room");
        fs.close(open);
    }
    overwrite(&fs, clone, 9);
    assert_eq!(fs.engine().counters().commits, commits, "its removal is not durable");
    let left = after_a_power_cut(&device);
    let file = left.lookup(left.root(TreeId::FS).expect("the top level"), b"file", Wait::Yes);
    assert!(
        read(&left, file.expect("its removal is not durable")) == [0; LEN],
        "it has what was never written to it"
    );
    fs.sync().expect("it commits");
    let written = fs.statistics().nocow.written;
    overwrite(&fs, clone, 7);
    overwrite(&fs, clone, 8);
    assert!(fs.statistics().nocow.written > written, "alone again, it is written in place");
}

#[test]
fn a_synced_clone_keeps_its_data_until_its_truncation_is_durable() {
    WAYS.into_iter().for_each(a_truncation_is_undone);
}

fn a_truncation_is_undone(overwrite: Overwrite) {
    let (device, fs, [file, clone]) = cloned();
    let open = fs.open_file(clone).expect("there");
    open.sync().expect("room");
    fs.close(open);
    fs.set_attributes(clone, &SetAttributes::truncate(0)).expect("room");
    overwrite(&fs, file, 9);
    let left = after_a_power_cut(&device);
    let clone = left.lookup(left.root(TreeId::FS).expect("the top level"), b"clone", Wait::Yes);
    assert!(read(&left, clone.expect("it was synced")) == [0; LEN], "it has what was never written to it");
}
