//! Mounting, and serving until the unmount.
//!
//! # Invariants
//! - SERVE-1: however serving ends, acknowledged changes are committed, or the reason is reported: to the caller of
//!   [`Mounted::serve`], and to the unmounting process (see `closing`).
//!   Shown by `last_commit`, `told_everywhere`, `terminated_with_writers`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use creamery_base::{Error, ErrorKind, Result, panics};
use creamery_fs::Filesystem;
use creamery_fuse::{NotifyThread, Operations, Session, Unmount};
use creamery_txn::{BackgroundThreads, BackgroundWork};

use crate::access_times;
use crate::adapter::Adapter;
use crate::closing::{End, Watchers};
use crate::lost_writes::{LostWrites, Tell};
use crate::open::subvolume_root;
use crate::options::Options;
use crate::scrub::Scrubbing;
use crate::subvolumes::{Lingering, Subvolumes};
use crate::telling;
use crate::why::Why;

/// Threads that answer requests: as many as may wait at a time, for a device or for the kernel (see `mapped_pages`), and some more.
/// Idle threads are parked, and cost nothing.
const WORKERS: usize = 32;

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
    /// Ends with the session.
    losses: NotifyThread,
    /// Ends with the session.
    pages: NotifyThread,
    /// Ends with the session.
    lingering: Lingering,
    commit: Duration,
    log: Option<String>,
    watchers: Arc<Watchers>,
    lost_writes: Arc<LostWrites>,
    subvolumes: Arc<Subvolumes>,
    scrubbing: Arc<Scrubbing>,
    tell: Option<Tell>,
    ends_well: Option<Box<dyn FnOnce() + Send>>,
}

/// Mounts `fs` on `point`. When it returns, the kernel has the mount and waits for answers.
/// Errors: no such subvolume; `point` is not a directory; those of mounting.
pub fn mount(fs: Arc<Filesystem>, point: &Path, options: &Options) -> Result<Mounted> {
    let root = subvolume_root(&fs, options)?;
    if !std::fs::metadata(point).map_err(|error| Error::from(error).on_host(point))?.is_dir() {
        let what = "a directory is mounted on a directory";
        return Err(Error::new(ErrorKind::NotADirectory, what).on_host(point));
    }
    let (log, commit) = (options.log.clone(), options.commit);
    let adapter = Adapter::new(Arc::clone(&fs), root, options.owner).with_options(options, point);
    adapter.subvolumes().note_devices(&fs);
    let adapter = Arc::new(adapter);
    let watchers = Arc::clone(adapter.control().watchers());
    let lost_writes = Arc::clone(adapter.control().lost_writes());
    let operations: Arc<dyn Operations> = adapter.clone();
    let session = Session::mount(operations, point, &options.transport)?;
    fs.engine().set_discard(options.discard);
    fs.engine().background().register(Arc::clone(adapter.scrubbing()) as Arc<dyn BackgroundWork>);
    fs.set_atime(access_times::of_options(&options.transport));
    adapter.row().begin(session.mount_point().to_owned());
    adapter.serves(session.notifier(), session.requests());
    let files = Arc::downgrade(&adapter);
    let losses = telling::of_losses(&fs, &session, move |id| files.upgrade()?.node(id));
    adapter.subvolumes().told.begin(losses.queue());
    let pages = NotifyThread::spawn(session.notifier());
    adapter.mapped_pages().begin(pages.queue(), WORKERS);
    let names = Arc::downgrade(&adapter);
    let forget = move |id| names.upgrade().is_none_or(|adapter| adapter.server().forget_names_of(id));
    let lingering = adapter.subvolumes().begin_forgetting(forget);
    let (subvolumes, scrubbing) = (Arc::clone(adapter.subvolumes()), Arc::clone(adapter.scrubbing()));
    Ok(Mounted {
        fs,
        session,
        losses,
        pages,
        lingering,
        commit,
        log,
        watchers,
        lost_writes,
        subvolumes,
        scrubbing,
        tell: None,
        ends_well: None,
    })
}

impl Mounted {
    /// Returns a handle that unmounts from another thread.
    #[must_use]
    pub fn unmounter(&self) -> Unmounter {
        Unmounter { inner: self.session.unmounter(), point: self.session.mount_point().to_owned() }
    }

    /// Sets the writer of the log. It gets a message about replayed changes, the reason why nothing can be written any more, the first lost
    /// write of a mapping, refused controls, findings of a scrub, and a background step that does not end. It runs in the midst of operations, must not use the mount, and must not panic when
    /// there is no space for a log.
    pub fn tell(&mut self, tell: impl Fn(&str) + Send + Sync + 'static) {
        let tell: Tell = Arc::new(tell);
        self.tell = Some(Arc::clone(&tell));
        if let Some(replayed) = self.fs.replayed() {
            tell(&format!("replayed the log: {replayed}"));
        }
        self.lost_writes.tell_to(Arc::clone(&tell));
        self.subvolumes.tell_to(Arc::clone(&tell));
        self.scrubbing.tell_to(Arc::clone(&tell));
        self.fs.engine().tell_abort(move |abort| tell(&format!("{abort} (at {})", abort.place)));
    }

    /// Calls `forget` when the mount ends well, before any waiting process learns it: to remove files that are not needed any more.
    pub fn when_it_ends_well(&mut self, forget: impl FnOnce() + Send + 'static) {
        self.ends_well = Some(Box::new(forget));
    }

    /// Answers requests until the filesystem is unmounted, then deletes files without a name, makes everything durable and closes the image.
    /// Errors: those of the last commit, or of the transport; an earlier abort, which is known by then; pages of mappings that the kernel
    /// could not write back.
    pub fn serve(self) -> Result<()> {
        let Self {
            fs,
            session,
            losses,
            pages,
            lingering,
            commit,
            log,
            watchers,
            lost_writes,
            scrubbing,
            tell,
            ends_well,
            ..
        } = self;
        // sync(2) does not reach a FUSE filesystem.
        fs.engine().commit_every(Some(commit));
        // A read-only server has a scrub to continue, with read-ahead.
        let threads = if fs.engine().is_opened_for_reading() { 2 } else { BackgroundThreads::usual() };
        let background = fs.engine().start_background(threads);
        let served = session.run(WORKERS);
        drop((lingering, losses, pages));
        if let Err(error) = background.stop() {
            // This is reported at once, because the next step may wait for it. It is not a loss by itself.
            if let Some(tell) = tell {
                tell(&error.to_string());
            }
        }
        scrubbing.stop();
        let durable = shut_down(&fs).and_then(|()| lost_writes.check());
        let aborted = fs.engine().aborted().is_some();
        drop(fs);
        if let (Some(forget), Ok(()), Ok(())) = (ends_well, &durable, &served) {
            forget();
        }
        // An error of the transport is not a loss, and must not hide one.
        watchers.tell(&match &durable {
            Ok(()) => End { log, ..End::default() },
            Err(error) => {
                End { failure: Some(error.without_kind()), why: Why::of(error.kind()), aborted, log }
            }
        });
        durable.and(served)
    }
}

/// Does the last commit, and releases the image, even if the filesystem has other users (CLOSING-1). A panic is reported like any other
/// abort.
fn shut_down(fs: &Filesystem) -> Result<()> {
    panics::catch(|| fs.shut_down()).unwrap_or_else(|panic| {
        fs.engine().abort_after_panic(&panic);
        fs.engine().check_writable().and(fs.engine().volume().close())
    })
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
    point: PathBuf,
}

impl Unmounter {
    /// Ends the mount, even if it is in use: the kernel writes back its mapped pages, then the mount disappears,
    /// further requests fail, and serving ends. Changes acknowledged until then will be durable.
    /// An operation must not call it. Errors: those of the system.
    pub fn unmount(&self) -> Result<()> {
        if !self.inner.is_gone() {
            // Pages that cannot be written back are lost in any case.
            let _ = File::open(&self.point).map(|dir| rustix::fs::syncfs(&dir));
        }
        self.inner.unmount(Unmount::Now)
    }
}
