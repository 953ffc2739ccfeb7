//! Direct writes without a waiting caller.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use creamery_base::{ErrorKind, Wait};
use creamery_device::AlignedBuffer;
use creamery_txn::{Engine, Reclaimer};

use super::answering::{Answering, How, MARKED};
use super::flight::assert_all_is_back;
use super::{IN_PLACE, MIB, content, direct, put, queued, sectors};
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectDone, DirectRequest};
use crate::fallocate::Fallocate;
use crate::filesystem::Filesystem;
use crate::in_flight::GivesUp;
use crate::inode::{Inode, InodeFlags};
use crate::names::NewInode;
use crate::open_file::OpenFile;
use crate::options::FsOptions;

/// Submits two sectors at `at`, marked with `byte`; returns the channel of the answer.
fn submit(file: &OpenFile, at: DirectAt, byte: u8) -> Receiver<DirectDone> {
    submit_sectors(file, at, byte, 2)
}

/// Submits a write of `count` sectors.
pub(super) fn submit_sectors(file: &OpenFile, at: DirectAt, byte: u8, count: u64) -> Receiver<DirectDone> {
    let (send, receive) = channel();
    let request = DirectRequest::Write { at, data: AlignedBuffer::from_slice(&sectors(count, byte)) };
    file.submit_direct(request, Box::new(move |done| drop(send.send(done))));
    receive
}

type SubmittedFixture = (Arc<Engine>, Arc<Answering>, Arc<Inode>, OpenFile);

/// A file of eight sectors, 1 in each byte, behind a device that answers when the test calls `answer`.
fn on_answering(flags: InodeFlags) -> Option<SubmittedFixture> {
    let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
    let inode = Arc::new(new_delayed_file(&engine, 300, flags, 64 * MIB));
    let file = opened(Arc::clone(&inode));
    direct(&file, 0, &sectors(8, 1));
    Some((engine, device, inode, file))
}

#[test]
fn a_request_is_answered_once_whatever_the_device_does() {
    let ways = [
        (InodeFlags::empty(), DirectAt::Offset(SECTOR)),
        (InodeFlags::empty(), DirectAt::End),
        (IN_PLACE, DirectAt::Offset(SECTOR)),
        (IN_PLACE, DirectAt::End),
    ];
    for (flags, at) in ways {
        for how in [How::Done, How::Failed, How::Short, How::Dropped] {
            let Some((engine, device, inode, file)) = on_answering(flags) else { return };
            let in_flight = inode.context().in_flight();
            let answer = submit(&file, at, MARKED);
            assert_eq!((answer.try_recv().err(), device.kept()), (Some(TryRecvError::Empty), 1));
            assert_eq!((in_flight.inodes(), in_flight.has_landed()), (vec![inode.id], false));
            device.answer(0, how);
            assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "the device completes nothing");
            assert!(in_flight.help() && !in_flight.help());
            let DirectDone { buffer, outcome } = answer.recv().expect("DIRECT-2");
            assert!(buffer[..] == sectors(2, MARKED), "DIRECT-2: the buffer comes back as it was");
            assert!(answer.recv().is_err(), "DIRECT-2: once");
            assert_eq!(in_flight.len(), 0);
            assert_all_is_back(&inode);
            let mut wanted = sectors(8, 1);
            let offset = if let DirectAt::Offset(offset) = at { offset } else { 8 * SECTOR };
            match how {
                How::Done => {
                    assert_eq!(
                        outcome.map(|part| (part.offset, part.len as u64)).ok(),
                        Some((offset, 2 * SECTOR))
                    );
                    put(&mut wanted, offset, &sectors(2, MARKED));
                }
                // A part of an overwrite in place may be written (WRITE-1).
                How::Short if flags == IN_PLACE && at != DirectAt::End => {
                    put(&mut wanted, offset, &sectors(1, MARKED));
                    assert_eq!(outcome.expect_err("it was short").kind(), ErrorKind::Io);
                }
                _ => assert_eq!(outcome.expect_err("it came to nothing").kind(), ErrorKind::Io),
            }
            let counters = inode.context().counters().direct.counters();
            assert_eq!((counters.submitted, counters.failed), (1, u64::from(how != How::Done)));
            assert!(content(&file) == wanted, "{at:?} {how:?}");
            audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
            file.sync().expect("its errors are its own");
            let used = engine.space().data_used;
            engine.commit().expect("nothing was aborted");
            assert!(engine.space().data_used <= used, "space that nobody got is back");
        }
    }
}

/// A thread that waits for a range completes another thread's request, whose completion panics.
#[test]
fn a_completion_that_panics_aborts_and_unwinds_nobody_who_helps() {
    let Some((engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
    let data = AlignedBuffer::from_slice(&sectors(2, MARKED));
    let request = DirectRequest::Write { at: DirectAt::Offset(0), data };
    file.submit_direct(request, Box::new(|_| panic!("nobody listens")));
    device.answer(0, How::Done);
    assert!(content(&file)[..SECTOR as usize] == sectors(1, MARKED), "who reads has it completed");
    let abort = engine.aborted().expect("it aborts, as in the background");
    assert!(abort.reason.contains("nobody listens"), "{abort:?}");
    assert_eq!(inode.context().in_flight().len(), 0);
    assert!(inode.file().lock_range_shared(0, u64::MAX, Wait::No).is_ok(), "DIRECT-1: the range is back");
}

/// A thread that finds no room completes the landed requests, which gives back the room that they kept.
#[test]
fn who_finds_no_room_has_landed_requests_completed() {
    let Some((engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
    let in_flight = inode.context().in_flight();
    let answer = submit(&file, DirectAt::Offset(0), MARKED);
    device.answer(0, How::Done);
    assert!(engine.delalloc_metadata_bytes() > 0, "room is kept for it");
    assert!(in_flight.reclaim_step().expect("it ends well") && in_flight.wait_for_work());
    inode.write_overwritten_times().expect("room is kept");
    assert_eq!(engine.delalloc_metadata_bytes(), 0);
    assert!(!in_flight.reclaim_step().expect("nothing to do") && !in_flight.has_freed());
    answer.recv().expect("DIRECT-2").outcome.expect("it was written");
}

/// Three pieces, each a request of its own: in place, to new space, in place.
#[test]
fn an_error_in_the_midst_of_a_request_is_its_own_and_none_of_it_is_completed() {
    for failing in 0..3 {
        for how in [How::Failed, How::Dropped] {
            let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new))
            else {
                return;
            };
            let inode = Arc::new(new_delayed_file(&engine, 300, IN_PLACE, 64 * MIB));
            let file = opened(Arc::clone(&inode));
            direct(&file, 0, &sectors(4, 1));
            file.fallocate(Fallocate::PunchHole, SECTOR, SECTOR).expect("room");
            let before = items(&inode);
            let (send, answer) = channel();
            let request = DirectRequest::Write {
                at: DirectAt::Offset(0),
                data: AlignedBuffer::from_slice(&sectors(3, MARKED)),
            };
            file.submit_direct(request, Box::new(move |done| send.send(done).expect("somebody waits")));
            assert_eq!(device.kept(), 3, "one for each piece");
            for number in (0..3).rev() {
                assert!(!inode.context().in_flight().has_landed(), "some are not answered");
                device.answer(number, if number == failing { how } else { How::Done });
            }
            assert!(inode.context().in_flight().help());
            let outcome = answer.recv().expect("DIRECT-2").outcome;
            assert_eq!(outcome.expect_err("a piece of it failed").kind(), ErrorKind::Io);
            assert_all_is_back(&inode);
            assert_eq!(items(&inode), before, "the file has no new extent");
            let mut wanted = [sectors(1, 1), sectors(1, 0), sectors(2, 1)].concat();
            // In the order of their places: the new space is behind the extent that is there.
            for (number, at) in [(0, 0), (1, 2 * SECTOR)] {
                if number != failing {
                    put(&mut wanted, at, &sectors(1, MARKED)); // WRITE-1
                }
            }
            assert!(content(&file) == wanted, "{failing} {how:?}");
            audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
            file.sync().expect("its errors are its own");
        }
    }
}

#[test]
fn requests_of_several_ranges_are_in_flight_at_once_and_complete_in_any_order() {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        let Some((engine, device, inode, file)) = on_answering(flags) else { return };
        let answers =
            [0, 2, 4_u8].map(|at| submit(&file, DirectAt::Offset(u64::from(at) * SECTOR), MARKED + at));
        assert_eq!((device.kept(), inode.context().in_flight().len()), (3, 3));
        assert_eq!(inode.context().in_flight().inodes(), [inode.id], "each file once");
        // A commit and a write elsewhere wait for none of them.
        engine.commit().expect("a commit");
        direct(&file, 6 * SECTOR, &sectors(1, 2));
        for which in [1, 1, 0] {
            device.answer(which, How::Done);
            assert!(inode.context().in_flight().help());
        }
        for answer in answers {
            answer.recv().expect("DIRECT-2").outcome.expect("room");
        }
        let wanted = [(2, MARKED), (2, MARKED + 2), (2, MARKED + 4), (1, 2), (1, 1)];
        assert!(content(&file) == wanted.map(|(count, byte)| sectors(count, byte)).concat());
        assert_all_is_back(&inode);
        audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
    }
}

/// There are no background threads. Each thread waits for something that a request carries, which lands before or after that.
#[test]
fn whoever_waits_for_what_a_request_carries_completes_it() {
    type Waits = fn(&OpenFile);
    let over = DirectAt::Offset(0);
    let rows: [(&str, DirectAt, Waits); 9] = [
        ("alone", over, |file| drop(file.inode().lock_exclusive().expect("it lives"))),
        ("shared", DirectAt::End, |file| drop(file.inode().lock_shared(Wait::Yes).expect("it lives"))),
        ("reads", over, |file| assert_eq!(file.read_at(SECTOR, &mut [0; 9], Wait::Yes).expect("a read"), 9)),
        ("writes", over, |file| assert_eq!(file.write_at(SECTOR, &[9]).expect("room"), 1)),
        ("writes directly", over, |file| direct(file, SECTOR, &sectors(1, 9))),
        ("read-only", over, |file| drop(file.inode().subvolume().close_to_changes())),
        ("snapshot", over, |file| {
            drop(file.inode().subvolume().bar_writes_in_place(GivesUp::Never).expect("it waits"))
        }),
        ("fsync", over, |file| file.sync().expect("room")),
        ("close", over, |file| file.inode().context().in_flight().close()),
    ];
    for (name, at, waits) in rows {
        for lands_before in [true, false] {
            let Some((_engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
            let answer = submit(&file, at, MARKED);
            thread::scope(|scope| {
                if lands_before {
                    device.answer(0, How::Done);
                }
                let waiter = scope.spawn(|| waits(&file));
                if !lands_before {
                    thread::yield_now();
                    assert!(!waiter.is_finished(), "{name}: it waits");
                    device.answer(0, How::Done);
                }
                waiter.join().expect("DIRECT-9");
            });
            answer.try_recv().expect("DIRECT-9: it was completed first").outcome.expect("room");
            assert_eq!(inode.context().in_flight().len(), 0, "{name}");
        }
    }
}

/// A request to another file has landed. A thread that waits for a request to this file does not complete the other one.
#[test]
fn who_waits_completes_nothing_of_other_files() {
    type Waits = fn(&OpenFile);
    let rows: [(&str, Waits); 3] = [
        ("reads", |file| assert_eq!(file.read_at(SECTOR, &mut [0; 9], Wait::Yes).expect("a read"), 9)),
        ("alone", |file| drop(file.inode().lock_exclusive().expect("it lives"))),
        ("fsync", |file| file.sync().expect("room")),
    ];
    for (name, waits) in rows {
        for lands_before in [true, false] {
            let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new))
            else {
                return;
            };
            let fs = Filesystem::open(engine, queued()).expect("it opens");
            let root = fs.root(fs.default_subvolume()).expect("a root");
            let [file, other] = [b"file", b"late"].map(|name| {
                let (_, file) = fs.create_open(root, name, &NewInode::file(0o644)).expect("room");
                direct(&file, 0, &sectors(8, 1));
                file
            });
            let [here, elsewhere] = [&file, &other].map(|file| submit(file, DirectAt::Offset(0), MARKED));
            device.answer(1, How::Done);
            if lands_before {
                device.answer(0, How::Done);
            }
            thread::scope(|scope| {
                let waiter = scope.spawn(|| waits(&file));
                if !lands_before {
                    (0..1000).for_each(|_| thread::yield_now());
                    device.answer(0, How::Done);
                }
                waiter.join().expect("DIRECT-9");
            });
            here.try_recv().expect("DIRECT-9: it was completed first").outcome.expect("room");
            assert_eq!(elsewhere.try_recv().err(), Some(TryRecvError::Empty), "DIRECT-14: {name}");
            // A thread that waits for the subvolume completes it, too.
            drop(other.inode().subvolume().close_to_changes());
            elsewhere.try_recv().expect("DIRECT-9: it was completed first").outcome.expect("room");
        }
    }
}

#[test]
fn the_background_completes_what_has_landed() {
    let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new)) else {
        return;
    };
    let fs = Filesystem::open(Arc::clone(&engine), queued()).expect("it opens");
    let background = engine.start_background(1);
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (_, file) = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room");
    for byte in MARKED..MARKED + 8 {
        let answer = submit(&file, DirectAt::End, byte);
        device.answer(0, How::Done);
        answer.recv().expect("DIRECT-2").outcome.expect("room");
    }
    assert!(content(&file) == (MARKED..MARKED + 8).flat_map(|byte| sectors(2, byte)).collect::<Vec<_>>());
    background.stop().expect("no step is stuck");
    fs.close(file);
    fs.shut_down().expect("it closes");
}

#[test]
fn who_closes_a_filesystem_waits_for_its_requests() {
    let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new)) else {
        return;
    };
    let fs = Filesystem::open(Arc::clone(&engine), queued()).expect("it opens");
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (attributes, file) = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room");
    let (_, other) = fs.create_open(root, b"other", &NewInode::file(0o644)).expect("room");
    assert_eq!(fs.direct_in_flight(), []);
    let answer = submit(&file, DirectAt::End, MARKED);
    assert_eq!((fs.direct_in_flight(), fs.statistics().pending.direct_in_flight), (vec![attributes.id], 1));
    thread::scope(|scope| {
        let closing = scope.spawn(|| fs.shut_down());
        // Requests are refused from the moment in which closing begins.
        let refused = loop {
            if submit(&other, DirectAt::End, 1).try_recv().is_ok_and(|done| done.outcome.is_err()) {
                break true;
            }
        };
        assert!(refused && !closing.is_finished(), "DIRECT-3: it waits");
        device.answer(0, How::Done);
        closing.join().expect("it ends well").expect("it closes");
    });
    let part = answer.try_recv().expect("DIRECT-3: it was answered before").outcome.expect("room");
    assert_eq!((part.offset, part.len as u64), (0, 2 * SECTOR));
    let again = Filesystem::open(open_device(device as _), queued()).expect("it opens");
    let file = again.open_file(attributes.id).expect("it is there");
    assert!(
        content(&file) == sectors(2, MARKED),
        "what was answered is durable when the filesystem is closed"
    );
}

/// A filesystem opened from the device's content after the sync has the data. The simulator tests power cuts.
#[test]
fn what_was_submitted_before_a_sync_is_durable_behind_it() {
    type Syncs = fn(&Filesystem, &OpenFile);
    let rows: [(&str, Syncs); 3] = [
        ("fsync", |_, file| file.sync().expect("room")),
        ("sync", |fs, _| fs.sync().expect("room")),
        ("settle", |fs, _| fs.settle().expect("room")),
    ];
    for (name, syncs) in rows {
        let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new)) else {
            return;
        };
        let fs = Filesystem::open(Arc::clone(&engine), queued()).expect("it opens");
        let root = fs.root(fs.default_subvolume()).expect("a root");
        let (attributes, file) = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room");
        direct(&file, 0, &sectors(8, 1));
        fs.sync().expect("room");
        let answer = submit(&file, DirectAt::Offset(SECTOR), MARKED);
        thread::scope(|scope| {
            let syncing = scope.spawn(|| syncs(&fs, &file));
            thread::yield_now();
            assert!(!syncing.is_finished(), "DIRECT-10: {name}");
            device.answer(0, How::Done);
            syncing.join().expect("it ends well");
        });
        answer.try_recv().expect("DIRECT-10: it was answered before").outcome.expect("room");
        let again = Filesystem::open(open_device(device.copy() as _), queued()).expect("it opens");
        let mut wanted = sectors(8, 1);
        put(&mut wanted, SECTOR, &sectors(2, MARKED));
        assert!(content(&again.open_file(attributes.id).expect("it is there")) == wanted, "{name}");
    }
}

/// The device answers none before, one of two, or both; the rest is answered after that.
#[test]
fn a_filesystem_that_is_dropped_lets_go_of_its_device_whatever_is_in_flight() {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        for landed in 0..=2 {
            for how in [How::Done, How::Failed, How::Dropped] {
                let Some((engine, device, inode, file)) = on_answering(flags) else { return };
                let answers = [0, 4].map(|at| submit(&file, DirectAt::Offset(at * SECTOR), MARKED));
                (0..landed).for_each(|_| device.answer(0, how));
                let lives = Arc::downgrade(&engine);
                drop((engine, inode, file));
                assert!(lives.upgrade().is_none(), "DIRECT-11: {landed} landed");
                assert_eq!(Arc::strong_count(&device), 1, "DIRECT-11: nobody has the device any more");
                for (number, answer) in answers.into_iter().enumerate() {
                    if number >= landed {
                        assert_eq!(
                            answer.try_recv().err(),
                            Some(TryRecvError::Empty),
                            "the device has the buffer"
                        );
                        device.answer(0, how);
                    }
                    let DirectDone { buffer, outcome } = answer.recv().expect("DIRECT-2");
                    assert!(buffer[..] == sectors(2, MARKED), "DIRECT-2: the buffer comes back as it was");
                    assert_eq!(outcome.expect_err("nobody completes it").kind(), ErrorKind::Stale);
                    assert!(answer.recv().is_err(), "DIRECT-2: once");
                }
            }
        }
    }
}

/// An open file is the last user of a whole filesystem. Its background threads have ended before.
#[test]
fn the_last_of_all_who_use_a_filesystem_lets_go_of_requests() {
    let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new)) else {
        return;
    };
    let fs = Filesystem::open(Arc::clone(&engine), queued()).expect("it opens");
    let background = engine.start_background(2);
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let (attributes, file) = fs.create_open(root, b"file", &NewInode::file(0o644)).expect("room");
    direct(&file, 0, &sectors(8, 1));
    fs.sync().expect("room");
    let [first, second] = [0, 4].map(|at| submit(&file, DirectAt::Offset(at * SECTOR), MARKED));
    let lives = Arc::downgrade(&engine);
    drop((background, fs, engine));
    device.answer(0, How::Done);
    assert_eq!(first.try_recv().err(), Some(TryRecvError::Empty), "nobody completes it");
    assert_eq!(file.read_at(0, &mut [0; 9], Wait::Yes).expect("a read"), 9);
    first.recv().expect("DIRECT-9").outcome.expect("an open file is a user like any other");
    drop(file);
    assert!(lives.upgrade().is_none(), "DIRECT-11");
    thread::spawn({
        let device = Arc::clone(&device);
        move || device.answer(0, How::Done)
    })
    .join()
    .expect("a device's thread ends nothing");
    let error = second.recv().expect("DIRECT-2").outcome.expect_err("nobody completed it");
    assert_eq!(error.kind(), ErrorKind::Stale);
    assert_eq!(Arc::strong_count(&device), 1);
    let again = Filesystem::open(open_device(device as _), queued()).expect("it opens");
    let file = again.open_file(attributes.id).expect("it is there");
    assert!(content(&file) == sectors(8, 1), "what was not synced is lost");
}

/// There is no background thread, so the submitting thread completes the requests that it waits for.
#[test]
fn who_submits_more_than_may_be_in_flight_waits() {
    let Some((engine, device)) = fixture(Kind::DEFAULT).map(|fixture| fixture.on(Answering::new)) else {
        return;
    };
    let options = FsOptions { delayed_bytes: 64 * MIB, direct_bytes: 4 * SECTOR, ..queued() };
    let inode = Arc::new(new_file_with(&engine, 300, IN_PLACE, &options));
    let file = opened(Arc::clone(&inode));
    direct(&file, 0, &sectors(16, 1));
    let at = |sector: u64| DirectAt::Offset(sector * SECTOR);
    let mut answers = vec![submit(&file, at(0), MARKED), submit(&file, at(2), MARKED)];
    // The last one is more than may be in flight, and so is alone.
    for (sector, count, waits_for) in [(4, 1, 1), (5, 9, 2)] {
        assert_eq!(device.kept(), 2);
        let answer = thread::scope(|scope| {
            let submits = scope.spawn(|| submit_sectors(&file, at(sector), MARKED, count));
            (0..1000).for_each(|_| thread::yield_now());
            assert!(!submits.is_finished(), "DIRECT-13: it waits");
            (0..waits_for).for_each(|_| device.answer(0, How::Done));
            submits.join().expect("it ends well")
        });
        for answered in answers.drain(..waits_for) {
            answered.try_recv().expect("DIRECT-9: it was completed before").outcome.expect("room");
        }
        answers.push(answer);
    }
    assert_eq!(device.kept(), 1);
    device.answer(0, How::Done);
    assert!(inode.context().in_flight().help());
    answers[0].try_recv().expect("DIRECT-2").outcome.expect("room");
    assert!(content(&file) == [sectors(5, MARKED), sectors(9, MARKED), sectors(2, 1)].concat());
    assert_all_is_back(&inode);
}
