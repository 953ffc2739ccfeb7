//! Threads on one filesystem: each on its own directories, and all on the same ones.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use creamery_base::{ErrorKind, InodeId, Wait};
use creamery_fs::{FileType, Filesystem, NewInode, RenameMode};
use creamery_sim::{
    Ask, Call, CallAnswer, MadeBy, SimDevice, fresh_image, linearizable, open, stored_seeds, threads_run,
};
use creamery_testkit::{Random, seed_of, share_or_whole};

const THREADS: u64 = 4;
const OPERATIONS: u64 = 700;

fn disjoint(seed: u64) {
    let node_size = if seed.is_multiple_of(2) { 4096 } else { 16384 };
    let made_by = MadeBy { node_size, len: 512 << 20, ..MadeBy::default() };
    if let Err(error) = threads_run(seed, THREADS, OPERATIONS, &made_by) {
        panic!("replay with seed {seed}: {error:#}");
    }
}

#[test]
fn threads_on_directories_of_their_own_agree_with_their_own_models() {
    [1, 2, 3].into_iter().chain(stored_seeds("disjoint")).for_each(disjoint);
}

#[test]
fn threads_on_directories_of_their_own_agree_with_the_asked_seed() {
    disjoint(seed_of("disjoint"));
}

const SHARERS: usize = 3;
const CALLS: usize = 6;
/// How long a thread waits for the others to begin their calls.
const YIELDS_MAX: usize = 10_000;
/// Of every change, and of a proof.
const ROUNDS: (u64, u64) = (200, 2_000);
const DIRS: u64 = 2;
const NAMES: u64 = 3;

/// One thread of a round: what it asks for follows from the seed and from what it saw.
struct Sharer<'a> {
    fs: &'a Filesystem,
    dirs: &'a [InodeId],
    random: Random,
    clock: &'a AtomicU64,
    /// Calls that have begun.
    begun: &'a AtomicUsize,
    seen: Option<InodeId>,
}

impl Sharer<'_> {
    fn place(&mut self) -> (usize, Vec<u8>) {
        (self.random.below(DIRS) as usize, vec![b'a' + self.random.below(NAMES) as u8])
    }

    fn next(&mut self) -> Ask {
        let (dir, name) = self.place();
        match (self.random.below(12), self.seen) {
            (0..3, _) => Ask::Make(dir, name, FileType::File),
            (3, _) => Ask::Make(dir, name, FileType::Directory),
            (4, _) => Ask::Unlink(dir, name),
            (5, _) => Ask::Rmdir(dir, name),
            (6..8, Some(seen)) => Ask::Link(seen, dir, name),
            (8..11, _) => {
                let (to, new_name) = self.place();
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                Ask::Rename(dir, name, to, new_name, modes[self.random.below(3) as usize])
            }
            _ => Ask::Lookup(dir, name),
        }
    }

    fn run(&self, ask: &Ask) -> CallAnswer {
        let dir = |number: &usize| self.dirs[*number];
        let told = match ask {
            Ask::Make(at, name, kind) => {
                let new = match kind {
                    FileType::Directory => NewInode::directory(0o644),
                    _ => NewInode::file(0o644),
                };
                self.fs.create(dir(at), name, &new).map(|attributes| Some(attributes.id))
            }
            Ask::Unlink(at, name) => self.fs.unlink(dir(at), name).map(|()| None),
            Ask::Rmdir(at, name) => self.fs.rmdir(dir(at), name).map(|()| None),
            Ask::Link(target, at, name) => self.fs.link(*target, dir(at), name).map(|_| None),
            Ask::Rename(from, name, to, new_name, mode) => {
                self.fs.rename(dir(from), name, dir(to), new_name, *mode).map(|()| None)
            }
            Ask::Lookup(at, name) => self.fs.lookup(dir(at), name, Wait::Yes).map(Some),
        };
        told.map_err(|error| error.kind())
    }

    /// Waits until so many calls of all threads have begun, so that they overlap however few processors there are. Not for
    /// ever: a thread that panics does not come.
    fn meet(&self, begun: usize) {
        self.begun.fetch_add(1, Ordering::SeqCst);
        for _ in 0..YIELDS_MAX {
            if self.begun.load(Ordering::SeqCst) >= begun {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn work(mut self, thread: usize) -> Vec<Call> {
        let mut calls = Vec::new();
        for number in 1..=CALLS {
            let ask = self.next();
            let begun = self.clock.fetch_add(1, Ordering::SeqCst);
            self.meet(number * SHARERS);
            let told = self.run(&ask);
            let ended = self.clock.fetch_add(1, Ordering::SeqCst);
            self.seen = told.ok().flatten().or(self.seen);
            calls.push(Call { thread, ask, begun, ended, told });
        }
        calls
    }
}

/// The history of one round, in two directories that nobody else uses.
fn round(fs: &Arc<Filesystem>, seed: u64, number: u64) -> Vec<Vec<Call>> {
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let dirs: Vec<InodeId> = (0..DIRS)
        .map(|dir| {
            let name = format!("round{number}-{dir}").into_bytes();
            fs.create(root, &name, &NewInode::directory(0o755)).expect("a directory").id
        })
        .collect();
    let (clock, begun, begin) = (AtomicU64::new(0), AtomicUsize::new(0), Barrier::new(SHARERS));
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..SHARERS)
            .map(|thread| {
                let random =
                    Random::new(seed.wrapping_add(number * SHARERS as u64).wrapping_add(thread as u64));
                let sharer = Sharer { fs, dirs: &dirs, random, clock: &clock, begun: &begun, seen: None };
                let begin = &begin;
                scope.spawn(move || {
                    begin.wait();
                    sharer.work(thread)
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn overlap(threads: &[Vec<Call>]) -> bool {
    let calls: Vec<&Call> = threads.iter().flatten().collect();
    calls.iter().any(|a| calls.iter().any(|b| a.thread != b.thread && a.begun < b.begun && b.begun < a.ended))
}

fn shared(seed: u64) {
    let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
    let fs = open(&device).expect("it opens");
    let mut overlapping = 0;
    for number in 0..share_or_whole(ROUNDS.0, ROUNDS.1) {
        let threads = round(&fs, seed, number);
        overlapping += u64::from(overlap(&threads));
        if !linearizable(DIRS as usize, &threads) {
            let mut calls: Vec<&Call> = threads.iter().flatten().collect();
            calls.sort_by_key(|call| call.begun);
            let lines: Vec<String> = calls.into_iter().map(ToString::to_string).collect();
            panic!("seed {seed}, round {number}: no order explains these answers:\n{}", lines.join("\n"));
        }
    }
    assert!(overlapping > 0, "seed {seed}: no two calls were made at the same time");
}

#[test]
fn what_threads_see_of_shared_directories_is_linearizable() {
    [10_000].into_iter().chain(stored_seeds("shared")).for_each(shared);
}

#[test]
fn what_threads_see_of_shared_directories_is_linearizable_with_the_asked_seed() {
    shared(seed_of("shared"));
}

/// Threads that fill a filesystem, and empty it again.
const FILLERS: usize = 32;

/// A full filesystem has room for few removals at once. Each of them waits for others, and none is refused.
#[test]
fn many_threads_empty_a_full_filesystem() {
    let made_by = MadeBy { node_size: 4096, len: 128 << 20, ..MadeBy::default() };
    let device = Arc::new(SimDevice::new(fresh_image(&made_by).expect("an image")));
    let fs = open(&device).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("the root directory");
    let dirs: Vec<InodeId> = (0..FILLERS)
        .map(|number| {
            let name = format!("dir{number}");
            fs.create(root, name.as_bytes(), &NewInode::directory(0o755)).expect("room").id
        })
        .collect();
    let fill = |dir: InodeId| {
        (0..)
            .map(|number: u64| number.to_string().repeat(8))
            .take_while(|name| match fs.create(dir, name.as_bytes(), &NewInode::file(0o644)) {
                Ok(_) => true,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
                    false
                }
            })
            .collect::<Vec<_>>()
    };
    let names: Vec<Vec<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = dirs.iter().map(|dir| scope.spawn(|| fill(*dir))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends well")).collect()
    });
    assert!(names.iter().map(Vec::len).sum::<usize>() > 1000);
    std::thread::scope(|scope| {
        for (dir, names) in dirs.iter().zip(names) {
            let fs = &fs;
            scope.spawn(move || {
                for name in names {
                    fs.unlink(*dir, name.as_bytes()).expect("a removal has its room");
                }
            });
        }
    });
    fs.sync().expect("it is durable");
}
