//! Snapshots while data is in flight into preallocated space.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use creamery::id::TreeId;
use creamery::{Image, Result};
use creamery_base::{Env, SystemEnv, Timespec, Uuid, Wait};
use creamery_device::{Access, FileDevice, Hook, Hooked, Request};
use creamery_fs::{Fallocate, Filesystem, FsOptions, NewInode};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

const LEN: usize = 65536;
/// The name of the thread that writes.
const WRITES: &str = "writes";

/// The progress of both threads.
#[derive(Default)]
struct Steps {
    /// The snapshot has written back delayed data, and has not begun yet.
    flushed: bool,
    /// The device has the data and does not answer.
    is_writing: bool,
    is_taken: bool,
}

#[derive(Default)]
struct Order {
    at_uuid: AtomicBool,
    at_write: AtomicBool,
    steps: Mutex<Steps>,
    changed: Condvar,
}

impl Order {
    fn set(&self, set: impl FnOnce(&mut Steps)) {
        set(&mut self.steps.lock().expect("nobody panicked"));
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&Steps) -> bool) {
        let steps = self.steps.lock().expect("nobody panicked");
        drop(self.changed.wait_while(steps, |steps| !until(steps)).expect("nobody panicked"));
    }
}

struct Ordered(Arc<Order>);

impl Env for Ordered {
    fn now(&self) -> Timespec {
        SystemEnv.now()
    }

    fn monotonic(&self) -> Duration {
        SystemEnv.monotonic()
    }

    fn uuid(&self) -> Uuid {
        if self.0.at_uuid.swap(false, Ordering::SeqCst) {
            self.0.set(|steps| steps.flushed = true);
            self.0.wait(|steps| steps.is_writing);
        }
        SystemEnv.uuid()
    }
}

impl Hook for Ordered {
    fn before(&self, request: &Request) -> Result<()> {
        let writes = !matches!(request, Request::Read { .. } | Request::Flush);
        if writes
            && std::thread::current().name() == Some(WRITES)
            && self.0.at_write.swap(false, Ordering::SeqCst)
        {
            self.0.set(|steps| steps.is_writing = true);
            self.0.wait(|steps| steps.is_taken);
        }
        Ok(())
    }
}

fn acknowledged_data_stays(delayed_bytes: u64) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let image = dir.path().join("disk.img");
    Image::make(&image).size(256 << 20).run()?;
    let order = Arc::new(Order::default());
    let device = FileDevice::open(&image, Access::ReadWrite)?;
    let device = Hooked::new(Arc::new(device), Ordered(Arc::clone(&order)));
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite)?;
    let env = Arc::new(Ordered(Arc::clone(&order)));
    let engine = Engine::open(volume, Options { env, ..Options::default() })?;
    let fs = Filesystem::open(engine, FsOptions { delayed_bytes, ..FsOptions::default() })?;
    let top = fs.root(TreeId::FS)?;
    let root = fs.create_subvolume(top, b"work", &NewInode::directory(0o755))?;
    let file = fs.create_open(root, b"file", &NewInode::file(0o644))?.1;
    file.fallocate(Fallocate::Allocate { keep_size: false }, 0, 1 << 20)?;
    fs.sync()?;
    order.at_uuid.store(true, Ordering::SeqCst);
    let writes = std::thread::Builder::new().name(WRITES.to_owned()).spawn({
        let (order, file) = (Arc::clone(&order), Arc::clone(&file));
        move || {
            order.wait(|steps| steps.flushed);
            order.at_write.store(true, Ordering::SeqCst);
            file.write_at(0, &[7; LEN]).and_then(|_| file.sync())
        }
    })?;
    let snapshot = fs.create_snapshot(root.subvolume, top, b"before", true)?;
    order.set(|steps| steps.is_taken = true);
    writes.join().expect("no panic")?;
    let mut found = vec![1; LEN];
    file.read_at(0, &mut found, Wait::Yes)?;
    assert!(found == [7; LEN], "acknowledged data reads as {}", found[0]);
    let before = fs.open_file(fs.lookup(snapshot, b"file", Wait::Yes)?)?;
    before.read_at(0, &mut found, Wait::Yes)?;
    assert!(found == [0; LEN], "what came later is in the snapshot: {}", found[0]);
    drop((file, before));
    fs.shut_down()
}

#[test]
fn data_that_goes_there_at_once() -> Result<()> {
    acknowledged_data_stays(0)
}

#[test]
fn data_that_was_delayed() -> Result<()> {
    acknowledged_data_stays(FsOptions::default().delayed_bytes)
}
