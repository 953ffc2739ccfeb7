//! Settings that change how fast a program gets its answers and how much memory that takes, but not the answers.

use creamery_base::Env;
use creamery_txn::{BackgroundThreads, Options};

use crate::fs::FsOptions;

/// How much memory and how many threads a filesystem may use.
///
/// Nothing here changes an answer or what is durable. The limits are for programs that embed the library beside something else. The
/// hidden fields are switches for measurements and not part of the stability promise. New fields come with any version.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let image = dir.path().join("disk.img");
/// # creamery::Image::make(&image).size(256 << 20).run()?;
/// use creamery::Image;
/// use creamery::env::Tuning;
/// let mut small = Tuning::default();
/// small.cache_bytes = 8 << 20;
/// small.background_threads = Some(0);
/// let fs = Image::options().write().tuning(small).open(&image)?;
/// fs.write("/note", "in little memory")?;
/// fs.close()?;
/// # Ok::<(), creamery::Error>(())
/// ```
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one for each mechanism")]
#[non_exhaustive]
pub struct Tuning {
    /// Memory for clean tree blocks, bytes; default 256 MiB. Blocks in use come on top.
    pub cache_bytes: u64,
    /// Memory for changed tree blocks, including those being written, bytes; default 128 MiB. When three quarters of it are used,
    /// a commit begins.
    pub dirty_bytes: u64,
    /// Memory for written data on its way to the device, bytes; default 256 MiB. A write beyond that waits. With 0 every
    /// write goes to the device before it returns, and is an extent of its own.
    pub delayed_bytes: u64,
    /// Bytes in flight of direct requests that no thread waits for ([`File::submit`](crate::File::submit),
    /// [`File::start`](crate::File::start)), all files together; default 256 MiB. A request beyond that waits. A single request may be
    /// larger.
    pub direct_bytes: u64,
    /// Threads that work in the background as long as the [`Filesystem`](crate::Filesystem) exists. They delete files that are unlinked and
    /// closed, help to write commits, and do other work that no caller waits for. Default: two to four, by the number of cores; 0 if the
    /// filesystem is opened for reading or its environment is [reproducible](crate::env::Env::is_reproducible). With 0 the threads of the
    /// callers do this work. In a filesystem that is opened for reading some are useful for direct reads in flight
    /// ([`File::submit`](crate::File::submit)).
    pub background_threads: Option<usize>,
    /// Insertions unlock a leaf's parents before they search it.
    #[doc(hidden)]
    pub early_unlock: bool,
    /// Batches of items that continue a thread's last batch go straight to its leaf: the items of new inodes, and entries of their
    /// directory.
    #[doc(hidden)]
    pub fingers: bool,
    /// Walks through trees read the next blocks ahead.
    #[doc(hidden)]
    pub read_ahead: bool,
    /// An open file remembers where its last search for data or a hole ended (`docs/use/seek.md`).
    #[doc(hidden)]
    pub seek_cursors: bool,
    /// The leaf of a file stays locked during the check whether its data may be written in place, as Linux once did. Default: off.
    #[doc(hidden)]
    pub nocow_keeps_leaf: bool,
    /// A direct write that must not wait searches trees like any other write, and may wait for tree blocks there, as Linux does. Default:
    /// off.
    #[doc(hidden)]
    pub direct_waits: bool,
    /// A submitted direct request ends on the thread of the device that answers it, if that waits for nothing.
    #[doc(hidden)]
    pub direct_ends_at_once: bool,
    /// [`Filesystem::statistics`](crate::Filesystem::statistics) reports how long locks on tree blocks are held and waited for, which costs
    /// a little. Default: off.
    #[doc(hidden)]
    pub lock_times: bool,
    /// [`Filesystem::statistics`](crate::Filesystem::statistics) counts the locks that threads of this process find taken, by rank, since
    /// the filesystem was opened. Default: off.
    #[doc(hidden)]
    pub lock_contention: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        let (engine, fs) = (Options::default(), FsOptions::default());
        Self {
            cache_bytes: engine.cache_bytes,
            dirty_bytes: engine.dirty_bytes,
            delayed_bytes: fs.delayed_bytes,
            direct_bytes: fs.direct_bytes,
            background_threads: None,
            early_unlock: engine.early_unlock,
            fingers: engine.fingers,
            read_ahead: engine.read_ahead,
            seek_cursors: fs.seek_cursors,
            nocow_keeps_leaf: fs.nocow_keeps_leaf,
            direct_waits: fs.direct_waits,
            direct_ends_at_once: fs.direct_ends_at_once,
            lock_times: engine.lock_times,
            lock_contention: false,
        }
    }
}

impl Tuning {
    /// The number of background threads.
    pub(crate) fn threads(&self, writing: bool, env: &dyn Env) -> usize {
        match self.background_threads {
            Some(threads) => threads,
            None if !writing => 0,
            // A background thread makes the writes and their order depend on the schedule.
            None if env.is_reproducible() => 0,
            None => BackgroundThreads::usual(),
        }
    }
}
