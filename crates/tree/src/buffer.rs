//! An extent buffer: one cached tree block and its lock.
//!
//! The bytes of a block that is on a device, or on its way there, never change: a thread that wants to change the block makes a
//! copy (TREE-3). So sealing or reading a block freezes it, and readers of a frozen block take no lock. A thread still takes the
//! lock to copy the block or to give it up.
//!
//! Without that lock a reader may reach a block that its tree has given up meanwhile. The reader then sees the tree as it was a
//! moment ago, unless the space was used again. So a reader that finds a block other than the one promised looks whether the
//! block with the pointer was given up (`read`).
//!
//! # Invariants
//! - FROZEN-2: a block is marked as given up before its space, or the space of blocks that only it leads to, can be handed out.
//!   Shown by `random_schedules_of_readers_beside_commits`, `blocks_that_are_given_up_without_a_mark_are_caught`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Instant;

use creamery_base::gate::{self, Reason};
use creamery_base::lock::{HeldNote, LockPosition, contention, rank};
use creamery_base::sync::{HasLock, OwnedLock, OwnedRead, OwnedWrite, thread_local};
use creamery_base::{ErrorKind, Logical, Result, TreeId, Wait};
use creamery_codec::ChecksumType;
use creamery_device::AlignedBuffer;
use creamery_format::{BlockMut, BlockRef, seal};

use crate::links::{self, Links};
use crate::watch::Watch;

const DIRTY: u8 = 1;
const TOUCHED: u8 = 2;
const GIVEN_UP: u8 = 4;
/// The block was read ahead, and no search has reached it yet.
const AHEAD: u8 = 8;

thread_local! {
    /// The number of blocks that this thread has locked for writing.
    static LOCKED: Cell<u32> = const { Cell::new(0) };
}

/// Asserts that this thread may wait for a device.
///
/// # Panics
/// If this thread has a block locked for writing (READ-1).
pub(crate) fn assert_none_locked_for_writing() {
    let locked = LOCKED.with(Cell::get);
    assert_eq!(locked, 0, "READ-1: waits for a device with blocks locked for writing");
}

/// Counts one block that this thread has locked for writing, until it drops.
struct Locked;

impl Locked {
    fn new() -> Self {
        LOCKED.with(|locked| locked.set(locked.get() + 1));
        Self
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        LOCKED.with(|locked| locked.set(locked.get() - 1));
    }
}

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
    /// How often keys that belonged here moved elsewhere. Changes under the write lock only.
    narrowed: AtomicU32,
    bytes: OwnedLock<AlignedBuffer>,
    links: Links<Self>,
    watch: Arc<Watch>,
}

impl HasLock for ExtentBuffer {
    type Content = AlignedBuffer;

    fn lock(&self) -> &OwnedLock<AlignedBuffer> {
        &self.bytes
    }
}

impl ExtentBuffer {
    /// Creates a buffer that the next commit writes.
    pub(crate) fn dirty(logical: Logical, level: u8, bytes: AlignedBuffer, watch: Arc<Watch>) -> Self {
        let (state, narrowed) = (AtomicU8::new(DIRTY), AtomicU32::new(0));
        let (bytes, links) = (OwnedLock::new(bytes), Links::default());
        Self { logical, level, state, narrowed, bytes, links, watch }
    }

    /// Creates a buffer of a block as it is on a device. `ahead`: it was read ahead, and no search needs it yet.
    pub(crate) fn clean(
        logical: Logical,
        level: u8,
        bytes: AlignedBuffer,
        ahead: bool,
        watch: Arc<Watch>,
    ) -> Self {
        let (state, narrowed) = (AtomicU8::new(if ahead { AHEAD } else { 0 }), AtomicU32::new(0));
        let (bytes, links) = (OwnedLock::new_frozen(bytes), Links::default());
        Self { logical, level, state, narrowed, bytes, links, watch }
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

    /// Whether the next commit has to write the block.
    #[must_use]
    pub fn is_dirty(&self) -> bool {
        self.state.load(Ordering::Acquire) & DIRTY != 0
    }

    /// Clears the dirty mark. Returns whether it was set.
    pub(crate) fn clear_dirty(&self) -> bool {
        self.state.fetch_and(!DIRTY, Ordering::AcqRel) & DIRTY != 0
    }

    /// Marks the block as used. The first use of a block that was read ahead only clears that mark, and returns true.
    pub(crate) fn touch(&self) -> bool {
        match self.state.load(Ordering::Relaxed) & (TOUCHED | AHEAD) {
            TOUCHED => false,
            0 => {
                self.state.fetch_or(TOUCHED, Ordering::Relaxed);
                false
            }
            _ => self.state.fetch_and(!AHEAD, Ordering::Relaxed) & AHEAD != 0,
        }
    }

    /// Returns the tree that a frozen block was written for, for statistics. A block that is not frozen counts as [`TreeId::FS`].
    pub(crate) fn owner(&self) -> TreeId {
        self.frozen().map_or(TreeId::FS, |bytes| BlockRef::new(bytes).owner())
    }

    /// Whether the block was read ahead and not used since.
    pub(crate) fn was_read_ahead(&self) -> bool {
        self.state.load(Ordering::Relaxed) & AHEAD != 0
    }

    /// Clears the mark of recent use. Returns whether it was set.
    pub(crate) fn clear_touched(&self) -> bool {
        self.state.fetch_and(!TOUCHED, Ordering::Relaxed) & TOUCHED != 0
    }

    /// The bytes, if they are frozen.
    pub(crate) fn frozen(&self) -> Option<&[u8]> {
        self.bytes.frozen().map(|bytes| &bytes[..])
    }

    /// Returns the child at `slot`, if this block is frozen and has a link to it (`links`).
    pub(crate) fn linked(&self, slot: usize) -> Option<&Arc<Self>> {
        self.links.get(slot)
    }

    /// Links the child at `slot`, if both blocks are frozen nodes. The caller has checked the child.
    pub(crate) fn link(&self, slot: usize, child: &Arc<Self>) {
        if self.level < links::LOWEST || child.frozen().is_none() || self.is_given_up() {
            return;
        }
        let Some(bytes) = self.frozen() else { return };
        assert!(child.level + 1 == self.level, "LINK-1: a link leads one level down");
        self.links.set(BlockRef::new(bytes).count(), slot, child, self.watch.linked());
    }

    /// Whether a tree gave up the last reference to the block. Its space may hold other data.
    pub(crate) fn is_given_up(&self) -> bool {
        self.state.load(Ordering::SeqCst) & GIVEN_UP != 0
    }

    /// How often keys that belonged here moved elsewhere. The caller has the block locked.
    pub(crate) fn narrowed(&self) -> u32 {
        self.narrowed.load(Ordering::Relaxed)
    }

    /// Marks the block as given up (FROZEN-2).
    pub(crate) fn mark_given_up(&self) {
        self.state.fetch_or(GIVEN_UP, Ordering::SeqCst);
        self.links.give_back(self.watch.linked());
    }

    /// Returns a guard to read the block. The thread must have no other block locked. The guard takes over the reference.
    /// Errors: would block (waiting is not allowed, and a writer holds or awaits the lock).
    pub fn read(self: Arc<Self>, wait: Wait) -> Result<ReadGuard> {
        self.read_at(LockPosition::of(rank::NODE), wait)
    }

    /// Returns a guard to read the block among other locked blocks: `place` is its place in their order (`order`). Frozen blocks are
    /// not locked. Errors: would block (waiting is not allowed, and a writer holds or awaits the lock).
    pub(crate) fn read_at(self: Arc<Self>, place: LockPosition, wait: Wait) -> Result<ReadGuard> {
        if self.frozen().is_some() {
            return Ok(ReadGuard(Reading::Frozen(self)));
        }
        self.lock_shared(HeldNote::before(place, wait), wait)
    }

    /// Locks the block for writing, and waits until no other thread has it locked. The thread must have no other block locked. The
    /// guard takes over the reference.
    pub fn write(self: Arc<Self>) -> WriteGuard {
        self.write_as(HeldNote::wait(LockPosition::of(rank::NODE)))
    }

    /// Locks the block for reading, frozen or not: until the guard drops, no thread copies the block or gives it up.
    /// Errors: would block (waiting is not allowed, and a writer holds or awaits the lock).
    pub(crate) fn lock_shared(self: Arc<Self>, held: HeldNote, wait: Wait) -> Result<ReadGuard> {
        let guard = match OwnedRead::try_lock(self) {
            Ok(guard) => guard,
            Err(this) if wait.allowed() => {
                contention::note(rank::NODE);
                gate::passing(Reason::NodeLock, || OwnedRead::lock(this))
            }
            Err(_) => return Err(ErrorKind::WouldBlock.into()),
        };
        Ok(ReadGuard(Reading::Locked { guard, _held: held }))
    }

    /// Locks the block for writing if no other thread holds the lock. The guard takes over the reference.
    /// Errors: would block.
    pub(crate) fn try_write(self: Arc<Self>, held: HeldNote) -> Result<WriteGuard> {
        match OwnedWrite::try_lock(self) {
            Ok(guard) => Ok(WriteGuard::new(guard, held)),
            Err(_) => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Locks the block for writing among other locked blocks, and waits until no other thread has it locked.
    pub(crate) fn write_as(self: Arc<Self>, held: HeldNote) -> WriteGuard {
        let guard = match OwnedWrite::try_lock(self) {
            Ok(guard) => guard,
            Err(this) => {
                contention::note(rank::NODE);
                let asked = this.watch.now();
                let guard = gate::passing(Reason::NodeLock, || OwnedWrite::lock(this));
                guard.owner().watch.waited(guard.owner().level, asked);
                guard
            }
        };
        WriteGuard::new(guard, held)
    }
}

impl Drop for ExtentBuffer {
    fn drop(&mut self) {
        self.links.leave(self.watch.linked());
    }
}

/// A read guard of one block, which does not change until the guard drops. Locked, unless the block is frozen.
///
/// ```no_run
/// # fn show(guard: creamery_tree::ReadGuard) {
/// println!("level {}", guard.block().level());
/// # }
/// ```
#[must_use]
pub struct ReadGuard(Reading);

enum Reading {
    Locked { guard: OwnedRead<ExtentBuffer>, _held: HeldNote },
    Frozen(Arc<ExtentBuffer>),
}

impl ReadGuard {
    /// Creates a guard of a frozen block.
    ///
    /// # Panics
    /// If the block is not frozen (FROZEN-1).
    pub(crate) fn of_frozen(buffer: Arc<ExtentBuffer>) -> Self {
        assert!(buffer.frozen().is_some(), "FROZEN-1: only what is frozen is read without a lock");
        Self(Reading::Frozen(buffer))
    }

    /// The block's content.
    #[must_use]
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef::new(self.bytes())
    }

    /// The block's bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Reading::Locked { guard, .. } => guard,
            Reading::Frozen(buffer) => buffer.frozen().expect("what is frozen stays so"),
        }
    }

    /// Returns the buffer of the block.
    #[must_use]
    pub fn buffer(&self) -> &Arc<ExtentBuffer> {
        match &self.0 {
            Reading::Locked { guard, .. } => guard.owner(),
            Reading::Frozen(buffer) => buffer,
        }
    }

    /// Whether the guard holds a lock, so that writers wait for it.
    pub(crate) const fn is_locked(&self) -> bool {
        matches!(self.0, Reading::Locked { .. })
    }
}

/// A write lock on one block. If its thread panics, the drop poisons the store before it unlocks.
///
/// ```no_run
/// # fn wipe(mut guard: creamery_tree::WriteGuard) {
/// guard.block_mut().set_flags(0);
/// # }
/// ```
#[must_use]
pub struct WriteGuard {
    guard: OwnedWrite<ExtentBuffer>,
    /// When the block was locked, if lock times are being taken.
    since: Option<Instant>,
    _held: HeldNote,
    _locked: Locked,
}

impl WriteGuard {
    fn new(guard: OwnedWrite<ExtentBuffer>, held: HeldNote) -> Self {
        Self { since: guard.owner().watch.now(), guard, _held: held, _locked: Locked::new() }
    }

    /// The block's content.
    #[must_use]
    pub fn block(&self) -> BlockRef<'_> {
        BlockRef::new(&self.guard)
    }

    /// The block's content, to be changed. The caller keeps TREE-3.
    pub fn block_mut(&mut self) -> BlockMut<'_> {
        BlockMut::new(&mut self.guard)
    }

    /// The block's bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.guard
    }

    /// Marks the block as written, stores its checksum, and freezes it: these bytes go to the device.
    pub fn seal(&mut self, checksum: ChecksumType) {
        self.block_mut().mark_written();
        seal(&mut self.guard, checksum);
        self.guard.freeze();
    }

    /// Returns the locked buffer.
    #[must_use]
    pub fn buffer(&self) -> &Arc<ExtentBuffer> {
        self.guard.owner()
    }

    /// How often [`WriteGuard::narrow`] was called on this block.
    pub(crate) fn narrowed(&self) -> u32 {
        self.buffer().narrowed()
    }

    /// Notes that keys which belonged into this block belong elsewhere from now on (FINGER-1).
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

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(level: u8) -> Arc<ExtentBuffer> {
        let (at, bytes) = (Logical::new(1 << 20), AlignedBuffer::zeroed(4096));
        Arc::new(ExtentBuffer::clean(at, level, bytes, false, Arc::new(Watch::default())))
    }

    #[test]
    #[should_panic(expected = "LINK-1")]
    fn a_link_that_leads_no_level_down_is_a_bug() {
        clean(2).link(0, &clean(2));
    }
}
