//! Direct requests in flight while their caller goes on.

mod keeping;
#[path = "../../../examples/many_in_flight.rs"]
mod many_in_flight;
mod nowait_as_linux;

use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use creamery::device::direct::{DirectAt, DirectDone, DirectPart, DirectRequest, Refusal, Started};
use creamery::device::{AlignedBuffer, MemoryDevice};
use creamery::env::Tuning;
use creamery::{ErrorKind, File, Filesystem, Image, OpenOptions, Result};
use creamery_testkit::{Judge, Judges, LoopMount, Random, btrfs_check};

use keeping::{Keeping, MARK, SECTOR};

/// Counts wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(started: &mut Started, woken: &Arc<Woken>) -> Poll<DirectDone> {
    let waker = Waker::from(Arc::clone(woken));
    pin!(started).poll(&mut Context::from_waker(&waker))
}

fn read(offset: u64, len: usize) -> DirectRequest {
    DirectRequest::Read { offset, buffer: AlignedBuffer::zeroed(len) }
}

fn write(offset: u64, data: &[u8]) -> DirectRequest {
    DirectRequest::Write { at: DirectAt::Offset(offset), data: AlignedBuffer::from_slice(data) }
}

/// One marked sector.
fn mark(sector: u64) -> DirectRequest {
    write(sector * SECTOR as u64, &[MARK; SECTOR])
}

/// The answers to a request.
fn answers(file: &File, request: DirectRequest) -> Receiver<DirectDone> {
    let (send, receive) = channel();
    file.submit(request, move |done| drop(send.send(done)));
    receive
}

/// The answer to a request that waits for no device: exactly one.
fn answer(file: &File, request: DirectRequest) -> DirectDone {
    let answers = answers(file, request);
    let done = answers.recv().expect("an answer");
    assert!(answers.recv().is_err(), "no other one");
    done
}

/// The kind of a refusal, by each kind of call; the buffer comes back unchanged.
fn refused(file: &File, request: impl Fn() -> DirectRequest) -> ErrorKind {
    let (DirectRequest::Read { buffer, .. } | DirectRequest::Write { data: buffer, .. }) = request() else {
        unreachable!("there are two sorts")
    };
    let kinds = [answer(file, request()), file.start(request()).wait()].map(|done| {
        assert!(done.buffer[..] == buffer[..], "the buffer comes back");
        done.outcome.expect_err("it is refused").kind()
    });
    assert_eq!(kinds[0], kinds[1]);
    kinds[0]
}

fn without_threads() -> Tuning {
    let mut tuning = Tuning::default();
    tuning.background_threads = Some(0);
    tuning
}

/// A file of eight sectors, 1 in each byte, behind a device that answers marked requests on the test's command.
struct DirectWorld {
    device: Arc<Keeping>,
    fs: Filesystem,
    file: File,
}

impl DirectWorld {
    fn new(tuning: Tuning) -> Result<Self> {
        let memory = Arc::new(MemoryDevice::new(256 << 20));
        Image::make_on(Arc::clone(&memory) as _).run()?;
        let device = Arc::new(Keeping::new(memory));
        let fs = Image::options().write().tuning(tuning).open_device(Arc::clone(&device) as _)?;
        let file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "/file")?;
        file.write_direct(AlignedBuffer::from_slice(&[1; 8 * SECTOR]), 0).1?;
        fs.sync()?;
        Ok(Self { device, fs, file })
    }
}

/// A filesystem opened for reading, without background threads.
fn open_for_reading(device: Arc<Keeping>) -> Result<(Filesystem, File)> {
    let fs = Image::options().open_device(device)?;
    let file = fs.open("/file")?;
    Ok((fs, file))
}

#[test]
fn the_example_of_many_requests_in_flight_works() -> Result<()> {
    many_in_flight::main()
}

/// Each round has 64 requests in flight, in an unknown order: so their places do not overlap.
#[test]
fn sixty_four_reads_and_writes_in_flight_are_what_plain_ones_are() -> Result<()> {
    const PLACES: usize = 64;
    const LEN: usize = 5 * SECTOR;
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    let mut random = Random::new(42);
    let mut model = vec![0; PLACES * LEN];
    for threads in [0, 2] {
        Image::make(&image).size(256 << 20).force().run()?;
        let mut tuning = Tuning::default();
        tuning.background_threads = Some(threads);
        let fs = Image::options().write().tuning(tuning).open(&image)?;
        let file = OpenOptions::new().read(true).write(true).create(true).open(&fs, "/file")?;
        model.fill(0);
        file.set_len(model.len() as u64)?;
        for round in 0..6_u8 {
            let mut started = Vec::new();
            for place in 0..PLACES {
                let (skipped, count) = (random.below(4) as usize, 1 + random.below(2) as usize);
                // Some are not whole sectors.
                let odd = if random.below(8) == 0 { 100 } else { 0 };
                let at = place * LEN + skipped * SECTOR + odd;
                let range = at..(at + count * SECTOR).min((place + 1) * LEN);
                let is_read = random.below(3) == 0;
                let request = if is_read {
                    read(at as u64, range.len())
                } else {
                    model[range.clone()].fill(round * 40 + place as u8 % 40 + 1);
                    write(at as u64, &model[range.clone()])
                };
                started.push((range, file.start(request)));
            }
            for (range, started) in started {
                let DirectDone { buffer, outcome } = started.wait();
                assert_eq!(outcome?, DirectPart { offset: range.start as u64, len: range.len() });
                assert!(buffer[..] == model[range], "threads {threads}, round {round}");
            }
            assert!(fs.read("/file")? == model, "threads {threads}, round {round}");
        }
        let counted = fs.statistics().direct;
        assert_eq!(counted.submitted, 6 * PLACES as u64);
        fs.close()?;
        assert!(Image::open(&image)?.read("/file")? == model);
        judge(&image, &model)?;
    }
    Ok(())
}

/// `btrfs check` finds the image sound, and Linux reads `content` in its file.
fn judge(image: &Path, content: &[u8]) -> Result<()> {
    let judges = [Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];
    assert!(Judges::here().have(&judges) || !Judges::required());
    if Judges::here().have(&judges) {
        btrfs_check(image).expect("sound");
        let mount = LoopMount::mount(image, &image.with_extension("mount"), "ro").expect("Linux takes it");
        assert!(std::fs::read(mount.dir().join("file"))? == content, "Linux reads what was written");
        mount.unmount().expect("no complaint");
    }
    Ok(())
}

/// With and without background threads, the last registered waker is woken with the answer.
#[test]
fn a_waker_takes_the_place_of_the_one_before() -> Result<()> {
    for threads in [0, 1] {
        let mut tuning = Tuning::default();
        tuning.background_threads = Some(threads);
        let DirectWorld { device, fs, file } = DirectWorld::new(tuning)?;
        let wakers: [Arc<Woken>; 3] = Default::default();
        let mut started = file.start(mark(0));
        for woken in &wakers {
            assert!(poll(&mut started, woken).is_pending());
        }
        device.answer();
        while wakers[2].times() == 0 {
            thread::yield_now();
        }
        assert_eq!((wakers[0].times(), wakers[1].times()), (0, 0), "nobody else is woken");
        let Poll::Ready(done) = poll(&mut started, &wakers[2]) else { panic!("it was woken for the answer") };
        assert_eq!(done.outcome?.len, SECTOR);
        drop((started, file));
        assert!(wakers.iter().all(|woken| Arc::strong_count(woken) == 1), "no waker is kept");
        fs.close()?;
    }
    Ok(())
}

#[test]
#[should_panic(expected = "was taken before")]
fn an_answer_is_given_once() {
    let DirectWorld { file, .. } = DirectWorld::new(Tuning::default()).expect("a filesystem");
    let mut started = file.start(read(0, 0));
    assert!(poll(&mut started, &Arc::default()).is_ready(), "there is nothing to wait for");
    let _ = poll(&mut started, &Arc::default());
}

#[test]
fn a_request_whose_future_is_dropped_goes_on() -> Result<()> {
    for is_polled in [false, true] {
        let DirectWorld { device, fs, file } = DirectWorld::new(without_threads())?;
        let (mut started, woken) = (file.start(mark(2)), Arc::default());
        if is_polled {
            assert!(poll(&mut started, &woken).is_pending());
        }
        drop(started);
        assert_eq!((Arc::strong_count(&woken), device.kept()), (1, 1), "nobody is to be woken any more");
        device.answer();
        let content = fs.read("/file")?;
        assert!(content[2 * SECTOR..3 * SECTOR] == [MARK; SECTOR], "it is written all the same");
        fs.close()?;
    }
    Ok(())
}

#[test]
fn who_waits_needs_nobody_in_the_background() -> Result<()> {
    let DirectWorld { device, fs, file } = DirectWorld::new(without_threads())?;
    let started: Vec<_> = (0..4).map(|sector| file.start(mark(2 * sector))).collect();
    assert_eq!(device.kept(), 4);
    thread::scope(|scope| -> Result<()> {
        let waits = scope.spawn(|| started.into_iter().try_for_each(|one| one.wait().outcome.map(drop)));
        (0..4).for_each(|_| device.answer());
        waits.join().expect("it ends well")
    })?;
    device.keep_reads();
    let reads: Vec<_> = (0..4).map(|sector| file.start(read(2 * sector * SECTOR as u64, SECTOR))).collect();
    (0..4).for_each(|_| device.answer());
    for started in reads {
        let DirectDone { buffer, outcome } = started.wait();
        assert!(outcome?.len == SECTOR && buffer[..] == [MARK; SECTOR]);
    }
    fs.close()
}

#[test]
fn a_filesystem_that_is_closed_answers_before() -> Result<()> {
    for threads in [0, 1] {
        let mut tuning = Tuning::default();
        tuning.background_threads = Some(threads);
        let DirectWorld { device, fs, file } = DirectWorld::new(tuning)?;
        let (submitted, mut started) = (answers(&file, mark(0)), file.start(mark(2)));
        let woken = Arc::default();
        assert!(poll(&mut started, &woken).is_pending());
        thread::scope(|scope| {
            let closing = scope.spawn(|| fs.close());
            (0..1000).for_each(|_| thread::yield_now());
            assert!(!closing.is_finished(), "it waits for the device");
            (0..2).for_each(|_| device.answer());
            closing.join().expect("it ends well")
        })?;
        assert_eq!(submitted.try_recv().expect("it was answered before").outcome?.len, SECTOR);
        assert!(woken.times() > 0, "the task that awaits it is woken");
        let Poll::Ready(done) = poll(&mut started, &woken) else { panic!("it was answered before") };
        assert_eq!(done.outcome?.len, SECTOR);
        assert_eq!(refused(&file, || mark(4)), refused(&file, || read(0, SECTOR)), "it is closed");
        assert_eq!(device.kept(), 0);
        drop((started, file));
        let (fs, _) = open_for_reading(device)?;
        assert!(fs.read("/file")?[2 * SECTOR..3 * SECTOR] == [MARK; SECTOR], "it is durable");
    }
    Ok(())
}

#[test]
fn a_filesystem_that_is_opened_for_reading_reads_and_refuses_writes() -> Result<()> {
    let DirectWorld { device, fs, file } = DirectWorld::new(Tuning::default())?;
    let marked = file.start(mark(1));
    device.answer();
    marked.wait().outcome?;
    drop(file);
    fs.close()?;
    let (_fs, file) = open_for_reading(Arc::clone(&device))?;
    assert_eq!(refused(&file, || mark(0)), ErrorKind::PermissionDenied);
    device.keep_reads();
    let at = SECTOR as u64;
    let (mut first, second) = (file.start(read(at, SECTOR)), file.start(read(at, 2 * SECTOR)));
    let woken = Arc::default();
    assert!(poll(&mut first, &woken).is_pending() && woken.times() == 0);
    (0..2).for_each(|_| device.answer());
    assert!(woken.times() > 0, "what has landed is to be polled");
    let Poll::Ready(done) = poll(&mut first, &woken) else { panic!("nobody else completes it") };
    assert!(done.outcome?.len == SECTOR && done.buffer[..] == [MARK; SECTOR]);
    let done = second.wait();
    assert!(done.outcome?.len == 2 * SECTOR && done.buffer[SECTOR..] == [1; SECTOR]);
    Ok(())
}

/// No thread waits for the request, or polls for it.
#[test]
fn threads_that_were_asked_for_complete_reads_where_nothing_is_written() -> Result<()> {
    let DirectWorld { device, fs, file } = DirectWorld::new(Tuning::default())?;
    drop(file);
    fs.close()?;
    let mut tuning = Tuning::default();
    tuning.background_threads = Some(1);
    let fs = Image::options().tuning(tuning).open_device(device)?;
    let done = answer(&fs.open("/file")?, read(0, 2 * SECTOR));
    assert!(done.outcome?.len == 2 * SECTOR && done.buffer[..] == [1; 2 * SECTOR]);
    fs.close()
}

#[test]
fn what_an_open_file_may_not_do_is_refused_with_the_buffer() -> Result<()> {
    let DirectWorld { fs, .. } = DirectWorld::new(Tuning::default())?;
    let reads = fs.open("/file")?;
    assert_eq!(refused(&reads, || write(0, &[2; SECTOR])), ErrorKind::PermissionDenied);
    let writes = OpenOptions::new().write(true).open(&fs, "/file")?;
    assert_eq!(refused(&writes, || read(0, SECTOR)), ErrorKind::PermissionDenied);
    assert_eq!(refused(&reads, || read(1 << 63, SECTOR)), ErrorKind::InvalidInput);
    for offset in [1 << 63, i64::MAX as u64, u64::MAX - 4095] {
        let request = || write(offset, &[2; SECTOR]);
        let blocking = writes.write_direct(AlignedBuffer::from_slice(&[2; SECTOR]), offset).1;
        assert_eq!(refused(&writes, request), blocking.expect_err("no file is so long").kind());
    }
    assert!(fs.read("/file")? == [1; 8 * SECTOR], "nothing was written");
    fs.close()
}

#[test]
fn any_length_anywhere_is_answered_as_by_a_call_that_waits() -> Result<()> {
    let DirectWorld { fs, file, .. } = DirectWorld::new(Tuning::default())?;
    let end = 8 * SECTOR as u64;
    for (offset, len) in
        [(0, 0), (end, 0), (end, SECTOR), (end - 5, SECTOR), (3, 7), (u64::from(u32::MAX), 9)]
    {
        let (_, waited) = file.read_direct(AlignedBuffer::zeroed(len), offset);
        let outcome = file.start(read(offset, len)).wait().outcome?;
        assert_eq!(outcome, DirectPart { offset, len: waited? }, "{offset} {len}");
    }
    assert_eq!(file.start(write(7, &[])).wait().outcome?, DirectPart { offset: 7, len: 0 });
    assert_eq!(answer(&file, write(10, &[2; 100])).outcome?, DirectPart { offset: 10, len: 100 });
    let append = DirectRequest::Write { at: DirectAt::End, data: AlignedBuffer::from_slice(&[3; 10]) };
    assert_eq!(file.start(append).wait().outcome?, DirectPart { offset: end, len: 10 });
    let content = fs.read("/file")?;
    assert!(content[10..110] == [2; 100] && content[8 * SECTOR..] == [3; 10] && content[110] == 1);
    fs.close()
}

#[test]
fn what_a_device_fails_is_in_the_answer_and_nowhere_else() -> Result<()> {
    let DirectWorld { device, fs, file } = DirectWorld::new(without_threads())?;
    let (failed, good, submitted) = (file.start(mark(0)), file.start(mark(2)), answers(&file, mark(4)));
    device.fail();
    device.answer();
    device.fail();
    let DirectDone { buffer, outcome } = failed.wait();
    assert!(outcome.is_err_and(|error| error.kind() == ErrorKind::Io) && buffer[..] == [MARK; SECTOR]);
    assert_eq!(good.wait().outcome?.len, SECTOR);
    file.sync_all()?;
    let done = submitted.try_recv().expect("whoever syncs has it ended");
    assert!(done.outcome.is_err_and(|error| error.kind() == ErrorKind::Io));
    let content = fs.read("/file")?;
    assert!([0, 4].iter().all(|sector| content[sector * SECTOR] == 1) && content[2 * SECTOR] == MARK);
    device.keep_reads();
    let reads = file.start(read(2 * SECTOR as u64, SECTOR));
    thread::scope(|scope| {
        let waits = scope.spawn(|| reads.wait());
        // There is no other copy, but the read is repeated.
        while !waits.is_finished() {
            if device.kept() > 0 {
                device.fail();
            }
            thread::yield_now();
        }
        let done = waits.join().expect("it ends well");
        assert!(
            done.outcome.is_err() && done.buffer[..] == [0; SECTOR],
            "the buffer has nothing of the file"
        );
    });
    assert!(fs.statistics().aborted.is_none());
    fs.close()
}

#[test]
fn who_starts_more_than_may_be_in_flight_waits() -> Result<()> {
    let mut tuning = without_threads();
    tuning.direct_bytes = 2 * SECTOR as u64;
    let DirectWorld { device, fs, file } = DirectWorld::new(tuning)?;
    let first: Vec<_> = [0, 2].into_iter().map(|sector| file.start(mark(sector))).collect();
    thread::scope(|scope| -> Result<()> {
        let starts = scope.spawn(|| file.start(mark(4)));
        (0..1000).for_each(|_| thread::yield_now());
        assert!(!starts.is_finished() && device.kept() == 2, "there is room for two sectors");
        device.answer();
        let third = starts.join().expect("it ends well");
        (0..2).for_each(|_| device.answer());
        first.into_iter().chain([third]).try_for_each(|started| started.wait().outcome.map(drop))
    })?;
    fs.close()
}

/// The filesystem has no threads then, and its last user is the file.
#[test]
fn a_filesystem_that_is_dropped_answers_while_a_file_of_it_is_open() -> Result<()> {
    let DirectWorld { device, fs, file } = DirectWorld::new(Tuning::default())?;
    let (mut started, woken) = (file.start(mark(0)), Arc::default());
    assert!(poll(&mut started, &woken).is_pending());
    drop(fs);
    let before = woken.times();
    assert!(before > 0, "who awaits it has to complete it now");
    assert!(poll(&mut started, &woken).is_pending());
    device.answer();
    assert!(woken.times() > before);
    let Poll::Ready(done) = poll(&mut started, &woken) else { panic!("it has landed") };
    assert_eq!(done.outcome?.len, SECTOR);
    let late = file.start(mark(2));
    drop(file);
    device.answer();
    assert_eq!(late.wait().outcome.expect_err("nobody has the filesystem any more").kind(), ErrorKind::Stale);
    assert_eq!(Arc::strong_count(&device), 1, "nor its device");
    Ok(())
}

/// A file of an image on the host, and one on a device that does not report its space.
#[test]
fn who_must_not_wait_begins_before_anything_was_written_and_not_where_a_device_works_on_its_own_thread()
-> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let fs = Image::options().write().nodatacow().open(&image)?;
    fs.write("/file", vec![7; 1 << 20])?;
    fs.close()?;
    let fs = Image::options().write().open(&image)?;
    let file = OpenOptions::new().read(true).write(true).open(&fs, "/file")?;
    file.read_exact_at(&mut [0; 9], 4096)?;
    let (send, answers) = channel();
    let tried = file.try_submit(read(4096, SECTOR), move |done| drop(send.send(done)));
    assert!(tried.is_ok(), "all that it needs is in memory: {tried:?}");
    let done = answers.recv().expect("an answer");
    assert!(done.outcome?.len == SECTOR && done.buffer[..] == [7; SECTOR]);
    let refused = file.try_submit(write(4096, &[8; SECTOR]), |_| ()).expect_err("nothing was written before");
    assert_eq!(refused.why, Refusal::DeviceBusy);
    assert!(file.start(refused.request).wait().outcome?.len == SECTOR);
    let (send, answers) = channel();
    let tried = file.try_submit(write(8192, &[9; SECTOR]), move |done| drop(send.send(done)));
    assert!(tried.is_ok(), "it goes in place: {tried:?}");
    assert_eq!(answers.recv().expect("an answer").outcome?.len, SECTOR);
    let nowait = fs.statistics().nowait;
    assert_eq!((nowait.attempts, nowait.begun, nowait.device_busy, nowait.blocked), (3, 2, 1, 0));
    drop(file);
    fs.close()?;
    let mut content = vec![7; 1 << 20];
    content[4096..8192].fill(8);
    content[8192..12288].fill(9);
    judge(&image, &content)?;
    let DirectWorld { fs, file, .. } = DirectWorld::new(without_threads())?;
    let refused = file.try_submit(read(0, SECTOR), |_| ()).expect_err("the device says nothing of its room");
    assert_eq!(refused.why, Refusal::DeviceBusy);
    drop(file);
    fs.close()
}

/// Answered data is in the image by then: a copy of the image, as after a power cut, has all of it, for Linux, too.
#[test]
fn a_write_that_was_answered_as_durable_survives_for_linux() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let [image, left] = ["disk.img", "left.img"].map(|name| dir.path().join(name));
    Image::make(&image).size(256 << 20).run()?;
    let fs = Image::options().write().nodatacow().open(&image)?;
    fs.write("/file", vec![7; 1 << 20])?;
    fs.sync()?;
    let file = OpenOptions::new().read(true).write(true).open(&fs, "/file")?;
    let durably =
        |at, byte| DirectRequest::WriteDurably { at, data: AlignedBuffer::from_slice(&[byte; SECTOR]) };
    let before = fs.statistics().direct.times_later;
    assert_eq!(file.start(durably(DirectAt::Offset(4096), 8)).wait().outcome?.len, SECTOR);
    assert_eq!(fs.statistics().direct.times_later, before + 1, "it changes no tree but by its sync");
    assert_eq!(file.start(durably(DirectAt::End, 9)).wait().outcome?.offset, 1 << 20);
    std::fs::copy(&image, &left)?;
    let mut content = vec![7; (1 << 20) + SECTOR];
    content[4096..8192].fill(8);
    content[1 << 20..].fill(9);
    let judges = [Judge::Root, Judge::BtrfsProgs, Judge::KernelBtrfs, Judge::LoopDevices];
    assert!(Judges::here().have(&judges) || !Judges::required());
    if Judges::here().have(&judges) {
        // Linux replays the log.
        let mount = LoopMount::mount(&left, &dir.path().join("mount"), "rw").expect("Linux takes it");
        assert!(std::fs::read(mount.dir().join("file"))? == content, "Linux reads what was written");
        mount.unmount().expect("no complaint");
        btrfs_check(&left).expect("no error");
    }
    drop(file);
    fs.close()?;
    judge(&image, &content)
}

#[test]
fn what_is_compressed_is_unpacked_by_a_thread_that_may_wait() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let fs = Image::options().write().compress(Some("zstd".parse()?)).open(&image)?;
    fs.write("/file", vec![7; 1 << 20])?;
    fs.sync()?;
    let file = fs.open("/file")?;
    file.read_exact_at(&mut [0; 9], 4096)?;
    let refused = file.try_submit(read(4096, SECTOR), |_| ()).expect_err("it takes long");
    assert_eq!(refused.why, Refusal::Compressed);
    let done = file.start(refused.request).wait();
    assert!(done.outcome?.len == SECTOR && done.buffer[..] == [7; SECTOR]);
    Ok(())
}
