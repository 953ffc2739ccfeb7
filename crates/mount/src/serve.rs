//! Mounting, serving until the unmount, and the commit timer.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use creamery_base::{InodeId, Result, TreeId};
use creamery_fs::Filesystem;
use creamery_fuse::{Operations, Session, Unmount};
use parking_lot::{Condvar, Mutex};

use crate::adapter::Adapter;
use crate::cleaner::Cleaner;
use crate::options::Options;

/// Threads that answer requests: one a core, but never so few that operations that block stop the mount, nor more than there can
/// be work for. Those that are not needed cost nothing.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(4, usize::from).clamp(4, 16)
}

/// A mount that the kernel has accepted. [`Mounted::serve`] makes it live.
///
/// ```no_run
/// # fn example(fs: std::sync::Arc<creamery_fs::Filesystem>) -> creamery_base::Result<()> {
/// let options = creamery_mount::Options::parse("disk.img", ["ro"])?;
/// creamery_mount::mount(fs, "/mnt".as_ref(), &options)?.serve()
/// # }
/// ```
pub struct Mounted {
    fs: Arc<Filesystem>,
    session: Session,
    commit: Duration,
}

/// Mounts `fs` on `point`. When it returns, the kernel has the mount and waits for answers.
/// Errors: no such subvolume; what mounting met.
pub fn mount(fs: Arc<Filesystem>, point: &Path, options: &Options) -> Result<Mounted> {
    let root = subvolume_root(&fs, options)?;
    let adapter = Arc::new(Adapter::new(Arc::clone(&fs), root, options.owner));
    let operations: Arc<dyn Operations> = adapter.clone();
    let session = Session::mount(operations, point, &options.transport)?;
    adapter.serves(session.notifier(), session.requests());
    Ok(Mounted { fs, session, commit: options.commit })
}

fn subvolume_root(fs: &Filesystem, options: &Options) -> Result<InodeId> {
    let subvolume = match (&options.subvol, options.subvolid) {
        (Some(path), _) => fs
            .resolve_subvolume(path.as_bytes())
            .map_err(|error| error.context(format_args!("subvolume {path}")))?,
        (None, Some(0)) => TreeId::FS,
        (None, Some(id)) => TreeId::new(id),
        (None, None) => fs.default_subvolume(),
    };
    fs.root(subvolume).map_err(|error| error.context(format_args!("subvolume {subvolume}")))
}

impl Mounted {
    /// Unmounts from another thread.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { inner: self.session.unmounter() }
    }

    /// Answers requests until the filesystem is unmounted, then deletes what has no name any more and makes everything durable.
    /// Errors: those of the transport and of the last commit.
    pub fn serve(self) -> Result<()> {
        let Self { fs, session, commit } = self;
        let timer = CommitTimer::start(Arc::clone(&fs), commit);
        let cleaner = fs.engine().read_only().is_none().then(|| Cleaner::start(Arc::clone(&fs)));
        let served = session.run(workers());
        if let Some(cleaner) = cleaner {
            cleaner.stop();
        }
        timer.stop();
        fs.clean();
        let synced = if fs.engine().read_only().is_none() { fs.sync() } else { Ok(()) };
        let closed = fs.engine().volume().close();
        served.and(synced).and(closed)
    }
}

/// Ends a mount that another thread serves.
///
/// ```no_run
/// # fn example(mounted: creamery_mount::Mounted) -> creamery_base::Result<()> {
/// let unmounter = mounted.unmounter();
/// std::thread::spawn(move || unmounter.unmount());
/// mounted.serve()
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Unmounter {
    inner: creamery_fuse::Unmounter,
}

impl Unmounter {
    /// Takes the mount out of sight; serving ends when its last user has left.
    /// Errors: what the system said.
    pub fn unmount(&self) -> Result<()> {
        self.inner.unmount(Unmount::Lazy)
    }
}

/// Commits every so often: sync(2) does not reach a FUSE filesystem.
struct CommitTimer {
    thread: std::thread::JoinHandle<()>,
    stop: Arc<(Mutex<bool>, Condvar)>,
}

impl CommitTimer {
    fn start(fs: Arc<Filesystem>, interval: Duration) -> Self {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let signal = Arc::clone(&stop);
        let run = move || {
            let (stopped, changed) = &*signal;
            let mut stopped = stopped.lock();
            while !*stopped {
                if changed.wait_for(&mut stopped, interval).timed_out()
                    && !*stopped
                    && fs.engine().read_only().is_none()
                {
                    // A failing commit has turned the filesystem read-only and says why to the next writer.
                    let _ = parking_lot::MutexGuard::unlocked(&mut stopped, || fs.sync());
                }
            }
        };
        let thread = std::thread::Builder::new().name("commit".to_owned()).spawn(run);
        Self { thread: thread.expect("a thread for the commit timer"), stop }
    }

    fn stop(self) {
        let (stopped, changed) = &*self.stop;
        *stopped.lock() = true;
        changed.notify_all();
        assert!(self.thread.join().is_ok(), "the commit timer panicked");
    }
}
