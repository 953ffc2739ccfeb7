//! Synced changes survive a power cut at any time.

use std::sync::Arc;

use creamery_base::{Error, InodeId, Result, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_fs::{Filesystem, FsOptions, NewInode, RenameMode};
use creamery_sim::{Canary, Image, MadeBy, SimDevice, fresh_image, log_run};
use creamery_testkit::{asked_seed, rounds};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

/// Runs of random work: for every change, and in a proof.
const ROUNDS: (u64, u64) = (6, 100);

#[test]
fn what_was_synced_survives_every_power_cut() {
    let first = asked_seed();
    for seed in first..first + rounds(ROUNDS.0, ROUNDS.1) {
        let node_size = if seed % 2 == 0 { 4096 } else { 16384 };
        let image = fresh_image(&MadeBy { node_size, ..MadeBy::default() }).expect("an image");
        let report = log_run(&image, seed, 150, None).unwrap_or_else(|error| panic!("{error:#}"));
        println!("seed {seed}: {report:?}");
        assert!(report.logged > 20 && report.replayed > 20, "{report:?}");
    }
}

#[test]
fn a_device_that_ignores_the_flush_of_a_log_is_noticed() {
    for canary in [Canary::NoFlushBeforeSuperblock, Canary::NoFlushAfterSuperblock] {
        let image = fresh_image(&MadeBy::default()).expect("an image");
        let noticed = (0..10).find_map(|seed| log_run(&image, seed, 300, Some(canary)).err());
        println!("{canary:?}: {:#}", noticed.expect("a broken promise"));
    }
}

fn engine_on(device: &Arc<SimDevice>) -> Arc<Engine> {
    let device: Arc<dyn BlockDevice> = Arc::<SimDevice>::clone(device);
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    Engine::open(volume, Options::default()).expect("it opens")
}

fn open(image: &Image) -> (Arc<SimDevice>, Arc<Filesystem>) {
    let device = Arc::new(SimDevice::new(image.clone()));
    let fs = Filesystem::open(engine_on(&device), FsOptions::default()).expect("it opens");
    (device, fs)
}

/// A filesystem in the middle of changes.
struct LogScene<'f> {
    fs: &'f Filesystem,
    root: InodeId,
}

impl LogScene<'_> {
    fn file(&self, dir: InodeId, name: &str) -> Result<InodeId> {
        let id = self.fs.create(dir, name.as_bytes(), &NewInode::file(0o644))?.id;
        self.fs.open_file(id)?.write_at(0, name.as_bytes())?;
        Ok(id)
    }

    fn dir(&self, name: &str) -> Result<InodeId> {
        Ok(self.fs.create(self.root, name.as_bytes(), &NewInode::directory(0o755))?.id)
    }

    /// Makes a file in a new subvolume, and commits.
    fn file_in_subvolume(&self, name: &str) -> Result<InodeId> {
        let root = self.fs.create_subvolume(self.root, name.as_bytes(), &NewInode::directory(0o755))?;
        let file = self.file(root, "file")?;
        self.fs.sync()?;
        Ok(file)
    }

    fn move_to(&self, from: &str, dir: InodeId, to: &str) -> Result<()> {
        self.fs.rename(self.root, from.as_bytes(), dir, to.as_bytes(), RenameMode::Replace).map(drop)
    }

    fn unlink(&self, name: &str) -> Result<()> {
        self.fs.unlink(self.root, name.as_bytes())
    }

    fn sync(&self, file: InodeId) -> Result<()> {
        self.fs.open_file(file)?.sync()
    }
}

/// Work after a commit that has the files "a" and "b", and a directory. Returns the inode to sync.
type LogChange = fn(&LogScene<'_>, [InodeId; 3]) -> Result<InodeId>;

/// The name of a change, whether a log can hold it, the change, and the names that must exist after a power cut.
const CHANGES: [(&str, bool, LogChange, &[&str]); 27] = [
    ("a file is written", true, |_, [a, ..]| Ok(a), &["a", "b"]),
    ("a file is new", true, |here, _| here.file(here.root, "new"), &["a", "b", "new"]),
    (
        "it has a second name",
        true,
        |here, [a, ..]| here.fs.link(a, here.root, b"c").map(|_| a),
        &["a", "b", "c"],
    ),
    (
        "it is new and has a second name",
        true,
        |here, [_, _, dir]| {
            let new = here.file(here.root, "new")?;
            here.fs.link(new, dir, b"c").map(|_| new)
        },
        &["a", "b", "new", "d/c"],
    ),
    (
        "a file has a second name since it was synced",
        false,
        |here, [_, _, dir]| {
            let new = here.file(here.root, "new")?;
            here.sync(new)?;
            here.fs.link(new, dir, b"c")?;
            here.file(here.root, "newer")
        },
        &["a", "b", "new", "newer", "d/c"],
    ),
    (
        "a directory was moved to another one",
        false,
        |here, [a, _, dir]| {
            let moved = here.fs.create(dir, b"e", &NewInode::directory(0o755))?.id;
            here.file(moved, "x")?;
            here.fs.sync()?;
            here.fs.rename(dir, b"e", here.root, b"e", RenameMode::Replace)?;
            Ok(a)
        },
        &["a", "b", "e/x"],
    ),
    ("its directory is new", true, |here, _| here.file(here.dir("e")?, "new"), &["a", "b", "e/new"]),
    (
        "its name was another's",
        true,
        |here, _| {
            here.move_to("a", here.root, "c")?;
            here.file(here.root, "a")
        },
        &["a", "b", "c"],
    ),
    (
        "it has the name of one that was removed",
        true,
        |here, _| {
            here.unlink("a")?;
            here.file(here.root, "a")
        },
        &["a", "b"],
    ),
    (
        "it takes the place of another",
        true,
        |here, _| {
            let new = here.file(here.root, "new")?;
            here.move_to("new", here.root, "a")?;
            Ok(new)
        },
        &["a", "b"],
    ),
    (
        "it was moved",
        true,
        |here, [a, _, dir]| {
            here.move_to("a", dir, "a")?;
            Ok(a)
        },
        &["b", "d/a"],
    ),
    (
        "it has lost a name",
        true,
        |here, [a, ..]| {
            here.fs.link(a, here.root, b"c")?;
            here.unlink("a")?;
            Ok(a)
        },
        &["b", "c"],
    ),
    (
        "the log gave its name to another",
        true,
        |here, _| {
            let other = here.file(here.root, "new")?;
            here.sync(other)?;
            here.move_to("new", here.root, "newer")?;
            here.file(here.root, "new")
        },
        &["a", "b", "new", "newer"],
    ),
    (
        "its subvolume was renamed",
        false,
        |here, _| {
            let file = here.file_in_subvolume("s")?;
            here.move_to("s", here.root, "t")?;
            Ok(file)
        },
        &["a", "b", "t/file"],
    ),
    (
        "its subvolume was moved to another one",
        false,
        |here, _| {
            let file = here.file_in_subvolume("s")?;
            let other = here.fs.create_subvolume(here.root, b"t", &NewInode::directory(0o755))?;
            here.fs.sync()?;
            here.move_to("s", other, "s")?;
            Ok(file)
        },
        &["a", "b", "t/s/file"],
    ),
    (
        "it was moved since it was synced",
        true,
        |here, _| {
            let new = here.file(here.root, "new")?;
            here.sync(new)?;
            here.move_to("new", here.root, "newer")?;
            Ok(new)
        },
        &["a", "b", "newer"],
    ),
    (
        "its name was another's, which has it again elsewhere, and so on",
        true,
        |here, [_, b, dir]| {
            here.move_to("a", dir, "a")?;
            here.move_to("b", here.root, "a")?;
            here.file(here.root, "b")?;
            Ok(b)
        },
        &["a", "b", "d/a"],
    ),
    (
        "it was exchanged with another",
        true,
        |here, [a, ..]| here.fs.rename(here.root, b"a", here.root, b"b", RenameMode::Exchange).map(|_| a),
        &["a", "b"],
    ),
    (
        "a directory has got and lost files",
        true,
        |here, [_, _, dir]| {
            here.move_to("a", dir, "a")?;
            here.file(dir, "new")?;
            here.unlink("b")?;
            here.file(here.fs.create(dir, b"e", &NewInode::directory(0o755))?.id, "x")?;
            Ok(dir)
        },
        &["d/a", "d/new", "d/e/x"],
    ),
    (
        "a directory has lost a file that was synced",
        true,
        |here, [_, _, dir]| {
            here.sync(here.file(dir, "new")?)?;
            here.fs.unlink(dir, b"new")?;
            Ok(dir)
        },
        &["a", "b"],
    ),
    (
        "a directory has lost a file that was synced to another one",
        true,
        |here, [_, _, dir]| {
            here.sync(here.file(here.root, "new")?)?;
            here.move_to("new", dir, "newer")?;
            Ok(here.root)
        },
        &["a", "b", "d/newer"],
    ),
    (
        "the log has the one that had its name, by another name that is left",
        false,
        |here, [a, _, dir]| {
            here.fs.link(a, dir, b"a")?;
            here.fs.sync()?;
            here.fs.open_file(a)?.write_at(0, b"new")?;
            here.sync(a)?;
            here.fs.unlink(dir, b"a")?;
            here.unlink("a")?;
            here.file(here.root, "a")
        },
        &["a", "b"],
    ),
    (
        "its name was that of a directory from which something was moved",
        false,
        |here, [_, _, dir]| {
            here.file(dir, "x")?;
            here.fs.sync()?;
            here.fs.rename(dir, b"x", here.root, b"x", RenameMode::Replace)?;
            here.fs.rmdir(here.root, b"d")?;
            here.file(here.root, "d")
        },
        &["a", "b", "d", "x"],
    ),
    (
        "its name was that of a new directory, in which the log has something",
        true,
        |here, _| {
            let dir = here.dir("e")?;
            here.sync(here.file(dir, "x")?)?;
            here.fs.rename(dir, b"x", here.root, b"x", RenameMode::Replace)?;
            here.fs.rmdir(here.root, b"e")?;
            here.file(here.root, "e")
        },
        &["a", "b", "e", "x"],
    ),
    (
        "it has a second name in a new directory",
        true,
        |here, [a, ..]| {
            let dir = here.dir("e")?;
            here.fs.link(a, dir, b"c").map(|_| a)
        },
        &["a", "b", "e/c"],
    ),
    (
        "its new directory took the place of another by exchange",
        true,
        |here, _| {
            let dir = here.dir("e")?;
            let new = here.file(dir, "new")?;
            here.fs.rename(here.root, b"d", here.root, b"e", RenameMode::Exchange)?;
            Ok(new)
        },
        &["a", "b", "d/new"],
    ),
    (
        "a subvolume was deleted",
        false,
        |here, [a, ..]| {
            here.file_in_subvolume("s")?;
            here.fs.delete_subvolume(here.root, b"s").map(|_| a)
        },
        &["a", "b"],
    ),
];

/// Syncing one file costs no other file its name: files without which a replay would be wrong are logged, too, or everything is committed.
#[test]
fn names_that_a_log_would_take_from_others_are_committed() {
    let base = fresh_image(&MadeBy::default()).expect("an image");
    for (what, is_logged, change, wanted) in CHANGES {
        let (device, fs) = open(&base);
        let here = LogScene { fs: &fs, root: fs.root(TreeId::FS).expect("the root") };
        let run = || -> Result<u64> {
            let (a, b, dir) = (here.file(here.root, "a")?, here.file(here.root, "b")?, here.dir("d")?);
            fs.sync()?;
            let file = change(&here, [a, b, dir])?;
            let before = fs.statistics().fsyncs.logged;
            if fs.stat(file, Wait::Yes)?.kind == creamery_fs::FileType::File {
                fs.open_file(file)?.write_at(5, b"synced")?;
            }
            here.sync(file)?;
            Ok(fs.statistics().fsyncs.logged - before)
        };
        let logged = run().unwrap_or_else(|error: Error| panic!("{what}: {error}"));
        assert_eq!(logged > 0, is_logged, "{what}");
        let (_, left) = open(&device.image());
        assert_eq!(left.replayed().is_some(), is_logged, "{what}");
        let root = left.root(TreeId::FS).expect("the root");
        for path in wanted {
            let found =
                path.split('/').try_fold(root, |dir, name| left.lookup(dir, name.as_bytes(), Wait::Yes));
            assert!(found.is_ok(), "{what}: {path} is not there");
        }
        let count = wanted.len() - wanted.iter().filter(|path| path.contains('/')).count();
        let mut names = 0;
        let listed = left.read_dir(root, 0, Wait::Yes, &mut |entry| {
            names += usize::from(entry.kind == creamery_fs::FileType::File);
            std::ops::ControlFlow::Continue(())
        });
        listed.expect("it can be listed");
        assert_eq!(names, count, "{what}");
    }
}

/// Linux cannot replay such a log.
#[test]
fn a_number_that_another_name_had_at_the_last_commit_is_committed() {
    const OTHERS: usize = 400;
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
    let options = FsOptions { inodes_cached: 0, ..FsOptions::default() };
    let fs = Filesystem::open(engine_on(&device), options).expect("it opens");
    let here = LogScene { fs: &fs, root: fs.root(TreeId::FS).expect("the root") };
    let dir = here.dir("d").expect("room");
    here.file(dir, "last").expect("room");
    fs.sync().expect("room");
    let end = fs.end_of_dir(dir, Wait::Yes).expect("it is there");
    fs.unlink(dir, b"last").expect("it is there");
    // This drives the directory out of the cache.
    for number in 0..OTHERS {
        let other = here.dir(&number.to_string()).expect("room");
        for name in 0..3 {
            here.file(other, &name.to_string()).expect("room");
        }
    }
    let new = here.file(dir, "new").expect("room");
    assert_eq!(fs.end_of_dir(dir, Wait::Yes).expect("it is there"), end, "the number is given again");
    here.sync(new).expect("room");
    assert_eq!(fs.statistics().fsyncs.logged, 0);
}

/// Logs take no space permanently, however often files are synced.
#[test]
fn what_logs_took_is_free_again_with_the_commit() {
    const COMMITS: u64 = 40;
    const SYNCS: u64 = 60;
    let (_, fs) = open(&fresh_image(&MadeBy::default()).expect("an image"));
    let root = fs.root(TreeId::FS).expect("the root");
    let file = fs
        .open_file(fs.create(root, b"file", &NewInode::file(0o644)).expect("room").id)
        .expect("it is there");
    fs.sync().expect("room");
    for number in 0..COMMITS * SYNCS {
        file.write_at(number % SYNCS * 4096, &[number as u8; 4096]).expect("room");
        file.sync().expect("room");
        if number % SYNCS == SYNCS - 1 {
            fs.sync().expect("room");
        }
    }
    let done = fs.statistics();
    assert_eq!((done.fsyncs.logged, done.fsyncs.refused), (COMMITS * SYNCS, 0), "{:?}", done.fsyncs);
    let written = done.logs.tree_blocks_written * u64::from(fs.engine().node_size());
    let all = fs.engine().space().metadata_total;
    assert!(written > 2 * all, "{written} bytes of logs went through {all} bytes of metadata");
}

/// Distant items in a large log copy many of its blocks. If the reservation does not suffice, the sync commits; it does not panic.
#[test]
fn changes_far_apart_are_synced() {
    const ROUNDS: u64 = 64;
    const PIECES: u64 = 250;
    let made_by = MadeBy { len: 1 << 30, ..MadeBy::default() };
    let (device, fs) = open(&fresh_image(&made_by).expect("an image"));
    let root = fs.root(TreeId::FS).expect("the root");
    let id = fs.create(root, b"file", &NewInode::file(0o644)).expect("room").id;
    fs.sync().expect("room");
    let file = fs.open_file(id).expect("it is there");
    for round in 0..ROUNDS {
        for piece in 0..PIECES {
            file.write_at((round * PIECES + piece) * 8192, &[7; 4096]).expect("room");
        }
        file.sync().expect("it is logged, or committed");
    }
    assert!(fs.statistics().fsyncs.logged > ROUNDS / 2, "{:?}", fs.statistics().fsyncs);
    for number in 0..80 {
        file.write_at(number * ROUNDS * PIECES / 80 * 8192 + 4096, &[8; 4096]).expect("room");
    }
    file.sync().expect("it is logged, or committed");
    assert!(fs.statistics().aborted.is_none());
    let (_, left) = open(&device.image());
    let id = left.lookup(left.root(TreeId::FS).expect("the root"), b"file", Wait::Yes).expect("it is there");
    let mut found = [0; 4096];
    left.open_file(id).expect("it is there").read_at(4096, &mut found, Wait::Yes).expect("it can be read");
    assert_eq!(found, [8; 4096]);
}

/// On a rotational device the first syncing thread also waits for the threads of the last write.
#[test]
fn who_syncs_at_once_shares_writes() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 25;
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
    let volume = Volume::open(vec![device as Arc<dyn BlockDevice>], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options { gather_syncs: true, ..Options::default() });
    let fs = Filesystem::open(engine.expect("it opens"), FsOptions::default()).expect("it opens");
    let root = fs.root(TreeId::FS).expect("the root");
    let files: Vec<_> = (0..THREADS)
        .map(|number| fs.create(root, &[b'a' + number as u8], &NewInode::file(0o644)).expect("room").id)
        .collect();
    fs.sync().expect("room");
    let before = fs.statistics().logs.count as usize;
    let all_here = std::sync::Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                let file = fs.open_file(*file).expect("it is there");
                for round in 0..ROUNDS as u64 {
                    all_here.wait();
                    file.write_at(round * 4096, &[7; 4096]).expect("room");
                    file.sync().expect("room");
                }
                fs.close(file);
            });
        }
    });
    let (done, writes) = (fs.statistics().fsyncs.logged, fs.statistics().logs.count as usize - before);
    assert_eq!(done, (THREADS * ROUNDS) as u64, "{:?}", fs.statistics().fsyncs);
    assert!(writes < (THREADS - 1) * ROUNDS, "{writes} writes for {done} calls");
}
