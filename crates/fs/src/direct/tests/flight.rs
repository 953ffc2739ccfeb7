//! The resources that a direct write carries, and their return.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use creamery_base::sync::Mutex;
use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_device::{Hook, Request};

use super::{IN_PLACE, MARK, MIB, content, direct, put, sectors, try_direct};
use crate::data::tests::support::*;
use crate::direct::DirectAt;
use crate::in_flight::GivesUp;
use crate::inode::{Inode, InodeFlags};
use crate::open_file::OpenFile;

/// A device that reports marked data, and writes it when the test lets it.
struct HeldWrites {
    arrived: SyncSender<()>,
    may_go_on: Mutex<Receiver<Result<()>>>,
}

impl Hook for HeldWrites {
    fn before(&self, request: &Request) -> Result<()> {
        match request {
            Request::Write { data, .. } if data.iter().flatten().all(|byte| *byte == MARK) => {
                self.arrived.send(()).expect("somebody waits");
                self.may_go_on.lock().recv().expect("somebody lets it")
            }
            _ => Ok(()),
        }
    }
}

/// Writes marked data to `file`, in a thread of its own, and runs `meanwhile` while the data is on its way to the device. The
/// device then answers with `answer`.
fn beside(
    flags: InodeFlags,
    at: DirectAt,
    answer: Result<()>,
    meanwhile: impl FnOnce(&Inode),
) -> Option<(Arc<Inode>, Result<()>)> {
    let fixture = fixture(Kind::DEFAULT)?;
    let ((arrived, has_arrived), (go_on, may_go_on)) = (sync_channel(1), sync_channel(1));
    let (engine, _) = fixture.behind(HeldWrites { arrived, may_go_on: Mutex::new(may_go_on) });
    let inode = Arc::new(new_delayed_file(&engine, 300, flags, 64 * MIB));
    let file: OpenFile = opened(Arc::clone(&inode));
    direct(&file, 0, &sectors(8, 1));
    let done = std::thread::scope(|scope| {
        let writer = scope.spawn(|| try_direct(&file, at, &sectors(2, MARK)).map(drop));
        has_arrived.recv().expect("it is on its way");
        meanwhile(&inode);
        go_on.send(answer).expect("it waits");
        writer.join().expect("it ends well")
    });
    Some((inode, done))
}

/// Checks that no lock of the file, the range or the subvolume is held any more.
pub(super) fn assert_all_is_back(inode: &Inode) {
    assert!(inode.try_lock_exclusive().expect("it lives").is_some(), "DIRECT-1: the lock is back");
    let file = inode.file();
    assert!(file.lock_range_shared(0, u64::MAX, Wait::No).is_ok(), "DIRECT-1: the range is back");
    drop(inode.subvolume().close_to_changes());
    drop(inode.subvolume().bar_writes_in_place(GivesUp::Never).expect("it waits"));
    // The rest of the room is kept for the times of the file, which belong to no request.
    inode.write_overwritten_times().expect("room is kept");
    assert_eq!(inode.engine().delalloc_bytes(), 0, "DIRECT-1: room is back");
    assert_eq!(inode.engine().delalloc_metadata_bytes(), 0, "DIRECT-1: room is back");
}

#[test]
fn what_a_direct_write_carries_is_given_back_whatever_the_device_does() {
    for (flags, at) in [
        (InodeFlags::empty(), DirectAt::Offset(0)),
        (InodeFlags::empty(), DirectAt::End),
        (IN_PLACE, DirectAt::Offset(SECTOR)),
        (IN_PLACE, DirectAt::Offset(7 * SECTOR)),
    ] {
        for fails in [false, true] {
            let answer = if fails { Err(Error::new(ErrorKind::Io, "the device fails")) } else { Ok(()) };
            let Some((inode, done)) = beside(flags, at, answer, |_| ()) else { return };
            assert_eq!(done.is_err(), fails, "{at:?}: {done:?}");
            assert_all_is_back(&inode);
            let mut wanted = sectors(8, 1);
            if !fails {
                let offset = if let DirectAt::Offset(offset) = at { offset } else { 8 * SECTOR };
                put(&mut wanted, offset, &sectors(2, MARK));
            }
            let file = opened(Arc::clone(&inode));
            // A failed write in place may have written a part (WRITE-1); here nothing got through.
            assert!(content(&file) == wanted, "{at:?}");
            audit(inode.engine(), &inode, &inode.item(Wait::Yes).expect("it lives"));
        }
    }
}

/// The locks are held while the data is on its way, and other threads share as much as they may.
#[test]
fn what_a_direct_write_carries_keeps_others_out_while_it_is_on_its_way() {
    let within = |inode: &Inode| {
        assert!(inode.lock_shared(Wait::No).is_ok(), "others write elsewhere");
        assert!(inode.try_lock_exclusive().expect("it lives").is_none(), "INODE-7");
        let file = inode.file();
        assert!(file.lock_range_shared(SECTOR, SECTOR + 1, Wait::No).is_err(), "its range is its own");
        assert!(file.lock_range_shared(2 * SECTOR, u64::MAX, Wait::No).is_ok());
    };
    for flags in [InodeFlags::empty(), IN_PLACE] {
        let Some((inode, done)) = beside(flags, DirectAt::Offset(0), Ok(()), within) else { return };
        done.expect("it went well");
        assert_all_is_back(&inode);
    }
    let beyond = |inode: &Inode| {
        assert!(inode.lock_shared(Wait::No).is_err(), "INODE-7: what grows the file has it alone");
        assert_eq!(inode.item(Wait::No).expect("it lives").size, 8 * SECTOR, "it has not grown yet");
    };
    let Some((inode, done)) = beside(IN_PLACE, DirectAt::End, Ok(()), beyond) else { return };
    done.expect("it went well");
    assert_eq!(inode.item(Wait::No).expect("it lives").size, 10 * SECTOR);
    assert_all_is_back(&inode);
}
