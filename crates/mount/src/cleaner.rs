//! The thread that deletes what was unlinked and closed, and commits that when the mount comes to rest.
//!
//! While there is work on the mount, its operations take steps of the cleaner, too, and the commit timer commits. The thread
//! sees to it that the space is free a few seconds later where nothing else happens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use creamery_base::{Generation, panics};
use creamery_fs::{Cleaning, Filesystem};

/// How long it leaves what is doomed to those who work, and by how long nothing may change for the mount to be at rest.
const NAP: Duration = Duration::from_secs(1);

pub(crate) struct Cleaner {
    thread: JoinHandle<()>,
    stop: Arc<AtomicBool>,
}

impl Cleaner {
    pub(crate) fn start(fs: Arc<Filesystem>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let signal = Arc::clone(&stop);
        let run = move || {
            // A panic of the cleaner's aborts, as everybody's does; the last commit is not its business.
            if let Err(panic) = panics::catch(|| run(&fs, &signal)) {
                fs.engine().abort_after_panic(&panic);
            }
        };
        let thread = thread::Builder::new().name("cleaner".to_owned()).spawn(run);
        Self { thread: thread.expect("a thread for the cleaner"), stop }
    }

    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        assert!(self.thread.join().is_ok(), "a panic of the cleaner's is caught");
    }
}

/// What changes with everything that is changed on the filesystem.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Uncommitted {
    generation: Generation,
    dirty_bytes: u64,
    delayed_refs: u64,
}

impl Uncommitted {
    fn of(fs: &Filesystem) -> Self {
        let counters = fs.engine().counters();
        Self {
            generation: fs.engine().generation(),
            dirty_bytes: counters.store.dirty_bytes,
            delayed_refs: counters.delayed_refs,
        }
    }
}

fn run(fs: &Filesystem, stop: &AtomicBool) {
    let asleep = Arc::new(AtomicBool::new(false));
    let (sleeper, me) = (Arc::clone(&asleep), thread::current());
    fs.wake_cleaner_with(move || {
        if sleeper.swap(false, Ordering::AcqRel) {
            me.unpark();
        }
    });
    let mut before = None;
    while !stop.load(Ordering::Acquire) && fs.engine().read_only().is_none() {
        // What cannot be deleted now is tried again after the nap.
        while !stop.load(Ordering::Acquire) && matches!(fs.clean_step(), Ok(Cleaning::More)) {}
        let now = fs.has_deleted().then(|| Uncommitted::of(fs));
        if now.is_some() && now == before {
            // A failing commit has turned the filesystem read-only and says why to the next writer.
            let _ = fs.engine().commit();
        }
        before = now;
        if now.is_none() {
            // The flag first: who dooms an inode from here on sees it, who did before has left it to be seen.
            asleep.store(true, Ordering::Release);
            if !fs.has_cleaning() && !stop.load(Ordering::Acquire) {
                thread::park();
            }
            asleep.store(false, Ordering::Release);
        }
        // Not at once: whoever is at work deletes it on the way.
        if !stop.load(Ordering::Acquire) {
            thread::park_timeout(NAP);
        }
    }
}
