//! Scrub where the filesystem changes beneath it: block groups go and come, commits are made in the midst of a batch or of a repair, a commit fails, and
//! the filesystem is closed while leaves are queued to be read ahead.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use creamery_base::{DevId, Logical, TreeId, Wait};
use creamery_device::{BlockDevice, Completion, DeviceId, Request};
use creamery_format::BlockGroupFlags;
use creamery_fs::{Filesystem, FsOptions, NewInode};
use creamery_maint::scrub::{Counts, Ended, Finding, Scrub, Sink, Step};
use creamery_mkfs::Profile;
use creamery_sim::{Fault, Kind, MadeBy, SimDevice, fresh_image, image_with_files, watched};
use creamery_testkit::until;
use creamery_txn::{Engine, Options};
use creamery_volume::{Chunk, Mode, Volume};

const DEVICE: DevId = DevId::new(1);
/// Bytes of a step, so that a group takes several.
const STEP: u64 = 64 << 10;
/// Bytes of a file.
const FILE: usize = 1 << 20;

/// Keeps what is bad, and sees to it that the place goes never back.
#[derive(Default)]
struct KeptFindings(Mutex<(Vec<String>, u64)>);

impl KeptFindings {
    fn findings(&self) -> Vec<String> {
        self.0.lock().expect("not poisoned").0.clone()
    }
}

impl Sink for KeptFindings {
    fn found(&self, finding: &Finding) {
        self.0.lock().expect("not poisoned").0.push(format!("{finding:?}"));
    }

    fn goes_on(&self, _: DevId, counts: &Counts) -> bool {
        let mut heard = self.0.lock().expect("not poisoned");
        assert!(counts.last_physical >= heard.1, "it goes back from {} to {counts:?}", heard.1);
        heard.1 = counts.last_physical;
        true
    }
}

type ScrubEvent = Box<dyn FnOnce() + Send>;

/// A device on which something is done when a place is read for the first time, before the read.
struct Eventful {
    below: Arc<SimDevice>,
    event: Mutex<Option<(Range<u64>, ScrubEvent)>>,
}

impl Eventful {
    fn new(image: creamery_sim::Image) -> Arc<Self> {
        Arc::new(Self { below: Arc::new(SimDevice::new(image)), event: Mutex::default() })
    }

    fn when_read(&self, range: Range<u64>, event: impl FnOnce() + Send + 'static) {
        *self.event.lock().expect("not poisoned") = Some((range, Box::new(event)));
    }

    fn has_been(&self) -> bool {
        self.event.lock().expect("not poisoned").is_none()
    }
}

impl BlockDevice for Eventful {
    fn submit(&self, request: Request, done: Completion) {
        let mut event = self.event.lock().expect("not poisoned");
        let is_there = |range: &Range<u64>| match &request {
            Request::Read { offset, buffer } => {
                *offset < range.end && range.start < offset + buffer.len() as u64
            }
            _ => false,
        };
        let now = event.take_if(|(range, _)| is_there(range));
        drop(event);
        if let Some((_, event)) = now {
            event();
        }
        self.below.submit(request, done);
    }

    fn len(&self) -> u64 {
        self.below.len()
    }

    fn id(&self) -> DeviceId {
        self.below.id()
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// A filesystem on a device of which it is known when it is read.
struct ScrubWorld {
    device: Arc<Eventful>,
    fs: Arc<Filesystem>,
}

impl ScrubWorld {
    fn open(device: Arc<Eventful>) -> Self {
        let volume = Volume::open(vec![Arc::clone(&device) as Arc<dyn BlockDevice>], Mode::ReadWrite);
        let engine = Engine::open(volume.expect("it opens"), Options::default()).expect("it opens");
        let fs = Filesystem::open(engine, FsOptions::default()).expect("it opens");
        Self { device, fs }
    }

    fn new(made_by: MadeBy) -> Self {
        Self::open(Eventful::new(fresh_image(&made_by).expect("an image")))
    }

    fn engine(&self) -> &Engine {
        self.fs.engine()
    }

    fn chunks(&self) -> BTreeMap<Logical, Arc<Chunk>> {
        self.engine().volume().chunks().into_iter().map(|chunk| (chunk.start, chunk)).collect()
    }

    /// The last chunk of data.
    fn last_of_data(&self) -> Arc<Chunk> {
        let mut chunks = self.chunks().into_values();
        let last = chunks.rfind(|chunk| chunk.flags.contains(BlockGroupFlags::DATA));
        last.expect("a group of data")
    }

    /// The first chunk of data that has some.
    fn with_data(&self) -> Arc<Chunk> {
        let used = self.engine().group_uses().into_iter().filter(|(_, used)| *used >= FILE as u64);
        let mut chunks = used.filter_map(|(at, _)| self.engine().volume().chunk_at(at));
        chunks.find(|chunk| chunk.flags.contains(BlockGroupFlags::DATA)).expect("a group with data")
    }
}

fn write(fs: &Filesystem, number: usize, len: usize) -> creamery_base::Result<()> {
    let top = fs.root(TreeId::FS)?;
    let file = fs.create(top, format!("file{number}").as_bytes(), &NewInode::file(0o644))?.id;
    fs.open_file(file)?.write_at(0, &vec![number as u8 + 1; len]).map(drop)
}

fn remove(fs: &Filesystem, number: usize) {
    let top = fs.root(TreeId::FS).expect("a top level");
    fs.unlink(top, format!("file{number}").as_bytes()).expect("it is there");
    // A group in which nothing lives goes with the next commit, its space with the one behind it.
    (0..3).for_each(|_| fs.sync().expect("it commits"));
}

fn mending(engine: &Engine) -> Scrub<'_> {
    let mender = engine.volume().mender().expect("a volume that is written to");
    Scrub::mending(engine, mender).beside_commits().on_threads(NonZero::<usize>::MIN)
}

fn to_the_end(scrub: &Scrub<'_>, sink: &dyn Sink) -> (Counts, Ended) {
    scrub.device(DEVICE, sink).expect("trees that can be read")
}

/// Device extents are listed, then one block group is gone, and at the address of another that is gone a new one lies elsewhere on the device.
#[test]
fn groups_that_go_and_come_beneath_a_scrub_are_passed_over() {
    let world = ScrubWorld::new(MadeBy { len: 192 << 20, ..MadeBy::default() });
    let fs = &world.fs;
    let mut files = 0;
    let mut fill = |groups: usize| {
        while world.chunks().len() < groups {
            write(fs, files, FILE).expect("room");
            fs.sync().expect("it commits");
            files += 1;
        }
        files
    };
    let groups = world.chunks().len();
    let [first, second, third] = [1, 2, 3].map(|more| (fill(groups + more), world.last_of_data()).1);
    let files = fill(groups + 3);
    // A scrub that is given up in the midst of a group keeps nothing.
    let (heard, scrub) = (KeptFindings::default(), mending(world.engine()));
    let mut given_up = scrub.begin(DEVICE, &heard).expect("trees that can be read");
    for _ in 0..20 {
        assert_eq!(scrub.step(&mut given_up, STEP, &heard).expect("trees that can be read"), Step::More);
    }
    scrub.give_up(&mut given_up);
    let heard = KeptFindings::default();
    let mut device = scrub.begin(DEVICE, &heard).expect("trees that can be read");
    // Those of the first group, from its beginning, and those of the third one, from its end.
    let mut others = 0..files;
    while world.chunks().contains_key(&first.start) {
        remove(fs, others.next().expect("files that lie there"));
    }
    // The scrub is in the midst of the third group when that goes.
    while device.counts().last_physical <= third.stripes[0].offset {
        assert_eq!(scrub.step(&mut device, STEP, &heard).expect("trees that can be read"), Step::More);
    }
    while world.chunks().contains_key(&third.start) {
        remove(fs, others.next_back().expect("files that lie there"));
    }
    assert!(world.chunks().contains_key(&second.start), "the second one stays");
    let mut number = files;
    while !world.chunks().contains_key(&third.start) {
        write(fs, number, FILE).expect("room");
        fs.sync().expect("it commits");
        number += 1;
    }
    let again = world.last_of_data();
    assert_eq!(again.start, third.start);
    assert_ne!(again.stripes[0].offset, third.stripes[0].offset, "it lies elsewhere");
    // Also one that has only listed them.
    while let Step::More = scrub.step(&mut device, STEP, &heard).expect("trees that can be read") {}
    assert_eq!(heard.findings(), Vec::<String>::new());
    let counts = device.counts();
    assert_eq!((counts.errors(), counts.uncorrectable_errors), (0, 0), "{counts:?}");
    let (counts, ended) = to_the_end(&scrub, &KeptFindings::default());
    assert_eq!((counts.errors(), ended), (0, Ended::Whole));
}

/// Two copies of data, of which the first one of some sector is rotten. Where that lies, and the other copy.
fn with_rot(world: &ScrubWorld) -> [u64; 2] {
    (0..4).for_each(|number| write(&world.fs, number, FILE).expect("room"));
    world.fs.sync().expect("it commits");
    let chunk = world.with_data();
    let places = [0, 1].map(|copy| chunk.stripes[copy].offset + (256 << 10));
    world.device.below.rot(places[0]..places[0] + 4096);
    places
}

/// In the midst of a repair the file goes, and commits are made: what is mended is mended, and the block group goes once the repair has ended.
#[test]
fn a_group_that_is_to_go_in_the_midst_of_a_repair_goes_behind_it() {
    watched(|_| {
        let world = ScrubWorld::new(MadeBy { data: Profile::Dup, len: 256 << 20, ..MadeBy::default() });
        let [_, other] = with_rot(&world);
        let (fs, engine) = (Arc::clone(&world.fs), world.engine());
        let commits = engine.counters().commits;
        world.device.when_read(other..other + 4096, move || (0..4).for_each(|number| remove(&fs, number)));
        let heard = KeptFindings::default();
        let (counts, ended) = to_the_end(&mending(engine), &heard);
        assert!(world.device.has_been(), "the other copy is read to mend the first one");
        assert!(engine.counters().commits > commits, "commits are made meanwhile");
        assert_eq!(ended, Ended::Whole);
        assert_eq!(
            (counts.csum_errors, counts.corrected_errors),
            (1, 1),
            "{counts:?}: {:?}",
            heard.findings()
        );
        let (counts, _) = to_the_end(&mending(engine), &KeptFindings::default());
        assert_eq!(counts.errors(), 0, "{counts:?}");
    });
}

/// The thread that reads a batch commits before the read is done: a commit that waited for the batch would wait for itself.
#[test]
fn a_commit_waits_for_no_batch() {
    watched(|_| {
        let world = ScrubWorld::new(MadeBy::default());
        (0..8).for_each(|number| write(&world.fs, number, FILE).expect("room"));
        world.fs.sync().expect("it commits");
        let engine = world.engine();
        let commits = engine.counters().commits;
        let fs = Arc::clone(&world.fs);
        let at = world.with_data().stripes[0].offset;
        world.device.when_read(at..at + FILE as u64, move || {
            for number in 8..12 {
                write(&fs, number, 4096).expect("room");
                fs.sync().expect("it commits");
            }
        });
        let (counts, ended) = to_the_end(&mending(engine), &KeptFindings::default());
        assert!(world.device.has_been(), "a batch of data was read");
        assert_eq!(engine.counters().commits - commits, 4);
        assert_eq!((counts.errors(), ended), (0, Ended::Whole), "{counts:?}");
    });
}

/// In the midst of a batch files go, and a writer waits for their room, which the scrub keeps: it begins no other batch, and the writer gets the room.
#[test]
fn a_scrub_lets_go_as_soon_as_a_writer_waits_for_room() {
    watched(|_| {
        let world = ScrubWorld::new(MadeBy::default());
        let files = (0..).take_while(|number| write(&world.fs, *number, FILE).is_ok()).count();
        world.fs.sync().expect("it commits");
        assert!(files > 20, "{files} files fill it");
        let (fs, writer) = (Arc::clone(&world.fs), Arc::new(Mutex::new(None)));
        let theirs = Arc::clone(&writer);
        let at = world.with_data().stripes[0].offset;
        world.device.when_read(at..at + FILE as u64, move || {
            let mine = fs.engine().durable_trees().expect("trees that can be read");
            let top = fs.root(TreeId::FS).expect("a top level");
            for number in 0..files / 2 {
                fs.unlink(top, format!("file{number}").as_bytes()).expect("it is there");
            }
            fs.sync().expect("it commits");
            let fs = Arc::clone(&fs);
            let writes = std::thread::spawn(move || {
                (0..files / 3).try_for_each(|number| write(&fs, files + 1 + number, FILE))
            });
            *theirs.lock().expect("not poisoned") = Some(writes);
            until("a writer waits", || Ok(mine.is_in_the_way())).expect("it does");
        });
        let (heard, scrub) = (KeptFindings::default(), mending(world.engine()));
        let mut device = scrub.begin(DEVICE, &heard).expect("trees that can be read");
        let mut read = 0;
        while !world.device.has_been() {
            read = device.counts().data_bytes_scrubbed;
            assert_eq!(
                scrub.step(&mut device, u64::MAX, &heard).expect("trees that can be read"),
                Step::More
            );
        }
        // That batch, and no other one.
        let more = device.counts().data_bytes_scrubbed - read;
        assert!(more > 0 && more <= 512 << 10, "{more} bytes of data");
        let writes = writer.lock().expect("not poisoned").take().expect("it was begun");
        writes.join().expect("it ends").expect("there is room");
        assert_eq!(heard.findings(), Vec::<String>::new());
    });
}

/// The device takes no write any more and a commit fails, before a scrub or in the midst of a batch: what there is to read is read, and the scrub ends.
#[test]
fn a_commit_that_fails_leaves_no_scrub_waiting() {
    watched(|_| {
        for is_beside in [true, false] {
            let world = ScrubWorld::new(MadeBy::default());
            (0..8).for_each(|number| write(&world.fs, number, FILE).expect("room"));
            world.fs.sync().expect("it commits");
            let (fs, below) = (Arc::clone(&world.fs), Arc::clone(&world.device.below));
            let fail = move || {
                below.fail(Fault { kind: Kind::Write, nth: 0, lasting: true });
                let done = write(&fs, 8, FILE).and_then(|()| fs.sync());
                assert!(done.is_err() && fs.engine().aborted().is_some(), "{done:?}");
            };
            let at = world.with_data().stripes[0].offset;
            match is_beside {
                true => world.device.when_read(at..at + FILE as u64, fail),
                false => fail(),
            }
            // On two threads, too.
            let engine = world.engine();
            for scrub in [mending(engine), Scrub::reading(engine).beside_commits()] {
                let (counts, ended) = to_the_end(&scrub, &KeptFindings::default());
                assert_eq!((counts.errors(), ended), (0, Ended::Whole), "{counts:?}");
                assert!(counts.data_bytes_scrubbed >= 8 * FILE as u64, "{counts:?}");
            }
            assert!(world.device.has_been(), "a batch of data was read");
        }
    });
}

/// Scrubs to read, where a sector of data, a tree block and a superblock are bad: what is written meanwhile, and by which transaction, is as before.
fn reads_alone(device: &SimDevice, engine: &Engine, rotten: [u64; 2]) {
    let state = || {
        let written = (device.count(Kind::Write), device.count(Kind::Flush));
        (engine.generation(), engine.counters().commits, written)
    };
    let before = state();
    for scrub in [Scrub::reading(engine), Scrub::reading(engine).beside_commits()] {
        let heard = KeptFindings::default();
        let (counts, ended) = to_the_end(&scrub, &heard);
        assert_eq!((counts.csum_errors, counts.super_errors, ended), (2, 1, Ended::Whole), "{counts:?}");
        assert_eq!((counts.unverified_errors, counts.corrected_errors), (3, 0), "{counts:?}");
        let told = heard.findings();
        assert!(
            rotten.iter().all(|at| told.iter().any(|finding| finding.contains(&at.to_string()))),
            "{told:?}"
        );
    }
    assert_eq!(state(), before);
    let repaired = engine.volume().counters().repaired;
    assert_eq!(repaired, 0, "reads that look for what is good rewrite nothing either");
}

/// On a filesystem that is open for reading, for writing, and on one that was written to: no transaction is begun, and nothing is written.
#[test]
fn a_scrub_that_reads_begins_no_transaction() {
    let world = ScrubWorld::new(MadeBy { data: Profile::Dup, len: 256 << 20, ..MadeBy::default() });
    let [data, _] = with_rot(&world);
    let root = world.engine().tree(TreeId::FS).expect("it is there").root_pointer().expect("a root").logical;
    let block =
        world.engine().volume().map(root, 16384).expect("it lies somewhere").mirrors()[1][0].at.offset;
    world.device.below.rot(block + 200..block + 300);
    world.device.below.rot((64 << 20) + 4000..(64 << 20) + 4096);
    for mode in [Mode::ReadOnly, Mode::ReadWrite] {
        let device = Arc::new(SimDevice::new(world.device.below.image()));
        let volume = Volume::open(vec![Arc::clone(&device) as Arc<dyn BlockDevice>], mode);
        let options = Options { read_only: mode == Mode::ReadOnly, ..Options::default() };
        let engine = Engine::open(volume.expect("it opens"), options).expect("it opens");
        reads_alone(&device, &engine, [data, block]);
        let has_right = engine.volume().mender().is_ok();
        assert_eq!(has_right, mode == Mode::ReadWrite, "open for reading it may not be written to");
    }
    reads_alone(&world.device.below, world.engine(), [data, block]);
}

/// Leaves are queued, and nobody reads them: the filesystem is closed all the same, and lets go of its device.
#[test]
fn a_filesystem_closes_while_leaves_are_queued() {
    let made_by = MadeBy { node_size: 4096, ..MadeBy::default() };
    let (image, _) = image_with_files(&made_by, 600, |_| 5000).expect("an image");
    let queue = |world: &ScrubWorld| {
        // Somebody takes steps of the background's, so leaves are queued.
        while world.engine().background_step(|_| 0).is_some() {}
        let scrub = Scrub::reading(world.engine()).beside_commits().on_threads(NonZero::<usize>::MIN);
        let mut device = scrub.begin(DEVICE, &KeptFindings::default()).expect("trees that can be read");
        while let Step::More =
            scrub.step(&mut device, 1, &KeptFindings::default()).expect("trees that can be read")
        {
            if device.counts().data_bytes_scrubbed > 0 {
                break;
            }
        }
    };
    let twin = ScrubWorld::open(Eventful::new(image.clone()));
    queue(&twin);
    assert_eq!(twin.engine().background_step(|_| 0), Some("read-ahead"), "leaves are queued");
    for is_removed_from in [false, true] {
        let world = ScrubWorld::open(Eventful::new(image.clone()));
        queue(&world);
        if is_removed_from {
            let top = world.fs.root(TreeId::FS).expect("a top level");
            assert!(world.fs.lookup(top, b"name7", Wait::Yes).is_ok());
            world.fs.unlink(top, b"name7").expect("it is there");
            world.fs.sync().expect("it commits");
        }
        let ScrubWorld { device, fs } = world;
        drop(fs);
        assert_eq!(Arc::strong_count(&device), 1, "nothing keeps the device");
    }
}
