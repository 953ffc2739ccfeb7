//! Callers that wait or poll for an answer, with and without background threads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};
use std::thread;

use creamery_base::ErrorKind;
use creamery_device::AlignedBuffer;
use creamery_txn::{BackgroundThreads, Engine};

use super::answering::{Answering, How, MARKED};
use super::{direct, queued, sectors};
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectDone, DirectRequest, DirectWaiter};
use crate::filesystem::Filesystem;
use crate::names::NewInode;
use crate::open_file::OpenFile;

/// How often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A request to a file, and a poller for its answer.
struct Polled {
    answer: Arc<OnceLock<DirectDone>>,
    waiter: DirectWaiter,
    woken: Arc<Woken>,
}

impl Polled {
    fn submit(file: &OpenFile, request: DirectRequest) -> Self {
        let (answer, waiter) = (Arc::new(OnceLock::new()), file.direct_waiter());
        let own = Arc::clone(&answer);
        file.submit_direct(request, Box::new(move |done| own.set(done).expect("DIRECT-2: once")));
        Self { answer, waiter, woken: Arc::default() }
    }

    /// Two marked sectors at `sector`.
    fn write(file: &OpenFile, sector: u64) -> Self {
        let data = AlignedBuffer::from_slice(&sectors(2, MARKED));
        Self::submit(file, DirectRequest::Write { at: DirectAt::Offset(sector * SECTOR), data })
    }

    /// Polls, and returns whether it is answered.
    fn poll(&self) -> bool {
        self.waiter.poll(&Waker::from(Arc::clone(&self.woken)));
        self.is_answered()
    }

    fn wait(&self) {
        self.waiter.wait(|| self.is_answered());
    }

    fn is_answered(&self) -> bool {
        self.answer.get().is_some()
    }

    fn woken(&self) -> usize {
        self.woken.0.load(Ordering::SeqCst)
    }
}

/// A filesystem with two files of eight sectors, behind a device that answers when the test calls `answer`.
struct WaiterWorld {
    fs: Arc<Filesystem>,
    device: Arc<Answering>,
    files: [Arc<OpenFile>; 2],
}

impl WaiterWorld {
    fn new() -> Option<Self> {
        let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
        let fs = Filesystem::open(engine, queued()).expect("it opens");
        let root = fs.root(fs.default_subvolume()).expect("a root");
        let files = [b"file", b"late"].map(|name| {
            let (_, file) = fs.create_open(root, name, &NewInode::file(0o644)).expect("room");
            direct(&file, 0, &sectors(8, 1));
            file
        });
        fs.sync().expect("room");
        Some(Self { fs, device, files })
    }

    fn start_background(&self) -> BackgroundThreads {
        self.fs.engine().start_background(2)
    }
}

fn is_alive(engine: &std::sync::Weak<Engine>) -> bool {
    engine.strong_count() > 0
}

#[test]
fn who_waits_for_an_answer_completes_what_lands() {
    for has_background in [false, true] {
        for lands_before in [true, false] {
            let Some(world) = WaiterWorld::new() else { return };
            let background = has_background.then(|| world.start_background());
            let file = &world.files[0];
            let [first, second] = [0, 4].map(|sector| Polled::write(file, sector));
            // It is not the first that lands.
            let land = || world.device.answer(1, How::Done);
            if lands_before {
                land();
            }
            thread::scope(|scope| {
                let waits = scope.spawn(|| second.wait());
                if !lands_before {
                    (0..1000).for_each(|_| thread::yield_now());
                    assert!(!waits.is_finished());
                    land();
                }
                waits.join().expect("DIRECT-15");
            });
            assert!(second.is_answered() && !first.is_answered(), "DIRECT-15");
            world.device.answer(0, How::Failed);
            first.wait();
            let outcome = &first.answer.get().expect("DIRECT-15").outcome;
            assert_eq!(outcome.as_ref().map_err(creamery_base::Error::kind), Err(ErrorKind::Io));
            drop(background);
        }
    }
}

/// Requests that ask no device are answered, too.
#[test]
fn who_polls_is_woken_by_what_lands_where_nobody_is_in_the_background() {
    let Some(world) = WaiterWorld::new() else { return };
    let [here, elsewhere] = [0, 1].map(|file| Polled::write(&world.files[file], 0));
    let another = Polled::write(&world.files[0], 4);
    assert!(!here.poll() && !here.poll() && !elsewhere.poll() && !another.poll());
    assert_eq!((here.woken(), another.woken(), elsewhere.woken()), (0, 0, 0));
    world.device.answer(2, How::Done);
    assert_eq!((here.woken(), another.woken(), elsewhere.woken()), (1, 1, 0), "DIRECT-15: those of the file");
    assert!(!elsewhere.poll() && !another.is_answered(), "DIRECT-14: what is elsewhere is left to others");
    assert!(!here.poll() && another.is_answered(), "DIRECT-15: whoever of them polls completes it");
    // A poller that went is not woken, and one that was woken is not woken again before it polls.
    let Polled { answer, waiter, woken } = here;
    drop(waiter);
    world.device.answer(0, How::Done);
    assert_eq!((woken.0.load(Ordering::SeqCst), another.woken()), (1, 1));
    assert!(answer.get().is_none() && another.poll() && answer.get().is_some());
    world.device.answer(0, How::Done);
    assert!(elsewhere.woken() == 1 && elsewhere.poll());
    let through_memory = DirectRequest::Read { offset: 1, buffer: AlignedBuffer::zeroed(100) };
    let read = Polled::submit(&world.files[0], through_memory);
    assert!(!read.is_answered() && read.poll(), "it has landed before anybody polls");
    assert!(read.answer.get().expect("DIRECT-2").buffer.iter().all(|byte| *byte == MARKED));
}

#[test]
fn who_polls_is_woken_when_the_background_ends() {
    for lands_before in [true, false] {
        let Some(world) = WaiterWorld::new() else { return };
        let background = world.start_background();
        let polled = Polled::write(&world.files[0], 0);
        assert!(!polled.poll() && polled.woken() == 0);
        background.stop().expect("no step is stuck");
        assert_eq!(polled.woken(), 1, "DIRECT-15");
        if lands_before {
            world.device.answer(0, How::Done);
            assert!(polled.poll());
        } else {
            assert!(!polled.poll());
            world.device.answer(0, How::Done);
            assert_eq!(polled.woken(), 2, "DIRECT-15");
            assert!(polled.poll());
        }
    }
}

/// With background threads a poll completes nothing, and only the answer wakes the poller.
#[test]
fn who_polls_completes_nothing_beside_a_background() {
    let Some(world) = WaiterWorld::new() else { return };
    let background = world.start_background();
    let polled = Polled::write(&world.files[0], 0);
    polled.poll();
    world.device.answer(0, How::Done);
    polled.wait();
    assert_eq!(polled.woken(), 0);
    background.stop().expect("no step is stuck");
}

/// A thread waits while the last user goes.
#[test]
fn who_waits_keeps_no_filesystem_and_gets_an_answer() {
    for landed in [false, true] {
        let Some(WaiterWorld { fs, device, files }) = WaiterWorld::new() else { return };
        let engine = Arc::downgrade(fs.engine());
        let polled = Polled::write(&files[0], 0);
        assert!(!polled.poll());
        if landed {
            device.answer(0, How::Done);
        }
        drop((fs, files));
        assert!(!is_alive(&engine), "DIRECT-11");
        thread::scope(|scope| {
            let waits = scope.spawn(|| polled.wait());
            if !landed {
                (0..1000).for_each(|_| thread::yield_now());
                assert!(!waits.is_finished(), "the device has the buffer");
                device.answer(0, How::Done);
            }
            waits.join().expect("DIRECT-15");
        });
        let outcome = &polled.answer.get().expect("DIRECT-2").outcome;
        assert_eq!(outcome.as_ref().map_err(creamery_base::Error::kind), Err(ErrorKind::Stale));
    }
}
