//! The order of writeback, and the threads that wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use creamery_base::sync::{Condvar, Mutex};
use creamery_base::{Env, Result, SystemEnv, Timespec, Uuid};
use creamery_device::{Hook, Request};
use creamery_testkit::{ThreadWatch, wait_until};

use super::{MARK, MIB, delayed, is_marked, open};
use crate::data::tests::support::*;
use crate::inode::InodeFlags;
use crate::names::NewInode;
use crate::options::FsOptions;

const SECOND: Duration = Duration::from_secs(1);

/// A clock that stands at the seconds that a test sets.
#[derive(Default)]
struct Clock(AtomicU64);

impl Env for Clock {
    fn now(&self) -> Timespec {
        SystemEnv.now()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    fn uuid(&self) -> Uuid {
        SystemEnv.uuid()
    }
}

/// A file that is synced and written again begins anew behind those that wait for longer.
#[test]
fn who_is_written_and_synced_again_and_again_keeps_nobody_from_being_due() {
    let Some(fixture) = fixture(Kind::DEFAULT) else { return };
    let clock = Arc::new(Clock::default());
    let engine = fixture.with_env(Arc::clone(&clock) as _);
    let fs = open(&engine, FsOptions::default());
    let root = fs.root(fs.default_subvolume()).expect("a root");
    let make = |name: &[u8]| fs.create_open(root, name, &NewInode::file(0o644)).expect("room").1;
    let (log, other) = (make(b"log"), make(b"other"));
    engine.commit_every(Some(10 * SECOND));
    let writeback = other.inode().context().writeback();
    log.write_at(0, b"data").expect("room");
    other.write_at(0, b"data").expect("room");
    for second in 0..10 {
        assert_ne!(writeback.due(&engine), creamery_txn::Due::Now, "after {second} seconds");
        clock.0.fetch_add(1, Ordering::SeqCst);
        log.sync().expect("room");
        log.write_at(0, b"data").expect("room");
    }
    assert_eq!(writeback.due(&engine), creamery_txn::Due::Now);
    assert!(writeback.step());
    assert!(!other.inode().file().delalloc().any() && log.inode().file().delalloc().any());
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
    let writeback = other.inode().context().writeback();
    for piece in [0, 2, 4, 6] {
        busy.write_at(piece * PIECE, b"data").expect("room");
    }
    other.write_at(0, b"data").expect("room");
    for _ in 0..5 {
        busy.write_at(0, b"more").expect("room");
        assert!(writeback.step());
    }
    let ranges: Vec<_> = busy
        .inode()
        .file()
        .delalloc()
        .look(|state| state.expect("it is dirty").pages().pieces_from(0).collect());
    assert_eq!(ranges, [(0, 4096)]);
    assert!(!other.inode().file().delalloc().any(), "the other file's turn has come");
    fs.shut_down().expect("it closes");
}

/// Keeps data from a device until it may go on.
#[derive(Default)]
struct Slow {
    released: Mutex<bool>,
    changed: Condvar,
    /// A thread waits for it.
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
    let watch = ThreadWatch::default();
    std::thread::scope(|scope| {
        scope.spawn(|| inode.context().writeback().step());
        wait_until("the device to have a write", || device.waits.load(Ordering::Acquire));
        let writer = scope.spawn(|| {
            watch.this_thread();
            file.write_at(0, &[7; 64 << 10]).expect("room");
            delayed(&inode)
        });
        wait_until("the writer to wait", || watch.waits() || writer.is_finished());
        let is_early = writer.is_finished();
        *device.released.lock() = true;
        device.changed.notify_all();
        let bytes = writer.join().expect("it ends");
        assert!(!is_early, "{bytes} bytes are delayed");
        assert_eq!(bytes, 64 << 10);
    });
}
