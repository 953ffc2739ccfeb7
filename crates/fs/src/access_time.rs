//! Access times: moved in memory when something is read, written to the tree later.
//!
//! A read must not cost a change of a tree, so an inode that is read only notes when (`accessed`): a few instructions
//! under a short lock, without a handle, beside others who read. Whoever changes the inode's item for another reason takes the
//! time along. For those that nobody changes there is a queue, which the background writes, many in one handle: after
//! [`WRITTEN_AFTER`], with [`AtimeOptions::lazy`] after a [`DAY`], and everything when the filesystem is synced or closed.
//! So what a crash takes back is a few seconds more than the last commit did, with `lazy` up to a day, and an access time
//! alone is nothing that makes an fsync commit.
//!
//! Who reads does not fail because the time cannot be noted for good: where there is no room for writing it, the time
//! goes back to what it was.
//!
//! # Invariants
//! - ATIME-1: a time that is not written yet changes only with the item locked: shared to note it, alone to make it part of the
//!   item. So whoever writes the item loses none.
//!   Shown by `a_change_of_an_inode_takes_its_access_time_along`.
//! - ATIME-2: the table of inodes keeps an object whose time is not written (as DELAYED-4), and that is in the queue, but for
//!   inodes without a name, which are not written for it.
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
use creamery_txn::{BackgroundWork, Due, Engine, Handle, Units};
use smallvec::SmallVec;

use crate::items::InodeItem;
use crate::operation::finish;

/// How long a time is left to those who may change the inode anyway.
const WRITTEN_AFTER: Duration = Duration::from_secs(5);
/// What is older is moved by `relatime` in any case, and what waits for longer is written in any case.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How many one handle writes.
const AT_ONCE: usize = if cfg!(feature = "shuttle") { 2 } else { 32 };
/// With more than these the background begins at once.
const QUEUED_USUALLY: usize = if cfg!(feature = "shuttle") { 2 } else { 1024 };
/// With more than these who reads has to write some.
const QUEUED_MAX: usize = 4 * QUEUED_USUALLY;

/// Which reads move an access time.
///
/// ```
/// assert_eq!(creamery_fs::Atime::default(), creamery_fs::Atime::Off);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Atime {
    /// None.
    #[default]
    Off,
    /// The first one after a change, and one a day.
    Relative,
    /// All.
    Strict,
}

/// What becomes of access times.
///
/// ```
/// use creamery_fs::{Atime, AtimeOptions};
/// let relatime = AtimeOptions { atime: Atime::Relative, ..AtimeOptions::default() };
/// assert!(relatime.directories && !relatime.lazy);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AtimeOptions {
    /// Which reads move them.
    pub atime: Atime,
    /// Whether listing a directory moves that of the directory.
    pub directories: bool,
    /// Whether they may stay in memory for a day, or until the inode is changed or the filesystem is synced.
    pub lazy: bool,
}

impl Default for AtimeOptions {
    fn default() -> Self {
        Self { atime: Atime::Off, directories: true, lazy: false }
    }
}

/// The bits of options in one word, so that whoever reads looks at them for nothing.
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

    /// Whether reading what `item` is of at the time `now` moves its access time.
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
    /// In the order in which they were read.
    queue: RankedMutex<VecDeque<Queued>, { rank::TABLE }>,
}

/// Something with an access time that is noted and not written.
pub(crate) trait Accessed: Send + Sync {
    /// It is out of the queue: who reads it from here on puts it in again.
    fn leave_queue(&self);
    /// Writes the time, if that is still to be done. One leaf change. Any error is one after the first change.
    fn write_access_time(&self, handle: &Handle<'_>) -> Result<()>;
    /// Takes the time back.
    fn forget_access_time(&self);
}

/// Those that one handle writes.
type Batch = SmallVec<[Arc<dyn Accessed>; AT_ONCE]>;

/// What waits for being written, and since when, by the monotonic clock.
type Queued = (Duration, Weak<dyn Accessed>);

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

    /// What the queue takes in memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory::vec::<Queued>(self.queue.lock().capacity())
    }

    /// How many are in the queue.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Puts an inode at the end of the queue; returns how long that is then.
    fn push(&self, inode: Weak<dyn Accessed>, now: Duration) -> usize {
        let mut queue = self.queue.lock();
        queue.push_back((now, inode));
        queue.len()
    }

    /// Puts an inode that is not in the queue there. Past a certain length of that, somebody has to write.
    pub(crate) fn add(&self, inode: Weak<dyn Accessed>, engine: &Engine) -> Length {
        match self.push(inode, engine.env().monotonic()) {
            1 => Length::Noteworthy,
            len if len == QUEUED_USUALLY + 1 => Length::Noteworthy,
            len if len > QUEUED_MAX => Length::TooLong,
            _ => Length::Usual,
        }
    }

    /// Takes the first few out; returns those that are still there.
    fn pop(&self) -> Batch {
        let mut queue = self.queue.lock();
        let count = AT_ONCE.min(queue.len());
        let first: SmallVec<[Queued; AT_ONCE]> = queue.drain(..count).collect();
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

/// How long the queue is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Length {
    Usual,
    /// The background is to look.
    Noteworthy,
    /// Whoever makes it longer is to write some.
    TooLong,
}

impl AccessTimes {
    /// Writes a few, those that wait longest.
    /// Errors: no space, and they go back to what they were; damage; aborted.
    pub(crate) fn write_some(&self, engine: &Engine) -> Result<()> {
        let inodes = self.pop();
        let units = u32::try_from(inodes.len()).expect("a batch is small");
        if units == 0 {
            return Ok(());
        }
        inodes.iter().for_each(|inode| inode.leave_queue());
        let handle = match engine.start(Units::spare(units)) {
            Ok(handle) => handle,
            Err(error) => {
                inodes.iter().for_each(|inode| inode.forget_access_time());
                return Err(error);
            }
        };
        let written = inodes.iter().try_for_each(|inode| inode.write_access_time(&handle));
        finish(handle, written)
    }

    /// Writes all that there are now: those who read meanwhile are not waited for.
    /// Errors: the first of those of [`AccessTimes::write_some`]; the others are written all the same.
    pub(crate) fn write_all(&self, engine: &Engine) -> Result<()> {
        let batches = self.len().div_ceil(AT_ONCE);
        (0..batches).map(|_| self.write_some(engine)).fold(Ok(()), Result::and)
    }
}

/// Has the pool of `engine` write what waits for too long.
pub(crate) fn register(engine: &Arc<Engine>, times: &Arc<AccessTimes>) {
    let (times, weak) = (Arc::clone(times), Arc::downgrade(engine));
    engine.register_background(Arc::new(Writing { engine: weak, times }));
}

struct Writing {
    engine: Weak<Engine>,
    times: Arc<AccessTimes>,
}

impl BackgroundWork for Writing {
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
