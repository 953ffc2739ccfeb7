//! Direct reads without a waiting caller.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use creamery_base::{ErrorKind, Wait};
use creamery_device::{AlignedBuffer, BlockDevice};
use creamery_txn::{Engine, Reclaimer};

use super::answering::{Answering, How, MARKED};
use super::flight::assert_all_is_back;
use super::reads::{Passing, copies};
use super::{IN_PLACE, MIB, content, direct, open_named, put, queued, sectors};
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectDone, DirectPart, DirectRequest};
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::inode::{Inode, InodeFlags};
use crate::open_file::OpenFile;
use crate::options::FsOptions;

/// Submits a read of so many bytes into a buffer of other bytes; returns the channel of the answer.
fn submit(file: &OpenFile, offset: u64, len: u64) -> Receiver<DirectDone> {
    let (send, receive) = channel();
    let mut buffer = AlignedBuffer::zeroed(usize::try_from(len).expect("small"));
    buffer.fill(0xaa);
    let request = DirectRequest::Read { offset, buffer };
    file.submit_direct(request, Box::new(move |done| drop(send.send(done))));
    receive
}

/// The answer to a read, after landed requests are completed.
fn answered(file: &OpenFile, answer: &Receiver<DirectDone>) -> DirectDone {
    while file.inode().context().in_flight().help() {}
    let done = answer.try_recv().expect("DIRECT-2");
    assert!(answer.recv().is_err(), "DIRECT-2: once");
    done
}

/// Reads directly, and compares the bytes with those of a buffered read.
fn check(file: &OpenFile, offset: u64, len: u64, what: &str) {
    let DirectDone { buffer, outcome } = answered(file, &submit(file, offset, len));
    let mut wanted = vec![0xaa; buffer.len()];
    let read = file.read_at(offset, &mut wanted, Wait::Yes).expect("a read");
    let part = outcome.unwrap_or_else(|error| panic!("{what}: {len} bytes at {offset}: {error}"));
    assert_eq!((part, buffer.len() as u64), (DirectPart { offset, len: read }, len), "{what}");
    assert!(buffer[..read] == wanted[..read], "{what}: {len} bytes at {offset}");
}

/// Holes, prealloc, delayed data, and data that is compressed, inline, or ends within a sector.
#[test]
fn a_read_that_nobody_waits_for_gets_what_the_file_has() {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let file = open_named(&fixture, "f0", flags);
        let reads = |what: &str| {
            let size = file.stat(Wait::Yes).expect("it lives").size;
            for at in
                [0, SECTOR, 3 * SECTOR, 7 * SECTOR, 10, SECTOR + 1, size, size + SECTOR, u64::MAX - SECTOR]
            {
                for len in [0, SECTOR, 2 * SECTOR, 3, 32 * SECTOR, 5000] {
                    check(&file, at, len, what);
                }
            }
        };
        reads("an empty file");
        file.write_at(0, b"small").expect("room");
        reads("in memory");
        file.inode().flush().expect("room");
        reads("in the tree itself");
        direct(&file, 3 * SECTOR, &sectors(2, 2));
        reads("behind a hole");
        file.fallocate(Fallocate::Allocate { keep_size: false }, 6 * SECTOR, SECTOR).expect("room");
        direct(&file, 8 * SECTOR, &sectors(8, 3));
        reads("prealloc");
        file.write_at(4 * SECTOR + 100, &[4; 50]).expect("room");
        reads("beside delayed data");
        file.write_at(16 * SECTOR, &[5; 1000]).expect("room");
        reads("while the file grows");
        file.inode().flush().expect("room");
        reads("with an end within a sector");
        file.write_at(20 * SECTOR, &[6; 1000]).expect("room");
        reads("while the file grows over such an end");
        assert_eq!(file.inode().context().in_flight().len(), 0);
        assert!(file.inode().try_lock_exclusive().expect("it lives").is_some(), "DIRECT-1");
    }
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let compress = Some(crate::Compress { method: "zstd".parse().expect("one of three"), force: true });
    let options = FsOptions { compress, delayed_bytes: 64 * MIB, ..queued() };
    let file = opened(Arc::new(new_file_with(&fixture, 300, InodeFlags::empty(), &options)));
    file.write_at(0, &sectors(32, 1)).expect("room");
    file.inode().flush().expect("room");
    direct(&file, 32 * SECTOR, &sectors(2, 2));
    assert!(items(file.inode()).contains('z'));
    check(&file, 0, 40 * SECTOR, "compressed");
    check(&file, 30 * SECTOR, 3 * SECTOR, "the end of what is compressed");
}

type SubmittedReadFixture = (Arc<Engine>, Arc<Answering>, Arc<Inode>, OpenFile);

/// A file of eight marked sectors in two extents, behind a device that answers when the test calls `answer`.
fn on_answering(flags: InodeFlags) -> Option<SubmittedReadFixture> {
    let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
    let inode = Arc::new(new_delayed_file(&engine, 300, flags, 64 * MIB));
    let file = opened(Arc::clone(&inode));
    for half in 0..2 {
        let data = AlignedBuffer::from_slice(&sectors(4, MARKED + half));
        let at = DirectAt::Offset(u64::from(half) * 4 * SECTOR);
        file.submit_direct(DirectRequest::Write { at, data }, Box::new(|_| ()));
        device.answer(0, How::Done);
        assert!(inode.context().in_flight().help());
    }
    // A gap between the two makes them two extents.
    file.fallocate(Fallocate::PunchHole, 4 * SECTOR, SECTOR).expect("room");
    engine.commit().expect("a commit");
    device.keep_reads(true);
    Some((engine, device, inode, file))
}

/// The content of the file.
fn wanted() -> Vec<u8> {
    [sectors(4, MARKED), sectors(1, 0), sectors(3, MARKED + 1)].concat()
}

/// After a failure a thread asks the device once more, and then gets the content of the file.
#[test]
fn a_read_is_answered_once_whatever_the_device_does() {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        for (len, requests) in [(2, 1), (8, 2)] {
            for failing in [None, Some(How::Failed), Some(How::Dropped), Some(How::Short)] {
                let Some((_engine, device, inode, file)) = on_answering(flags) else { return };
                let in_flight = inode.context().in_flight();
                let answer = submit(&file, 0, len * SECTOR);
                assert_eq!((answer.try_recv().err(), device.kept()), (Some(TryRecvError::Empty), requests));
                assert_eq!((in_flight.inodes(), in_flight.has_landed()), (vec![inode.id], false));
                // Other threads may read, and none may write.
                assert!(inode.file().lock_range_shared(0, SECTOR, Wait::No).is_ok());
                assert!(inode.try_lock_exclusive().expect("it lives").is_some());
                device.answer(0, failing.unwrap_or(How::Done));
                while device.kept() > 0 {
                    device.answer(device.kept() - 1, How::Done);
                }
                assert_eq!(
                    answer.try_recv().err(),
                    Some(TryRecvError::Empty),
                    "the device completes nothing"
                );
                device.keep_reads(false);
                let DirectDone { buffer, outcome } = answered(&file, &answer);
                let part = outcome.expect("it was bad for a moment");
                assert_eq!((part.offset, part.len as u64), (0, len * SECTOR));
                assert!(buffer[..] == wanted()[..buffer.len()], "{len} {failing:?}");
                assert_eq!(in_flight.len(), 0);
                assert_all_is_back(&inode);
                let counters = inode.context().counters().direct.counters();
                assert_eq!((counters.reads, counters.read_bytes), (1, len * SECTOR));
            }
        }
    }
}

/// A device that has one copy fails for good.
#[test]
fn a_read_that_fails_tells_nothing() {
    let Some((_engine, device, inode, file)) = on_answering(InodeFlags::empty()) else { return };
    let answer = submit(&file, 0, 8 * SECTOR);
    thread::scope(|scope| {
        let helps = scope.spawn(|| {
            while !inode.context().in_flight().help() {
                thread::yield_now();
            }
        });
        while !helps.is_finished() {
            if device.kept() > 0 {
                device.answer(0, How::Failed);
            }
        }
    });
    let DirectDone { buffer, outcome } = answered(&file, &answer);
    outcome.expect_err("the device fails");
    assert!(buffer[..] == sectors(8, 0), "nothing of it is told");
    assert_all_is_back(&inode);
}

#[test]
fn a_rotten_copy_is_mended_by_who_completes_the_read() {
    let Some(fixture) = fixture(Kind("-d dup --nodesize 16384")) else { return };
    let file = open_named(&fixture, "f0", InodeFlags::empty());
    let mut wanted = sectors(3, 0x51);
    put(&mut wanted, SECTOR, &sectors(1, 0x77));
    direct(&file, 0, &wanted);
    drop(file);
    let (engine, device) = fixture.again(Passing);
    let both = copies(&*device, &sectors(1, 0x77));
    assert_eq!(both.len(), 2);
    let file = opened(Arc::new(named_in(&engine, "f0", 0)));
    // A volume without any write so far keeps its repairs in memory.
    set_flags(file.inode(), InodeFlags::NODUMP);
    engine.commit().expect("a commit");
    let read = || answered(&file, &submit(&file, 0, 3 * SECTOR));
    // The first copy that is read is good, or else repaired; the other one is not looked at.
    let mended = both.iter().filter(|copy| {
        device.write_at(**copy, &sectors(1, 0x78)).expect("a write");
        let DirectDone { buffer, outcome } = read();
        outcome.expect("one copy is good");
        assert!(buffer[..] == wanted);
        let is_mended = copies(&*device, &sectors(1, 0x77)) == both;
        device.write_at(**copy, &sectors(1, 0x77)).expect("a write");
        is_mended
    });
    assert!(mended.count() > 0, "what is found rotten is mended");
    for copy in &both {
        device.write_at(*copy, &sectors(1, 0x78)).expect("a write");
    }
    let DirectDone { buffer, outcome } = read();
    assert_eq!(outcome.expect_err("both are rotten").kind(), ErrorKind::Unreadable);
    assert!(buffer[..] == sectors(3, 0), "nothing of it is told");
}

/// There are no background threads. A thread that needs the range waits for the read, and completes it; a thread that needs none of
/// it does not wait.
#[test]
fn who_writes_where_a_read_is_in_flight_completes_it_first() {
    type Waits = fn(&OpenFile);
    let rows: [(&str, Waits); 4] = [
        ("writes", |file| assert_eq!(file.write_at(SECTOR, &[9]).expect("room"), 1)),
        ("writes directly", |file| direct(file, SECTOR, &sectors(1, 9))),
        ("punches", |file| file.fallocate(Fallocate::PunchHole, 0, SECTOR).expect("room")),
        ("close", |file| file.inode().context().in_flight().close()),
    ];
    for (name, waits) in rows {
        for lands_before in [true, false] {
            let Some((engine, device, inode, file)) = on_answering(InodeFlags::empty()) else { return };
            let answer = submit(&file, 0, 2 * SECTOR);
            device.keep_reads(false);
            file.sync().expect("it waits for no read");
            assert_eq!(file.write_at(2 * SECTOR, &[9]).expect("room"), 1, "it is elsewhere");
            let in_flight = inode.context().in_flight();
            assert!(!in_flight.reclaim_step().expect("nothing to do"), "a read keeps no room");
            thread::scope(|scope| {
                if lands_before {
                    device.answer(0, How::Done);
                    assert!(!in_flight.reclaim_step().expect("nothing to do"), "a read keeps no room");
                }
                let waiter = scope.spawn(|| waits(&file));
                if !lands_before {
                    thread::yield_now();
                    assert!(!waiter.is_finished(), "{name}: it waits");
                    device.answer(0, How::Done);
                }
                waiter.join().expect("DIRECT-9");
            });
            let DirectDone { buffer, outcome } = answer.try_recv().expect("DIRECT-9: it was completed first");
            outcome.expect("a read");
            assert!(buffer[..] == sectors(2, MARKED), "{name}: what was there before");
            assert_eq!(in_flight.len(), 0, "{name}");
            drop(content(&file));
            assert!(engine.aborted().is_none());
        }
    }
}

#[test]
fn a_filesystem_that_is_dropped_lets_go_of_its_device_beside_reads() {
    for landed in 0..=2 {
        for how in [How::Done, How::Failed, How::Dropped] {
            let Some((engine, device, inode, file)) = on_answering(InodeFlags::empty()) else { return };
            // One into the caller's buffer, and one that is put together.
            let answers = [(0, 2), (0, 8)].map(|(at, count)| submit(&file, at, count * SECTOR));
            assert_eq!(device.kept(), 3);
            let answer = |number: usize| (0..=number).for_each(|_| device.answer(0, how));
            (0..landed).for_each(answer);
            let lives = Arc::downgrade(&engine);
            drop((engine, inode, file));
            assert!(lives.upgrade().is_none(), "DIRECT-11: {landed} landed");
            if how == How::Done {
                assert_eq!(Arc::strong_count(&device), 1, "DIRECT-11: nobody has the device any more");
            }
            for receive in answers.iter().skip(landed).filter(|_| how == How::Done) {
                assert_eq!(receive.try_recv().err(), Some(TryRecvError::Empty), "the device has it");
            }
            for (number, receive) in answers.into_iter().enumerate() {
                while device.kept() > 0 {
                    device.answer(0, how);
                }
                let DirectDone { buffer, outcome } = receive.recv().expect("DIRECT-2");
                assert_eq!(buffer.len() as u64, [2, 8][number] * SECTOR, "DIRECT-2");
                assert!(buffer.iter().all(|byte| *byte == 0), "nothing is told");
                assert_eq!(outcome.expect_err("nobody completes it").kind(), ErrorKind::Stale);
                assert!(receive.recv().is_err(), "DIRECT-2: once");
            }
        }
    }
}

/// The reads also work on a filesystem that is opened for reading.
#[test]
fn the_background_completes_reads() {
    let Some(mut fixture) = fixture(Kind::DEFAULT) else { return };
    let data: Vec<u8> = (1..=8).flat_map(|byte| sectors(1, byte)).collect();
    direct(&open_named(&fixture, "f0", InodeFlags::empty()), 0, &data);
    fixture.reopen_for_reading();
    let fs = Filesystem::open(Arc::clone(&fixture.engine), queued()).expect("it opens");
    let background = fixture.engine.start_background(1);
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let id = fs.lookup(root, b"f0", Wait::Yes).expect("it is there");
    let file = fs.open_file(id).expect("it is there");
    let answers: Vec<_> = (0..8).map(|sector| submit(&file, sector * SECTOR, SECTOR)).collect();
    for (answer, wanted) in answers.into_iter().zip(1_u8..) {
        let DirectDone { buffer, outcome } = answer.recv().expect("DIRECT-2");
        outcome.expect("a read");
        assert!(buffer[..] == sectors(1, wanted));
    }
    let directory = fs.open_file(root).expect("it opens");
    let refused = submit(&directory, 0, SECTOR).try_recv().expect("DIRECT-2").outcome;
    refused.expect_err("it is no file");
    background.stop().expect("no step is stuck");
    let (attributes, late) = (file.stat(Wait::Yes).expect("it lives"), submit(&file, 0, SECTOR));
    assert_eq!(fs.direct_in_flight(), [attributes.id]);
    fs.shut_down().expect("it closes");
    late.try_recv().expect("DIRECT-3: it was answered before").outcome.expect("a read");
    let refused = submit(&file, 0, SECTOR).try_recv().expect("DIRECT-2").outcome;
    assert_eq!(refused.expect_err("it is closed").kind(), ErrorKind::Stale);
}
