//! Access times: a read changes them in memory, and a later write puts them into the tree.
//!
//! A read must not cost a change of a tree. So a read only notes the time in the inode's object (`accessed`): a few instructions under
//! a short lock, without a handle, beside other readers. A thread that changes the inode's item for another reason writes the time with it. Inodes that no thread changes wait in a queue. The
//! background writes them, many in one handle:
//! - after [`WRITTEN_AFTER`];
//! - with [`AtimeOptions::lazy`] after a [`DAY`];
//! - all of them when the filesystem is synced or closed.
//!
//! So a crash loses the access times of a few seconds more than the last commit, with `lazy` those of up to a day. An access time alone does not make an fsync
//! commit.
//!
//! A read does not fail because its time cannot be stored: if there is no space for writing the time, it goes back to its old value.
//!
//! # Invariants
//! - ATIME-1: a time that is not written yet changes only with the item locked: shared to note it, exclusive to make it part of the item. So a writer of the item
//!   loses no time.
//!   Shown by `a_change_of_an_inode_takes_its_access_time_along`.
//! - ATIME-2: an object whose time is not written is in the queue, and the table of inodes keeps it (like DELAYED-4). Exceptions are
//!   inodes without a name: their times are not written.
//!   Shown by `access_times_survive_more_inodes_than_are_kept_in_memory`.
//! - ATIME-3: the queue holds no inode alive. Shown by `what_has_no_name_is_not_kept_for_its_access_time`.
//!
//! # Locking
//! The queue is a table: no other lock is taken under it. Writing takes a handle first, then one item after the other.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, Timespec, memory};
use creamery_format::InodeFlags;
use creamery_txn::{BackgroundWork, Due, Engine, Handle, ReserveItems};
use smallvec::SmallVec;

use crate::items::InodeItem;
use crate::operation::finish;

/// How long a time waits for another change of its inode.
const WRITTEN_AFTER: Duration = Duration::from_secs(5);
/// `relatime` moves an older time in any case. A time that waits longer than this is written in any case.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Times that one handle writes.
const AT_ONCE: usize = if cfg!(feature = "shuttle") { 2 } else { 32 };
/// The background begins at once if the queue is longer than this.
const QUEUED_USUALLY: usize = if cfg!(feature = "shuttle") { 2 } else { 1024 };
/// A reader has to write some times if the queue is longer than this.
const QUEUED_MAX: usize = 4 * QUEUED_USUALLY;

/// The reads that move an access time.
///
/// ```
/// assert_eq!(creamery_fs::Atime::default(), creamery_fs::Atime::Off);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// No read.
    #[default]
    Off,
    /// The first read after a change, and one a day (Linux' `relatime`).
    Relative,
    /// Every read.
    Strict,
}

/// The options for access times.
///
/// ```
/// use creamery_fs::{Atime, AtimeOptions};
/// let relatime = AtimeOptions { atime: Atime::Relative, ..AtimeOptions::default() };
/// assert!(relatime.directories && !relatime.lazy);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtimeOptions {
    /// The reads that move them.
    pub atime: Atime,
    /// Whether listing a directory moves the directory's access time.
    pub directories: bool,
    /// Whether they may stay in memory for a day, or until the inode is changed or the filesystem is synced (Linux' `lazytime`).
    pub lazy: bool,
}

impl Default for AtimeOptions {
    fn default() -> Self {
        Self { atime: Atime::Off, directories: true, lazy: false }
    }
}

/// The bits of the options in one word, so that a reader checks them without a lock.
const STRICT: u8 = 1;
const RELATIVE: u8 = 2;
const DIRECTORIES: u8 = 4;
const LAZY: u8 = 8;

impl AtimeOptions {
    const fn to_bits(self) -> u8 {
        let atime = match self.atime {
            Atime::Off => 0,
            Atime::Relative => RELATIVE,
            Atime::Strict => STRICT,
        };
        let directories = if self.directories { DIRECTORIES } else { 0 };
        atime | directories | if self.lazy { LAZY } else { 0 }
    }

    const fn from_bits(bits: u8) -> Self {
        let atime = match bits & (STRICT | RELATIVE) {
            0 => Atime::Off,
            RELATIVE => Atime::Relative,
            _ => Atime::Strict,
        };
        Self { atime, directories: bits & DIRECTORIES != 0, lazy: bits & LAZY != 0 }
    }

    /// Whether reading the inode with `item` at the time `now` moves its access time.
    pub(crate) fn moves(self, item: &InodeItem, now: Timespec) -> bool {
        if item.flags.contains(InodeFlags::NOATIME) || item.is_dir() && !self.directories || item.atime == now
        {
            return false;
        }
        match self.atime {
            Atime::Off => false,
            Atime::Strict => true,
            Atime::Relative => {
                let day = i64::try_from(DAY.as_secs()).expect("a day has few seconds");
                let old = now.sec.saturating_sub(item.atime.sec) >= day;
                item.atime <= item.mtime || item.atime <= item.ctime || old
            }
        }
    }

    const fn written_after(self) -> Duration {
        if self.lazy { DAY } else { WRITTEN_AFTER }
    }
}

/// The access times of a filesystem that are still to be written.
pub(crate) struct AccessTimes {
    options: AtomicU8,
    /// In the order of their reads.
    queue: RankedMutex<VecDeque<QueuedInode>, { rank::TABLE }>,
}

/// An inode with an access time that is noted and not written.
pub(crate) trait Accessed: Send + Sync {
    /// Notes that the inode is out of the queue: the next read puts it in again.
    fn leave_queue(&self);
    /// Writes the time, unless it is written already. One leaf change. Any error is one after the first change.
    fn write_access_time(&self, handle: &Handle<'_>) -> Result<()>;
    /// Drops the time that is not written: the old one holds again.
    fn forget_access_time(&self);
}

/// The inodes whose times one handle writes.
type TimesBatch = SmallVec<[Arc<dyn Accessed>; AT_ONCE]>;

/// An inode that waits, and the time since which it waits, by the monotonic clock.
type QueuedInode = (Duration, Weak<dyn Accessed>);

impl Default for AccessTimes {
    fn default() -> Self {
        Self { options: AtomicU8::new(AtimeOptions::default().to_bits()), queue: RankedMutex::default() }
    }
}

impl AccessTimes {
    pub(crate) fn options(&self) -> AtimeOptions {
        AtimeOptions::from_bits(self.options.load(Ordering::Relaxed))
    }

    pub(crate) fn set_options(&self, options: AtimeOptions) {
        self.options.store(options.to_bits(), Ordering::Relaxed);
    }

    /// Bytes of memory that the queue takes.
    pub(crate) fn memory(&self) -> u64 {
        memory::vec::<QueuedInode>(self.queue.lock().capacity())
    }

    /// The number of inodes in the queue.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Puts an inode at the end of the queue; returns the queue's new length.
    fn push(&self, inode: Weak<dyn Accessed>, now: Duration) -> usize {
        let mut queue = self.queue.lock();
        queue.push_back((now, inode));
        queue.len()
    }

    /// Puts an inode that is not in the queue there. The result says whether the background has to look at the queue, or the caller has to
    /// write some times.
    pub(crate) fn add(&self, inode: Weak<dyn Accessed>, engine: &Engine) -> Length {
        match self.push(inode, engine.env().monotonic()) {
            1 => Length::Noteworthy,
            len if len == QUEUED_USUALLY + 1 => Length::Noteworthy,
            len if len > QUEUED_MAX => Length::TooLong,
            _ => Length::Usual,
        }
    }

    /// Takes the first few inodes out; returns those that are still alive.
    fn pop(&self) -> TimesBatch {
        let mut queue = self.queue.lock();
        let count = AT_ONCE.min(queue.len());
        let first: SmallVec<[QueuedInode; AT_ONCE]> = queue.drain(..count).collect();
        if queue.is_empty() {
            *queue = VecDeque::new();
        }
        drop(queue);
        first.iter().filter_map(|(_, inode)| inode.upgrade()).collect()
    }

    fn due(&self, now: Duration) -> Due {
        let queue = self.queue.lock();
        let Some((since, _)) = queue.front() else { return Due::Never };
        match (*since + self.options().written_after()).saturating_sub(now) {
            left if left.is_zero() || queue.len() > QUEUED_USUALLY => Due::Now,
            left => Due::In(left),
        }
    }
}

/// The length of the queue, as a call to action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    Usual,
    /// The background has to look at the queue: it is not empty any more, or too long to wait.
    Noteworthy,
    /// The caller, which made the queue longer, has to write some times.
    TooLong,
}

impl AccessTimes {
    /// Writes the times of the few inodes that wait longest.
    /// Errors: no space, and the times go back to their old values; damage; aborted.
    pub(crate) fn write_some(&self, engine: &Engine) -> Result<()> {
        let inodes = self.pop();
        let units = u32::try_from(inodes.len()).expect("a batch is small");
        if units == 0 {
            return Ok(());
        }
        inodes.iter().for_each(|inode| inode.leave_queue());
        let handle = match engine.start(ReserveItems::spare(units)) {
            Ok(handle) => handle,
            Err(error) => {
                inodes.iter().for_each(|inode| inode.forget_access_time());
                return Err(error);
            }
        };
        let written = inodes.iter().try_for_each(|inode| inode.write_access_time(&handle));
        finish(handle, written)
    }

    /// Writes all times that are in the queue now. Reads during the call may add further ones.
    /// Errors: the first of those of [`AccessTimes::write_some`]; the other times are written all the same.
    pub(crate) fn write_all(&self, engine: &Engine) -> Result<()> {
        let batches = self.len().div_ceil(AT_ONCE);
        (0..batches).map(|_| self.write_some(engine)).fold(Ok(()), Result::and)
    }
}

/// Registers the writing of times that wait too long with the pool of `engine`.
pub(crate) fn register(engine: &Arc<Engine>, times: &Arc<AccessTimes>) {
    let (times, weak) = (Arc::clone(times), Arc::downgrade(engine));
    engine.background().register(Arc::new(TimesWriting { engine: weak, times }));
}

struct TimesWriting {
    engine: Weak<Engine>,
    times: Arc<AccessTimes>,
}

impl BackgroundWork for TimesWriting {
    fn name(&self) -> &'static str {
        "access-times"
    }

    fn due(&self) -> Due {
        match self.engine.upgrade() {
            Some(engine) if engine.read_only().is_none() => self.times.due(engine.env().monotonic()),
            _ => Due::Never,
        }
    }

    fn step(&self) -> Result<()> {
        self.engine.upgrade().map_or(Ok(()), |engine| self.times.write_some(&engine))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::FileType;

    const fn at(sec: i64, nsec: u32) -> Timespec {
        Timespec { sec, nsec }
    }

    #[test]
    fn the_first_access_after_a_change_and_one_a_day_move_it() {
        let relative = AtimeOptions { atime: Atime::Relative, ..AtimeOptions::default() };
        let item = |atime, mtime, ctime| InodeItem { atime, mtime, ctime, ..InodeItem::default() };
        let now = at(1_000_000, 5);
        let day = 24 * 60 * 60;
        let rows = [
            (item(at(999_990, 0), at(999_980, 0), at(999_980, 0)), false),
            (item(at(999_990, 0), at(999_990, 0), at(999_980, 0)), true),
            (item(at(999_990, 0), at(999_980, 0), at(999_990, 1)), true),
            (item(at(1_000_000 - day, 9), at(0, 0), at(0, 0)), true),
            (item(at(1_000_001 - day, 0), at(0, 0), at(0, 0)), false),
            (item(at(i64::MIN, 0), at(i64::MIN, 0), at(0, 0)), true),
            (item(now, now, now), false),
        ];
        for (item, moved) in rows {
            assert_eq!(relative.moves(&item, now), moved, "{item:?}");
            assert!(!AtimeOptions::default().moves(&item, now));
            let strict = AtimeOptions { atime: Atime::Strict, ..relative };
            assert_eq!(strict.moves(&item, now), item.atime != now);
        }
    }

    #[test]
    fn what_is_marked_and_directories_where_that_is_said_keep_theirs() {
        let strict = AtimeOptions { atime: Atime::Strict, ..AtimeOptions::default() };
        let dir = InodeItem { mode: FileType::Directory.mode_bits(), ..InodeItem::default() };
        let marked = InodeItem { flags: InodeFlags::NOATIME, ..InodeItem::default() };
        let now = at(5, 5);
        assert!(strict.moves(&dir, now));
        assert!(!AtimeOptions { directories: false, ..strict }.moves(&dir, now));
        assert!(!strict.moves(&marked, now));
    }

    #[test]
    fn options_are_kept_in_a_word() {
        for atime in [Atime::Off, Atime::Relative, Atime::Strict] {
            for (directories, lazy) in [(false, false), (false, true), (true, false), (true, true)] {
                let options = AtimeOptions { atime, directories, lazy };
                assert_eq!(AtimeOptions::from_bits(options.to_bits()), options);
            }
        }
    }
}
