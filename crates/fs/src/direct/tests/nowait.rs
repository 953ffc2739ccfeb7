//! Direct requests that must not wait.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use creamery_base::{Result, TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_txn::Engine;

use super::answering::{Answering, How, MARKED};
use super::flight::assert_all_is_back;
use super::{IN_PLACE, MIB, content, direct, put, queued, sectors};
use crate::data::tests::support::*;
use crate::data::{CloneRange, clone_range};
use crate::direct::{DirectAt, DirectDone, DirectRequest};
use crate::fallocate::Fallocate;
use crate::in_flight::GivesUp;
use crate::inode::{Inode, InodeFlags};
use crate::open_file::OpenFile;
use crate::options::FsOptions;
use crate::{Refusal, Refused};

/// The outcome of a request that must not wait: the channel of its answer, or the refusal.
type Tried = std::result::Result<Receiver<DirectDone>, Refused>;

fn attempt(file: &OpenFile, request: DirectRequest) -> Tried {
    let (send, receive) = channel();
    match file.try_submit_direct(request, Box::new(move |done| drop(send.send(done)))) {
        Ok(()) => Ok(receive),
        Err(refused) => {
            assert!(receive.try_recv().is_err(), "DIRECT-2: what is refused is not answered");
            Err(*refused)
        }
    }
}

fn write(at: DirectAt, count: u64) -> DirectRequest {
    write_bytes(at, &sectors(count, MARKED))
}

fn write_bytes(at: DirectAt, bytes: &[u8]) -> DirectRequest {
    DirectRequest::Write { at, data: AlignedBuffer::from_slice(bytes) }
}

fn refusal(tried: &Tried) -> Option<Refusal> {
    tried.as_ref().err().map(|refused| refused.why)
}

/// All state that a refusal has to leave as it is.
fn digest(file: &OpenFile) -> impl PartialEq + std::fmt::Debug + use<> {
    let inode = file.inode();
    let (engine, in_flight) = (inode.engine(), inode.context().in_flight());
    (
        inode.tree_item(),
        file.stat(Wait::Yes).expect("it lives"),
        [engine.delalloc_bytes(), engine.delalloc_metadata_bytes(), in_flight.len() as u64],
        content(file),
    )
}

/// A file of eight sectors in one extent, 1 in each byte, behind a device that answers when the test calls `answer`.
fn world(flags: InodeFlags) -> Option<(Arc<Engine>, Arc<Answering>, OpenFile)> {
    let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
    let file = opened(Arc::new(new_delayed_file(&engine, 300, flags, 64 * MIB)));
    direct(&file, 0, &sectors(8, 1));
    engine.commit().expect("room");
    Some((engine, device, file))
}

/// Tries `request` while `holds` has something, and once more after it has gone: the first attempt is refused for `why`. Then a thread
/// that may wait makes it.
fn refused<'f, T>(
    why: Refusal,
    (device, file): (&Answering, &'f OpenFile),
    request: DirectRequest,
    holds: impl FnOnce(&'f Inode) -> T,
) {
    let before = digest(file);
    let held = holds(file.inode());
    let tried = attempt(file, request);
    assert_eq!(refusal(&tried), Some(why));
    assert_eq!(device.kept(), 0, "{why:?}: DIRECT-4");
    drop(held);
    assert_eq!(before, digest(file), "{why:?}: DIRECT-4");
    assert_all_is_back(file.inode());
    let Err(Refused { request, done, .. }) = tried else { unreachable!("it was refused") };
    file.submit_direct(request, done);
    (0..device.kept()).for_each(|_| device.answer(0, How::Done));
    while file.inode().context().in_flight().help() {}
    assert_all_is_back(file.inode());
}

/// Nothing is held: the state of the file is the reason.
fn refused_as_it_is(why: Refusal, on: (&Answering, &OpenFile), request: DirectRequest) {
    refused(why, on, request, |_| ());
}

#[test]
fn a_write_over_one_extent_begins_at_once() {
    for at in [DirectAt::Offset(SECTOR), DirectAt::Offset(8 * SECTOR), DirectAt::End] {
        let Some((engine, device, file)) = world(IN_PLACE) else { return };
        file.fallocate(Fallocate::Allocate { keep_size: true }, 8 * SECTOR, 8 * SECTOR).expect("room");
        let answer = attempt(&file, write(at, 2)).expect("all that it needs is there");
        assert_eq!(device.kept(), 1, "{at:?}: it is on its way");
        device.answer(0, How::Done);
        assert!(file.inode().context().in_flight().help());
        let part = answer.recv().expect("DIRECT-2").outcome.expect("it is written");
        let mut wanted = sectors(8, 1);
        put(&mut wanted, part.offset, &sectors(2, MARKED));
        assert!(content(&file) == wanted, "{at:?}");
        let nowait = file.inode().context().counters().nowait.counters();
        assert_eq!([nowait.attempts, nowait.begun, nowait.blocked], [1, 1, 0], "DIRECT-5");
        assert_all_is_back(file.inode());
        engine.commit().expect("room");
    }
}

/// Locks that other threads hold, and missing room.
#[test]
fn what_is_refused_leaves_no_trace() {
    let Some((engine, device, file)) = world(IN_PLACE) else { return };
    let on = (&*device, &file);
    let (front, end) = (|| write(DirectAt::Offset(SECTOR), 2), || write(DirectAt::End, 1));
    refused(Refusal::InodeBusy, on, front(), |inode| inode.lock_exclusive().expect("it lives"));
    refused(Refusal::InodeBusy, on, end(), |inode| inode.lock_shared(Wait::Yes).expect("it lives"));
    refused(Refusal::RangeBusy, on, front(), |inode| {
        inode.as_file().expect("a file").lock_range_shared(2 * SECTOR, 3 * SECTOR, Wait::Yes).expect("free")
    });
    refused(Refusal::Snapshot, on, front(), |inode| {
        inode.subvolume().bar_writes_in_place(GivesUp::Never).expect("it waits")
    });
    refused(Refusal::DeviceBusy, on, front(), |_| {
        device.is_full(true);
        scopeguard(|| device.is_full(false))
    });
    refused(Refusal::TooMuchInFlight, on, front(), |inode| inode.context().in_flight().make_room(256 << 20));
    refused(Refusal::NoRoom, on, front(), |_| {
        let keep = || engine.reserve_delalloc(TreeId::FS, 0, 1).expect("no limit");
        std::iter::from_fn(keep).collect::<Vec<_>>()
    });
    // A change of the item, as long as it takes.
    let before = digest(&file);
    let tried = std::cell::Cell::new(None);
    file.inode().forge(|_| {
        tried.set(thread::scope(|scope| {
            let tries = scope.spawn(|| refusal(&attempt(&file, front())));
            tries.join().expect("DIRECT-5")
        }));
    });
    assert_eq!((tried.get(), before), (Some(Refusal::ItemBusy), digest(&file)));
    assert_all_is_back(file.inode());
}

/// Undoes something when it goes.
fn scopeguard<F: FnMut()>(undo: F) -> impl Drop {
    struct Undo<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Undo<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    Undo(undo)
}

/// The state of the file, and the position of the write.
#[test]
fn what_takes_more_than_one_extent_that_is_the_files_alone_is_refused() {
    let prealloc = |file: &OpenFile| {
        file.fallocate(Fallocate::Allocate { keep_size: true }, 8 * SECTOR, 8 * SECTOR).expect("room");
    };
    let at = DirectAt::Offset;
    let row = |why, flags, makes: &dyn Fn(&Arc<Engine>, &OpenFile), request| {
        let Some((engine, device, file)) = world(flags) else { return };
        makes(&engine, &file);
        refused_as_it_is(why, (&device, &file), request);
    };
    let nodatasum = InodeFlags::NODATASUM;
    row(Refusal::NotInPlace, InodeFlags::empty(), &|_, _| (), write(at(SECTOR), 1));
    row(Refusal::Checksums, InodeFlags::empty(), &|_, file| prealloc(file), write(at(8 * SECTOR), 1));
    row(Refusal::BeyondSize, IN_PLACE, &|_, file| prealloc(file), write(at(9 * SECTOR), 1));
    row(Refusal::Misaligned, IN_PLACE, &|_, _| (), write_bytes(at(SECTOR), &[5; 100]));
    row(Refusal::Misaligned, IN_PLACE, &|_, _| (), write_bytes(at(SECTOR + 1), &sectors(1, 5)));
    row(Refusal::Hole, IN_PLACE, &|_, _| (), write(DirectAt::End, 1));
    row(Refusal::Hole, IN_PLACE, &|_, file| punch(file, 2, 3), write(at(2 * SECTOR), 1));
    row(Refusal::SeveralExtents, IN_PLACE, &|_, file| punch(file, 3, 4), write(at(2 * SECTOR), 2));
    row(Refusal::SeveralExtents, IN_PLACE, &|_, file| prealloc(file), write(at(7 * SECTOR), 2));
    row(Refusal::Copied, nodatasum, &|_, file| prealloc(file), write(at(2 * SECTOR), 1));
    row(Refusal::Shared, IN_PLACE, &clone_it, write(at(2 * SECTOR), 1));
    row(Refusal::Inline, IN_PLACE, &|_, file| make_inline(file), write_bytes(at(0), &sectors(1, 5)));
}

fn punch(file: &OpenFile, start: u64, end: u64) {
    file.fallocate(Fallocate::PunchHole, start * SECTOR, (end - start) * SECTOR).expect("room");
}

fn make_inline(file: &OpenFile) {
    let inode = file.inode();
    let mut locked = inode.lock_exclusive().expect("it lives");
    crate::data::truncate(&inode.file(), locked.item_mut(), 0).expect("room");
    crate::data::write(&inode.file(), locked.item_mut(), 0, b"small").expect("room");
}

fn clone_it(engine: &Arc<Engine>, file: &OpenFile) {
    let other = new_file(engine, 301, IN_PLACE);
    let (source, mut target) = (file.inode().tree_item(), other.tree_item());
    let range = CloneRange { from: 0, to: 0, len: 8 * SECTOR, keep_times: false };
    clone_range(file.inode(), &source, &other.file(), &mut target, range, &mut 0).expect("room");
}

/// Delayed data in the range, or that grows the file, is checked for and not written back.
#[test]
fn what_is_in_memory_only_is_not_written_back_for_who_must_not_wait() {
    for offset in [2 * SECTOR, 8 * SECTOR] {
        let Some((_engine, device, file)) = world(IN_PLACE) else { return };
        file.write_at(offset, &[7; 10]).expect("room");
        let delayed = file.inode().engine().delalloc_bytes();
        let tried = attempt(&file, write(DirectAt::Offset(2 * SECTOR), 1));
        assert_eq!(refusal(&tried), Some(Refusal::Delayed));
        assert_eq!(file.inode().engine().delalloc_bytes(), delayed, "DIRECT-4");
        assert_eq!(device.kept(), 0);
        file.sync().expect("room");
        attempt(&file, write(DirectAt::Offset(2 * SECTOR), 1)).expect("nothing is delayed any more");
        device.answer(0, How::Done);
        assert!(file.inode().context().in_flight().help());
    }
}

/// A file of many extents in trees of small blocks, opened again with these options: only the blocks that opening needed are in
/// memory.
fn cold(options: &FsOptions) -> Option<(Fixture, OpenFile)> {
    let mut fixture = fixture(Kind("--nodesize 4096 -O block-group-tree"))?;
    let file = super::open_named(&fixture, "f0", IN_PLACE);
    (0..160).for_each(|number| direct(&file, 2 * number * SECTOR, &sectors(1, 1)));
    let (ino, item) = (file.id().ino.get(), file.inode().tree_item());
    drop(file);
    fixture.reopen();
    let file = opened(Arc::new(stored_with(&fixture.engine, ino, item, options)));
    Some((fixture, file))
}

/// An attempt reads nothing from a device: blocks that a thread that may wait has read are there for the next one.
#[test]
fn trees_that_are_not_in_memory_are_not_read() -> Result<()> {
    let options = FsOptions { delayed_bytes: 64 * MIB, ..queued() };
    let Some((fixture, file)) = cold(&options) else { return Ok(()) };
    let last = 2 * 159 * SECTOR;
    let reads = || fixture.engine.volume().counters().tree_block_reads;
    let refused_for = || {
        let before = reads();
        let why = refusal(&attempt(&file, write(DirectAt::Offset(last), 1)));
        assert_eq!(reads(), before, "DIRECT-5");
        why
    };
    assert_eq!(refused_for(), Some(Refusal::DeviceBusy), "nothing was written");
    fixture.engine.volume().begin_writing()?;
    assert_eq!(refused_for(), Some(Refusal::MapCold));
    file.read_at(last, &mut [0; 9], Wait::Yes)?;
    assert_eq!(refused_for(), Some(Refusal::OwnersCold));
    direct(&file, last, &sectors(1, 2));
    let answer = attempt(&file, write(DirectAt::Offset(last), 1)).expect("all is in memory");
    while file.inode().context().in_flight().help() {}
    answer.recv().expect("DIRECT-2").outcome?;
    assert_eq!(file.inode().context().counters().nowait.counters().blocked, 0, "DIRECT-5");
    Ok(())
}

/// A read that must not wait reads neither the place of its data nor its checksums from a device.
#[test]
fn checksums_that_are_not_in_memory_are_not_read() -> Result<()> {
    let Some(mut fixture) = fixture(Kind("--nodesize 4096")) else { return Ok(()) };
    let file = super::open_named(&fixture, "f0", InodeFlags::empty());
    (0..8).for_each(|number| direct(&file, 2 * number * MIB, &sectors(256, 1)));
    drop(file);
    fixture.reopen();
    let file = super::open_named(&fixture, "f0", InodeFlags::empty());
    let read = || DirectRequest::Read { offset: 14 * MIB, buffer: AlignedBuffer::zeroed(SECTOR as usize) };
    let reads = || fixture.engine.volume().counters().tree_block_reads;
    let before = reads();
    assert_eq!(refusal(&attempt(&file, read())), Some(Refusal::ChecksumsCold));
    assert_eq!(reads(), before, "DIRECT-5");
    file.read_at(14 * MIB, &mut [0; 9], Wait::Yes)?;
    let answer = attempt(&file, read()).expect("all is in memory");
    while file.inode().context().in_flight().help() {}
    assert!(answer.recv().expect("DIRECT-2").buffer[..] == sectors(1, 1));
    assert_eq!(file.inode().context().counters().nowait.counters().blocked, 0, "DIRECT-5");
    Ok(())
}

/// Reads of holes, data and delayed data, of checksums that are in memory, and of ranges that other threads hold.
#[test]
fn a_read_that_must_not_wait_begins_or_comes_back() -> Result<()> {
    for flags in [InodeFlags::empty(), IN_PLACE] {
        let Some((_engine, device, file)) = world(flags) else { return Ok(()) };
        punch(&file, 2, 4);
        let read = |offset, len: u64| DirectRequest::Read {
            offset,
            buffer: AlignedBuffer::zeroed(usize::try_from(len).expect("small")),
        };
        let mut wanted = sectors(8, 1);
        put(&mut wanted, 2 * SECTOR, &sectors(2, 0));
        for (offset, len) in
            [(0, SECTOR), (0, 8 * SECTOR), (7 * SECTOR, 4 * SECTOR), (9 * SECTOR, SECTOR), (0, 0)]
        {
            let answer = attempt(&file, read(offset, len)).expect("all that it needs is there");
            while file.inode().context().in_flight().help() {}
            let DirectDone { buffer, outcome } = answer.recv().expect("DIRECT-2");
            let part = outcome?;
            let end = (offset + len).min(8 * SECTOR);
            assert_eq!(part.len as u64, end.saturating_sub(offset));
            let from = usize::try_from(offset).expect("small").min(wanted.len());
            assert!(buffer[..part.len] == wanted[from..from + part.len], "{len} bytes at {offset}");
        }
        let on = (&*device, &file);
        refused_as_it_is(Refusal::Misaligned, on, read(1, SECTOR));
        refused(Refusal::RangeBusy, on, read(0, SECTOR), |inode| {
            inode.as_file().expect("a file").lock_range(0, SECTOR, Wait::Yes).expect("free")
        });
        refused(Refusal::DeviceBusy, on, read(0, SECTOR), |_| {
            device.is_full(true);
            scopeguard(|| device.is_full(false))
        });
        refused(Refusal::TooMuchInFlight, on, read(0, SECTOR), |inode| {
            inode.context().in_flight().make_room(256 << 20)
        });
        file.write_at(SECTOR, &[7; 10])?;
        assert_eq!(refusal(&attempt(&file, read(0, 2 * SECTOR))), Some(Refusal::Delayed));
        let nowait = file.inode().context().counters().nowait.counters();
        assert_eq!((nowait.attempts, nowait.begun, nowait.blocked), (10, 5, 0), "DIRECT-5");
    }
    Ok(())
}

/// Errors that waiting does not cure are answers, not refusals.
#[test]
fn an_error_that_waiting_does_not_cure_is_the_answer() {
    use creamery_base::ErrorKind;

    let Some((engine, _device, file)) = world(IN_PLACE) else { return };
    let kind_of = |request| {
        let answer = attempt(&file, request).expect("it is answered");
        answer.recv().expect("DIRECT-2").outcome.map_err(|error| error.kind())
    };
    let limit = crate::inode::FILE_SIZE_MAX / SECTOR * SECTOR;
    assert_eq!(kind_of(write(DirectAt::Offset(limit), 1)).err(), Some(ErrorKind::FileTooLarge));
    assert_eq!(
        kind_of(write(DirectAt::Offset(u64::MAX - SECTOR + 1), 1)).err(),
        Some(ErrorKind::FileTooLarge)
    );
    assert_eq!(kind_of(write(DirectAt::Offset(0), 0)).map(|part| part.len), Ok(0));
    set_flags(file.inode(), IN_PLACE | InodeFlags::APPEND);
    assert_eq!(kind_of(write(DirectAt::Offset(0), 1)).err(), Some(ErrorKind::PermissionDenied));
    engine.commit().expect("room");
}

/// With the switch the looks into trees wait, which is counted.
#[test]
fn looks_may_wait_by_a_switch() -> Result<()> {
    let options = FsOptions { direct_waits: true, delayed_bytes: 64 * MIB, ..queued() };
    let Some((fixture, file)) = cold(&options) else { return Ok(()) };
    fixture.engine.volume().begin_writing()?;
    let answer = attempt(&file, write(DirectAt::Offset(2 * 159 * SECTOR), 1)).expect("it waits");
    while file.inode().context().in_flight().help() {}
    answer.recv().expect("DIRECT-2").outcome?;
    assert!(file.inode().context().counters().nowait.counters().blocked > 0);
    Ok(())
}
