//! The reported total of memory is right: it agrees with the allocator at every moment of a workload that fills each of the caches and
//! queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{FixedEnv, InodeId, Timespec, Wait};
use creamery_device::{Access, BlockDevice, FileDevice};
use creamery_fs::{Filesystem, FsOptions, MemoryReport, NewInode};
use creamery_mkfs::{MkfsOptions, make_filesystem};
use creamery_testkit::{Random, Scratch};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

use crate::live::{live, peak_since};

const MIB: u64 = 1 << 20;
const BLOCK: u64 = 4096;
/// Smaller totals are not judged: the temporary memory of an operation is a larger part of them.
const JUDGED_FROM: u64 = 8 * MIB;
/// The total is at least this percentage of the memory in use.
const EXPLAINED_MIN: u64 = 90;
/// The total is at most this percentage of the memory in use.
const EXPLAINED_MAX: u64 = 110;
const DIRTY: u64 = 48 * MIB;
/// Limit of delayed data, bytes.
const DELAYED: u64 = 4 * MIB;

/// A filesystem whose memory is measured.
struct Watched {
    fs: Arc<Filesystem>,
    root: InodeId,
    /// Bytes in use but not in the total before any work: the device, threads, tables of a fixed size.
    rest: u64,
    judged: u32,
    /// The largest total so far.
    most: u64,
}

impl Watched {
    fn open(device: Arc<dyn BlockDevice>) -> Self {
        let volume = Volume::open(vec![device], Mode::ReadWrite).expect("it opens");
        let (dirty_bytes, delayed_refs_max) = (DIRTY, 1_000_000);
        let options = Options { dirty_bytes, delayed_refs_max, cache_bytes: 32 * MIB, ..Options::default() };
        let engine = Engine::open(volume, options).expect("it opens");
        let options = FsOptions { inodes_cached: 100_000, delayed_bytes: DELAYED, ..FsOptions::default() };
        let fs = Filesystem::open(engine, options).expect("it opens");
        let root = fs.root(fs.default_subvolume()).expect("a root");
        let rest = live() - fs.memory().total_bytes;
        peak_since();
        Self { fs, root, rest, judged: 0, most: 0 }
    }

    /// Checks the total against the memory in use now.
    fn judge(&mut self, when: &str) -> MemoryReport {
        let told = self.fs.memory();
        let used = live().saturating_sub(self.rest);
        self.most = self.most.max(told.total_bytes);
        if used.max(told.total_bytes) > JUDGED_FROM {
            let per_cent = told.total_bytes * 100 / used.max(1);
            assert!(
                (EXPLAINED_MIN..=EXPLAINED_MAX).contains(&per_cent),
                "{when}: {used} bytes in use, of which the total is {per_cent} %: {told:?}"
            );
            self.judged += 1;
        }
        told
    }

    /// Checks the total against the peak of memory since the last call, too, and prints both.
    fn judge_peak(&mut self, when: &str) {
        let told = self.judge(when);
        let peak = peak_since().saturating_sub(self.rest);
        let most = std::mem::replace(&mut self.most, told.total_bytes);
        let now = live().saturating_sub(self.rest);
        println!("{when}: {peak} bytes in use at most, the largest total {most}; now {now} in use");
        told.parts().filter(|(_, bytes)| *bytes > 0).for_each(|(name, bytes)| println!("    {name} {bytes}"));
        assert!(most * 100 >= peak * EXPLAINED_MIN, "{when}: {peak} bytes in use at most, explained {most}");
    }

    fn new_file(&self, dir: InodeId, name: &str) -> InodeId {
        let made = self.fs.create(dir, name.as_bytes(), &NewInode::file(0o644)).expect("room");
        made.id
    }

    /// Commits, while another thread reads the total all the time.
    fn sync(&mut self) {
        let over = AtomicBool::new(false);
        let most = std::thread::scope(|scope| {
            let looker = scope.spawn(|| {
                let mut most = 0;
                while !over.load(Ordering::Relaxed) {
                    most = most.max(self.fs.memory().total_bytes);
                    std::thread::yield_now();
                }
                most
            });
            let done = self.fs.sync();
            over.store(true, Ordering::Relaxed);
            done.expect("it commits");
            looker.join().expect("it only looks")
        });
        self.most = self.most.max(most);
    }
}

/// Makes many directories with few files each, more than the budget of dirty blocks: commits fall due on the way.
fn names(watched: &mut Watched) {
    const DIRECTORIES: usize = 4_000;
    const FILES: usize = 20;
    let mut all = Vec::new();
    for number in 0..DIRECTORIES {
        let made =
            watched.fs.create(watched.root, format!("dir{number}").as_bytes(), &NewInode::directory(0o755));
        let dir = made.expect("room").id;
        for file in 0..FILES {
            all.push(watched.new_file(dir, &format!("a name of some length {file}")));
        }
        // Looking up the paths caches all of them.
        let found = watched.fs.lookup(watched.root, format!("dir{number}").as_bytes(), Wait::Yes);
        assert_eq!(found.expect("it is there"), dir);
        if number % 50 == 0 {
            watched.judge("making names");
        }
    }
    watched.judge_peak("names were made");
    for (number, id) in all.iter().enumerate() {
        assert_eq!(watched.fs.stat(*id, Wait::Yes).expect("it is there").id, *id);
        if number % 1_000 == 0 {
            watched.judge("asking for inodes");
        }
    }
    watched.judge_peak("inodes were asked for");
    drop(all);
    watched.sync();
    watched.judge_peak("names are durable");
}

/// Files made and removed before a commit leave no memory in use.
fn in_vain(watched: &mut Watched) {
    const ROUNDS: usize = 40;
    const FILES: usize = 2_000;
    let dir = watched.fs.create(watched.root, b"in vain", &NewInode::directory(0o755)).expect("room").id;
    for _ in 0..ROUNDS {
        for file in 0..FILES {
            watched.new_file(dir, &format!("a name that nobody will read {file}"));
        }
        for file in 0..FILES {
            watched
                .fs
                .unlink(dir, format!("a name that nobody will read {file}").as_bytes())
                .expect("it is there");
        }
        let has = watched.judge("making in vain").dirty_blocks_bytes;
        let waits = watched.fs.statistics().block_cache.dirty_bytes;
        assert!(has <= 2 * waits + MIB, "{has} bytes in dirty blocks, of which {waits} wait for a commit");
    }
    watched.judge_peak("files were made in vain");
    watched.sync();
}

/// Writes data in as many extents as possible, and overwrites it: references wait, and free space is in pieces.
fn data(watched: &mut Watched) {
    const BLOCKS: u64 = 50_000;
    let id = watched.new_file(watched.root, "in pieces");
    let file = watched.fs.open_file(id).expect("it is there");
    let mut places: Vec<u64> = (0..BLOCKS).collect();
    let mut random = Random::new(7);
    for round in 0..3_u8 {
        random.shuffle(&mut places);
        for (done, place) in places.iter().enumerate() {
            let block = [round + 1; BLOCK as usize];
            assert_eq!(file.write_at(place * BLOCK, &block).expect("room"), block.len());
            if done % 5_000 == 0 {
                watched.judge("writing in pieces");
            }
        }
        if round == 0 {
            watched.sync();
            watched.judge_peak("data is durable");
        }
    }
    let pending = watched.fs.statistics().pending.delayed_refs;
    assert!(pending > 100_000, "only {pending} references wait");
    watched.judge_peak("references wait");
    watched.sync();
    watched.judge_peak("references are in the tree");
    // Frees every other block: free space is in pieces of one block.
    let other = watched.new_file(watched.root, "every other");
    let other = watched.fs.open_file(other).expect("it is there");
    for place in 0..BLOCKS / 2 {
        other.write_at(place * BLOCK, &[9; BLOCK as usize]).expect("room");
        file.write_at(2 * place * BLOCK, &[9; BLOCK as usize]).expect("room");
    }
    watched.judge_peak("more was written");
    watched.fs.close(other);
    watched.fs.unlink(watched.root, b"every other").expect("it is there");
    watched.sync();
    watched.judge_peak("free space is in pieces");
    watched.fs.close(file);
}

/// Removes files that are open, and closes all at once.
fn removed(watched: &mut Watched) {
    const FILES: usize = 30_000;
    let dir = watched.fs.create(watched.root, b"open", &NewInode::directory(0o755)).expect("room").id;
    let mut open = Vec::with_capacity(FILES);
    for number in 0..FILES {
        let name = format!("open {number}");
        let made = watched.fs.create_open(dir, name.as_bytes(), &NewInode::file(0o644)).expect("room");
        open.push(made.1);
        watched.fs.unlink(dir, name.as_bytes()).expect("it is there");
    }
    watched.judge_peak("removed files are open");
    drop(open);
    watched.judge_peak("removed files are closed");
    watched.fs.settle().expect("it commits");
    watched.judge_peak("removed files are gone");
}

#[test]
fn the_total_of_memory_explains_what_is_in_use() {
    let _alone = crate::alone();
    let scratch = Scratch::new("memory").expect("a scratch folder");
    let path = scratch.file("image");
    std::fs::File::create_new(&path).and_then(|file| file.set_len(4 << 30)).expect("a sparse file");
    let device: Arc<dyn BlockDevice> =
        Arc::new(FileDevice::open(&path, Access::ReadWrite).expect("it opens"));
    let env = FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 42);
    make_filesystem(&*device, &MkfsOptions::default(), &env).expect("it is made");
    let mut watched = Watched::open(device);
    names(&mut watched);
    in_vain(&mut watched);
    data(&mut watched);
    removed(&mut watched);
    assert!(watched.judged > 100, "judged {} times only", watched.judged);
    watched.fs.shut_down().expect("it commits");
}
