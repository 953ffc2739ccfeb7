//! Snapshots beside direct writes in place whose device takes its time.

use std::cell::Cell;
use std::sync::Arc;
use std::thread;

use creamery_base::{ErrorKind, InodeId, TreeId, Wait};
use creamery_device::AlignedBuffer;

use super::answering::{Answering, How, MARKED};
use super::submitted::submit_sectors;
use super::{IN_PLACE, content, counted, direct, put, queued, sectors};
use crate::Refusal;
use crate::data::tests::support::*;
use crate::direct::{DirectAt, DirectRequest};
use crate::filesystem::Filesystem;
use crate::names::{NewInode, SnapshotOptions};
use crate::open_file::OpenFile;
use crate::options::FsOptions;

/// A filesystem behind a device that answers when the test calls `answer`, and two files of eight sectors, 1 in each byte: one that is
/// written in place, and one that is not.
pub(super) struct SnapshotWorld {
    pub(super) fs: Arc<Filesystem>,
    pub(super) device: Arc<Answering>,
    top: InodeId,
    pub(super) file: Arc<OpenFile>,
    pub(super) other: Arc<OpenFile>,
}

impl SnapshotWorld {
    pub(super) fn new(options: FsOptions) -> Option<Self> {
        let (engine, device) = fixture(Kind::DEFAULT)?.on(Answering::new);
        let fs = Filesystem::open(engine, options).expect("it opens");
        let top = fs.root(TreeId::FS).expect("a root");
        let [file, other] = [b"file".as_slice(), b"other"].map(|name| {
            let (_, file) = fs.create_open(top, name, &NewInode::file(0o644)).expect("room");
            if name == b"file" {
                set_flags(file.inode(), IN_PLACE);
            }
            direct(&file, 0, &sectors(8, 1));
            file
        });
        fs.sync().expect("room");
        Some(Self { fs, device, top, file, other })
    }

    /// Takes a snapshot called `name`, unless `is_interrupted` returns true.
    pub(super) fn snapshot(
        &self,
        name: &[u8],
        is_interrupted: &dyn Fn() -> bool,
    ) -> creamery_base::Result<InodeId> {
        let options = SnapshotOptions::default();
        self.fs.create_snapshot_unless(TreeId::FS, (self.top, name), options, is_interrupted)
    }

    /// The content, in a snapshot, of the file that is written in place.
    pub(super) fn content_in(&self, snapshot: InodeId) -> Vec<u8> {
        let id = self.fs.lookup(snapshot, b"file", Wait::Yes).expect("it was there");
        content(&self.fs.open_file(id).expect("a file"))
    }

    /// The device answers all its requests, and the landed ones are completed.
    fn answer_all(&self) {
        while self.device.kept() > 0 {
            self.device.answer(0, How::Done);
        }
        while self.file.inode().context().in_flight().help() {}
    }
}

fn nothing_to_wait_for() -> bool {
    panic!("nothing in flight is written in place")
}

#[test]
fn a_snapshot_that_waits_for_a_write_in_place_is_interrupted_and_names_the_inode() {
    let Some(world) = SnapshotWorld::new(queued()) else { return };
    let SnapshotWorld { fs, device, top, file, .. } = &world;
    let answer = submit_sectors(file, DirectAt::Offset(SECTOR), MARKED, 2);
    assert_eq!(device.kept(), 1, "it is on its way");
    let asked = Cell::new(0);
    let is_interrupted = || {
        asked.set(asked.get() + 1);
        asked.get() == 2
    };
    let error = world.snapshot(b"before", &is_interrupted).expect_err("the device does not answer");
    assert_eq!((error.kind(), asked.get()), (ErrorKind::Interrupted, 2));
    let ino = file.inode().id.ino;
    let said = error.to_string();
    assert!(said.contains("of subvolume 5 ") && said.contains(&format!("inode {ino}")), "{said}");
    assert!(error.advice().is_some_and(|advice| advice.contains("inode-resolve")), "{error:?}");
    let found = fs.lookup(*top, b"before", Wait::Yes).map_err(|error| error.kind());
    assert_eq!(found.err(), Some(ErrorKind::NotFound), "nothing has happened");
    // Writes in place begin again.
    let again = submit_sectors(file, DirectAt::Offset(4 * SECTOR), MARKED + 1, 2);
    device.answer(1, How::Done);
    assert!(file.inode().context().in_flight().help());
    again.recv().expect("DIRECT-2").outcome.expect("it is written");
    assert_eq!(counted(file)[..2], [2 * SECTOR, 16 * SECTOR], "in place");
    device.answer(0, How::Done);
    let snapshot = world.snapshot(b"before", &|| false).expect("the device has answered");
    answer.try_recv().expect("DIRECT-9: it was completed first").outcome.expect("it is written");
    assert_eq!(counted(file)[..2], [4 * SECTOR, 16 * SECTOR], "in place");
    let mut wanted = sectors(8, 1);
    put(&mut wanted, SECTOR, &sectors(2, MARKED));
    put(&mut wanted, 4 * SECTOR, &sectors(2, MARKED + 1));
    direct(file, 0, &sectors(8, 9));
    assert_eq!(counted(file)[..2], [4 * SECTOR, 24 * SECTOR], "the snapshot has what was there");
    assert!(world.content_in(snapshot) == wanted && content(file) == sectors(8, 9));
}

#[test]
fn a_snapshot_waits_for_no_request_that_its_caller_still_holds() {
    let Some(world) = SnapshotWorld::new(FsOptions { direct_bytes: 2 * SECTOR, ..queued() }) else {
        return;
    };
    let SnapshotWorld { device, file, other, .. } = &world;
    let write = |byte| DirectRequest::Write {
        at: DirectAt::Offset(0),
        data: AlignedBuffer::from_slice(&sectors(2, byte)),
    };
    // It was refused, and may be submitted again.
    device.is_full(true);
    let refused = file.try_submit_direct(write(MARKED), Box::new(|_| ())).expect_err("the device is busy");
    assert_eq!(refused.why, Refusal::DeviceBusy);
    device.is_full(false);
    let first = world.snapshot(b"first", &nothing_to_wait_for).expect("room");
    file.submit_direct(refused.request, refused.done);
    world.answer_all();
    // It stands in line, behind a read that the device does not answer.
    submit_sectors(other, DirectAt::Offset(0), MARKED, 2);
    world.answer_all();
    device.keep_reads(true);
    let read = DirectRequest::Read { offset: 0, buffer: AlignedBuffer::zeroed(sectors(2, 0).len()) };
    other.submit_direct(read, Box::new(|_| ()));
    assert_eq!(device.kept(), 1, "it takes all the room");
    let second = thread::scope(|scope| {
        let stands = scope.spawn(|| file.submit_direct(write(MARKED + 1), Box::new(|_| ())));
        let second = world.snapshot(b"second", &nothing_to_wait_for).expect("room");
        device.keep_reads(false);
        device.answer(0, How::Done);
        stands.join().expect("it has room");
        second
    });
    world.answer_all();
    assert!(world.content_in(first) == sectors(8, 1), "what came later is not in it");
    let with_front = |byte| [sectors(2, byte), sectors(6, 1)].concat();
    assert!(world.content_in(second) == with_front(MARKED));
    assert!(content(file) == with_front(MARKED + 1));
}
