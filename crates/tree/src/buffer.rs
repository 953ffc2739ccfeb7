//! An extent buffer: one cached tree block and its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Instant;

use creamery_base::gate::{self, Reason};
use creamery_base::lock::{Held, Place, rank};
use creamery_base::sync::{HasLock, OwnedLock, OwnedRead, OwnedWrite};
use creamery_base::{ErrorKind, Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockMut, BlockRef};

use crate::watch::Watch;

const DIRTY: u8 = 1;
const TOUCHED: u8 = 2;

/// A cached tree block. Its bytes are reached only through a guard.
///
/// ```no_run
/// # fn show(buffer: std::sync::Arc<creamery_tree::ExtentBuffer>) -> creamery_base::Result<()> {
/// let guard = buffer.read(creamery_base::Wait::Yes)?;
/// println!("{} holds {} items", guard.buffer().logical(), guard.block().count());
/// # Ok(())
/// # }
/// ```
pub struct ExtentBuffer {
    logical: Logical,
    level: u8,
    state: AtomicU8,
    /// How often keys that belonged here went elsewhere; changes under the write lock.
    narrowed: AtomicU32,
    bytes: OwnedLock<AlignedBuffer>,
    watch: Arc<Watch>,
}

impl HasLock for ExtentBuffer {
    type Content = AlignedBuffer;

    fn lock(&self) -> &OwnedLock<AlignedBuffer> {
        &self.bytes
    }
}

impl ExtentBuffer {
    pub(crate) fn new(
        logical: Logical,
        level: u8,
        bytes: AlignedBuffer,
        dirty: bool,
        watch: Arc<Watch>,
    ) -> Self {
        let state = AtomicU8::new(if dirty { DIRTY } else { 0 });
        Self { logical, level, state, narrowed: AtomicU32::new(0), bytes: OwnedLock::new(bytes), watch }
    }

    /// The block's address.
    #[must_use]
    pub fn logical(&self) -> Logical {
        self.logical
    }

    /// The block's level, 0 for a leaf; it never changes.
    #[must_use]
    pub fn level(&self) -> u8 {
        self.level
    }

    /// Whether the block has to be written by the next commit.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.state.load(Ordering::Acquire) & DIRTY != 0
    }

    /// Clears the dirty mark; true when it was set.
    pub(crate) fn clear_dirty(&self) -> bool {
        self.state.fetch_and(!DIRTY, Ordering::AcqRel) & DIRTY != 0
    }

    pub(crate) fn touch(&self) {
        if self.state.load(Ordering::Relaxed) & TOUCHED == 0 {
            self.state.fetch_or(TOUCHED, Ordering::Relaxed);
        }
    }

    /// Clears the mark of recent use; true when it was set.
    pub(crate) fn clear_touched(&self) -> bool {
        self.state.fetch_and(!TOUCHED, Ordering::Relaxed) & TOUCHED != 0
    }

    /// Locks for reading, the only block that this thread has locked. The guard takes the reference over.
    /// Errors: would block, when waiting is not allowed and a writer holds or awaits the lock.
    pub fn read(self: Arc<Self>, wait: Wait) -> Result<ReadGuard> {
        let alone = Place::of(rank::NODE);
        self.read_as(Held::before(alone, wait), wait)
    }

    /// Locks for writing, the only block that this thread has locked, waiting for everybody else. The guard takes the
    /// reference over.
    pub fn write(self: Arc<Self>) -> WriteGuard {
        self.write_as(Held::wait(Place::of(rank::NODE)))
    }

    /// As [`read`](Self::read), among other blocks: `held` notes its place in their order (see `order`).
    /// Errors: would block, when waiting is not allowed and a writer holds or awaits the lock.
    pub(crate) fn read_as(self: Arc<Self>, held: Held, wait: Wait) -> Result<ReadGuard> {
        match OwnedRead::try_lock(self) {
            Ok(guard) => Ok(ReadGuard { guard, _held: held }),
            Err(this) if wait.allowed() => {
                let guard = gate::passing(Reason::NodeLock, || OwnedRead::lock(this));
                Ok(ReadGuard { guard, _held: held })
            }
            Err(_) => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Locks for writing if nobody else holds the lock. The guard takes the reference over.
    /// Errors: would block.
    pub(crate) fn try_write(self: Arc<Self>, held: Held) -> Result<WriteGuard> {
        match OwnedWrite::try_lock(self) {
            Ok(guard) => Ok(WriteGuard { since: guard.owner().watch.now(), guard, _held: held }),
            Err(_) => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// As [`write`](Self::write), among other blocks.
    pub(crate) fn write_as(self: Arc<Self>, held: Held) -> WriteGuard {
        let guard = match OwnedWrite::try_lock(self) {
            Ok(guard) => guard,
            Err(this) => {
                let asked = this.watch.now();
                let guard = gate::passing(Reason::NodeLock, || OwnedWrite::lock(this));
                guard.owner().watch.waited(guard.owner().level, asked);
                guard
            }
        };
        WriteGuard { since: guard.owner().watch.now(), guard, _held: held }
    }
}

/// A read lock on one block.
///
/// ```no_run
/// # fn show(guard: creamery_tree::ReadGuard) {
/// println!("level {}", guard.block().level());
/// # }
/// ```
#[must_use]
pub struct ReadGuard {
    guard: OwnedRead<ExtentBuffer>,
    _held: Held,
}

impl ReadGuard {
    /// The block's content.
    #[must_use]
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef::new(&self.guard)
    }

    /// The block's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.guard
    }

    /// Which buffer is locked.
    #[must_use]
    pub fn buffer(&self) -> &Arc<ExtentBuffer> {
        self.guard.owner()
    }
}

/// A write lock on one block. Dropped by a panicking thread, it poisons the store before it unlocks.
///
/// ```no_run
/// # fn wipe(mut guard: creamery_tree::WriteGuard) {
/// guard.block_mut().set_flags(0);
/// # }
/// ```
#[must_use]
pub struct WriteGuard {
    guard: OwnedWrite<ExtentBuffer>,
    /// When it was locked, if lock times are being taken.
    since: Option<Instant>,
    _held: Held,
}

impl WriteGuard {
    /// The block's content.
    #[must_use]
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef::new(&self.guard)
    }

    /// The block's content, to be changed. TREE-3 is the caller's duty.
    pub fn block_mut(&mut self) -> BlockMut<'_> {
        BlockMut::new(&mut self.guard)
    }

    /// The block's bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.guard
    }

    /// Which buffer is locked.
    #[must_use]
    pub fn buffer(&self) -> &Arc<ExtentBuffer> {
        self.guard.owner()
    }

    /// How often [`WriteGuard::narrow`] was called on this block.
    pub(crate) fn narrowed(&self) -> u32 {
        self.buffer().narrowed.load(Ordering::Relaxed)
    }

    /// Says that keys which belonged into this block belong elsewhere from now on (FINGER-1).
    pub(crate) fn narrow(&self) {
        self.buffer().narrowed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        let buffer = self.guard.owner();
        if std::thread::panicking() {
            buffer.watch.poison();
        }
        buffer.watch.held(buffer.level, self.since);
    }
}
