//! The whole engine under a scheduler that runs one thread at a time and chooses the next at every lock, in an order that follows from a
//! seed: delayed items of directories, orphans, and the table of inodes. The tests compare each thread's answers, and the content after a
//! restart, with the expected ones.
//! `cargo test -p creamery-sim --features shuttle --test schedules`
//!
//! A failure prints its seed and its schedule; `CREAMERY_SCHEDULES_SEED` begins with a seed again, and `CREAMERY_SCHEDULES` sets the number
//! of schedules of each test. Only tests beside a scrub commit while other threads work.

mod direct;
mod quotas;
mod scrubbed;
mod shared;
#[path = "../support/untyped.rs"]
mod untyped;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use creamery_base::sync::shuttle::rand::{Rng, thread_rng};
use creamery_base::sync::shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use creamery_base::sync::shuttle::{Config, FailurePersistence, MaxSteps, Runner, thread};
use creamery_base::{ErrorKind, InodeId, ObjectId, TreeId, Wait};
use creamery_device::BlockDevice;
use creamery_format::{Key, KeyType};
use creamery_fs::{Access, Fault, FileType, Filesystem, FsOptions, NewInode, SetAttributes};
use creamery_sim::{Image, MadeBy, SimDevice, fresh_image};
use creamery_testkit::{schedules, schedules_seed};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

const SEED: u64 = 20_211_206;

/// Directories of the image, each with one file.
const DIRECTORIES: u64 = 5;
const LISTED: &[u8] = b"file";
/// In the second directory, a name of the first one's file.
const LINK: &[u8] = b"link";

/// A filesystem, and its device.
struct World {
    device: Arc<SimDevice>,
    fs: Arc<Filesystem>,
}

fn open(device: &Arc<SimDevice>) -> Arc<Filesystem> {
    open_on(Arc::<SimDevice>::clone(device))
}

fn open_on(device: Arc<dyn BlockDevice>) -> Arc<Filesystem> {
    let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
    let options = Options { cache_bytes: 4 << 20, ..Options::default() };
    let engine = Engine::open(volume, options).expect("it opens");
    Filesystem::open(engine, FsOptions { inodes_cached: 1, ..FsOptions::default() }).expect("it opens")
}

fn dir_name(number: u64) -> Vec<u8> {
    format!("dir{number}").into_bytes()
}

/// Makes directories with a file in each.
fn furnish(fs: &Filesystem) {
    let top = fs.root(TreeId::FS).expect("the top level is there");
    for number in 0..DIRECTORIES {
        let dir = fs.create(top, &dir_name(number), &NewInode::directory(0o755)).expect("made").id;
        fs.create(dir, LISTED, &NewInode::file(0o644)).expect("made");
    }
    let dir = |number| fs.lookup(top, &dir_name(number), Wait::Yes).expect("it was just made");
    let first = fs.lookup(dir(0), LISTED, Wait::Yes).expect("it was just made");
    fs.link(first, dir(1), LINK).expect("linked");
}

impl World {
    /// A filesystem with the content of [`furnish`], just opened: only the root inode is in memory.
    fn new(fault: Option<Fault>) -> Self {
        static IMAGE: OnceLock<Image> = OnceLock::new();
        let image = IMAGE.get_or_init(|| {
            let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
            let fs = open(&device);
            furnish(&fs);
            fs.sync().expect("it commits");
            drop(fs);
            let mut image = device.image();
            image.freeze();
            image
        });
        let device = Arc::new(SimDevice::new(image.clone()));
        let fs = open(&device);
        if let Some(fault) = fault {
            fs.plant(fault);
        }
        Self { fs, device }
    }

    fn top(&self) -> InodeId {
        self.fs.root(TreeId::FS).expect("the top level is there")
    }

    fn find(&self, dir: InodeId, name: &[u8]) -> InodeId {
        self.fs.lookup(dir, name, Wait::Yes).expect("it is there")
    }

    fn dir(&self, number: u64) -> InodeId {
        self.find(self.top(), &dir_name(number))
    }

    /// Commits and opens the durable state.
    fn restart(self) -> Self {
        self.fs.sync().expect("nothing was aborted");
        let device = Arc::new(SimDevice::new(self.device.image()));
        Self { fs: open(&device), device }
    }

    fn is_gone(&self, id: InodeId) {
        is_gone(&self.fs, id);
    }
}

/// Checks that no item of an inode is left, and no orphan item.
fn is_gone(fs: &Filesystem, id: InodeId) {
    let tree = fs.engine().tree(id.subvolume).expect("it is there");
    for first in [Key::new(id.ino, KeyType::UNTYPED, 0), Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, 0)]
    {
        let cursor = tree.cursor(&first, Wait::Yes).expect("no damage");
        let next = cursor.item().map(|(key, _)| key).filter(|key| key.objectid == first.objectid);
        assert_eq!(next, None, "it is left of inode {id}");
    }
}

fn chmod(fs: &Filesystem, id: InodeId, mode: u32) -> creamery_base::Result<()> {
    fs.set_attributes(id, &SetAttributes { mode: Some(mode), ..SetAttributes::default() }).map(drop)
}

/// Makes a file in each of some directories: their delayed items drive out those of other directories.
fn drive_out(fs: &Filesystem, dirs: &[InodeId]) {
    for dir in dirs {
        fs.create(*dir, b"more", &NewInode::file(0o644)).expect("made");
    }
}

/// Changes a directory with delayed items while these are written.
fn attributes_of_a_directory(fault: Option<Fault>) {
    let world = World::new(fault);
    let dirs: Vec<InodeId> = (0..DIRECTORIES).map(|number| world.dir(number)).collect();
    let (changed, others) = (dirs[0], dirs[1..].to_vec());
    drive_out(&world.fs, &[changed]);
    let fs = Arc::clone(&world.fs);
    let beside = thread::spawn(move || drive_out(&fs, &others));
    chmod(&world.fs, changed, 0o700).expect("it is there");
    beside.join().expect("it ends well");
    let told: Vec<_> = dirs.iter().map(|dir| world.fs.stat(*dir, Wait::Yes).expect("it is there")).collect();
    let world = world.restart();
    for told in told {
        assert_eq!(world.fs.stat(told.id, Wait::Yes).expect("it is there"), told);
    }
}

/// Removes a directory with delayed items while these are written; if it is open, it becomes an orphan first.
fn removed_directory(fault: Option<Fault>) {
    let world = World::new(fault);
    let dirs: Vec<InodeId> = (0..DIRECTORIES).map(|number| world.dir(number)).collect();
    let (removed, others) = (dirs[0], dirs[1..].to_vec());
    let open = thread_rng().gen_bool(0.5).then(|| world.fs.inode(removed, Wait::Yes).expect("it is there"));
    world.fs.unlink(removed, LISTED).expect("it is there");
    let fs = Arc::clone(&world.fs);
    let beside = thread::spawn(move || drive_out(&fs, &others));
    world.fs.rmdir(world.top(), &dir_name(0)).expect("it is empty");
    open.into_iter().for_each(|open| world.fs.release(open));
    beside.join().expect("it ends well");
    let world = world.restart();
    world.is_gone(removed);
}

/// Looks up a file while its only name is removed. There is nothing else to do, so a good part of the time lies between the reading of one
/// thread and the removing of the other.
fn looked_up_file(fault: Option<Fault>) {
    let world = World::new(fault);
    let dir = world.dir(2);
    let file = world.find(dir, LISTED);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let fs = Arc::clone(&world.fs);
            thread::spawn(move || match fs.stat(file, Wait::Yes) {
                Ok(_) => {}
                Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error}"),
            })
        })
        .collect();
    world.fs.unlink(dir, LISTED).expect("it is there");
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    assert_eq!(world.fs.stat(file, Wait::Yes).map_err(|error| error.kind()), Err(ErrorKind::Stale));
}

/// Looks up and changes a file while its only name is removed.
fn removed_file() {
    let world = World::new(None);
    let dir = world.dir(2);
    let file = world.find(dir, LISTED);
    let threads: Vec<_> = (0..2)
        .map(|number| {
            let fs = Arc::clone(&world.fs);
            thread::spawn(move || {
                for mode in 0..2 {
                    let done = match number {
                        0 => chmod(&fs, file, mode),
                        _ => fs.open_file(file).and_then(|open| {
                            let done = chmod(&fs, file, mode);
                            fs.close(open);
                            done
                        }),
                    };
                    let gone = done.is_err_and(|error| {
                        assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
                        true
                    });
                    if gone {
                        return;
                    }
                }
            })
        })
        .collect();
    world.fs.unlink(dir, LISTED).expect("it is there");
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    assert_eq!(world.fs.stat(file, Wait::Yes).map_err(|error| error.kind()), Err(ErrorKind::Stale));
    let world = world.restart();
    world.is_gone(file);
}

/// Looks up an entry without a type while its inode, which is older than the directory, gets another name there and loses it. Or loses this
/// one.
fn entry_without_type(fault: Option<Fault>) {
    let world = World::new(fault);
    let dir = world.dir(1);
    untyped::forget_type(&world.fs, dir, LINK);
    let untyped = world.find(dir, LINK);
    assert!(untyped < dir);
    let removes = thread_rng().gen_bool(0.5);
    let fs = Arc::clone(&world.fs);
    let beside = thread::spawn(move || {
        fs.link(untyped, dir, b"other").expect("linked");
        fs.unlink(dir, b"other").expect("it was just made");
        if removes {
            fs.unlink(dir, LINK).expect("it is there");
        }
    });
    match world.fs.lookup_kind(dir, LINK, Wait::Yes) {
        Err(error) => assert!(removes && error.kind() == ErrorKind::NotFound, "{error}"),
        Ok(found) => assert_eq!(found, (untyped, FileType::File)),
    }
    beside.join().expect("it ends well");
}

/// Two threads append to a file.
fn appended(fault: Option<Fault>) {
    let world = World::new(fault);
    let file = world.find(world.dir(0), LISTED);
    let append = move |fs: &Filesystem, word: &[u8]| {
        let open = fs.open_file(file).expect("it is there");
        for _ in 0..2 {
            assert_eq!(open.append(word).expect("room").1, word.len());
        }
        fs.close(open);
    };
    let fs = Arc::clone(&world.fs);
    let beside = thread::spawn(move || append(&fs, b"milk"));
    append(&world.fs, b"eggs");
    beside.join().expect("it ends well");
    let open = world.fs.open_file(file).expect("it is there");
    let mut text = [0; 32];
    let count = open.read_at(0, &mut text, Wait::Yes).expect("it can be read");
    let mut words: Vec<&[u8]> = text[..count].chunks(4).collect();
    words.sort_unstable();
    assert_eq!(words, [b"eggs", b"eggs", b"milk", b"milk"]);
}

/// Writes, removes and closes a file while two threads take steps of the background: the cleaner's, commits, and writeback of the closed
/// files.
fn background_beside(fault: Option<Fault>) {
    let world = World::new(fault);
    world.fs.engine().commit_every(Some(Duration::from_secs(30)));
    let steps = || {
        let engine = Arc::clone(world.fs.engine());
        thread::spawn(move || {
            for _ in 0..4 {
                engine.background_step(|count| thread_rng().gen_range(0..count));
            }
        })
    };
    let threads = [steps(), steps()];
    let dir = world.dir(0);
    let made = world.fs.create(dir, b"gone", &NewInode::file(0o644)).expect("made").id;
    let open = world.fs.open_file_for(made, Access::Write).expect("it is there");
    open.write_at(0, &[1; 9000]).expect("room");
    world.fs.unlink(dir, b"gone").expect("it is there");
    drop(open);
    drive_out(&world.fs, &[dir]);
    threads.into_iter().for_each(|thread| thread.join().expect("it ends well"));
    assert_eq!(world.fs.engine().aborted(), None);
    world.fs.clean();
    let told = world.fs.stat(dir, Wait::Yes).expect("it is there");
    let world = world.restart();
    world.is_gone(made);
    assert_eq!(world.fs.stat(dir, Wait::Yes).expect("it is there"), told);
}

/// Asks for the attributes of a directory while files are made in it and its delayed items are written: the answer includes everything done
/// before the question.
fn attributes_while_entries_come(fault: Option<Fault>) {
    const NAMES: [&[u8]; 3] = [b"a", b"b", b"c"];
    let world = World::new(fault);
    let dirs: Vec<InodeId> = (0..DIRECTORIES).map(|number| world.dir(number)).collect();
    let (asked, others) = (dirs[0], dirs[1..].to_vec());
    let before = world.fs.stat(asked, Wait::Yes).expect("it is there").size;
    let made = Arc::new(AtomicU64::new(0));
    let (fs, counts) = (Arc::clone(&world.fs), Arc::clone(&made));
    let makes = thread::spawn(move || {
        for name in NAMES {
            fs.create(asked, name, &NewInode::file(0o644)).expect("made");
            counts.fetch_add(1, Ordering::SeqCst);
        }
    });
    let fs = Arc::clone(&world.fs);
    let drives = thread::spawn(move || drive_out(&fs, &others));
    for _ in 0..NAMES.len() {
        let size = before + 2 * made.load(Ordering::SeqCst);
        let told = world.fs.stat(asked, Wait::Yes).expect("it is there").size;
        assert!(told >= size, "{told} bytes of names told, {size} were made before");
    }
    makes.join().expect("it ends well");
    drives.join().expect("it ends well");
    let told = world.fs.stat(asked, Wait::Yes).expect("it is there").size;
    assert_eq!(told, before + 2 * NAMES.len() as u64);
}

type Execution = fn(Option<Fault>);

fn config(persistence: FailurePersistence) -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    config.max_steps = MaxSteps::None;
    config.failure_persistence = persistence;
    config
}

fn run(
    name: &str,
    seed: u64,
    scheduler: impl Scheduler + 'static,
    execute: impl Fn() + Send + Sync + 'static,
) {
    let runner = Runner::new(scheduler, config(FailurePersistence::Print));
    if let Err(failure) = catch_unwind(AssertUnwindSafe(|| runner.run(execute))) {
        println!("{name} failed: CREAMERY_SCHEDULES_SEED={seed}");
        resume_unwind(failure);
    }
}

/// Runs it in random orders, and in orders with few changes of threads.
fn explore(name: &str, execute: impl Fn() + Copy + Send + Sync + 'static) {
    explore_some(name, 1000, execute);
}

/// Runs it in `usual` schedules of each kind, unless the environment sets a number.
fn explore_some(name: &str, usual: usize, execute: impl Fn() + Copy + Send + Sync + 'static) {
    let seed = schedules_seed("sim");
    for seed in [SEED, seed] {
        run(name, seed, RandomScheduler::new_from_seed(seed, schedules(usual)), execute);
        run(name, seed, PctScheduler::new_from_seed(seed, 3, schedules(usual)), execute);
    }
}

/// Runs a canary: the same execution must find a failpoint, so it would find the bug if it came back.
fn is_caught(fault: &str, execute: impl Fn() + Copy + Send + Sync + 'static) {
    const SCHEDULES: usize = 5000;
    let finds = |scheduler: Box<dyn Scheduler + Send>| {
        let runner = Runner::new(scheduler, config(FailurePersistence::None));
        catch_unwind(AssertUnwindSafe(|| runner.run(execute))).is_err()
    };
    let found = finds(Box::new(PctScheduler::new_from_seed(SEED, 3, SCHEDULES)))
        || finds(Box::new(RandomScheduler::new_from_seed(SEED, SCHEDULES)));
    assert!(found, "{SCHEDULES} schedules of either sort went well with {fault}");
}

/// Runs an execution without and with a failpoint of the filesystem.
fn explore_with_canary(name: &str, execute: Execution, fault: Fault) {
    explore(name, move || execute(None));
    is_caught(&format!("{fault:?}"), move || execute(Some(fault)));
}

#[test]
fn what_is_set_on_a_directory_is_not_overwritten_by_what_was_put_off() {
    explore_with_canary("attributes of a directory", attributes_of_a_directory, Fault::DelayedForgottenLate);
}

#[test]
fn what_a_directory_tells_of_itself_is_never_older_than_what_was_done() {
    explore_with_canary(
        "attributes while entries come",
        attributes_while_entries_come,
        Fault::ObjectPassedOver,
    );
}

#[test]
fn a_directory_is_removed_with_what_it_put_off() {
    explore_with_canary("removed directory", removed_directory, Fault::DelayedForgottenLate);
}

#[test]
fn a_file_that_is_removed_while_it_is_looked_at_stays_removed() {
    explore_with_canary("looked up file", looked_up_file, Fault::LossUnnoticed);
    explore("removed file", removed_file);
}

#[test]
fn an_entry_without_a_type_is_looked_up_with_its_directory_let_go() {
    explore_with_canary("entry without a type", entry_without_type, Fault::DirectoryKeptLocked);
}

#[test]
fn the_background_works_beside_operations_and_itself() {
    explore("background beside", || background_beside(None));
}

#[test]
fn what_two_threads_append_is_all_there() {
    explore_with_canary("appended", appended, Fault::EndLookedUpBefore);
}
