//! Direct requests in flight on a device that answers late, beside operations that wait for them. There is no background thread: each
//! waiting thread completes the requests that have landed.

use std::sync::{Arc, OnceLock};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::sync::shuttle::rand::{Rng, thread_rng};
use creamery_base::sync::shuttle::thread::{self, JoinHandle};
use creamery_base::{InodeId, TreeId, Wait};
use creamery_device::{AlignedBuffer, BlockDevice};
use creamery_fs::{
    Access, DirectAt, DirectDone, DirectRequest, Fallocate, Fault, Filesystem, InodeFlags, NewInode,
    OpenFile, SetAttributes,
};
use creamery_sim::{Answering, Image, MARKED, MadeBy, SimDevice, fresh_image};

use crate::{Execution, explore_some, is_caught, open, open_on};

const SECTOR: usize = 4096;
/// The byte in all sectors of each file at first.
const OLD: u8 = 1;
const SECTORS: usize = 4;
/// The byte of direct writes.
const NEW: u8 = MARKED;
const NEWER: u8 = MARKED + 1;

const HOME: &[u8] = b"home";
/// A file whose new data goes to new space, with checksums.
const PLAIN: &[u8] = b"plain";
/// A file that is written over in place.
const IN_PLACE: &[u8] = b"in place";

/// Schedules of each kind: an execution opens a filesystem twice.
const SCHEDULES: usize = 200;

/// Writes old data directly.
fn put(file: &OpenFile, first: usize, count: usize) {
    let data = AlignedBuffer::from_slice(&vec![OLD; count * SECTOR]);
    file.write_direct(DirectAt::Offset((first * SECTOR) as u64), data).outcome.expect("room");
}

/// An image with a subvolume of two files.
fn image() -> &'static Image {
    static IMAGE: OnceLock<Image> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let device = Arc::new(SimDevice::new(fresh_image(&MadeBy::default()).expect("an image")));
        let fs = open(&device);
        let top = fs.root(TreeId::FS).expect("the top level is there");
        let home = fs.create_subvolume(top, HOME, &NewInode::directory(0o755)).expect("made");
        let files = [PLAIN, IN_PLACE].map(|name| {
            let id = fs.create(home, name, &NewInode::file(0o644)).expect("made").id;
            let flags = (name == IN_PLACE).then_some(InodeFlags::NODATACOW);
            fs.set_attributes(id, &SetAttributes { flags, ..SetAttributes::default() }).expect("it is empty");
            fs.open_file_for(id, Access::Write).expect("it is there")
        });
        for file in &files {
            put(file, 0, SECTORS);
            // The second sector lies apart from the others, so a write over the first two is two requests.
            file.fallocate(Fallocate::PunchHole, SECTOR as u64, SECTOR as u64).expect("room");
            put(file, 1, 1);
        }
        files.into_iter().for_each(|file| fs.close(file));
        fs.sync().expect("it commits");
        drop(fs);
        let mut image = device.image();
        image.freeze();
        image
    })
}

/// The filesystem, on a device that answers requests with marked data only on demand.
struct DirectWorld {
    device: Arc<SimDevice>,
    answering: Arc<Answering>,
    fs: Arc<Filesystem>,
}

impl DirectWorld {
    fn new(fault: Option<Fault>) -> Self {
        let device = Arc::new(SimDevice::new(image().clone()));
        let answering = Arc::new(Answering::new(Arc::clone(&device)));
        let fs = open_on(Arc::clone(&answering) as Arc<dyn BlockDevice>);
        if let Some(fault) = fault {
            fs.plant(fault);
        }
        Self { device, answering, fs }
    }

    fn home(&self) -> InodeId {
        home(&self.fs)
    }

    fn open(&self, name: &[u8]) -> Arc<OpenFile> {
        open_file(&self.fs, self.home(), name)
    }

    /// Lets the device answer requests, in any order, from now on.
    fn answer(&self) -> JoinHandle<()> {
        let answering = Arc::clone(&self.answering);
        thread::spawn(move || while answering.answer_next(|count| thread_rng().gen_range(0..count)) {})
    }

    /// Ends the requests to the device; none may be in flight.
    fn end(&self, answers: JoinHandle<()>) {
        self.answering.end();
        answers.join().expect("it ends well");
        assert_eq!(self.fs.engine().aborted(), None);
        assert_eq!(self.fs.direct_in_flight(), []);
    }

    /// The durable content of the file `name`.
    fn durable(&self, name: &[u8]) -> Vec<u8> {
        let fs = open(&Arc::new(SimDevice::new(self.device.image())));
        content(&open_file(&fs, home(&fs), name))
    }

    /// Commits, and checks that the file `name` is `wanted` after a restart.
    fn stays(&self, name: &[u8], wanted: &[u8]) {
        self.fs.sync().expect("nothing was aborted");
        assert!(self.durable(name) == wanted, "after a restart");
    }
}

fn home(fs: &Filesystem) -> InodeId {
    let top = fs.root(TreeId::FS).expect("the top level is there");
    fs.lookup(top, HOME, Wait::Yes).expect("it is there")
}

fn open_file(fs: &Filesystem, dir: InodeId, name: &[u8]) -> Arc<OpenFile> {
    fs.open_file(fs.lookup(dir, name, Wait::Yes).expect("it is there")).expect("it is there")
}

/// One of the two files.
fn any() -> &'static [u8] {
    if thread_rng().gen_bool(0.5) { PLAIN } else { IN_PLACE }
}

fn content(file: &OpenFile) -> Vec<u8> {
    let size = file.stat(Wait::Yes).expect("it lives").size;
    let mut bytes = vec![0; usize::try_from(size).expect("small")];
    assert_eq!(file.read_at(0, &mut bytes, Wait::Yes).expect("it can be read"), bytes.len());
    bytes
}

/// A file of `all` sectors, the first `new` ones new.
fn sectors(new: usize, all: usize) -> Vec<u8> {
    [vec![NEW; new * SECTOR], vec![OLD; (all - new) * SECTOR]].concat()
}

fn write(byte: u8, count: usize) -> DirectRequest {
    let data = AlignedBuffer::from_slice(&vec![byte; count * SECTOR]);
    DirectRequest::Write { at: DirectAt::Offset(0), data }
}

/// A request in flight, and its answer.
#[derive(Clone, Default)]
struct Asked(Arc<RankedMutex<Option<DirectDone>, { rank::LEAF }>>);

impl Asked {
    fn submit(file: &OpenFile, request: DirectRequest) -> Self {
        let asked = Self::default();
        let own = asked.clone();
        let done = move |done| assert!(own.0.lock().replace(done).is_none(), "DIRECT-2: it is answered once");
        file.submit_direct(request, Box::new(done));
        asked
    }

    fn is_answered(&self) -> bool {
        self.0.lock().is_some()
    }

    /// The buffer of a request that was answered completely and without an error.
    fn is_done(&self) -> AlignedBuffer {
        let DirectDone { buffer, outcome } = self.0.lock().take().expect("it was answered");
        assert_eq!(outcome.expect("room").len, buffer.len());
        buffer
    }

    fn wait(&self, file: &OpenFile) {
        file.direct_waiter().wait(|| self.is_answered());
    }
}

/// Truncates a file while its front is written directly.
fn cut(fault: Option<Fault>) {
    let (world, name) = (DirectWorld::new(fault), any());
    let file = world.open(name);
    let asked = Asked::submit(&file, write(NEW, 2));
    let answers = world.answer();
    let left = thread_rng().gen_range(1..=2);
    world.fs.set_attributes(file.id(), &SetAttributes::truncate((left * SECTOR) as u64)).expect("room");
    assert!(content(&file) == sectors(left, left), "what was written before was there when it was cut");
    world.end(answers);
    asked.is_done();
    world.stays(name, &sectors(left, left));
}

/// Takes a snapshot while its source is written over in place.
fn snapshot(fault: Option<Fault>) {
    let world = DirectWorld::new(fault);
    let file = world.open(IN_PLACE);
    let asked = Asked::submit(&file, write(NEW, 2));
    let answers = world.answer();
    let home = world.home();
    let root = world.fs.create_snapshot(home.subvolume, home, b"snapshot", true).expect("room");
    let taken = open_file(&world.fs, root, IN_PLACE);
    let before = content(&taken);
    asked.wait(&file);
    world.end(answers);
    asked.is_done();
    assert!(content(&taken) == before, "NOCOW-3: a snapshot shows what it showed");
    assert!(before == sectors(0, SECTORS) || before == sectors(2, SECTORS), "a write is in it, or is not");
    world.stays(IN_PLACE, &sectors(2, SECTORS));
}

/// When a sync returns, a write that began before it is durable and answered.
fn synced(fault: Option<Fault>) {
    let (world, name) = (DirectWorld::new(fault), any());
    let file = world.open(name);
    let asked = Asked::submit(&file, write(NEW, 2));
    let answers = world.answer();
    match thread_rng().gen_bool(0.5) {
        true => file.sync().expect("room"),
        false => world.fs.sync().expect("room"),
    }
    assert!(asked.is_answered(), "DIRECT-10");
    assert!(world.durable(name) == sectors(2, SECTORS), "DIRECT-10");
    world.end(answers);
    asked.is_done();
}

/// A file loses its name and its last opener while a request is in flight and the cleaner runs.
fn nameless() {
    let (world, name) = (DirectWorld::new(None), any());
    let (home, file) = (world.home(), world.open(name));
    let (id, used) = (file.id(), world.fs.engine().space().data_used);
    let asked = Asked::submit(&file, write(NEW, 2));
    let answers = world.answer();
    world.fs.unlink(home, name).expect("it is there");
    world.fs.close(file);
    let fs = Arc::clone(&world.fs);
    let cleans = thread::spawn(move || fs.clean());
    world.fs.sync().expect("room");
    cleans.join().expect("it ends well");
    world.end(answers);
    asked.is_done();
    world.fs.clean();
    world.fs.sync().expect("nothing was aborted");
    crate::is_gone(&world.fs, id);
    assert_eq!(world.fs.engine().space().data_used, used / 2, "the other file's");
}

/// A subvolume becomes read-only while a request is in flight: earlier requests have ended then, and none begins.
fn made_read_only(fault: Option<Fault>) {
    let (world, name) = (DirectWorld::new(fault), any());
    let file = world.open(name);
    let asked = Asked::submit(&file, write(NEW, 2));
    let answers = world.answer();
    world.fs.set_subvolume_read_only(world.home().subvolume, true).expect("room");
    let written = world.fs.statistics().direct.write_bytes;
    assert_eq!(written, 2 * SECTOR as u64, "RDONLY-1: it is in the file");
    assert!(content(&file) == sectors(2, SECTORS), "RDONLY-1");
    // The answer comes a moment after the request has ended.
    asked.wait(&file);
    let late = Asked::submit(&file, write(NEWER, 1));
    assert!(late.0.lock().take().is_some_and(|done| done.outcome.is_err()), "RDONLY-1");
    world.end(answers);
    asked.is_done();
    world.stays(name, &sectors(2, SECTORS));
}

/// Two threads write one range, and a third reads it: all see one whole write.
fn one_range(fault: Option<Fault>) {
    let (world, name) = (DirectWorld::new(fault), any());
    let file = world.open(name);
    let answers = world.answer();
    let writers: Vec<_> = [NEW, NEWER]
        .into_iter()
        .map(|byte| {
            let file = Arc::clone(&file);
            thread::spawn(move || {
                let asked = Asked::submit(&file, write(byte, 2));
                asked.wait(&file);
                asked.is_done();
            })
        })
        .collect();
    let reads = DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(2 * SECTOR) };
    let asked = Asked::submit(&file, reads);
    asked.wait(&file);
    let read = asked.is_done();
    assert!([OLD, NEW, NEWER].contains(&read[0]) && read.iter().all(|byte| *byte == read[0]), "RANGE-1");
    writers.into_iter().for_each(|writer| writer.join().expect("it ends well"));
    world.end(answers);
    let last = content(&file);
    world.stays(name, &last);
    assert!([NEW, NEWER].contains(&last[0]) && last[..2 * SECTOR].iter().all(|byte| *byte == last[0]));
}

/// Empties a file while it is read, and uses its space for another one.
fn emptied() {
    let (world, name) = (DirectWorld::new(None), any());
    let other = if name == PLAIN { IN_PLACE } else { PLAIN };
    let (file, other) = (world.open(name), world.open(other));
    let answers = world.answer();
    let written = Asked::submit(&file, write(NEW, 2));
    written.wait(&file);
    written.is_done();
    let asked =
        Asked::submit(&file, DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(2 * SECTOR) });
    let (fs, id) = (Arc::clone(&world.fs), file.id());
    let empties = thread::spawn(move || {
        fs.set_attributes(id, &SetAttributes::truncate(0)).expect("room");
        fs.sync().expect("room");
        let data = AlignedBuffer::from_slice(&vec![NEWER; SECTORS * SECTOR]);
        let at = DirectAt::Offset((2 * SECTORS * SECTOR) as u64);
        let asked = Asked::submit(&other, DirectRequest::Write { at, data });
        asked.wait(&other);
        asked.is_done();
    });
    asked.wait(&file);
    assert!(asked.is_done().iter().all(|byte| *byte == NEW), "RANGE-1: it was there when the read began");
    empties.join().expect("it ends well");
    world.end(answers);
    world.stays(name, &[]);
}

/// Writes back delayed data behind a gap, which makes a file longer, while its front is written directly.
fn growing(fault: Option<Fault>) {
    let world = DirectWorld::new(fault);
    let file = world.open(PLAIN);
    let tail = (SECTORS + 2) * SECTOR;
    file.write_at(tail as u64, b"tail").expect("room");
    let answers = world.answer();
    let engine = Arc::clone(world.fs.engine());
    let steps = thread::spawn(move || {
        for _ in 0..4 {
            engine.background_step(|count| thread_rng().gen_range(0..count));
        }
    });
    let asked = Asked::submit(&file, write(NEW, 1));
    asked.wait(&file);
    steps.join().expect("it ends well");
    world.end(answers);
    asked.is_done();
    let mut wanted = sectors(1, SECTORS);
    wanted.resize(tail, 0);
    wanted.extend_from_slice(b"tail");
    assert!(content(&file) == wanted);
    world.stays(PLAIN, &wanted);
}

fn explore_with_canary(name: &str, execute: Execution, fault: Fault) {
    explore_some(name, SCHEDULES, move || execute(None));
    is_caught(&format!("{fault:?}"), move || execute(Some(fault)));
}

#[test]
fn a_file_is_cut_beside_a_direct_write() {
    explore_with_canary("cut beside a direct write", cut, Fault::CarriedNotWaitedFor);
}

#[test]
fn a_snapshot_beside_a_direct_write_in_place_shows_what_it_showed() {
    explore_with_canary("snapshot beside a direct write", snapshot, Fault::InPlaceGivenBackEarly);
}

#[test]
fn who_syncs_has_the_direct_writes_that_began_before() {
    explore_with_canary("synced beside a direct write", synced, Fault::SyncedBesideDirect);
}

#[test]
fn a_file_without_a_name_lives_as_long_as_its_request() {
    explore_some("nameless with a request", SCHEDULES, nameless);
}

#[test]
fn a_subvolume_becomes_read_only_behind_direct_writes() {
    explore_with_canary("read-only beside a direct write", made_read_only, Fault::ChangeNotCarried);
}

#[test]
fn who_reads_beside_two_direct_writes_sees_one_whole() {
    explore_with_canary("two direct writes and a read", one_range, Fault::ReadWithoutRange);
}

#[test]
fn a_file_is_emptied_beside_a_direct_read() {
    explore_some("emptied beside a direct read", SCHEDULES, emptied);
}

#[test]
fn a_file_that_grows_is_written_back_beside_a_direct_write() {
    explore_with_canary("growth beside a direct write", growing, Fault::SharedBesideGrowth);
}
