//! Requests that end where their device answers.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use creamery_base::Wait;
use creamery_base::gate::{self, Reason};
use creamery_device::AlignedBuffer;
use creamery_txn::{Engine, ReserveItems};

use super::answering::{Answering, How, MARKED};
use super::flight::assert_all_is_back;
use super::submitted::submit_sectors;
use super::{IN_PLACE, MIB, content, direct, put, sectors};
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectDone, DirectRequest};
use crate::fallocate::Fallocate;
use crate::inode::{Inode, InodeFlags};
use crate::open_file::OpenFile;
use crate::operation::in_handle;
use crate::options::FsOptions;

type AtOnceFixture = (Arc<Engine>, Arc<Answering>, Arc<Inode>, OpenFile);

/// A file of eight sectors, 1 in each byte, behind a device that answers when the test calls `answer`.
fn on_answering(flags: InodeFlags) -> Option<AtOnceFixture> {
    let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
    let options = FsOptions { delayed_bytes: 64 * MIB, ..FsOptions::default() };
    let inode = Arc::new(new_file_with(&engine, 300, flags, &options));
    let file = opened(Arc::clone(&inode));
    direct(&file, 0, &sectors(8, 1));
    Some((engine, device, inode, file))
}

fn read(file: &OpenFile, offset: u64, len: u64) -> Receiver<DirectDone> {
    let (send, receive) = channel();
    let buffer = AlignedBuffer::zeroed(usize::try_from(len).expect("small"));
    let request = DirectRequest::Read { offset, buffer };
    file.submit_direct(request, Box::new(move |done| drop(send.send(done))));
    receive
}

fn ended_at_once(inode: &Inode) -> u64 {
    inode.context().counters().direct.counters().ended_at_once
}

#[test]
fn a_device_ends_what_waits_for_nothing() {
    let Some((engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
    let before = inode.item(Wait::Yes).expect("it lives");
    let write = submit_sectors(&file, DirectAt::Offset(SECTOR), MARKED, 2);
    device.answer(0, How::Done);
    let DirectDone { buffer, outcome } = write.try_recv().expect("DIRECT-2: it is answered");
    assert!(buffer[..] == sectors(2, MARKED) && outcome.expect("a write").len == buffer.len());
    device.keep_reads(true);
    let read = read(&file, SECTOR, 2 * SECTOR);
    device.answer(0, How::Done);
    let DirectDone { buffer, outcome } = read.try_recv().expect("DIRECT-2: it is answered");
    assert!(buffer[..] == sectors(2, MARKED) && outcome.expect("a read").len == buffer.len());
    device.keep_reads(false);
    assert_eq!((ended_at_once(&inode), inode.context().in_flight().len()), (2, 0));
    assert_all_is_back(&inode);
    let after = inode.item(Wait::Yes).expect("it lives");
    assert!(after.mtime > before.mtime && after.sequence == before.sequence + 1, "it shows its write");
    let mut wanted = sectors(8, 1);
    put(&mut wanted, SECTOR, &sectors(2, MARKED));
    assert!(content(&file) == wanted);
    inode.write_overwritten_times().expect("room is kept");
    audit(&engine, &inode, &inode.item(Wait::Yes).expect("it lives"));
}

/// The request fails, takes new space, makes the file longer, goes to preallocated space, or is read again because a device reports
/// something else.
#[test]
fn a_device_leaves_to_others_what_may_wait() {
    let Some((_engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
    let keep_size = Fallocate::Allocate { keep_size: false };
    file.fallocate(keep_size, 8 * SECTOR, 2 * SECTOR).expect("room");
    let Some((_other_engine, other_device, other, new_space)) = on_answering(InodeFlags::empty()) else {
        return;
    };
    let mut byte = MARKED;
    let mut leaves = |(device, inode, file): (&Answering, &Inode, &OpenFile), at, how| {
        let answer = submit_sectors(file, at, byte, 2);
        byte += 1;
        device.answer(0, how);
        assert_eq!(answer.try_recv().err(), Some(TryRecvError::Empty), "{at:?}: it waits for others");
        assert!(inode.context().in_flight().help());
        let outcome = answer.try_recv().expect("DIRECT-2: it is answered").outcome;
        assert_eq!(outcome.is_ok(), how == How::Done);
        assert_all_is_back(inode);
    };
    leaves((&device, &inode, &file), DirectAt::Offset(SECTOR), How::Failed);
    leaves((&device, &inode, &file), DirectAt::Offset(SECTOR), How::Dropped);
    leaves((&device, &inode, &file), DirectAt::Offset(8 * SECTOR), How::Done);
    leaves((&device, &inode, &file), DirectAt::End, How::Done);
    leaves((&other_device, &other, &new_space), DirectAt::Offset(SECTOR), How::Done);
    device.keep_reads(true);
    let failed = read(&file, 8 * SECTOR, SECTOR);
    while device.kept() > 0 {
        device.answer(0, How::Failed);
    }
    device.keep_reads(false);
    assert_eq!(failed.try_recv().err(), Some(TryRecvError::Empty), "it is to be read again");
    assert!(inode.context().in_flight().help());
    failed.try_recv().expect("DIRECT-2").outcome.expect("the device reads it now");
    assert_eq!((ended_at_once(&inode), ended_at_once(&other)), (0, 0));
}

#[test]
fn a_device_leaves_a_write_to_others_where_the_item_is_locked() {
    let Some((engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
    let write = submit_sectors(&file, DirectAt::Offset(0), MARKED, 2);
    in_handle(&engine, ReserveItems::items(1), |handle| {
        inode.change_item(handle, |locked| {
            device.answer(0, How::Done); // DIRECT-17: it comes back
            locked.update(|item| item.mode ^= 0o7).map(drop)
        })
    })
    .expect("room");
    assert_eq!(write.try_recv().err(), Some(TryRecvError::Empty), "DIRECT-17");
    assert!(inode.context().in_flight().help());
    write.try_recv().expect("DIRECT-2: it is answered").outcome.expect("a write");
    assert_eq!(ended_at_once(&inode), 0);
    assert_all_is_back(&inode);
}

/// A device may answer within the call that submits. The completion is the caller's code and may wait, but that call must not.
#[test]
fn a_call_that_must_not_wait_gives_no_answer() {
    let Some((_engine, device, inode, file)) = on_answering(IN_PLACE) else { return };
    device.keep_reads(false);
    let (send, receive) = channel();
    let waits = move |done| {
        gate::passing(Reason::Lock, || ());
        drop(send.send(done));
    };
    let request = DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(4096) };
    file.try_submit_direct(request, Box::new(waits)).expect("all that it needs is there");
    assert_eq!(receive.try_recv().err().map(|_| inode.context().in_flight().help()), Some(true));
    receive.try_recv().expect("DIRECT-2: it is answered").outcome.expect("a read");
    assert_eq!(ended_at_once(&inode), 0);
}
