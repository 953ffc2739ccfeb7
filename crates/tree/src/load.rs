//! Loading blocks from the volume into the store.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use creamery_base::{Logical, Result, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockRef, Expected};

use crate::block_read::PendingRead;
use crate::buffer::{self, ExtentBuffer};
use crate::store::BufferStore;

/// The duty to read a block: other threads that miss the block wait until this drops.
struct ReadDuty<'s> {
    store: &'s BufferStore,
    at: Logical,
    pending: Arc<PendingRead>,
}

impl Drop for ReadDuty<'_> {
    fn drop(&mut self) {
        let ended = self.store.shard(self.at).write().reads.remove(&self.at);
        assert!(ended.is_some(), "READ-2: who reads a block is the only one");
        self.pending.end();
    }
}

/// The state of a block that a search wants.
enum Found<'s> {
    Cached(Arc<ExtentBuffer>),
    /// Another thread is reading it.
    Read(Arc<PendingRead>),
    /// It is not cached: the caller has to read it.
    Duty(ReadDuty<'s>),
}

impl BufferStore {
    fn find(&self, at: Logical) -> Found<'_> {
        let mut shard = self.shard(at).write();
        if let Some(buffer) = shard.buffers.get(&at) {
            return Found::Cached(Arc::clone(buffer));
        }
        if let Some(pending) = shard.reads.get(&at) {
            return Found::Read(Arc::clone(pending));
        }
        let pending = Arc::<PendingRead>::default();
        shard.reads.insert(at, Arc::clone(&pending));
        Found::Duty(ReadDuty { store: self, at, pending })
    }

    /// Returns the buffer of a block that was not cached a moment ago. This thread reads it, or waits for another thread's read (READ-2).
    /// Errors: device errors, damage.
    pub(crate) fn load(&self, want: &Expected) -> Result<Arc<ExtentBuffer>> {
        loop {
            match self.find(want.logical) {
                Found::Cached(buffer) => {
                    self.used(&buffer);
                    return Ok(buffer);
                }
                Found::Read(pending) => {
                    self.reads_joined.fetch_add(1, Ordering::Relaxed);
                    pending.wait();
                }
                Found::Duty(_duty) => {
                    buffer::assert_none_locked_for_writing();
                    let bytes = self.volume().read_tree_block(want.logical, want, Wait::Yes)?;
                    self.misses.fetch_add(1, Ordering::Relaxed);
                    return Ok(self.insert_clean(want.logical, bytes, false));
                }
            }
        }
    }

    /// Inserts a block that was read, on demand or ahead. Returns the buffer in the index: if the address already has one, because the
    /// pointer to the block was wrong, that one stays.
    fn insert_clean(&self, at: Logical, bytes: AlignedBuffer, ahead: bool) -> Arc<ExtentBuffer> {
        let level = BlockRef::new(&bytes).level();
        let mut shard = self.shard(at).write();
        if let Some(buffer) = shard.buffers.get(&at) {
            return Arc::clone(buffer);
        }
        let buffer = Arc::new(ExtentBuffer::clean(at, level, bytes, ahead, Arc::clone(&self.watch)));
        shard.buffers.insert(at, Arc::clone(&buffer));
        shard.clean.push_back(at);
        self.trim(&mut shard);
        buffer
    }

    /// Creates the buffer of a leaf that is on no device and in no index.
    pub(crate) fn apart(&self, at: Logical, bytes: AlignedBuffer) -> Arc<ExtentBuffer> {
        Arc::new(ExtentBuffer::clean(at, 0, bytes, false, Arc::clone(&self.watch)))
    }

    /// Turns readahead on: the caller takes steps ([`BufferStore::read_ahead_step`]) from now on. `wake` is called when there are some.
    pub fn begin_read_ahead(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.ahead.begin(Box::new(wake));
    }

    /// Whether some thread takes readahead steps.
    #[must_use]
    pub fn reads_ahead(&self) -> bool {
        self.ahead.is_on()
    }

    /// Whether a readahead step is queued.
    #[must_use]
    pub fn has_read_ahead(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Empties the readahead queue, so that the space that it keeps can be used again.
    pub fn forget_read_ahead(&self) {
        self.ahead.clear();
    }

    /// Removes the blocks from the readahead queue that no walker keeps as well.
    pub fn forget_unread_ahead(&self) {
        self.ahead.forget_unread();
    }

    /// Takes the oldest readahead request and reads its blocks. A bad block is left out: the search that needs it reads it again.
    pub fn read_ahead_step(&self) {
        let Some(run) = self.ahead.pop() else { return };
        let duties: Vec<(&Expected, Option<ReadDuty<'_>>)> = run
            .wants
            .iter()
            .map(|want| match self.find(want.logical) {
                Found::Duty(duty) => (want, Some(duty)),
                Found::Cached(_) | Found::Read(_) => (want, None),
            })
            .collect();
        for part in duties.chunk_by(|one, next| one.1.is_some() == next.1.is_some()) {
            if part[0].1.is_some() {
                let wants: Vec<Expected> = part.iter().map(|(want, _)| **want).collect();
                self.read_ahead(&wants);
            }
        }
    }

    fn read_ahead(&self, wants: &[Expected]) {
        let blocks = self.volume().read_tree_blocks(wants);
        for (want, bytes) in wants.iter().zip(blocks) {
            self.ahead.asked(bytes.as_ref().map(|bytes| BlockRef::new(bytes).owner()));
            if let Some(bytes) = bytes {
                drop(self.insert_clean(want.logical, bytes, true));
            }
        }
    }
}
