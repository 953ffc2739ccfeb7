//! Direct writes that are answered when they are durable.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use super::answering::{How, MARKED};
use super::flight::assert_all_is_back;
use super::snapshots::SnapshotWorld;
use super::*;
use crate::direct::{DirectDone, DirectRequest};

/// Submits a write of so many bytes that has to be durable before it is answered. The device keeps it.
fn submit(file: &OpenFile, at: DirectAt, len: u64) -> Receiver<DirectDone> {
    submit_bytes(file, at, (len, MARKED))
}

fn submit_bytes(file: &OpenFile, at: DirectAt, (len, byte): (u64, u8)) -> Receiver<DirectDone> {
    let (send, receive) = channel();
    let data = vec![byte; usize::try_from(len).expect("small")];
    let request = DirectRequest::WriteDurably { at, data: AlignedBuffer::from_slice(&data) };
    file.submit_direct(request, Box::new(move |done| drop(send.send(done))));
    receive
}

fn durable(world: &SnapshotWorld) -> u64 {
    world.fs.statistics().direct.durable
}

#[test]
fn a_durable_write_is_answered_when_it_is_durable() {
    for in_place in [true, false] {
        let Some(world) = SnapshotWorld::new(queued()) else { return };
        let file = if in_place { &world.file } else { &world.other };
        let in_flight = file.inode().context().in_flight();
        let answer = submit(file, DirectAt::Offset(SECTOR), 2 * SECTOR);
        world.device.answer(0, How::Done);
        assert!(in_flight.help(), "it is completed");
        assert_eq!(
            answer.try_recv().err(),
            Some(TryRecvError::Empty),
            "DIRECT-16: it is in the file, and not durable"
        );
        assert!(content(file)[SECTOR as usize] == MARKED && in_flight.len() == 1);
        assert!(
            file.inode().try_lock_exclusive().expect("it lives").is_some(),
            "DIRECT-16: its locks are back"
        );
        let logged = world.fs.statistics().fsyncs.logged;
        assert!(in_flight.help(), "it is made durable");
        let part = answer.recv().expect("DIRECT-2").outcome.expect("room");
        assert_eq!((part.offset, part.len as u64), (SECTOR, 2 * SECTOR));
        assert_eq!(world.fs.statistics().fsyncs.logged, logged + 1, "by the log");
        assert!(durable(&world) == 1 && in_flight.len() == 0 && !in_flight.help());
        assert_all_is_back(file.inode());
    }
}

/// Without background threads.
#[test]
fn a_thread_that_waits_for_an_answer_makes_durable_what_else_the_file_owes() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let file = &world.file;
    let durable = submit(file, DirectAt::Offset(0), SECTOR);
    let other = super::submitted::submit_sectors(file, DirectAt::Offset(4 * SECTOR), MARKED + 1, 1);
    world.device.answer(1, How::Done);
    world.device.answer(0, How::Done);
    let answered = std::cell::Cell::new(false);
    file.direct_waiter().wait(|| {
        answered.set(answered.get() || other.try_recv().is_ok());
        answered.get()
    });
    durable.try_recv().expect("DIRECT-15: it is answered").outcome.expect("room");
}

/// A thread that waits for a lock holds others, and a sync takes locks.
#[test]
fn a_thread_with_locks_makes_nothing_durable() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let file = &world.file;
    let answer = submit(file, DirectAt::Offset(0), SECTOR);
    world.device.answer(0, How::Done);
    assert!(content(file)[0] == MARKED, "a reader completes it");
    assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "DIRECT-16");
    // A thread that looks for room does not sync, and does not wait for a sync.
    let wish = world.fs.engine().start(creamery_txn::ReserveItems::items(1 << 16));
    assert_eq!(wish.map(drop).expect_err("so much there never is").kind(), ErrorKind::NoSpace);
    assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "DIRECT-16");
    file.sync().expect("it is durable");
    answer.try_recv().expect("DIRECT-10: a sync ends it").outcome.expect("room");
}

/// Each way in which a request ends without asking a device itself.
#[test]
fn a_write_that_goes_through_memory_is_durable_as_well() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let file = &world.other;
    for (number, (at, len)) in
        [(DirectAt::Offset(1), 1), (DirectAt::End, SECTOR + 1), (DirectAt::End, SECTOR)]
            .into_iter()
            .enumerate()
    {
        let logged = world.fs.statistics().fsyncs.logged;
        let answer = submit_bytes(file, at, (len, 7));
        let part = answer.try_recv().expect("it has ended").outcome.expect("room");
        assert_eq!(part.len as u64, len);
        assert_eq!(world.fs.statistics().fsyncs.logged, logged + 1, "{number}: by the log");
    }
    let answer = submit_bytes(file, DirectAt::Offset(0), (0, 7));
    assert_eq!(answer.try_recv().expect("nothing is to be done").outcome.expect("nothing").len, 0);
}

#[test]
fn what_fails_is_answered_and_makes_nothing_durable() {
    for how in [How::Failed, How::Short, How::Dropped] {
        let Some(world) = SnapshotWorld::new(queued()) else { return };
        let answer = submit(&world.file, DirectAt::Offset(0), 2 * SECTOR);
        world.device.answer(0, how);
        assert!(world.file.inode().context().in_flight().help());
        let outcome = answer.try_recv().expect("DIRECT-2").outcome;
        assert_eq!(outcome.expect_err("it came to nothing").kind(), ErrorKind::Io, "{how:?}");
        assert_eq!(durable(&world), 0);
        assert_all_is_back(world.file.inode());
    }
}

#[test]
fn the_background_makes_durable_what_waits_for_that() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let background = world.fs.engine().start_background(2);
    let answers: Vec<_> =
        (0..4).map(|at| submit(&world.file, DirectAt::Offset(2 * at * SECTOR), SECTOR)).collect();
    (0..4).for_each(|_| world.device.answer(0, How::Done));
    for answer in answers {
        answer.recv().expect("DIRECT-2").outcome.expect("room");
    }
    drop(background);
    assert_eq!(durable(&world), 4);
}

#[test]
fn a_write_that_must_not_wait_is_answered_when_it_is_durable() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let answer = Arc::new(OnceLock::new());
    let data = AlignedBuffer::from_slice(&sectors(1, MARKED));
    let (request, own) = (DirectRequest::WriteDurably { at: DirectAt::Offset(0), data }, Arc::clone(&answer));
    let tried = world.file.try_submit_direct(
        request,
        Box::new(move |done| own.set(done.outcome).expect("it is answered once")),
    );
    if let Err(refused) = tried {
        // The first look finds a device that was not written to yet, or a tree block that is not in memory.
        assert!(matches!(refused.request, DirectRequest::WriteDurably { .. }), "it comes back as it was");
        world.file.submit_direct(refused.request, refused.done);
    }
    world.device.answer(0, How::Done);
    world.file.direct_waiter().wait(|| answer.get().is_some());
    assert!(answer.get().expect("DIRECT-15").is_ok() && durable(&world) == 1);
}

/// Each possible last user of the filesystem leaves every request answered.
#[test]
fn what_was_not_made_durable_is_answered_when_the_filesystem_goes() {
    for lands in [true, false] {
        let Some(SnapshotWorld { fs, device, file, other, .. }) = SnapshotWorld::new(queued()) else {
            return;
        };
        let answer = submit(&file, DirectAt::Offset(0), SECTOR);
        if lands {
            device.answer(0, How::Done);
            assert!(file.inode().context().in_flight().help(), "it is completed");
        }
        drop((fs, file, other));
        if !lands {
            device.answer(0, How::Done);
        }
        let error = answer.recv().expect("DIRECT-2").outcome.expect_err("nobody made it durable");
        assert_eq!((error.kind(), Arc::strong_count(&device)), (ErrorKind::Stale, 1), "DIRECT-11");
    }
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let answer = submit(&world.file, DirectAt::Offset(0), SECTOR);
    world.device.answer(0, How::Done);
    world.fs.shut_down().expect("it closes");
    answer.try_recv().expect("DIRECT-3: it was answered before").outcome.expect("room");
}
