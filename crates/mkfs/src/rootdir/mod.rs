//! A filesystem filled from a directory of the host.
//!
//! There is no private packer: everything goes through the operations and transactions that a mount uses. The speed comes from the threads
//! around them:
//!
//! ```text
//!             jobs                    parts
//!   walk -----------> readers (2-4) -----------\
//!     \                                         +--> writer --> operations, transactions
//!      \------------------ steps --------------/
//! ```
//!
//! One thread lists directories (sorted, so the host's order does not matter). A few threads read files ahead into bounded memory, and
//! compress small ones if compression is on. One thread makes everything in order. The engine commits when its budget of dirty blocks is
//! used up.
//!
//! # Memory
//! Only one table grows with the tree: files with several names, while some of these names are still to come. The names of a directory are
//! held while the walk is in it.

mod budget;
mod conflict;
mod copy_in;
mod fill;
mod listing;
mod part;
mod progress;
mod queue;
mod reader;
mod size;
mod source;
mod subvolume;
mod target;
mod walk;
mod writing;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use creamery_base::{Error, ErrorKind, Result, Timespec};
use creamery_codec::CompressionMethod;
use creamery_fs::Filesystem;

pub use copy_in::{CopyIn, copy_in};
pub use part::RootdirPart;
pub use progress::{Lost, NoProgress, OnError, Progress, Skipped};
pub use subvolume::{RootdirSubvolume, SubvolumeKind};

use conflict::refuse_conflicts;
use fill::{Filler, Keep, Rules, WalkRoot};
use queue::{FILES_AHEAD, Feeder, Step};
use reader::{Job, Shared};
use source::SourceDir;
use subvolume::Subvolumes;
use target::refuse_in_source;

use crate::source::{Content, Measure, Source};

/// Bytes of file data read ahead of the writer.
const READ_AHEAD: u64 = 48 << 20;

/// The source of a new filesystem's files, and changes on the way.
///
/// ```
/// use creamery_mkfs::RootdirOptions;
/// let options = RootdirOptions { owner: Some((0, 0)), ..RootdirOptions::new("./rootfs") };
/// assert!(options.clamp_times.is_none());
/// ```
#[derive(Clone, Debug)]
pub struct RootdirOptions {
    /// The directory; it becomes the root if `target` is empty.
    pub source: PathBuf,
    /// The directory of the filesystem that gets its content, from the root on ([`RootdirPart::target`]).
    pub target: Vec<u8>,
    /// Further directories, each copied over the ones before: an existing name is replaced, directories are merged.
    pub more: Vec<RootdirPart>,
    /// Owner and group of every file, instead of those of the source.
    pub owner: Option<(u32, u32)>,
    /// Access, change and birth times are this time, modification times at most this (`SOURCE_DATE_EPOCH`).
    pub clamp_times: Option<Timespec>,
    /// Directories that become subvolumes.
    pub subvolumes: Vec<RootdirSubvolume>,
    /// Cut the finished filesystem to the size it needs.
    pub shrink: bool,
    /// The compression; it is used where it makes files shorter.
    pub compress: Option<CompressionMethod>,
}

impl RootdirOptions {
    /// Copies `source` without changes.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            target: Vec::new(),
            more: Vec::new(),
            owner: None,
            clamp_times: None,
            subvolumes: Vec::new(),
            shrink: false,
            compress: None,
        }
    }

    /// The directories, in the order in which they are copied.
    fn parts(&self) -> Vec<RootdirPart> {
        let first = RootdirPart { source: self.source.clone(), target: self.target.clone() };
        std::iter::once(first).chain(self.more.iter().cloned()).collect()
    }

    /// Checks that a part has, or makes, the directory that becomes a subvolume.
    fn check_subvolume(
        &self,
        parts: &[(RootdirPart, SourceDir)],
        subvolume: &RootdirSubvolume,
    ) -> Result<()> {
        let shown = String::from_utf8_lossy(&subvolume.path).into_owned();
        let context = || format!("subvolume '{shown}' of the source");
        let mut last = Error::new(ErrorKind::NotFound, context());
        for (part, root) in parts {
            if part.goes_through(&subvolume.path) {
                return Ok(());
            }
            for own in part.own(std::slice::from_ref(subvolume)) {
                let path = std::ffi::CString::new(own.path)
                    .map_err(|_| Error::invalid(format!("subvolume '{shown}': NUL byte in its path")))?;
                match root.is_dir(&path) {
                    Ok(true) => return Ok(()),
                    Ok(false) => last = Error::new(ErrorKind::NotADirectory, context()),
                    Err(error) => last = error.context(context()),
                }
            }
        }
        Err(last)
    }
}

impl Source for RootdirOptions {
    fn shrink(&self) -> bool {
        self.shrink
    }

    fn compress(&self) -> Option<CompressionMethod> {
        self.compress
    }

    fn check(&self) -> Result<()> {
        Subvolumes::new(&self.subvolumes)?;
        let open = |part: RootdirPart| SourceDir::root(&part.source).map(|root| (part, root));
        let parts: Vec<_> = self.parts().into_iter().map(open).collect::<Result<_>>()?;
        self.subvolumes.iter().try_for_each(|subvolume| self.check_subvolume(&parts, subvolume))?;
        refuse_conflicts(&self.parts())
    }

    fn check_target(&self, target: &Path, is_new: bool) -> Result<()> {
        self.parts().iter().try_for_each(|RootdirPart { source, .. }| match is_new {
            true => refuse_inside(target, source),
            false => refuse_in_source(target, source),
        })
    }

    fn measure(&self, measure: Measure) -> Result<Content> {
        self.parts()
            .iter()
            .try_fold(measure, |measure, part| size::measure(&part.source, measure))
            .map(|all| all.content())
    }

    fn fill(&self, fs: &Arc<Filesystem>, image: Option<(u64, u64)>, progress: &dyn Progress) -> Result<()> {
        fill(fs, self, image, progress)
    }
}

/// Refuses a new image inside its source. It has no name while it is filled, so this copy would not contain it, but the next one would.
fn refuse_inside(path: &Path, source: &Path) -> Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), source.canonicalize()) {
        (Ok(parent), Ok(source)) if parent.starts_with(&source) => {
            let what = format!("{} lies in its source directory {}", path.display(), source.display());
            Err(Error::invalid(what))
        }
        // A missing source is reported when it is opened.
        _ => Ok(()),
    }
}

struct CloseOnDrop<'a>(&'a Shared<'a>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.budget.close();
    }
}

/// Copies everything that `options` names into the empty filesystem `fs`.
fn fill(
    fs: &Filesystem,
    options: &RootdirOptions,
    image: Option<(u64, u64)>,
    progress: &dyn Progress,
) -> Result<()> {
    let rules = Rules {
        owner: options.owner,
        clamp: options.clamp_times,
        now: fs.engine().env().now(),
        keep: Keep::Everything,
        on_error: OnError::Stop,
    };
    // Subvolumes become read-only after the last part: a read-only one could not take further parts.
    let writable = |subvolume: &RootdirSubvolume| {
        let path = subvolume.path.clone();
        RootdirSubvolume { path, kind: SubvolumeKind::ReadWrite }
    };
    let writable: Vec<RootdirSubvolume> = options.subvolumes.iter().map(writable).collect();
    for part in options.parts() {
        let root = SourceDir::root(&part.source)?;
        let dir = part.make_target(fs, &writable, options.owner.unwrap_or((0, 0)))?;
        let own = Subvolumes::new(&part.own(&writable))?;
        let place = WalkRoot::Onto(dir);
        let filled =
            run(fs, rules, place, progress, |steps, jobs| Feeder::new(steps, jobs, &own, image).run(root));
        filled.map_err(|error| match error.kind() {
            // The filesystem was empty before the first part, so the name comes from an earlier part.
            ErrorKind::AlreadyExists => {
                error.advise("another source has that name: give one of them another target")
            }
            _ => error,
        })?;
    }
    for subvolume in &options.subvolumes {
        let id = fs.resolve_subvolume(&subvolume.path)?;
        if subvolume.kind.is_default() {
            fs.set_default_subvolume(id)?;
        }
        if subvolume.kind.is_read_only() {
            fs.set_subvolume_read_only(id, true)?;
        }
    }
    Ok(())
}

/// Starts the threads. `feed` is the walk.
fn run(
    fs: &Filesystem,
    rules: Rules,
    place: WalkRoot<'_>,
    progress: &dyn Progress,
    feed: impl FnOnce(SyncSender<Step>, SyncSender<Job>) + Send,
) -> Result<()> {
    let shared = Shared::new(fs, READ_AHEAD, rules.keep == Keep::Everything);
    let readers = std::thread::available_parallelism().map_or(2, |cores| cores.get().clamp(2, 4));
    let (send_steps, steps) = sync_channel(FILES_AHEAD);
    let (send_jobs, jobs) = sync_channel(FILES_AHEAD);
    let jobs = reader::Jobs::new(jobs);
    std::thread::scope(|scope| {
        let (shared, jobs) = (&shared, &jobs);
        scope.spawn(move || feed(send_steps, send_jobs));
        for _ in 0..readers {
            scope.spawn(move || reader::run(jobs, shared));
        }
        // When the writer ends for any reason, the other threads may be waiting for it: this wakes them.
        let end = CloseOnDrop(shared);
        let steps = steps;
        let done = Filler::new(fs, shared, progress, rules, place).run(&steps);
        drop((steps, end));
        done
    })
}
