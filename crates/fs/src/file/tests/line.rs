//! Who is written back when, and who waits for that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use creamery_base::Result;
use creamery_base::sync::{Condvar, Mutex};
use creamery_device::{Hook, Request};

use super::{MARK, MIB, delayed, is_marked, open};
use crate::data::tests::support::*;
use crate::inode::InodeFlags;
use crate::names::NewInode;
use crate::options::FsOptions;

/// A file that is synced and written again begins anew behind those that wait for longer.
#[test]
fn who_is_written_and_synced_again_and_again_keeps_nobody_from_being_due() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let make = |name: &[u8]| fs.create_open(root, name, &NewInode::file(0o644)).expect("room").1;
    let (log, other) = (make(b"log"), make(b"other"));
    let age = Duration::from_millis(200);
    fixture.commit_every(Some(age));
    let writeback = &other.inode().shared().writeback;
    log.write_at(0, b"data").expect("room");
    other.write_at(0, b"data").expect("room");
    let begun = fixture.env().monotonic(); // both are dirty for at least as long
    while fixture.env().monotonic() - begun <= age {
        log.sync(false).expect("room");
        log.write_at(0, b"data").expect("room");
    }
    assert_eq!(writeback.due(&fixture), creamery_txn::Due::Now);
    assert!(writeback.step());
    assert!(!other.inode().delalloc().any() && log.inode().delalloc().any());
    fs.shut_down().expect("it closes");
}

/// A page that is written again before each step, as a database does it with its first one.
#[test]
fn a_page_that_is_written_again_and_again_keeps_no_other_from_a_device() {
    const PIECE: u64 = 64 << 10;
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let fs = open(&fixture, FsOptions::default());
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let make = |name: &[u8]| fs.create_open(root, name, &NewInode::file(0o644)).expect("room").1;
    let (busy, other) = (make(b"busy"), make(b"other"));
    let writeback = &other.inode().shared().writeback;
    for piece in [0, 2, 4, 6] {
        busy.write_at(piece * PIECE, b"data").expect("room");
    }
    other.write_at(0, b"data").expect("room");
    for _ in 0..5 {
        busy.write_at(0, b"more").expect("room");
        assert!(writeback.step());
    }
    let ranges: Vec<_> =
        busy.inode().delalloc().look(|state| state.expect("it is dirty").pages().pieces_from(0).collect());
    assert_eq!(ranges, [(0, 4096)]);
    assert!(!other.inode().delalloc().any(), "the other file's turn has come");
    fs.shut_down().expect("it closes");
}

/// Keeps data from a device until it may go on.
#[derive(Default)]
struct Slow {
    released: Mutex<bool>,
    changed: Condvar,
    /// Somebody waits for it.
    waits: AtomicBool,
}

impl Hook for Slow {
    fn before(&self, request: &Request) -> Result<()> {
        if let Request::Write { data, .. } = request
            && data.iter().all(is_marked)
        {
            self.waits.store(true, Ordering::Release);
            drop(self.changed.wait_while(self.released.lock(), |released| !*released));
        }
        Ok(())
    }
}

#[test]
fn who_writes_too_much_waits_for_a_slow_device() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let (engine, device) = fixture.behind(Slow::default());
    let inode = Arc::new(new_delayed_file(&engine, 300, InodeFlags::empty(), MIB));
    let file = opened(Arc::clone(&inode));
    file.write_at(0, &vec![MARK; MIB as usize]).expect("room");
    let (send, receive) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| inode.shared().writeback.step());
        while !device.waits.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        scope.spawn(|| {
            file.write_at(0, &[7; 64 << 10]).expect("room");
            send.send(delayed(&inode)).expect("somebody looks");
        });
        let early = receive.recv_timeout(Duration::from_secs(1));
        *device.released.lock() = true;
        device.changed.notify_all();
        assert!(early.is_err(), "{early:?} bytes are delayed");
        assert_eq!(receive.recv().expect("it ends"), 64 << 10);
    });
}
