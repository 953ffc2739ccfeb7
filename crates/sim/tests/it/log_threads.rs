//! Threads that give names to each other's files in shared directories and sync, and what is left when power fails at any moment.
//!
//! Each thread moves files of its own, so it knows where each of them was and when somebody was told that it is durable there. Behind a
//! power cut a file is where it was then, or at a later place, and has its data.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use creamery_base::{InodeId, TreeId, Wait};
use creamery_fs::{FileType, Filesystem, FsOptions, NewInode, RenameMode};
use creamery_sim::{Kind, MadeBy, SimDevice, fresh_image, judge};
use creamery_testkit::{Random, asked_seed, rounds, wait_until};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

/// Runs: of every change, and of a proof.
const ROUNDS: (u64, u64) = (4, 60);
const THREADS: u64 = 3;
/// Moments of a run at which power fails.
const CUTS: u64 = 25;
/// Writes of the device from one moment to the next, at most.
const WRITES_BETWEEN: u64 = 40;
/// One of so many operations is followed by a commit.
const COMMITS_ONE_IN: u64 = 150;
/// Names that a thread uses in each directory.
const NAMES: u64 = 4;
const DIRS: [&str; 3] = ["committed", "committed too", "new"];

type NameInDirectory = (InodeId, String);

/// Where a file has been, none where it was not; and from which place on it was durable.
#[derive(Clone, Default)]
struct Past {
    places: Vec<Option<NameInDirectory>>,
    durable: usize,
    is_written: bool,
}

type Pasts = Mutex<HashMap<InodeId, Past>>;

fn open(device: &Arc<SimDevice>) -> Arc<Filesystem> {
    let volume = Volume::open(vec![Arc::clone(device)], Mode::ReadWrite).expect("it opens");
    let engine = Engine::open(volume, Options::default()).expect("it opens");
    Filesystem::open(engine, FsOptions::default()).expect("it opens")
}

/// A thread with its files.
struct Worker<'a> {
    fs: &'a Filesystem,
    dirs: &'a [InodeId],
    pasts: &'a Pasts,
    number: u64,
    random: Random,
    here: HashMap<NameInDirectory, InodeId>,
}

impl Worker<'_> {
    fn place(&mut self) -> NameInDirectory {
        let dir = self.dirs[self.random.below(self.dirs.len() as u64) as usize];
        (dir, format!("{}-{}", self.number, self.random.below(NAMES)))
    }

    fn some_file(&mut self) -> Option<NameInDirectory> {
        let mut places: Vec<_> = self.here.keys().cloned().collect();
        places.sort();
        (!places.is_empty()).then(|| places.swap_remove(self.random.below(places.len() as u64) as usize))
    }

    /// The file is about to come there: it may be found there as soon as that has begun.
    fn comes_to(&self, file: InodeId, place: Option<&NameInDirectory>) {
        self.pasts.lock().expect("nobody died").entry(file).or_default().places.push(place.cloned());
    }

    /// Whatever is to be told of the last places is durable.
    fn is_durable(&self, has: impl Fn(InodeId, &NameInDirectory) -> bool, is_written: bool) {
        for (file, past) in self.pasts.lock().expect("nobody died").iter_mut() {
            if past.places.last().is_some_and(|place| place.as_ref().is_some_and(|place| has(*file, place))) {
                past.durable = past.places.len() - 1;
                past.is_written |= is_written;
            }
        }
    }

    fn create(&mut self) {
        let place = self.place();
        if self.here.contains_key(&place) {
            return;
        }
        let file = self.fs.create(place.0, place.1.as_bytes(), &NewInode::file(0o644)).expect("room").id;
        self.comes_to(file, None);
        self.comes_to(file, Some(&place));
        self.here.insert(place, file);
        let open = self.fs.open_file(file).expect("it is there");
        open.write_at(0, file.to_string().as_bytes()).expect("room");
        self.fs.close(open);
    }

    fn unlink(&mut self, place: &NameInDirectory) {
        let file = self.here.remove(place).expect("it is there");
        self.comes_to(file, None);
        self.fs.unlink(place.0, place.1.as_bytes()).expect("it is there");
    }

    fn rename(&mut self, from: NameInDirectory) {
        let to = self.place();
        if from == to {
            return;
        }
        let file = self.here.remove(&from).expect("it is there");
        let other = self.here.insert(to.clone(), file);
        let mode = match other {
            Some(_) if self.random.below(3) == 0 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        self.comes_to(file, Some(&to));
        if let Some(other) = other {
            let goes = (mode == RenameMode::Exchange).then_some(&from);
            self.comes_to(other, goes);
            if let Some(from) = goes {
                self.here.insert(from.clone(), other);
            }
        }
        self.fs.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), mode).expect("both are there");
    }

    fn sync(&self, id: InodeId) {
        let open = self.fs.open_file(id).expect("it is there");
        open.sync().expect("room");
        self.fs.close(open);
    }

    fn work(&mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            let place = self.some_file();
            match (self.random.below(12), place) {
                (0..4, _) => self.create(),
                (4, Some(place)) => self.unlink(&place),
                (5..8, Some(place)) => self.rename(place),
                (8..11, Some(place)) => {
                    let synced = self.here[&place];
                    self.sync(synced);
                    self.is_durable(|file, _| file == synced, true);
                }
                _ => {
                    let (synced, _) = self.place();
                    self.sync(synced);
                    self.is_durable(|_, place| place.0 == synced, false);
                }
            }
            if self.random.below(COMMITS_ONE_IN) == 0 {
                self.fs.sync().expect("room");
            }
        }
    }
}

/// Where the files are that a power cut leaves.
fn files_of(fs: &Filesystem) -> HashMap<InodeId, NameInDirectory> {
    let (root, mut found) = (fs.root(TreeId::FS).expect("the root"), HashMap::new());
    for dir in DIRS.iter().filter_map(|name| fs.lookup(root, name.as_bytes(), Wait::Yes).ok()) {
        let listed = fs.read_dir(dir, 0, Wait::Yes, &mut |entry| {
            if entry.kind == FileType::File {
                let place = (dir, String::from_utf8_lossy(entry.name).into_owned());
                let other = found.insert(entry.id, place);
                assert!(other.is_none(), "{} has two places, one is {other:?}", entry.id);
            }
            ControlFlow::Continue(())
        });
        listed.expect("it can be listed");
    }
    found
}

/// Power fails; `before` and `after` say what was known then. Whether there was a log.
fn cut(image: creamery_sim::Image, before: &HashMap<InodeId, Past>, after: &HashMap<InodeId, Past>) -> bool {
    let device = Arc::new(SimDevice::new(image));
    let fs = open(&device);
    let found = files_of(&fs);
    for (file, past) in after {
        let known = before.get(file).cloned().unwrap_or_default();
        let place = found.get(file).cloned();
        assert!(
            past.places[known.durable..].contains(&place),
            "{file} is at {place:?}, of {:?} from {} on",
            past.places,
            known.durable
        );
        if known.is_written && place.is_some() {
            let wanted = file.to_string();
            let mut data = vec![0; wanted.len()];
            let open = fs.open_file(*file).expect("it is there");
            let read = open.read_at(0, &mut data, Wait::Yes).expect("it can be read");
            assert_eq!((read, &data[..]), (wanted.len(), wanted.as_bytes()), "{file} has lost its data");
        }
    }
    let is_replayed = fs.replayed().is_some();
    fs.shut_down().expect("room");
    judge(&device.image()).expect("it is well");
    is_replayed
}

/// Tells the others to end, whatever becomes of this thread.
struct StopsOthers<'a>(&'a AtomicBool);

impl Drop for StopsOthers<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn run(seed: u64) -> u64 {
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
    let fs = open(&device);
    let root = fs.root(TreeId::FS).expect("the root");
    let make = |name: &str| fs.create(root, name.as_bytes(), &NewInode::directory(0o755)).expect("room").id;
    let mut dirs = vec![make(DIRS[0]), make(DIRS[1])];
    fs.sync().expect("room");
    dirs.push(make(DIRS[2]));
    let pasts: Vec<Pasts> = (0..THREADS).map(|_| Pasts::default()).collect();
    let known = || -> HashMap<InodeId, Past> {
        pasts.iter().flat_map(|pasts| pasts.lock().expect("nobody died").clone()).collect()
    };
    let (stop, mut replayed) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        for (number, pasts) in (0..).zip(&pasts) {
            let (fs, dirs, stop) = (&*fs, &dirs[..], &stop);
            scope.spawn(move || {
                let _stops_others = StopsOthers(stop);
                let random = Random::new(seed * THREADS + number);
                Worker { fs, dirs, pasts, number, random, here: HashMap::new() }.work(stop);
            });
        }
        let _stops_others = StopsOthers(&stop);
        let mut random = Random::new(seed);
        for _ in 0..CUTS {
            let moment = device.count(Kind::Write) + random.below(WRITES_BETWEEN);
            wait_until("the others to write", || {
                assert!(!stop.load(Ordering::Relaxed), "a thread died");
                device.count(Kind::Write) >= moment
            });
            let before = known();
            let image = device.image();
            replayed += u64::from(cut(image, &before, &known()));
        }
    });
    assert!(fs.statistics().aborted.is_none());
    replayed
}

#[test]
fn files_of_threads_are_where_they_were_synced_or_later() {
    let first = asked_seed();
    for seed in first..first + rounds(ROUNDS.0, ROUNDS.1) {
        println!("seed {seed}");
        let replayed = run(seed);
        assert!(replayed > CUTS / 10, "seed {seed}: {replayed} logs");
    }
}
