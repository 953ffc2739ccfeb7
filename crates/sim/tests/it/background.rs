//! The threads that take background steps: what fails, panics or never ends keeps nobody else, and what nobody asks for is done.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use creamery_base::{Error, ErrorKind, Result};
use creamery_device::BlockDevice;
use creamery_fs::{Access, Filesystem, FsOptions, NewInode};
use creamery_sim::{MadeBy, SimDevice, fresh_image, watched};
use creamery_testkit::wait_until;
use creamery_txn::{BackgroundThreads, BackgroundWork, Due, Engine, Options};
use creamery_volume::{Mode, Volume};

fn engine(options: Options) -> Arc<Engine> {
    let image = fresh_image(&MadeBy::default()).expect("an image");
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(image));
    Engine::open(Volume::open(vec![device], Mode::ReadWrite).expect("a filesystem"), options)
        .expect("writable")
}

/// Runs `test`, which hangs when something is wrong.
fn bounded(test: fn()) {
    watched(move |_| test());
}

/// A work whose steps are counted, and do `what` when so many are asked for.
struct Work<F> {
    name: &'static str,
    at_once: usize,
    asked: AtomicU64,
    what: F,
}

impl<F: Fn() -> Result<()> + Send + Sync + 'static> Work<F> {
    fn register(engine: &Engine, name: &'static str, at_once: usize, what: F) -> Arc<Self> {
        let work = Arc::new(Self { name, at_once, asked: AtomicU64::new(0), what });
        engine.background().register(Arc::<Self>::clone(&work));
        work
    }

    fn ask(&self, engine: &Engine, steps: u64) {
        self.asked.fetch_add(steps, Ordering::SeqCst);
        engine.background().wake();
    }

    fn is_done(&self) -> bool {
        self.asked.load(Ordering::SeqCst) == 0
    }
}

impl<F: Fn() -> Result<()> + Send + Sync> BackgroundWork for Work<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn due(&self) -> Due {
        if self.asked.load(Ordering::SeqCst) > 0 { Due::Now } else { Due::Never }
    }

    fn step(&self) -> Result<()> {
        let less = |asked: u64| asked.checked_sub(1);
        if self.asked.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return (self.what)();
        }
        Ok(())
    }

    fn at_once(&self) -> usize {
        self.at_once
    }
}

fn report(engine: &Engine, name: &str) -> creamery_txn::BackgroundReport {
    engine.background().report().into_iter().find(|work| work.name == name).expect("it is registered")
}

#[test]
fn who_has_something_due_wakes_who_sleeps() {
    bounded(|| {
        let engine = engine(Options::default());
        let work = Work::register(&engine, "counted", 1, || Ok(()));
        let threads = engine.start_background(2);
        for _ in 0..20_000 {
            work.ask(&engine, 1);
            while !work.is_done() {
                std::thread::yield_now();
            }
        }
        threads.stop().expect("they end");
        assert_eq!(report(&engine, "counted").failures, 0);
    });
}

#[test]
fn a_step_that_fails_is_told_and_keeps_nobody() {
    bounded(|| {
        let engine = engine(Options::default());
        let failing =
            Work::register(&engine, "failing", 1, || Err(Error::new(ErrorKind::NoSpace, "for now")));
        let other = Work::register(&engine, "other", 1, || Ok(()));
        let threads = engine.start_background(1);
        failing.ask(&engine, 2);
        wait_until("it has failed", || report(&engine, "failing").failures == 1);
        other.ask(&engine, 10);
        wait_until("the other one is done", || other.is_done());
        let told = report(&engine, "failing");
        assert_eq!((told.steps, told.failures, failing.is_done()), (1, 1, false), "it rests");
        assert!(told.last_failure.is_some_and(|failure| failure.contains("for now")));
        wait_until("it is tried again", || report(&engine, "failing").failures == 2);
        assert_eq!(engine.aborted(), None);
        threads.stop().expect("they end");
    });
}

#[test]
fn a_step_that_panics_aborts_with_its_words_and_its_place() {
    bounded(|| {
        let engine = engine(Options::default());
        let panicking = Work::register(&engine, "panicking", 1, || panic!("a step dies"));
        let other = Work::register(&engine, "other", 1, || Ok(()));
        let threads = engine.start_background(1);
        panicking.ask(&engine, 1);
        wait_until("it has aborted", || engine.aborted().is_some());
        let abort = engine.aborted().expect("just seen");
        assert_eq!(abort.reason, "a thread panicked: a step dies");
        assert!(abort.place.contains("tests/it/background.rs"), "{abort}");
        other.ask(&engine, 1);
        wait_until("the thread lives", || other.is_done());
        threads.stop().expect("they end");
    });
}

/// A work that dies of being asked.
struct Unanswering;

impl BackgroundWork for Unanswering {
    fn name(&self) -> &'static str {
        "unanswering"
    }

    fn due(&self) -> Due {
        panic!("a question kills it")
    }

    fn step(&self) -> Result<()> {
        Ok(())
    }
}

#[test]
fn a_work_that_panics_when_it_is_asked_whether_it_is_due_aborts_and_keeps_nobody() {
    bounded(|| {
        let engine = engine(Options::default());
        let other = Work::register(&engine, "other", 1, || Ok(()));
        engine.background().register(Arc::new(Unanswering));
        let threads = engine.start_background(1);
        wait_until("it has aborted", || engine.aborted().is_some());
        assert_eq!(engine.aborted().expect("just seen").reason, "a thread panicked: a question kills it");
        other.ask(&engine, 1);
        wait_until("the thread lives", || other.is_done());
        let told = report(&engine, "unanswering");
        assert_eq!((told.steps, told.failures), (0, 1), "{told}");
        threads.stop().expect("they end");
    });
}

#[test]
fn a_step_that_never_ends_keeps_nobody_and_is_named_when_its_thread_is_left_behind() {
    bounded(|| {
        let engine = engine(Options::default());
        let (release, held): (Sender<()>, Receiver<()>) = channel();
        let held = Mutex::new(held);
        let endless = Work::register(&engine, "endless", 1, move || {
            let _ = held.lock().expect("not poisoned").recv();
            Ok(())
        });
        let other = Work::register(&engine, "other", 1, || Ok(()));
        let threads = engine.start_background(2);
        endless.ask(&engine, 2);
        wait_until("it has begun", || report(&engine, "endless").running.is_some());
        other.ask(&engine, 10);
        wait_until("the other one is done", || other.is_done());
        engine.commit().expect("a commit needs it not");
        let error = threads.stop_within(Duration::ZERO).expect_err("it does not end");
        assert!(error.to_string().contains("endless: 1 steps, one for"), "{error}");
        engine.shut_down().expect("closing needs it not");
        drop(release);
    });
}

#[test]
fn no_more_threads_than_a_work_says_take_its_steps() {
    bounded(|| {
        let engine = engine(Options::default());
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, seen) = (Arc::clone(&now), Arc::clone(&most));
        // Each step ends with another one, so a second thread has to come; a third one would be met in between.
        let two = Barrier::new(2);
        let pair = Work::register(&engine, "pair", 2, move || {
            let together = counted.fetch_add(1, Ordering::SeqCst) + 1;
            seen.fetch_max(together, Ordering::SeqCst);
            two.wait();
            std::thread::yield_now();
            counted.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        });
        let threads = engine.start_background(4);
        pair.ask(&engine, 200);
        wait_until("all steps are done", || pair.is_done() && now.load(Ordering::SeqCst) == 0);
        threads.stop().expect("they end");
        assert_eq!(most.load(Ordering::SeqCst), 2);
    });
}

fn filesystem(engine: &Arc<Engine>) -> Arc<Filesystem> {
    Filesystem::open(Arc::clone(engine), FsOptions { cleaning_steps: 0, ..FsOptions::default() })
        .expect("it opens")
}

#[test]
fn what_nobody_asks_for_is_committed_in_time() {
    bounded(|| {
        let engine = engine(Options::default());
        let fs = filesystem(&engine);
        let threads = engine.start_background(BackgroundThreads::usual());
        let root = fs.root(fs.default_subvolume()).expect("the root");
        fs.create(root, b"made", &NewInode::file(0o644)).expect("made");
        let before = engine.counters().commits;
        engine.commit_every(Some(Duration::from_millis(20)));
        wait_until("it is durable", || engine.counters().commits > before);
        engine.commit_every(None);
        threads.stop().expect("they end");
    });
}

#[test]
fn a_commit_that_falls_due_is_written_though_nobody_comes_by() {
    bounded(|| {
        let engine = engine(Options { dirty_bytes: 1 << 20, ..Options::default() });
        let fs = filesystem(&engine);
        let root = fs.root(fs.default_subvolume()).expect("the root");
        let mut number = 0;
        while engine.generation() == engine.volume().superblock().generation().next() {
            fs.create(root, format!("file {number}").as_bytes(), &NewInode::file(0o644)).expect("made");
            number += 1;
        }
        let before = engine.counters().commits;
        let threads = engine.start_background(2);
        wait_until("it is durable", || engine.counters().commits > before);
        threads.stop().expect("they end");
    });
}

#[test]
fn what_is_unlinked_and_closed_gives_its_space_back_though_nothing_else_happens() {
    bounded(|| {
        let engine = engine(Options::default());
        let fs = filesystem(&engine);
        let root = fs.root(fs.default_subvolume()).expect("the root");
        let made = fs.create(root, b"large", &NewInode::file(0o644)).expect("made");
        let file = fs.open_file_for(made.id, Access::Write).expect("opened");
        for piece in 0..200 {
            file.write_at(piece * 8192, &[1; 4096]).expect("written");
        }
        fs.sync().expect("durable");
        let threads = engine.start_background(2);
        let used = || engine.space().data_used;
        assert!(used() >= 200 * 4096);
        fs.unlink(root, b"large").expect("unlinked");
        drop(file);
        wait_until("its space is free", || used() == 0 && !fs.has_cleaning());
        threads.stop().expect("they end");
        assert!(report(&engine, "cleaner").steps > 0 && report(&engine, "commit-at-rest").steps > 0);
    });
}
