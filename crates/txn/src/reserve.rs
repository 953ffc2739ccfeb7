//! Reserving metadata before a handle begins, so that "no space" comes early and never in the middle of a
//! commit.
//!
//! A handle says how many tree leaves it may change at most; each is reckoned with a whole path copied and split
//! once. What handles were promised, plus what the commit itself will need for the trees it must update (extent,
//! free space, block groups, checksums, roots), must fit into the space that can be handed out right now. If it
//! does not, a chunk is allocated; if there is no room for one, others free what they put off and a commit frees what is
//! pinned (`reclaim`); if that does not help, the answer is "no space" and nothing has been changed.
//!
//! What the commit needs is bounded from two sides: a queued reference change touches one leaf of each of those
//! trees, and a tree cannot be copied more than once as a whole.
//!
//! # Invariants
//! - RESERVE-1: no handle begins unless promised + commit's need + its own need fit into what can be handed out,
//!   the commit's need reckoned as it will be when the handle has used all that it was promised. A handle that does
//!   not free space leaves room for one that does.
//! - RESERVE-2: chunks are allocated here and in data allocation only, never under a node lock.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::{CachePadded, Error, ErrorKind, Result};
use creamery_format::Incompat;

use crate::advance;
use crate::engine::Engine;
use crate::space::SpaceKind;

/// Blocks reckoned per changed leaf: a path of four levels copied, and each split once.
const BLOCKS_PER_UNIT: u64 = 8;
/// Blocks that every commit may need besides: roots, device items, chunk items.
const BLOCKS_PER_COMMIT: u64 = 24;
/// Bytes that one queued change adds to the extent tree and the free space tree at most.
const BYTES_PER_HEAD: u64 = 256;
/// Leaves per queued change: in the extent tree, the free space tree and the checksum tree, and as many again for
/// the changes that copying those queues.
const LEAVES_PER_HEAD: u64 = 8;

/// Changes that copying a block queues: of the new one and of the old one.
const HEADS_PER_BLOCK: u64 = 2;
/// Room in mixed block groups that data leaves for the metadata of operations to come.
const SPARE_UNITS: u64 = 64;
/// Room that only handles which free space may take, so that a full filesystem can be emptied.
const FREEING_UNITS: u64 = 16;
/// Advances are made only while there is so many times the room that is needed.
const PLENTY: u64 = 2;

/// How many leaves a handle may change at most.
///
/// ```
/// use creamery_txn::Units;
/// assert_ne!(Units::items(3), Units::freeing(3));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Units {
    items: u32,
    point: Point,
}

/// What an operation is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Point {
    Change,
    /// Removing things: may use the reserve.
    Free,
    /// Doing what frees space for somebody who may be waiting for it.
    Reclaim,
}

impl Units {
    /// For an operation that changes up to `items` items in different leaves.
    #[must_use]
    pub const fn items(items: u32) -> Self {
        Self { items, point: Point::Change }
    }

    /// The same for an operation whose point is to free space: it may use the reserve, so that removing files
    /// works on a full filesystem.
    #[must_use]
    pub const fn freeing(items: u32) -> Self {
        Self { items, point: Point::Free }
    }

    /// The same for a step of a [`Reclaimer`](crate::Reclaimer): no room does not make it ask for reclaiming.
    #[must_use]
    pub const fn reclaiming(items: u32) -> Self {
        Self { items, point: Point::Reclaim }
    }
}

/// Metadata bytes promised to a handle; given back when dropped.
#[must_use]
pub(crate) struct Promise<'e> {
    engine: &'e Engine,
    bytes: Cell<u64>,
    /// Taken from the thread's advance, and given back to it.
    advanced: bool,
}

impl Promise<'_> {
    /// Takes room for `items` items out of it, to be held for longer.
    pub(crate) fn keep(&self, items: u32) -> KeptPromise {
        let bytes = self.engine.bytes_for(items);
        let left = self.bytes.get().checked_sub(bytes).expect("a handle keeps no more than it was promised");
        self.bytes.set(left);
        KeptPromise { promised: Arc::clone(&self.engine.space.promised), bytes }
    }
}

impl Drop for Promise<'_> {
    fn drop(&mut self) {
        let (space, bytes) = (&self.engine.space, self.bytes.get());
        if self.advanced {
            space.advances.give_back(bytes);
        } else {
            space.promised.fetch_sub(bytes, Ordering::AcqRel);
        }
    }
}

/// Metadata room for changes that a handle put off: they are made at the latest when the transaction closes, and the room
/// is given back by dropping this when they are.
///
/// ```no_run
/// # fn put_off(engine: &creamery_txn::Engine) -> creamery_base::Result<creamery_txn::KeptPromise> {
/// let handle = engine.start(creamery_txn::Units::items(1))?;
/// let kept = handle.keep(1);
/// handle.end();
/// # Ok(kept)
/// # }
/// ```
#[must_use]
pub struct KeptPromise {
    promised: Arc<CachePadded<AtomicU64>>,
    bytes: u64,
}

impl Drop for KeptPromise {
    fn drop(&mut self) {
        self.promised.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

impl Engine {
    /// Bytes that the next commit may have to allocate when handles copy `more` blocks until then.
    pub(crate) fn commit_need(&self, more: u64) -> u64 {
        let node = u64::from(self.node_size());
        let heads =
            self.extent_tree.refs().len() as u64 + self.store().dirty_bytes() / node + HEADS_PER_BLOCK * more;
        let trees = self.commit_tree_blocks();
        let copied = trees.min(heads.saturating_mul(LEAVES_PER_HEAD));
        // Each copy is a change of the extent tree, too. Leaves that were full split at their first insertion.
        let changes = heads.saturating_add(copied);
        let grown = copied.saturating_add(changes.saturating_mul(BYTES_PER_HEAD) / (node / 2));
        (copied + grown + BLOCKS_PER_COMMIT) * node
    }

    /// Whether data and metadata share their block groups.
    pub(crate) fn shares_groups(&self) -> bool {
        self.incompat().contains(Incompat::MIXED_GROUPS)
    }

    /// Bytes that data may take now. Where it shares block groups with metadata it has to leave the room that
    /// handles, the commit and the freeing of files need.
    pub(crate) fn data_headroom(&self) -> u64 {
        if !self.shares_groups() {
            return u64::MAX;
        }
        self.space.advances.call_in(&self.space.promised);
        let spare = SPARE_UNITS * BLOCKS_PER_UNIT * u64::from(self.node_size());
        let taken = self.space.promised.load(Ordering::Acquire)
            + self.commit_need(SPARE_UNITS * BLOCKS_PER_UNIT)
            + spare;
        self.space.available(SpaceKind::Metadata).saturating_sub(taken)
    }

    /// What changing `items` items in different leaves may take, bytes.
    fn bytes_for(&self, items: u32) -> u64 {
        u64::from(items) * BLOCKS_PER_UNIT * u64::from(self.node_size())
    }

    /// Reserves metadata for `units`; allocates a chunk, has space freed or commits when it has to.
    pub(crate) fn promise(&self, units: Units) -> Result<Promise<'_>> {
        let need = self.bytes_for(units.items);
        let (freeing, reclaiming) = (units.point != Point::Change, units.point == Point::Reclaim);
        let mut committed = false;
        loop {
            if let Some(promise) = self.promise_by_advance(need) {
                return Ok(promise);
            }
            if let Some(promise) = self.try_promise(need, freeing, 1) {
                return Ok(promise);
            }
            if self.space.advances.call_in(&self.space.promised) {
                continue;
            }
            if self.allocate_chunk(SpaceKind::Metadata)? {
                continue;
            }
            if !self.make_room(committed, reclaiming)? {
                let message = format!("reserving {need} bytes of metadata for {} items", units.items);
                return Err(Error::new(ErrorKind::NoSpace, message));
            }
            committed = true;
        }
    }

    /// Room from this thread's advance, which is filled up where there is plenty.
    fn promise_by_advance(&self, need: u64) -> Option<Promise<'_>> {
        let advances = &self.space.advances;
        if !advances.take(need) {
            let more = self.try_promise(need * advance::OPERATIONS, false, PLENTY)?;
            let spent = advances.refill(more.bytes.take());
            self.space.promised.fetch_sub(spent, Ordering::AcqRel);
            if !advances.take(need) {
                return None; // a thread that shares the advance was faster
            }
        }
        Some(Promise { engine: self, bytes: Cell::new(need), advanced: true })
    }

    /// Promises `need` bytes if what can be handed out is `times` as much as is needed with them.
    fn try_promise(&self, need: u64, freeing: bool, times: u64) -> Option<Promise<'_>> {
        let node = u64::from(self.node_size());
        let left = if freeing { 0 } else { FREEING_UNITS * BLOCKS_PER_UNIT * node };
        // What is promised is counted before what is available is looked at: of a handle that ends between, blocks are counted
        // twice, never not at all. Two that come for the last room at once may both be refused, and try again.
        let before = self.space.promised.fetch_add(need, Ordering::AcqRel);
        let promise = Promise { engine: self, bytes: Cell::new(need), advanced: false };
        let handles = before + need + left;
        let wanted = (handles + self.commit_need(handles / node)).saturating_mul(times);
        (self.space.available_up_to(SpaceKind::Metadata, wanted) >= wanted).then_some(promise)
    }
}
