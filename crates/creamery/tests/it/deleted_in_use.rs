//! Subvolumes that are deleted while a thread works in them, or is about to.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use creamery::id::TreeId;
use creamery::{Image, Result};
use creamery_base::{Env, InodeId, SystemEnv, Timespec, Uuid};
use creamery_device::{Access, FileDevice};
use creamery_fs::{Cleaning, Filesystem, FsOptions, NewInode};
use creamery_testkit::{ThreadWatch, wait_until};
use creamery_txn::{Engine, Options};
use creamery_volume::{Mode, Volume};

const DIRECTORY: u32 = 0o755;
/// The name of the thread that is stopped on its way.
const SLOW: &str = "slow";

fn open(image: &Path, env: Arc<dyn Env>) -> Result<Arc<Filesystem>> {
    Image::make(image).size(256 << 20).run()?;
    let device = FileDevice::open(image, Access::ReadWrite)?;
    let volume = Volume::open(vec![Arc::new(device)], Mode::ReadWrite)?;
    Filesystem::open(Engine::open(volume, Options { env, ..Options::default() })?, FsOptions::default())
}

/// Makes the subvolume `work` with the directory `below` in it, durably.
fn work(fs: &Filesystem) -> Result<InodeId> {
    let top = fs.root(TreeId::FS)?;
    let root = fs.create_subvolume(top, b"work", &NewInode::directory(DIRECTORY))?;
    let below = fs.create(root, b"below", &NewInode::directory(DIRECTORY))?.id;
    fs.sync()?;
    Ok(below)
}

/// Drops everything that is deleted.
fn clean(fs: &Filesystem) -> Result<()> {
    for _ in 0..1000 {
        fs.sync()?;
        if fs.clean_step()? == Cleaning::Idle && fs.dead_subvolumes().is_empty() {
            return Ok(());
        }
    }
    panic!("what is deleted is not dropped: {:?}", fs.dead_subvolumes());
}

#[test]
fn what_was_put_off_in_a_deleted_subvolume_is_not_written_into_what_was_dropped() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let fs = open(&dir.path().join("disk.img"), Arc::new(SystemEnv))?;
    let below = work(&fs)?;
    let file = fs.create_open(below, b"file", &NewInode::file(0o644))?.1;
    fs.sync()?;
    let open = fs.open_file(below)?;
    fs.delete_subvolume(fs.root(TreeId::FS)?, b"work")?;
    fs.sync()?;
    // The next commit writes the directory's own item.
    fs.unlink(below, b"file")?;
    drop((file, open));
    clean(&fs)?;
    fs.shut_down()
}

/// Stops a thread when it reads the clock.
#[derive(Default)]
struct Stopped {
    armed: AtomicBool,
    /// Whether it has stopped, and whether it may go on.
    at: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Stopped {
    fn set(&self, set: impl FnOnce(&mut (bool, bool))) {
        set(&mut self.at.lock().expect("nobody panicked"));
        self.changed.notify_all();
    }

    fn wait(&self, until: impl Fn(&(bool, bool)) -> bool) {
        let at = self.at.lock().expect("nobody panicked");
        drop(self.changed.wait_while(at, |at| !until(at)).expect("nobody panicked"));
    }
}

impl Env for Stopped {
    fn now(&self) -> Timespec {
        if std::thread::current().name() == Some(SLOW) && self.armed.swap(false, Ordering::SeqCst) {
            self.set(|at| at.0 = true);
            self.wait(|at| at.1);
        }
        SystemEnv.now()
    }

    fn monotonic(&self) -> Duration {
        SystemEnv.monotonic()
    }

    fn uuid(&self) -> Uuid {
        SystemEnv.uuid()
    }
}

#[test]
fn a_file_that_is_being_made_when_its_subvolume_goes() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let stopped = Arc::new(Stopped::default());
    let fs = open(&dir.path().join("disk.img"), Arc::clone(&stopped) as Arc<dyn Env>)?;
    let below = work(&fs)?;
    stopped.armed.store(true, Ordering::SeqCst);
    let slow = std::thread::Builder::new().name(SLOW.to_owned()).spawn({
        let fs = Arc::clone(&fs);
        move || fs.create(below, b"late", &NewInode::file(0o644)).map(drop)
    })?;
    stopped.wait(|at| at.0);
    fs.delete_subvolume(fs.root(TreeId::FS)?, b"work")?;
    fs.sync()?;
    stopped.set(|at| at.1 = true);
    // Either it was made in a directory without a name, or it was refused.
    let _ = slow.join().expect("no panic");
    clean(&fs)?;
    fs.shut_down()
}

/// Stops a thread while it makes a subvolume, which blocks changes of subvolumes by others.
#[derive(Default)]
struct SlowSubvolume(Stopped);

impl Env for SlowSubvolume {
    fn now(&self) -> Timespec {
        SystemEnv.now()
    }

    fn monotonic(&self) -> Duration {
        SystemEnv.monotonic()
    }

    fn uuid(&self) -> Uuid {
        if self.0.armed.swap(false, Ordering::SeqCst) {
            self.0.set(|at| at.0 = true);
            self.0.wait(|at| at.1);
        }
        SystemEnv.uuid()
    }
}

#[test]
fn the_default_is_never_one_that_is_deleted() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let env = Arc::new(SlowSubvolume::default());
    let fs = open(&dir.path().join("disk.img"), Arc::clone(&env) as Arc<dyn Env>)?;
    let top = fs.root(TreeId::FS)?;
    let [one, other] = [&b"one"[..], b"other"]
        .map(|name| fs.create(top, name, &NewInode::directory(DIRECTORY)).map(|inode| inode.id));
    let (one, other) = (one?, other?);
    for round in 0..5 {
        let work = fs.create_subvolume(one, b"work", &NewInode::directory(DIRECTORY))?;
        env.0.set(|at| *at = (false, false));
        env.0.armed.store(true, Ordering::SeqCst);
        let (deletes, sets) = (ThreadWatch::default(), ThreadWatch::default());
        std::thread::scope(|scope| {
            let name = format!("made-{round}").into_bytes();
            let fs = &fs;
            scope.spawn(move || {
                fs.create_subvolume(other, &name, &NewInode::directory(DIRECTORY)).expect("made")
            });
            env.0.wait(|at| at.0);
            // Each waits for the subvolume that is being made, or does not need to.
            let delete = scope.spawn(|| {
                deletes.this_thread();
                fs.delete_subvolume(one, b"work").map(drop)
            });
            wait_until("the deletion", || deletes.waits() || delete.is_finished());
            let set = scope.spawn(|| {
                sets.this_thread();
                fs.set_default_subvolume(work.subvolume)
            });
            wait_until("the new default", || sets.waits() || set.is_finished());
            env.0.set(|at| at.1 = true);
        });
        let default = fs.default_subvolume();
        assert!(!fs.dead_subvolumes().contains(&default), "the default, {default}, is deleted");
        fs.set_default_subvolume(TreeId::FS)?;
        let _ = fs.delete_subvolume(one, b"work");
    }
    fs.shut_down()
}
