//! An extent buffer: one cached tree block and its lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use creamery_base::gate::{self, Reason};
use creamery_base::{ErrorKind, Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockMut, BlockRef};
use parking_lot::lock_api::{ArcRwLockReadGuard, ArcRwLockWriteGuard};
use parking_lot::{RawRwLock, RwLock};

const DIRTY: u8 = 1;
const TOUCHED: u8 = 2;

/// A cached tree block. Its bytes are reached only through a guard.
///
/// ```no_run
/// # fn show(buffer: std::sync::Arc<creamery_tree::ExtentBuffer>) -> creamery_base::Result<()> {
/// let guard = buffer.read(creamery_base::Wait::Yes)?;
/// println!("{} holds {} items", buffer.logical(), guard.block().count());
/// # Ok(())
/// # }
/// ```
pub struct ExtentBuffer {
    logical: Logical,
    level: u8,
    state: AtomicU8,
    bytes: Arc<RwLock<AlignedBuffer>>,
    poison: Arc<AtomicBool>,
}

impl ExtentBuffer {
    pub(crate) fn new(
        logical: Logical,
        level: u8,
        bytes: AlignedBuffer,
        dirty: bool,
        poison: Arc<AtomicBool>,
    ) -> Self {
        let state = AtomicU8::new(if dirty { DIRTY } else { 0 });
        Self { logical, level, state, bytes: Arc::new(RwLock::new(bytes)), poison }
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

    /// Locks for reading.
    /// Errors: would block, when waiting is not allowed and a writer holds or awaits the lock.
    pub fn read(self: &Arc<Self>, wait: Wait) -> Result<ReadGuard> {
        let guard = match self.bytes.try_read_arc() {
            Some(guard) => guard,
            None if wait.allowed() => gate::passing(Reason::NodeLock, || self.bytes.read_arc()),
            None => return Err(ErrorKind::WouldBlock.into()),
        };
        Ok(ReadGuard { guard, buffer: Arc::clone(self) })
    }

    /// Locks for writing, waiting for everybody else.
    pub fn write(self: &Arc<Self>) -> WriteGuard {
        let guard = match self.bytes.try_write_arc() {
            Some(guard) => guard,
            None => gate::passing(Reason::NodeLock, || self.bytes.write_arc()),
        };
        WriteGuard { guard, buffer: Arc::clone(self) }
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
    guard: ArcRwLockReadGuard<RawRwLock, AlignedBuffer>,
    buffer: Arc<ExtentBuffer>,
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
        &self.buffer
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
    guard: ArcRwLockWriteGuard<RawRwLock, AlignedBuffer>,
    buffer: Arc<ExtentBuffer>,
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
        &self.buffer
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.buffer.poison.store(true, Ordering::Release);
        }
    }
}
