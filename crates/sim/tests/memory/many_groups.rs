//! A hundred thousand block groups, as a device of 100 TiB has them: what it takes to open them, and that work on them looks at
//! no more of them than with ten.
//!
//! Makes and opens are processes of their own, so that what one needs is not hidden in what another has left. Times are printed, not
//! judged: `cargo test -p creamery-sim --test memory many_groups -- --nocapture`. `CREAMERY_GROUPS` sets another number of groups.

use std::collections::HashMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use creamery_base::{FixedEnv, InodeId, ObjectId, Result, Timespec, TreeId};
use creamery_device::{BlockDevice, Completion, DeviceId, MemoryDevice, Reply, Request};
use creamery_format::{BlockGroupFlags, Key, KeyType};
use creamery_fs::{Filesystem, FsOptions};
use creamery_mkfs::{MkfsOptions, make_filesystem};
use creamery_testkit::Scratch;
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::live::{live, peak_since};

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
/// What is left in each data group.
const LEFT: u64 = 64 << 10;
const GROUPS: u64 = 100_000;
const FEW: u64 = 10;
/// What opening may take on top of what the process had.
const OPEN_BYTES_MAX: u64 = 256 << 20;
/// What the engine says of its memory explains so many per cent of what is in use, and is not more than so many.
const EXPLAINED: RangeInclusive<u64> = 90..=110;
/// Less is not judged: what does not grow is a larger part of it.
const JUDGED_FROM: u64 = 16 << 20;
const OWNER: InodeId = InodeId { subvolume: TreeId::FS, ino: ObjectId::new(1000) };

/// A device of any size whose pages lie in a file in the order in which they were first written; another file says which.
struct Paged {
    len: u64,
    pages: File,
    id: DeviceId,
    places: Mutex<HashMap<u64, u64>>,
}

fn new_id() -> DeviceId {
    MemoryDevice::new(PAGE).id()
}

impl Paged {
    fn make(path: &Path, len: u64) -> std::io::Result<Self> {
        let pages = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Self { len, pages, id: new_id(), places: Mutex::default() })
    }

    fn save(&self, path: &Path) -> std::io::Result<()> {
        let places = self.places.lock().expect("not poisoned");
        let words = [self.len].into_iter().chain(places.iter().flat_map(|(&page, &place)| [page, place]));
        std::fs::write(path, words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())
    }

    fn load(path: &Path, index: &Path) -> std::io::Result<Self> {
        let bytes = std::fs::read(index)?;
        let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
        let len = words.next().expect("a length");
        let mut places = HashMap::new();
        while let (Some(page), Some(place)) = (words.next(), words.next()) {
            places.insert(page, place);
        }
        let pages = File::options().read(true).write(true).open(path)?;
        Ok(Self { len, pages, id: new_id(), places: Mutex::new(places) })
    }
}

impl BlockDevice for Paged {
    fn submit(&self, request: Request, done: Completion) {
        let mut places = self.places.lock().expect("not poisoned");
        done(Ok(match request {
            Request::Read { offset, mut buffer } => {
                for (number, bytes) in (offset / PAGE..).zip(buffer.chunks_mut(PAGE as usize)) {
                    match places.get(&number) {
                        Some(place) => self.pages.read_exact_at(bytes, place * PAGE).expect("it is there"),
                        None => bytes.fill(0),
                    }
                }
                Reply::Read(buffer)
            }
            Request::Write { offset, data } => {
                for (number, bytes) in (offset / PAGE..).zip(data.contiguous().chunks(PAGE as usize)) {
                    let next = places.len() as u64;
                    let place = *places.entry(number).or_insert(next);
                    self.pages.write_all_at(bytes, place * PAGE).expect("room on the disk");
                }
                Reply::Done
            }
            Request::Flush | Request::Discard { .. } => Reply::Done,
        }));
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn id(&self) -> DeviceId {
        self.id
    }

    fn describe(&self) -> String {
        "pages".to_owned()
    }
}

fn open(device: Arc<Paged>) -> Result<Arc<Engine>> {
    let volume = Volume::open(vec![device], Mode::ReadWrite)?;
    Engine::open(volume, Options::default())
}

/// A filesystem with so many data groups, each of them used but for [`LEFT`].
fn make(dir: &Path, groups: u64) -> Result<()> {
    let device = Arc::new(Paged::make(&dir.join("pages"), (groups + groups / 50 + 20) * GIB)?);
    let options = MkfsOptions { keep_content: true, ..MkfsOptions::default() };
    let env = FixedEnv::new(Timespec { sec: 1_700_000_000, nsec: 0 }, 42);
    make_filesystem(&*device, &options, &env)?;
    let engine = open(Arc::clone(&device))?;
    let len = GIB - LEFT;
    for number in 0..groups {
        let extent = engine.allocate_data(TreeId::FS, len, len, None)?;
        let handle = engine.start(ReserveItems::items(2))?;
        let written = engine.volume().nothing_written();
        handle.complete_data(extent, written, OWNER, number * GIB, None)?;
        handle.end();
    }
    engine.commit()?;
    let chunks = engine.volume().chunks();
    assert!(chunks.len() as u64 > groups, "a group for each");
    let system = chunks.iter().filter(|chunk| chunk.flags.contains(BlockGroupFlags::SYSTEM)).count();
    assert!(system > 1 || groups < GROUPS, "CHUNK-2: the chunk tree has got more room");
    drop(engine);
    Ok(device.save(&dir.join("index"))?)
}

/// A figure of this process' memory, bytes.
fn memory(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the figure");
    let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB");
    kib.parse::<u64>().expect("a number") << 10
}

fn each(times: u32, mut step: impl FnMut(u32)) -> Duration {
    let begun = Instant::now();
    (0..times).for_each(&mut step);
    begun.elapsed() / times
}

/// Opens it, works on it, and prints what that took. The first word is the memory for opening.
fn measure(dir: &Path) -> Result<()> {
    let device = Arc::new(Paged::load(&dir.join("pages"), &dir.join("index"))?);
    let (before, unexplained) = (memory("VmRSS"), live());
    let begun = Instant::now();
    let engine = open(device)?;
    let opened = begun.elapsed();
    let bytes = memory("VmHWM") - before;
    let fs = Filesystem::open(Arc::clone(&engine), FsOptions::default())?;
    let explained = |when: &str| {
        let (told, used) = (fs.memory(), live() - unexplained);
        let per_cent = told.total_bytes * 100 / used;
        println!("{when}: {used} bytes in use, told {per_cent} %, {told:?}");
        assert!(
            used < JUDGED_FROM || EXPLAINED.contains(&per_cent),
            "{when}: {per_cent} % of {used}: {told:?}"
        );
    };
    explained("open");
    println!("    {} bytes in use at most while opening", peak_since() - unexplained);
    let commit = |engine: &Engine| {
        let begun = Instant::now();
        engine.commit().map(|()| begun.elapsed())
    };
    let tree = engine.tree(TreeId::FS)?;
    let insert = |number: u32| {
        let key = Key::new(ObjectId::new(1_000_000 + u64::from(number)), KeyType::new(100), 0);
        let handle = engine.start(ReserveItems::items(1)).expect("room");
        tree.insert(&handle, &key, &[7; 3000]).expect("room");
        handle.end();
    };
    insert(u32::MAX);
    let first_commit = commit(&engine)?;
    let inserted = each(2_000, insert);
    let second_commit = commit(&engine)?;
    let mut extents = Vec::new();
    let allocated =
        each(10_000, |_| extents.push(engine.allocate_data(TreeId::FS, PAGE, PAGE, None).expect("room")));
    let given_back = each(1, |_| extents.clear()) / 10_000;
    let large = each(8, |_| {
        extents.push(engine.allocate_data(TreeId::FS, GIB - LEFT, GIB - LEFT, None).expect("room"))
    });
    let asked = each(1_000, |_| assert!(engine.space().data_total > 0));
    insert(u32::MAX - 1);
    explained("with new groups");
    let third_commit = commit(&engine)?;
    insert(u32::MAX - 2);
    let last_commit = commit(&engine)?;
    explained("after the last commit");
    println!(
        "{bytes} bytes and {opened:?} to open; commits {first_commit:?}, {second_commit:?}, {third_commit:?}, {last_commit:?}; tree block \
         {inserted:?}; 4 KiB of data {allocated:?}, given back {given_back:?}; with a new group {large:?}; space {asked:?}"
    );
    Ok(())
}

/// Does `part` in a process of its own; what it printed.
fn child(part: &str, dir: &Path, groups: u64) -> String {
    let here = std::env::current_exe().expect("this test");
    let mut command = Command::new(here);
    command.args(["--exact", "many_groups::many_groups_cost_no_more_than_few", "--nocapture"]);
    command.env("CREAMERY_GROUPS_PART", part).env("CREAMERY_GROUPS_DIR", dir);
    let done = command.env("CREAMERY_GROUPS", groups.to_string()).output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{part}: {said}{}", String::from_utf8_lossy(&done.stderr));
    said
}

#[test]
fn many_groups_cost_no_more_than_few() {
    let _alone = crate::alone();
    let set = |name: &str| std::env::var(name).ok();
    let groups = set("CREAMERY_GROUPS").map_or(GROUPS, |groups| groups.parse().expect("a number"));
    if let (Some(part), Some(dir)) = (set("CREAMERY_GROUPS_PART"), set("CREAMERY_GROUPS_DIR")) {
        let dir = PathBuf::from(dir);
        match part.as_str() {
            "make" => make(&dir, groups).expect("made"),
            _ => measure(&dir).expect("measured"),
        }
        return;
    }
    for groups in [FEW, groups] {
        let scratch = Scratch::new("many-groups").expect("a scratch folder");
        let dir = scratch.path().to_owned();
        let begun = Instant::now();
        child("make", &dir, groups);
        let made = begun.elapsed();
        let said = child("measure", &dir, groups);
        let line = said.lines().find(|line| line.contains(" bytes and ")).expect("figures");
        println!("{groups} groups, made in {made:?}: {line}");
        said.lines().filter(|line| line.contains(" in use")).for_each(|line| println!("    {line}"));
        let bytes = line.split(' ').next().and_then(|bytes| bytes.parse::<u64>().ok()).expect("a number");
        assert!(bytes < OPEN_BYTES_MAX, "{bytes} bytes to open {groups} groups");
    }
}
