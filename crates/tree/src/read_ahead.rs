//! Path readahead: while a walk through a tree waits for one leaf, the leaves beside it are read as well.
//!
//! A search that misses a leaf looks at the pointers beside that leaf's pointer in the parent, and queues those blocks that lie near it on the
//! device. Other threads read them ([`BufferStore::read_ahead_step`](crate::BufferStore::read_ahead_step)). Nothing waits for them. A block that
//! cannot be read is left out. A block that is read goes into the cache like any other block, and the search that reaches it checks it. So a
//! walk finds the same items with readahead and without. Blocks side by side are one request.
//!
//! A guard keeps a queued block's space from being used again, like that of a block that is being read (`block_read`). Before a commit hands
//! space out, it removes those blocks from the queue that only the queue keeps. Blocks that a walker also keeps stay queued: its own guard keeps them anyway.
//!
//! # Invariants
//! - AHEAD-1: the queue is bounded, and nothing is queued while no thread takes steps. Shown by
//!   `nothing_is_queued_where_nobody_reads_ahead` and `a_queue_is_bounded`.
//! - AHEAD-2: after a commit the queue keeps no block that no walker keeps. Shown by `a_commit_leaves_queued_what_a_walker_reads`.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Logical, ObjectId, TreeId, Wait};
use creamery_format::{BlockRef, Expected};

use crate::readers::CommitRootGuard;

/// The direction of a walk, in which blocks are read ahead. The modes are those of Linux' paths.
///
/// ```
/// assert_ne!(creamery_tree::ReadAhead::Forward, creamery_tree::ReadAhead::None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ReadAhead {
    /// No readahead: the walk may end at once.
    #[default]
    None,
    /// To smaller keys.
    Back,
    /// To larger keys.
    Forward,
    /// To larger keys, and to the end: leaves are read ahead wherever they lie, and the next ones before the walk has used up
    /// the last ones; on each level above, one node is read ahead.
    ForwardAlways,
}

/// How a cursor walks: whether it may wait, and which blocks it reads ahead. A [`Wait`] alone reads nothing ahead.
///
/// ```
/// use creamery_base::{ObjectId, Wait};
/// use creamery_tree::{ReadAhead, Walk};
/// let items_of_257 = Walk::new(Wait::Yes, ReadAhead::Forward).within(ObjectId::new(257));
/// # let _ = items_of_257;
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Walk {
    pub(crate) wait: Wait,
    pub(crate) ahead: ReadAhead,
    pub(crate) within: Option<ObjectId>,
}

impl Walk {
    /// Creates a walk in direction `ahead` that may wait as `wait` allows.
    #[must_use]
    pub const fn new(wait: Wait, ahead: ReadAhead) -> Self {
        Self { wait, ahead, within: None }
    }

    /// Limits the walk to the items of `object`.
    #[must_use]
    pub const fn within(self, object: ObjectId) -> Self {
        Self { within: Some(object), ..self }
    }
}

impl From<Wait> for Walk {
    fn from(wait: Wait) -> Self {
        Self::new(wait, ReadAhead::None)
    }
}

/// The largest distance of a near leaf, and the amount that is read ahead, bytes. [`ReadAhead::ForwardAlways`] asks for this much at a
/// time, and keeps twice as much ahead.
const NEAR: u64 = 64 << 10;
/// The largest number of pointers that a search looks at.
const POINTERS_MAX: usize = 32;
/// The largest number of queued requests.
const RUNS_MAX: usize = 64;

impl Walk {
    /// Returns the slots beside `slot` whose blocks are to be read ahead; `missed` says whether the walk waits for the block at `slot`.
    pub(crate) fn slots_ahead(&self, node: BlockRef<'_>, slot: usize, missed: bool) -> Vec<usize> {
        let always = self.ahead == ReadAhead::ForwardAlways;
        // Several at a time: blocks side by side are one request.
        let is_turn = (slot as u64 * node.bytes().len() as u64).is_multiple_of(NEAR);
        let wanted = match (self.ahead, node.level()) {
            (ReadAhead::None, _) => 0,
            (_, 1) if always && (missed || is_turn) => 2 * NEAR,
            (_, 1) if missed => NEAR,
            (_, level) if always && level > 1 => 1,
            _ => 0,
        };
        let (mut slots, mut bytes) = (Vec::new(), 0);
        if wanted == 0 {
            return slots;
        }
        let here = node.child(slot).0;
        for distance in 1..=POINTERS_MAX {
            let next = match self.ahead {
                ReadAhead::Back => slot.checked_sub(distance),
                _ => Some(slot + distance).filter(|next| *next < node.count()),
            };
            let Some(next) = next.filter(|_| bytes < wanted) else { break };
            if self.within.is_some_and(|object| node.key(next).objectid != object) {
                break;
            }
            if always || node.child(next).0.get().abs_diff(here.get()) <= NEAR {
                slots.push(next);
                bytes += node.bytes().len() as u64;
            }
        }
        slots
    }
}

/// Blocks side by side on a device that are to be read.
pub(crate) struct BlockRun {
    pub(crate) wants: Vec<Expected>,
    /// Taken while all these blocks were in use.
    kept: Arc<CommitRootGuard>,
}

/// Counts of readahead.
///
/// ```
/// assert_eq!(creamery_tree::ReadAheadCounters::default().hit, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ReadAheadCounters {
    /// Blocks requested from a device.
    pub issued: u64,
    /// Blocks of these that a search reached.
    pub hit: u64,
    /// Blocks of these that left the cache before a search reached them, or differed from their pointer.
    pub wasted: u64,
    /// Blocks not requested because the queue was full, or a commit came first.
    pub dropped: u64,
}

#[derive(Default)]
struct Queue {
    runs: VecDeque<BlockRun>,
    /// The addresses of all blocks in `runs`.
    queued: HashSet<Logical>,
}

/// The queue of blocks to be read ahead.
#[derive(Default)]
pub(crate) struct ReadAheadQueue {
    queue: RankedMutex<Queue, { rank::LEAF }>,
    /// Wakes the threads that take steps. Unset until there are such threads.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// By tree: extents, checksums, others.
    trees: [Counts; 3],
    dropped: AtomicU64,
}

#[derive(Default)]
struct Counts {
    issued: AtomicU64,
    hit: AtomicU64,
    wasted: AtomicU64,
}

impl ReadAheadQueue {
    /// Turns readahead on: the caller takes steps from now on. `wake` is called when there is one to take.
    pub(crate) fn begin(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(wake);
    }

    /// Whether some thread takes steps.
    pub(crate) fn is_on(&self) -> bool {
        self.wake.get().is_some()
    }

    /// Returns the counts of all trees together.
    pub(crate) fn counters(&self) -> ReadAheadCounters {
        let sum = |of: fn(&Counts) -> &AtomicU64| {
            self.trees.iter().map(|counts| of(counts).load(Ordering::Relaxed)).sum()
        };
        ReadAheadCounters {
            issued: sum(|counts| &counts.issued),
            hit: sum(|counts| &counts.hit),
            wasted: sum(|counts| &counts.wasted),
            dropped: self.dropped.load(Ordering::Relaxed),
        }
    }

    /// Returns the counts of the extent tree, the checksum tree, or all others together. `dropped` is 0: it is not counted by tree.
    pub(crate) fn counters_of(&self, tree: TreeId) -> ReadAheadCounters {
        let counts = self.of(tree);
        ReadAheadCounters {
            issued: counts.issued.load(Ordering::Relaxed),
            hit: counts.hit.load(Ordering::Relaxed),
            wasted: counts.wasted.load(Ordering::Relaxed),
            dropped: 0,
        }
    }

    fn of(&self, tree: TreeId) -> &Counts {
        match tree {
            TreeId::EXTENT => &self.trees[0],
            TreeId::CSUM => &self.trees[1],
            _ => &self.trees[2],
        }
    }

    /// Counts a block that was requested from a device. `owner` is `None` if the block differs from its pointer.
    pub(crate) fn asked(&self, owner: Option<TreeId>) {
        let counts = self.of(owner.unwrap_or(TreeId::FS));
        counts.issued.fetch_add(1, Ordering::Relaxed);
        counts.wasted.fetch_add(u64::from(owner.is_none()), Ordering::Relaxed);
    }

    /// Counts a block that was read ahead and that a walk reached.
    pub(crate) fn came_to(&self, owner: TreeId) {
        self.of(owner).hit.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a block that was read ahead and left the cache unused.
    pub(crate) fn left(&self, owner: TreeId) {
        self.of(owner).wasted.fetch_add(1, Ordering::Relaxed);
    }

    /// Queues blocks of `node_size` bytes; blocks side by side are one request. All were in use when the guard `kept` was taken.
    pub(crate) fn push(&self, mut wants: Vec<Expected>, node_size: u64, kept: CommitRootGuard) {
        let kept = Arc::new(kept.queued());
        let Some(wake) = self.wake.get() else { return };
        wants.sort_unstable_by_key(|want| want.logical);
        let mut queue = self.queue.lock();
        wants.retain(|want| !queue.queued.contains(&want.logical));
        let all = wants.len();
        let mut taken = 0;
        for run in wants.chunk_by(|one, next| is_behind(one, next, node_size)) {
            if queue.runs.len() >= RUNS_MAX {
                break;
            }
            taken += run.len();
            queue.queued.extend(run.iter().map(|want| want.logical));
            queue.runs.push_back(BlockRun { wants: run.to_vec(), kept: Arc::clone(&kept) });
        }
        drop(queue);
        self.dropped.fetch_add((all - taken) as u64, Ordering::Relaxed);
        if taken > 0 {
            wake();
        }
    }

    /// Takes the next request off the queue.
    pub(crate) fn pop(&self) -> Option<BlockRun> {
        let mut queue = self.queue.lock();
        let run = queue.runs.pop_front()?;
        for want in &run.wants {
            queue.queued.remove(&want.logical);
        }
        Some(run)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().runs.is_empty()
    }

    /// Empties the queue.
    pub(crate) fn clear(&self) {
        self.retain(|_| false);
    }

    /// Removes the blocks that only the queue keeps (AHEAD-2).
    pub(crate) fn forget_unread(&self) {
        self.retain(CommitRootGuard::is_shared);
    }

    /// Keeps the requests whose guard `stays`. The queue is unlocked while guards are asked and dropped.
    fn retain(&self, stays: impl Fn(&CommitRootGuard) -> bool) {
        let Queue { runs, .. } = std::mem::take(&mut *self.queue.lock());
        let (kept, gone): (VecDeque<BlockRun>, VecDeque<BlockRun>) =
            runs.into_iter().partition(|run| stays(&run.kept));
        let blocks: usize = gone.iter().map(|run| run.wants.len()).sum();
        self.dropped.fetch_add(blocks as u64, Ordering::Relaxed);
        let mut queue = self.queue.lock();
        let (mut kept, room) = (Vec::from(kept), RUNS_MAX.saturating_sub(queue.runs.len()));
        // Requests that were pushed meanwhile have taken their room.
        let beyond = kept.split_off(room.min(kept.len()));
        for run in kept.into_iter().rev() {
            queue.queued.extend(run.wants.iter().map(|want| want.logical));
            queue.runs.push_front(run);
        }
        drop(queue);
        let blocks: usize = beyond.iter().map(|run| run.wants.len()).sum();
        self.dropped.fetch_add(blocks as u64, Ordering::Relaxed);
    }
}

/// Whether `next` begins on a device where `one` ends. A damaged node may hold any addresses.
fn is_behind(one: &Expected, next: &Expected, node_size: u64) -> bool {
    one.logical.get().checked_add(node_size) == Some(next.logical.get())
}

#[cfg(test)]
mod tests {
    use creamery_base::{Generation, Uuid};
    use creamery_codec::ChecksumType;
    use creamery_format::{BlockMut, Key, KeyType};

    use super::*;
    use crate::readers::Readers;

    const NODE: u64 = 16384;

    fn want(at: u64) -> Expected {
        Expected {
            logical: Logical::new(at),
            level: None,
            generation: None,
            owner: None,
            first_key: None,
            fsid: Uuid::nil(),
            checksum: ChecksumType::Crc32c,
        }
    }

    /// A node of level `level` whose children are at these addresses, of the objects 256, 256, ..., 257, ...
    fn node(level: u8, children: &[u64], of_first: usize) -> Vec<u8> {
        let mut bytes = vec![0; NODE as usize];
        let mut block = BlockMut::new(&mut bytes);
        block.set_level(level);
        for (slot, at) in children.iter().enumerate() {
            let object = ObjectId::new(if slot < of_first { 256 } else { 257 });
            let key = Key::new(object, KeyType::EXTENT_DATA, slot as u64);
            block.insert_ptr(slot, &key, Logical::new(*at), Generation::new(1));
        }
        bytes
    }

    fn slots(walk: Walk, bytes: &[u8], slot: usize, missed: bool) -> Vec<usize> {
        walk.slots_ahead(BlockRef::new(bytes), slot, missed)
    }

    #[test]
    fn near_leaves_in_the_direction_of_the_walk_are_read_ahead() {
        let near: Vec<u64> = (0..40).map(|number| (1 << 20) + number * NODE).collect();
        let bytes = node(1, &near, 40);
        let forward = Walk::new(Wait::Yes, ReadAhead::Forward);
        assert_eq!(slots(forward, &bytes, 3, true), [4, 5, 6, 7]);
        assert_eq!(slots(forward, &bytes, 38, true), [39]);
        assert_eq!(slots(forward, &bytes, 3, false), []);
        assert_eq!(slots(Walk::new(Wait::Yes, ReadAhead::Back), &bytes, 3, true), [2, 1, 0]);
        assert_eq!(slots(Walk::from(Wait::Yes), &bytes, 3, true), []);
        let always = Walk::new(Wait::Yes, ReadAhead::ForwardAlways);
        assert_eq!(slots(always, &bytes, 3, true), [4, 5, 6, 7, 8, 9, 10, 11]);
        assert_eq!(slots(always, &bytes, 4, false), [5, 6, 7, 8, 9, 10, 11, 12]);
        assert_eq!(slots(always, &bytes, 5, false), [], "these were asked for already");
        let far: Vec<u64> = (0..40).map(|number| number << 20).collect();
        assert_eq!(slots(forward, &node(1, &far, 40), 3, true), []);
        assert_eq!(slots(always, &node(1, &far, 40), 3, true).len(), 8);
        // Of the nodes above, one, and only where the walk needs all.
        assert_eq!(slots(forward, &node(2, &near, 40), 3, true), []);
        assert_eq!(slots(always, &node(2, &near, 40), 3, true), [4]);
    }

    #[test]
    fn a_walk_within_an_object_reads_no_others_ahead() {
        let near: Vec<u64> = (0..8).map(|number| (1 << 20) + number * NODE).collect();
        let bytes = node(1, &near, 5);
        let within = |ahead, object| Walk::new(Wait::Yes, ahead).within(ObjectId::new(object));
        assert_eq!(slots(within(ReadAhead::Forward, 256), &bytes, 3, true), [4]);
        assert_eq!(slots(within(ReadAhead::Back, 257), &bytes, 6, true), [5]);
    }

    #[test]
    fn nothing_is_queued_where_nobody_reads_ahead() {
        let (queue, readers) = (ReadAheadQueue::default(), Readers::default());
        queue.push(vec![want(0)], NODE, readers.guard());
        assert!(queue.is_empty() && queue.pop().is_none());
    }

    #[test]
    fn blocks_side_by_side_are_one_request_and_none_is_asked_for_twice() {
        let (queue, readers) = (ReadAheadQueue::default(), Readers::default());
        queue.begin(Box::new(|| {}));
        queue.push(vec![want(3 * NODE), want(NODE), want(2 * NODE), want(9 * NODE)], NODE, readers.guard());
        queue.push(vec![want(9 * NODE)], NODE, readers.guard());
        let runs: Vec<usize> = std::iter::from_fn(|| queue.pop()).map(|run| run.wants.len()).collect();
        assert_eq!(runs, [3, 1]);
    }

    #[test]
    fn a_queue_is_bounded() {
        let (queue, readers) = (ReadAheadQueue::default(), Readers::default());
        queue.begin(Box::new(|| {}));
        for number in 0..100 {
            queue.push(vec![want(2 * number * NODE)], NODE, readers.guard());
        }
        assert_eq!(queue.counters().dropped, 100 - RUNS_MAX as u64);
        readers.advance(Generation::new(9));
        assert_eq!(readers.unread(), Generation::new(0), "what is queued is kept");
        queue.clear();
        assert_eq!((queue.counters().dropped, queue.is_empty()), (100, true));
        assert_eq!(readers.unread(), Generation::new(9));
    }

    #[test]
    fn a_commit_leaves_queued_what_a_walker_reads() {
        let (queue, readers) = (ReadAheadQueue::default(), Readers::default());
        queue.begin(Box::new(|| {}));
        readers.advance(Generation::new(8));
        let walker = readers.yielding_guard();
        queue.push(vec![want(0)], NODE, walker.clone());
        readers.advance(Generation::new(9));
        queue.push(vec![want(4 * NODE)], NODE, readers.guard());
        readers.advance(Generation::new(10));
        queue.forget_unread();
        assert_eq!((queue.counters().dropped, readers.unread()), (1, Generation::new(8)));
        drop(walker);
        assert_eq!(readers.unread(), Generation::new(8), "what is queued is kept until the next commit");
        queue.forget_unread();
        assert_eq!((queue.is_empty(), readers.unread()), (true, Generation::new(10)));
    }
}
