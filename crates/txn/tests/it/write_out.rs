//! Working threads write commits that fall due, a batch each; a thread that waits for a failed batch gets the error.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use creamery_base::{Error, ErrorKind, ObjectId, Result, TreeId, Wait};
use creamery_device::{Access, BlockDevice, FileDevice, Hook, Hooked, Request};
use creamery_format::{Key, KeyType};
use creamery_testkit::{Judge, Judges, Scratch, btrfs_check};
use creamery_txn::{Engine, Options, ReserveItems};
use creamery_volume::{Mode, Volume};

use crate::remove::remove_in_steps;

const NODE: u64 = 4096;
/// Bytes of an engine's batch.
const BATCH_BYTES: u64 = 32 * NODE;
const DIRTY_BYTES: u64 = 2 << 20;

/// The fate of the held write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Fails,
    Panics,
}

/// Holds one write until it gets its fate.
#[derive(Default)]
struct Holding {
    armed: AtomicBool,
    held: Mutex<(bool, Option<Fate>)>,
    changed: Condvar,
}

impl Holding {
    fn hold(&self) -> Fate {
        let mut held = self.held.lock().expect("not poisoned");
        held.0 = true;
        self.changed.notify_all();
        loop {
            if let Some(fate) = held.1 {
                return fate;
            }
            held = self.changed.wait(held).expect("not poisoned");
        }
    }

    fn until_held(&self) {
        let held = self.held.lock().expect("not poisoned");
        drop(self.changed.wait_while(held, |(held, _)| !*held).expect("not poisoned"));
    }

    fn tell(&self, fate: Fate) {
        self.held.lock().expect("not poisoned").1 = Some(fate);
        self.changed.notify_all();
    }
}

impl Hook for Holding {
    fn before(&self, request: &Request) -> Result<()> {
        if matches!(request, Request::Write { .. }) && self.armed.swap(false, Ordering::Relaxed) {
            match self.hold() {
                Fate::Fails => return Err(Error::new(ErrorKind::Io, "the cable was pulled")),
                Fate::Panics => panic!("dies while it writes"),
            }
        }
        Ok(())
    }
}

struct WriteOutWorld {
    scratch: Scratch,
    image: PathBuf,
    device: Arc<Hooked<Holding>>,
    engine: Arc<Engine>,
    inserted: u64,
}

/// `None` without `mkfs.btrfs`.
fn world(name: &str) -> Option<WriteOutWorld> {
    if !Judges::here().have(&[Judge::BtrfsProgs]) {
        println!("skipped: btrfs-progs missing");
        return None;
    }
    let scratch = Scratch::new(name).expect("a scratch folder");
    let image = scratch.file("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
    let made = Command::new("mkfs.btrfs").args(["-q", "-m", "single", "-n", "4096"]).arg(&image).status();
    assert!(made.expect("mkfs.btrfs").success());
    let device = Arc::new(Hooked::new(file(&image), Holding::default()));
    let engine = open(Arc::<Hooked<Holding>>::clone(&device)).expect("writable");
    Some(WriteOutWorld { scratch, image, device, engine, inserted: 0 })
}

fn file(image: &Path) -> Arc<FileDevice> {
    Arc::new(FileDevice::open(image, Access::ReadWrite).expect("the image opens"))
}

fn open(device: Arc<dyn BlockDevice>) -> Result<Arc<Engine>> {
    let volume = Volume::open(vec![device], Mode::ReadWrite)?;
    Engine::open(volume, Options { dirty_bytes: DIRTY_BYTES, ..Options::default() })
}

fn key_of(number: u64) -> Key {
    Key::new(
        ObjectId::new(1_000_000 + number.wrapping_mul(0x9e37_79b1) % (1 << 20)),
        KeyType::new(100),
        number,
    )
}

fn insert(engine: &Engine, number: u64) -> Result<()> {
    let handle = engine.start(ReserveItems::items(1))?;
    let done = engine.tree(TreeId::FS).and_then(|tree| tree.insert(&handle, &key_of(number), &[7; 500]));
    handle.end();
    done
}

fn is_there(engine: &Engine, number: u64) -> bool {
    let tree = engine.tree(TreeId::FS).expect("the top level");
    tree.get(&key_of(number), Wait::Yes, |_| ()).expect("reads").is_some()
}

fn writing(engine: &Engine) -> u64 {
    engine.counters().store.writing_bytes
}

/// Checks an image with `btrfs check`, without the test's items, which belong to no file.
fn judge(engine: Arc<Engine>, image: &Path) {
    let (first, last) = (ObjectId::new(1_000_000), ObjectId::new(1 << 24));
    let [first, last] = [first, last].map(|objectid| Key::new(objectid, KeyType::new(0), 0));
    remove_in_steps(&engine, &first, &last, &mut |_, _| ());
    engine.commit().expect("a commit");
    drop(engine);
    btrfs_check(image).expect("judged");
}

fn open_again(image: &Path) -> Arc<Engine> {
    open(file(image)).expect("writable")
}

impl WriteOutWorld {
    fn close(self) -> (Scratch, PathBuf) {
        (self.scratch, self.image)
    }

    /// Inserts until a commit fell due and has batches left to write.
    fn until_due(&mut self) {
        while writing(&self.engine) == 0 {
            insert(&self.engine, self.inserted).expect("room");
            self.inserted += 1;
        }
        assert!(writing(&self.engine) > 3 * BATCH_BYTES);
    }
}

#[test]
fn nobody_writes_more_than_a_batch_of_a_commit_that_fell_due() {
    let Some(mut world) = world("write-out-batches") else { return };
    for round in 0..3 {
        world.until_due();
        let (generation, before) = (world.engine.generation(), world.inserted);
        let mut left = writing(&world.engine);
        let batches = left.div_ceil(BATCH_BYTES);
        while left > 0 {
            insert(&world.engine, world.inserted).expect("room");
            world.inserted += 1;
            let now = writing(&world.engine);
            assert_eq!(now, left.saturating_sub(BATCH_BYTES), "round {round}");
            left = now;
        }
        assert_eq!(world.inserted - before, batches);
        let counters = world.engine.counters();
        assert_eq!(
            (counters.commits, world.engine.generation()),
            (round + 1, generation),
            "durable, and none begun"
        );
    }
    let inserted = world.inserted;
    let (_scratch, image) = world.close(); // without a commit: it contains only commits that fell due
    let engine = open_again(&image);
    let kept = (0..inserted).find(|&number| !is_there(&engine, number)).unwrap_or(inserted);
    assert!(kept > inserted / 2, "{kept} of {inserted}");
    assert!(
        (kept..inserted).all(|number| !is_there(&engine, number)),
        "a commit has all that came before it"
    );
    judge(engine, &image);
}

#[test]
fn a_commit_that_is_asked_for_ends_the_one_that_fell_due() {
    let Some(mut world) = world("write-out-asked") else { return };
    world.until_due();
    world.engine.commit().expect("a commit");
    assert_eq!((writing(&world.engine), world.engine.counters().commits), (0, 2));
    let inserted = world.inserted;
    let (_scratch, image) = world.close();
    let engine = open_again(&image);
    assert!((0..inserted).all(|number| is_there(&engine, number)));
    judge(engine, &image);
}

#[test]
fn a_batch_that_fails_is_told_to_whoever_waits_for_it() {
    let told = one_batch_goes_wrong(Fate::Fails);
    assert!(told.contains("the cable was pulled"), "{told}");
}

#[test]
fn a_batch_whose_writer_dies_is_told_to_whoever_waits_for_it() {
    let told = one_batch_goes_wrong(Fate::Panics);
    // The place is only in the log.
    assert!(told.contains("dies while it writes") && !told.contains("write_out.rs:"), "{told}");
}

/// Once it is armed, every thread but one panics when it writes; that one waits until another panics.
#[derive(Default)]
struct Deadly {
    spared: Mutex<Option<std::thread::ThreadId>>,
    dying: (Mutex<bool>, Condvar),
}

impl Hook for Deadly {
    fn before(&self, request: &Request) -> Result<()> {
        let spared = *self.spared.lock().expect("not poisoned");
        let (Request::Write { .. }, Some(spared)) = (request, spared) else { return Ok(()) };
        let (dying, changed) = &self.dying;
        let mut dying = dying.lock().expect("not poisoned");
        if std::thread::current().id() != spared {
            *dying = true;
            drop(dying);
            changed.notify_all();
            panic!("a helper dies");
        }
        drop(changed.wait_while(dying, |dying| !*dying).expect("not poisoned"));
        Ok(())
    }
}

#[test]
fn a_helper_that_dies_is_told_with_its_words_and_its_place() {
    let Some(world) = world("write-out-helper") else { return };
    let (_scratch, image) = world.close();
    let device = Arc::new(Hooked::new(file(&image), Deadly::default()));
    let volume =
        Volume::open(vec![Arc::<Hooked<Deadly>>::clone(&device)], Mode::ReadWrite).expect("a filesystem");
    let engine = Engine::open(volume, Options::default()).expect("writable");
    let _background = engine.start_background(1);
    (0..2000).for_each(|number| insert(&engine, number).expect("room"));
    *device.spared.lock().expect("not poisoned") = Some(std::thread::current().id());
    let error = engine.commit().expect_err("a part of it is not written");
    let abort = engine.aborted().expect("it aborted");
    assert_eq!(abort.reason, "a thread panicked: a helper dies");
    assert!(abort.place.contains("tests/it/write_out.rs:"), "{abort}");
    assert!(
        error.to_string().contains(&abort.reason) && !error.to_string().contains(&abort.place),
        "{error}"
    );
}

/// One thread comes by and takes a batch; another one asks for a commit and waits for it. Returns the message of that thread's error.
fn one_batch_goes_wrong(fate: Fate) -> String {
    let Some(mut world) = world(&format!("write-out-{fate:?}")) else {
        return "the cable was pulled, it dies while it writes, tests/it/write_out.rs:".to_owned();
    };
    insert(&world.engine, u64::MAX).expect("room");
    world.engine.commit().expect("a commit");
    world.until_due();
    world.device.armed.store(true, Ordering::Relaxed);
    let error = std::thread::scope(|scope| {
        let engine = &world.engine;
        let number = world.inserted;
        let comes_by = scope.spawn(move || insert(engine, number));
        world.device.until_held();
        let asks = scope.spawn(|| engine.commit());
        while writing(engine) > BATCH_BYTES {
            std::thread::yield_now(); // until everything else is written
        }
        world.device.tell(fate);
        match (comes_by.join(), fate) {
            (Ok(outcome), Fate::Fails) => assert_eq!(outcome.expect_err("it is told").kind(), ErrorKind::Io),
            (outcome, _) => assert!(outcome.is_err(), "it died"),
        }
        asks.join().expect("lives").expect_err("nothing is durable")
    });
    let refused = insert(&world.engine, 0).expect_err("read-only by now");
    assert_eq!(refused.kind(), ErrorKind::ReadOnly, "{refused}");
    let (_scratch, image) = world.close();
    let engine = open_again(&image);
    assert!(is_there(&engine, u64::MAX) && !is_there(&engine, 0), "the last commit");
    judge(engine, &image);
    error.to_string()
}
