//! Batches: the outcome of each copy, reported once, whenever and wherever the devices answer; and reads of stripes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use creamery_base::{ErrorKind, Logical, Result, Wait};
use creamery_device::{AlignedBuffer, BlockDevice, Completion, DeviceId, MemoryDevice, Parts, Request};
use creamery_format::BlockGroupFlags;
use creamery_volume::{Chunk, Mode, Verdict, Volume, WriteBatch, WriteReport};

use crate::faulty::{self, Event};
use crate::images::*;

const KIB: u64 = 1024;
const MIB: u64 = 1 << 20;

/// A device that keeps requests until the test makes it answer.
struct Late {
    below: Arc<MemoryDevice>,
    keeps: AtomicBool,
    kept: Mutex<Vec<(Request, Completion)>>,
}

impl Late {
    fn on(below: &Arc<MemoryDevice>) -> Arc<Self> {
        let (keeps, kept) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { below: Arc::clone(below), keeps, kept })
    }

    fn take(&self) -> Vec<(Request, Completion)> {
        std::mem::take(&mut self.kept.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn answer(&self, (request, done): (Request, Completion)) {
        self.below.submit(request, done);
    }
}

impl BlockDevice for Late {
    fn submit(&self, request: Request, done: Completion) {
        if self.keeps.load(Ordering::Relaxed) {
            self.kept.lock().unwrap().push((request, done));
        } else {
            self.below.submit(request, done);
        }
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

fn open(devices: Vec<Arc<dyn BlockDevice>>) -> Volume {
    let volume = Volume::open(devices, Mode::ReadWrite).unwrap();
    push_all_chunks(&volume);
    volume
}

/// A volume with two copies of data on a device that keeps requests.
fn late() -> Option<(Arc<Late>, Volume, Arc<Chunk>)> {
    let device = Late::on(&btrfs(&["-m", "dup", "-d", "dup"])?);
    let volume = open(vec![Arc::clone(&device) as Arc<dyn BlockDevice>]);
    let chunk = chunk_of(&volume, BlockGroupFlags::DATA);
    device.keeps.store(true, Ordering::Relaxed);
    Some((device, volume, chunk))
}

/// Replaces the volume's two copies of data by two columns of stripes.
fn striped(volume: &Volume, copies: &Chunk) -> Arc<Chunk> {
    volume.remove_chunk(copies.start);
    let flags = BlockGroupFlags::DATA | BlockGroupFlags::RAID0;
    let len = copies.len * 2;
    let start = Logical::new(1 << 40);
    let chunk = Chunk::new(start, len, flags, volume.sector_size(), copies.stripes.clone());
    volume.push_chunk(chunk).unwrap();
    volume.chunk_at(start).unwrap()
}

/// Waits until the device keeps `count` requests.
fn kept(device: &Late, count: usize) -> Vec<(Request, Completion)> {
    while device.kept.lock().unwrap().len() < count {
        std::thread::yield_now();
    }
    device.take()
}

/// Bytes that differ from sector to sector.
fn sectors(count: usize) -> Vec<u8> {
    (0..count).flat_map(|number| vec![u8::try_from(number % 251).unwrap(); 4096]).collect()
}

/// The bytes in buffers of `step`.
fn parts(bytes: &[u8], step: usize) -> Parts {
    bytes.chunks(step).map(AlignedBuffer::from_slice).collect()
}

fn submitted(volume: &Volume, batch: WriteBatch) -> Receiver<Result<WriteReport>> {
    let (send, receive) = channel();
    volume.submit_write(batch, Wait::Yes, Box::new(move |outcome| send.send(outcome).unwrap()));
    receive
}

#[test]
fn the_completion_runs_once_when_the_last_of_the_requests_has_answered_out_of_order_and_elsewhere() {
    let Some((device, volume, chunk)) = late() else { return };
    let bytes = sectors(8);
    let mut batch = WriteBatch::default();
    batch.add_data(chunk.start + MIB, parts(&bytes[16384..], 4096));
    batch.add_data(chunk.start, parts(&bytes[..16384], 16384));
    let told = submitted(&volume, batch);
    let mut kept = device.take();
    assert_eq!(kept.len(), 4, "all are under way at once");
    while let Some(request) = kept.pop() {
        assert!(told.try_recv().is_err(), "{} have not answered", kept.len() + 1);
        std::thread::scope(|scope| scope.spawn(|| device.answer(request)).join().unwrap());
    }
    let report = told.try_recv().expect("the last answer completes it").unwrap();
    assert!(told.recv().is_err(), "BATCH-4: whoever could tell again is gone");
    assert_eq!((report.ranges(), report.copies(0), report.copies(1)), (2, 2, 2));
    assert!(report.into_written().unwrap().failures().is_empty());
    device.keeps.store(false, Ordering::Relaxed);
    for (at, bytes) in [(chunk.start, &bytes[..16384]), (chunk.start + MIB, &bytes[16384..])] {
        let mut out = vec![0; bytes.len()];
        volume.read_data(at, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).unwrap();
        assert_eq!(out, bytes);
    }
}

#[test]
fn who_waits_is_woken_by_the_last_answer_wherever_it_comes_from() {
    let Some((device, volume, chunk)) = late() else { return };
    let mut batch = WriteBatch::default();
    batch.add_data(chunk.start, parts(&sectors(4), 4096));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| volume.write(batch));
        for request in kept(&device, 2) {
            assert!(!waiting.is_finished());
            device.answer(request);
        }
        assert!(waiting.join().unwrap().unwrap().failures().is_empty());
    });
}

#[test]
fn requests_that_are_dropped_unanswered_have_failed() {
    let Some((device, volume, chunk)) = late() else { return };
    let batch = || {
        let mut batch = WriteBatch::default();
        batch.add_data(chunk.start, parts(&sectors(4), 4096));
        batch
    };
    let told = submitted(&volume, batch());
    let mut kept = device.take();
    drop(kept.remove(1));
    assert!(told.try_recv().is_err(), "one is under way");
    device.answer(kept.remove(0));
    let report = told.try_recv().unwrap().unwrap();
    assert!(report.outcome(0, 0).is_ok() && report.outcome(0, 1).is_err());
    let written = report.into_written().unwrap();
    let missed: Vec<u64> = written.failures().iter().map(|it| it.piece.at.offset).collect();
    assert_eq!(missed, [chunk.stripes[1].offset]);

    let told = submitted(&volume, batch());
    drop(device.take());
    let error = told.try_recv().unwrap().unwrap().into_written().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("dropped unanswered"), "{error}");
}

#[test]
fn a_device_that_panics_leaves_no_request_without_an_answer() {
    struct Panics(Arc<MemoryDevice>, AtomicBool);
    impl BlockDevice for Panics {
        fn submit(&self, request: Request, done: Completion) {
            assert!(!self.1.load(Ordering::Relaxed), "as planned");
            self.0.submit(request, done);
        }
        fn len(&self) -> u64 {
            self.0.len()
        }
        fn id(&self) -> DeviceId {
            self.0.id()
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }
    let Some(device) = btrfs(&["-m", "dup", "-d", "dup"]) else { return };
    let device = Arc::new(Panics(device, AtomicBool::new(false)));
    let volume = open(vec![Arc::clone(&device) as Arc<dyn BlockDevice>]);
    let chunk = chunk_of(&volume, BlockGroupFlags::DATA);
    device.1.store(true, Ordering::Relaxed);
    let mut batch = WriteBatch::default();
    batch.add_data(chunk.start, parts(&sectors(1), 4096));
    let (send, told) = channel();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        volume.submit_write(batch, Wait::Yes, Box::new(move |outcome| send.send(outcome).unwrap()));
    }));
    assert!(panicked.is_err());
    let report = told.try_recv().unwrap().unwrap();
    assert!((0..2).all(|copy| report.outcome(0, copy).is_err()));
}

#[test]
fn the_report_names_each_copy_that_was_missed_and_no_other() {
    let Some(device) = btrfs(&["-m", "dup", "-d", "dup"]) else { return };
    let faulty = faulty::on(&device);
    let volume = open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>]);
    let chunk = chunk_of(&volume, BlockGroupFlags::DATA);
    let places = [0, 1].map(|copy| chunk.stripes[copy].offset);
    // Two neighbours in reverse order, and one apart.
    let froms = [64 * KIB, 0, MIB];
    let mut batch = WriteBatch::default();
    froms.iter().for_each(|&from| batch.add_data(chunk.start + from, parts(&sectors(16), 16384)));
    faulty.take_events();
    faulty.fail_writes(places[0] + MIB..places[0] + MIB + 1);
    faulty.fail_writes(places[1]..places[1] + 1);
    let report = submitted(&volume, batch).try_recv().unwrap().unwrap();
    let requests = [(0, 128 * KIB), (MIB, 64 * KIB)];
    let expected = places.map(|place| requests.map(|(from, len)| Event::Write { offset: place + from, len }));
    assert_eq!(faulty.take_events(), expected.concat());
    let outcome = |range, copy| report.outcome(range, copy).is_ok();
    let outcomes: Vec<[bool; 2]> = (0..3).map(|range| [outcome(range, 0), outcome(range, 1)]).collect();
    assert_eq!(outcomes, [[true, false], [true, false], [false, true]]);
    let written = report.into_written().unwrap();
    let missed: Vec<(u64, u64)> =
        written.failures().iter().map(|it| (it.piece.at.offset, it.piece.len)).collect();
    assert_eq!(missed, [(places[0] + MIB, 64 * KIB), (places[1], 128 * KIB)]);
    assert_eq!(volume.counters().write_failures, 2);
}

#[test]
fn a_batch_that_is_refused_is_told_of_at_once_and_writes_nothing() {
    let Some(device) = btrfs(&["-m", "dup", "-d", "dup"]) else { return };
    let faulty = faulty::on(&device);
    let volume = open(vec![Arc::clone(&faulty) as Arc<dyn BlockDevice>]);
    let chunk = chunk_of(&volume, BlockGroupFlags::DATA);
    faulty.take_events();
    let refused = |places: [Logical; 2]| {
        let mut batch = WriteBatch::default();
        places.iter().for_each(|&at| batch.add_data(at, parts(&sectors(2), 8192)));
        submitted(&volume, batch).try_recv().unwrap().unwrap_err().kind()
    };
    assert_eq!(refused([chunk.start, chunk.end()]), ErrorKind::Corrupt);
    assert_eq!(refused([chunk.start, chunk.start + 4096]), ErrorKind::Corrupt, "BATCH-1");
    assert_eq!(faulty.take_events(), []);
    let empty = submitted(&volume, WriteBatch::default()).try_recv().unwrap().unwrap();
    assert_eq!((empty.ranges(), volume.counters().writes), (0, 0));
}

#[test]
fn stripes_are_written_and_read_with_one_request_for_each_column_all_at_once() {
    let Some((device, volume, copies)) = late() else { return };
    let chunk = striped(&volume, &copies);
    let bytes = sectors(100);
    let from = chunk.start + 4096;
    let mut batch = WriteBatch::default();
    batch.add_data(from, parts(&bytes, 40960));
    let told = submitted(&volume, batch);
    let requests = device.take();
    assert_eq!(requests.len(), 2);
    requests.into_iter().for_each(|request| device.answer(request));
    assert!(told.try_recv().unwrap().unwrap().into_written().unwrap().failures().is_empty());
    let mut out = vec![0; bytes.len()];
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| volume.read_data(from, &mut out, &|_, _| Verdict::Unknown, Wait::Yes));
        // Both are under way, and the last request is answered first.
        kept(&device, 2).into_iter().rev().for_each(|request| device.answer(request));
        reading.join().unwrap().unwrap();
    });
    assert!(out == bytes, "every stripe is where it belongs");
    // Borrowed bytes go the same way.
    device.keeps.store(false, Ordering::Relaxed);
    let before = volume.counters().writes;
    let other: Vec<u8> = bytes.iter().map(|byte| byte ^ 0xff).collect();
    let _written = volume.write_data(from, &other).unwrap();
    assert_eq!(volume.counters().writes - before, 2);
    volume.read_data(from, &mut out, &|_, _| Verdict::Unknown, Wait::Yes).unwrap();
    assert!(out == other);
}
