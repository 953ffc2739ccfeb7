//! The buffer store: the one index from logical address to the only buffer of that block, and the cache of clean
//! blocks.
//!
//! The index is split in shards by address. Every shard keeps its clean blocks in a queue with a second chance:
//! a block comes in cold, a second use makes it warm, and the hand at the queue's front drops cold blocks and cools
//! warm ones. So a scan flushes out only its own blocks, not the ones in common use.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::{CachePadded, ErrorKind, Logical, PerThread, Result, TreeId, Uuid, Wait, memory};
use creamery_device::AlignedBuffer;
use creamery_format::Expected;
use creamery_volume::Volume;
use hashbrown::HashMap;

use crate::LEVELS;
use crate::block_read::PendingRead;
use crate::buffer::ExtentBuffer;
use crate::read_ahead::{ReadAheadCounters, ReadAheadQueue};
use crate::readers::Readers;
use crate::sharing::{SharedRefsGuard, Sharing};
use crate::watch::{LockTimes, Watch};

const SHARDS: usize = 64;

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) buffers: HashMap<Logical, Arc<ExtentBuffer>>,
    /// Blocks that a thread is reading from the volume.
    pub(crate) reads: HashMap<Logical, Arc<PendingRead>>,
    /// Addresses of clean blocks, the hand at the front. An address may be stale: its block gone or dirty again.
    pub(crate) clean: VecDeque<Logical>,
    dirty: Vec<Arc<ExtentBuffer>>,
    /// The number of blocks in `dirty` that were freed meanwhile. Only that list references them.
    forgotten: usize,
}

impl Shard {
    /// Drops blocks that were freed before they were written, once they are more than half of the list. Otherwise creating and removing
    /// files in turn would fill the memory before a commit is due.
    fn drop_forgotten(&mut self) {
        if 2 * self.forgotten > self.dirty.len() {
            self.dirty.retain(|buffer| buffer.is_dirty());
            self.forgotten = 0;
        }
    }
}

pub(crate) type ShardLock = RankedRwLock<Shard, { rank::BUFFER_SHARD }>;

/// Counts of the store's work since it was created.
///
/// ```
/// let counters = creamery_tree::StoreCounters::default();
/// assert_eq!(counters.hits, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct StoreCounters {
    /// Blocks found in the index.
    pub hits: u64,
    /// Blocks read from the volume.
    pub misses: u64,
    /// Waits for a block that another thread was reading.
    pub reads_joined: u64,
    /// Clean blocks dropped to keep the budget.
    pub evictions: u64,
    /// Bytes in blocks waiting for the next commit.
    pub dirty_bytes: u64,
    /// Bytes in blocks that a commit is writing out.
    pub writing_bytes: u64,
    /// Counts of readahead.
    pub ahead: ReadAheadCounters,
}

/// The memory of the cached blocks and their index, bytes.
///
/// ```
/// assert_eq!(creamery_tree::StoreMemory::default().dirty, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct StoreMemory {
    /// Blocks that can be dropped at any time, the index of all blocks, and the links between nodes.
    pub clean: u64,
    /// Blocks that wait for the next commit.
    pub dirty: u64,
    /// Blocks that a commit is writing out.
    pub writing: u64,
}

/// Memory kept ready for new blocks, bytes: more than a few threads use while another one allocates more.
const PREPARED: usize = 1 << 20;

/// All cached tree blocks of a filesystem.
///
/// ```no_run
/// # fn show(store: &creamery_tree::BufferStore) {
/// println!("{:?}", store.counters());
/// # }
/// ```
pub struct BufferStore {
    volume: Arc<Volume>,
    chunk_tree_uuid: Uuid,
    shards: Vec<CachePadded<ShardLock>>,
    clean_per_shard: usize,
    dirty_bytes: CachePadded<AtomicU64>,
    writing_bytes: AtomicU64,
    pub(crate) watch: Arc<Watch>,
    sharing: Sharing,
    readers: Readers,
    pub(crate) ahead: ReadAheadQueue,
    hits: PerThread<AtomicU64>,
    pub(crate) misses: AtomicU64,
    pub(crate) reads_joined: AtomicU64,
    evictions: AtomicU64,
}

impl BufferStore {
    /// Creates a store over `volume` that keeps up to about `cache_bytes` of clean blocks; new blocks carry
    /// `chunk_tree_uuid`.
    #[must_use]
    pub fn new(volume: Arc<Volume>, cache_bytes: u64, chunk_tree_uuid: Uuid) -> Self {
        let blocks = cache_bytes / u64::from(volume.node_size());
        let clean_per_shard = usize::try_from(blocks).unwrap_or(usize::MAX).div_ceil(SHARDS).max(1);
        Self {
            volume,
            chunk_tree_uuid,
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            clean_per_shard,
            dirty_bytes: CachePadded::default(),
            writing_bytes: AtomicU64::new(0),
            watch: Arc::new(Watch::of_cache(clean_per_shard as u64 * SHARDS as u64)),
            sharing: Sharing::new(),
            readers: Readers::default(),
            ahead: ReadAheadQueue::default(),
            hits: PerThread::default(),
            misses: AtomicU64::new(0),
            reads_joined: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The volume below.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The chunk tree's UUID, a field of every tree block.
    #[must_use]
    pub fn chunk_tree_uuid(&self) -> Uuid {
        self.chunk_tree_uuid
    }

    /// Returns the guards of readers without locks.
    #[must_use]
    pub const fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Returns the store's counters since it was created.
    #[must_use]
    pub fn counters(&self) -> StoreCounters {
        StoreCounters {
            hits: self.hits.all().map(|hits| hits.load(Ordering::Relaxed)).sum(),
            misses: self.misses.load(Ordering::Relaxed),
            reads_joined: self.reads_joined.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
            dirty_bytes: self.dirty_bytes(),
            writing_bytes: self.writing_bytes(),
            ahead: self.ahead.counters(),
        }
    }

    /// Returns the counts of readahead in the extent tree, in the checksum tree, or in all other trees together.
    #[must_use]
    pub fn read_ahead_of(&self, tree: TreeId) -> ReadAheadCounters {
        self.ahead.counters_of(tree)
    }

    /// Bytes in blocks waiting for the next commit.
    #[must_use]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes.load(Ordering::Relaxed)
    }

    /// Bytes in blocks that a commit has taken and not yet written.
    #[must_use]
    pub fn writing_bytes(&self) -> u64 {
        self.writing_bytes.load(Ordering::Relaxed)
    }

    /// Returns the memory that the cached blocks take.
    #[must_use]
    pub fn memory(&self) -> StoreMemory {
        let node_size = u64::from(self.volume.node_size());
        let each = node_size + memory::shared::<ExtentBuffer>();
        let (mut blocks, mut listed, mut forgotten, mut lists) = (0, 0, 0, 0);
        for shard in &self.shards {
            let shard = shard.read();
            blocks += shard.buffers.len() as u64;
            listed += shard.dirty.len() as u64;
            forgotten += shard.forgotten as u64;
            lists += memory::hash_map::<Logical, Arc<ExtentBuffer>>(shard.buffers.capacity())
                + memory::vec::<Logical>(shard.clean.capacity())
                + memory::vec::<Arc<ExtentBuffer>>(shard.dirty.capacity());
        }
        let writing = self.writing_bytes() / node_size;
        let clean = blocks.saturating_sub(listed.saturating_sub(forgotten) + writing);
        let lists = lists + self.watch.linked().memory();
        StoreMemory { clean: clean * each + lists, dirty: listed * each, writing: writing * each }
    }

    fn bytes_of(&self, blocks: usize) -> u64 {
        blocks as u64 * u64::from(self.volume.node_size())
    }

    /// Whether a thread panicked with a block half edited. Nothing may be committed then.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.watch.is_poisoned()
    }

    /// Starts or stops taking the times of write locks on tree blocks. When off, a lock costs one check of a flag.
    pub fn set_lock_timing(&self, on: bool) {
        self.watch.set_timing(on);
    }

    /// The times taken so far, by level, leaves first.
    #[must_use]
    pub fn lock_times(&self) -> [LockTimes; LEVELS] {
        self.watch.lock_times()
    }

    pub(crate) fn shard(&self, at: Logical) -> &ShardLock {
        // Blocks are at least 4 KiB apart; mixing keeps one tree's neighbours in different shards.
        let mixed = (at.get() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58;
        &self.shards[usize::try_from(mixed).expect("six bits")]
    }

    /// The buffer of the block at `want.logical`, from the index or read and verified against `want`.
    /// Errors: would block (not cached and waiting is not allowed), device errors, damage.
    pub fn get(&self, want: &Expected, wait: Wait) -> Result<Arc<ExtentBuffer>> {
        match self.cached(want.logical) {
            Some(buffer) => Ok(buffer),
            None if wait.allowed() => self.load(want),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }

    /// Waits for the turn to change the references of a block that trees share.
    pub(crate) fn turn(&self, at: Logical) -> SharedRefsGuard<'_> {
        self.sharing.turn(at)
    }

    /// Plants a fault: threads that change the references of shared blocks do not wait for each other.
    #[cfg(feature = "shuttle")]
    pub fn forget_turns(&self) {
        self.sharing.forget_turns();
    }

    /// The buffer of a block, if it is cached.
    pub(crate) fn cached(&self, at: Logical) -> Option<Arc<ExtentBuffer>> {
        let shard = self.shard(at).read();
        let buffer = Arc::clone(shard.buffers.get(&at)?);
        drop(shard);
        self.used(&buffer);
        self.hits.mine().fetch_add(1, Ordering::Relaxed);
        Some(buffer)
    }

    /// Notes that a search reached a block.
    pub(crate) fn used(&self, buffer: &ExtentBuffer) {
        if buffer.touch() {
            self.ahead.came_to(buffer.owner());
        }
    }

    /// Whether a block is cached. Does not count as a use.
    pub(crate) fn is_cached(&self, at: Logical) -> bool {
        self.shard(at).read().buffers.contains_key(&at)
    }

    /// Creates a dirty block at a newly allocated address. Replaces an old clean buffer of that address.
    pub(crate) fn create(&self, at: Logical, level: u8, bytes: AlignedBuffer) -> Arc<ExtentBuffer> {
        let buffer = Arc::new(ExtentBuffer::dirty(at, level, bytes, Arc::clone(&self.watch)));
        let mut shard = self.shard(at).write();
        if let Some(old) = shard.buffers.insert(at, Arc::clone(&buffer)) {
            assert!(!old.is_dirty(), "block {at} was allocated while its former content waits to be written");
        }
        shard.dirty.push(Arc::clone(&buffer));
        self.dirty_bytes.fetch_add(self.bytes_of(1), Ordering::Relaxed);
        buffer
    }

    /// Keeps memory ready for new blocks. Call it before a change of trees, with no lock on a tree block: a thread that creates
    /// blocks under such locks must not wait for the system to find memory.
    pub fn prepare(&self) {
        let node_size = self.volume.node_size() as usize;
        AlignedBuffer::prepare(node_size, PREPARED / node_size);
    }

    /// Forgets a block that was freed before it was written.
    pub(crate) fn forget_dirty(&self, buffer: &Arc<ExtentBuffer>) {
        let mut shard = self.shard(buffer.logical()).write();
        if buffer.clear_dirty() {
            self.dirty_bytes.fetch_sub(self.bytes_of(1), Ordering::Relaxed);
            shard.forgotten += 1;
            shard.drop_forgotten();
        }
        if shard.buffers.get(&buffer.logical()).is_some_and(|indexed| Arc::ptr_eq(indexed, buffer)) {
            shard.buffers.remove(&buffer.logical());
        }
    }

    /// Returns all blocks in the lists of dirty blocks; some may have been freed since.
    pub(crate) fn dirty_blocks(&self) -> Vec<Arc<ExtentBuffer>> {
        self.shards.iter().flat_map(|shard| shard.read().dirty.clone()).collect()
    }

    /// Returns the buffer of a block if it is cached and dirty.
    pub(crate) fn cached_dirty(&self, at: Logical) -> Option<Arc<ExtentBuffer>> {
        self.shard(at).read().buffers.get(&at).filter(|buffer| buffer.is_dirty()).cloned()
    }

    /// Takes the list of all dirty blocks, in order of address, so that the caller writes them. They stay in the index and stay
    /// marked until [`BufferStore::written`].
    ///
    /// # Errors
    /// Damage (LOW-KEY-1); the lists keep all blocks then.
    pub fn take_dirty(&self) -> Result<Vec<Arc<ExtentBuffer>>> {
        self.settle_low_keys()?;
        let mut all = Vec::new();
        for shard in &self.shards {
            let mut shard = shard.write();
            all.append(&mut shard.dirty);
            shard.forgotten = 0;
        }
        all.retain(|buffer| buffer.is_dirty());
        all.sort_unstable_by_key(|buffer| buffer.logical());
        self.dirty_bytes.fetch_sub(self.bytes_of(all.len()), Ordering::Relaxed);
        self.writing_bytes.fetch_add(self.bytes_of(all.len()), Ordering::Relaxed);
        Ok(all)
    }

    /// Marks blocks as written: from now on they are clean cache.
    pub fn written(&self, buffers: &[Arc<ExtentBuffer>]) {
        for buffer in buffers {
            let mut shard = self.shard(buffer.logical()).write();
            if buffer.clear_dirty() {
                self.writing_bytes.fetch_sub(self.bytes_of(1), Ordering::Relaxed);
            }
            if shard.buffers.get(&buffer.logical()).is_some_and(|indexed| Arc::ptr_eq(indexed, buffer)) {
                shard.clean.push_back(buffer.logical());
                self.trim(&mut shard);
            }
        }
    }

    /// Turns the hand until the shard is within its budget or every block left is in use (TREE-4).
    pub(crate) fn trim(&self, shard: &mut Shard) {
        let mut turns = shard.clean.len();
        while shard.clean.len() > self.clean_per_shard && turns > 0 {
            turns -= 1;
            let Some(at) = shard.clean.pop_front() else { break };
            let Some(buffer) = shard.buffers.get(&at) else { continue };
            if buffer.is_dirty() {
                continue; // returns to the queue when it is written
            }
            if buffer.clear_touched() || Arc::strong_count(buffer) > 1 {
                shard.clean.push_back(at);
                continue;
            }
            if buffer.was_read_ahead() {
                self.ahead.left(buffer.owner());
            }
            shard.buffers.remove(&at);
            self.evictions.fetch_add(1, Ordering::Relaxed);
        }
    }
}
