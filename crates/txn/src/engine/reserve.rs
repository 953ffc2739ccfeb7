//! Reserving metadata before a handle begins, so that "no space" comes early and never in the middle of a
//! commit.
//!
//! A handle states the most tree leaves it may change; the reckoning takes a whole path copied and split
//! once for each. The promises to handles, plus the commit's own need for the trees that it must update (extent,
//! free space, block groups, checksums, roots), must fit into the space that can be handed out right now. If they
//! do not, a chunk is allocated. If there is no room for one, the thread waits until other handles have ended, reclaimers free space
//! and a commit frees pinned space (`make_room`). If that does not help, the answer is "no space" and nothing has
//! changed. [`Reservations`](crate::space_info::Reservations) has the sum of all promises and the line of waiting threads.
//!
//! Two bounds limit the commit's need: a queued reference change touches one leaf of each of those
//! trees, and a tree cannot be copied more than once as a whole. Blocks that this transaction has copied already, by heads that
//! ran before its commit (`run_refs`), are not copied again (OWN-1): they take more room only by splitting.
//!
//! So one promise needs less room the later it is given, and all of it again in the next transaction. A promise is for
//! the transaction in which it was given and no other (RESERVE-5): a thread that joins and finds that another transaction runs reserves
//! again, and so does a thread with an advance.
//!
//! Where trees share blocks, copying one queues references that no handle reserved. Their room at the next commit is within
//! the general reckoning; the room that they take for good, because they split leaves of the extent tree, is left besides.
//!
//! # Invariants
//! - RESERVE-1: no handle begins unless promised + commit's need + its own need fit into what can be handed out,
//!   the commit's need reckoned for the time after the handle has used all of its promise. A handle that does
//!   not free space leaves room for one that does.
//! - RESERVE-5: a handle is of the transaction in which its promise was given. Shown by
//!   `what_another_transaction_promised_is_not_taken_in_this_one`.
//! - RESERVE-2: chunks are allocated here and in data allocation only, never under a node lock.

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::Incompat;

use super::Engine;
use super::make_room::Tried;
use crate::flush_policy::FlushPolicy;
use crate::space_info::{SpaceKind, Ticket, Wish};
use crate::units::Units;

/// Blocks reserved per changed leaf: a path of four levels copied, and each split once.
const BLOCKS_PER_UNIT: u64 = 8;
/// Blocks that every commit may need besides: roots, device items, chunk items.
const BLOCKS_PER_COMMIT: u64 = 24;
/// Bytes that one queued change adds to the extent tree and the free space tree at most.
const BYTES_PER_HEAD: u64 = 256;
/// Bytes of a tree block's item in a leaf of the extent tree.
const BYTES_PER_BLOCK_ITEM: u64 = 58;
/// Leaves per queued change: in the extent tree, the free space tree and the checksum tree, and as many again for
/// the changes that copying those queues.
const LEAVES_PER_HEAD: u64 = 8;

/// Blocks by which each of the trees may become higher.
const GROWTH: u64 = 2;
/// A new chunk changes leaves of the device, block group and free space trees, like a queued change.
const HEADS_PER_CHUNK: u64 = 1;
/// Leaves that change when a block group with at most two copies goes: for its item, its free space, its device extents.
const ITEMS_PER_REMOVAL: u64 = 4;
/// Changes that copying a block queues: of the new one and of the old one.
const HEADS_PER_BLOCK: u64 = 2;
/// Room in mixed block groups that data leaves for the metadata of operations to come.
const SPARE_UNITS: u64 = 64;
/// Room that only handles that free space may take, so that a full filesystem can be emptied.
const FREEING_UNITS: u64 = 28;
/// The part of it that only deleting subvolumes may take.
const DROPPING_UNITS: u64 = 12;
/// How often an operation that frees space begins anew because other such operations took all the room that came back.
const PASSED_MAX: u32 = 1000;
/// Plenty of room is a quarter more than the need.
const PLENTY_PART: u64 = 4;

/// How much room a promise leaves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    /// The room needed.
    Enough,
    /// More than that. An advance leaves it: near the end of the room other threads would call the advance in at once.
    Plenty,
}

/// Blocks of the trees that a commit may have to update.
#[derive(Clone, Copy)]
struct CommitTreeBlocks {
    all: u64,
    /// Those that this transaction has not copied yet.
    to_copy: u64,
}

impl CommitTreeBlocks {
    const fn none_copied(self) -> Self {
        Self { to_copy: self.all, ..self }
    }
}

impl Engine {
    /// Bytes that this transaction's commit may have to allocate when handles copy `more` blocks until then.
    pub(super) fn commit_need(&self, more: u64) -> u64 {
        let trees = self.commit_tree_blocks();
        #[cfg(feature = "faults")]
        let trees = if self.reservations.are_copies_reckoned_twice() { trees.none_copied() } else { trees };
        self.need(more, trees)
    }

    /// Bytes that the commit of a transaction that has copied nothing yet, like the next one, may have to allocate when handles copy `more` blocks until then.
    pub(super) fn whole_commit_need(&self, more: u64) -> u64 {
        self.need(more, self.commit_tree_blocks().none_copied())
    }

    /// Counts blocks of all commit trees. On a damaged filesystem a root may claim any number.
    fn commit_tree_blocks(&self) -> CommitTreeBlocks {
        let mut sum = CommitTreeBlocks { all: 0, to_copy: 0 };
        self.each_commit_tree(|tree| {
            sum.all = sum.all.saturating_add(tree.blocks().saturating_add(GROWTH));
            sum.to_copy = sum.to_copy.saturating_add(tree.blocks_to_copy().saturating_add(GROWTH));
        });
        sum
    }

    fn need(&self, more: u64, trees: CommitTreeBlocks) -> u64 {
        let node = u64::from(self.node_size());
        let promised = self.reservations.references();
        let queued =
            self.extent_tree.refs().len() as u64 + promised + HEADS_PER_CHUNK * self.chunks.pending();
        let heads = queued + self.store().dirty_bytes() / node + HEADS_PER_BLOCK * more;
        let reached = heads.saturating_mul(LEAVES_PER_HEAD).saturating_add(self.ripple());
        let copied = trees.to_copy.min(reached);
        // Full leaves split at their first insertion from now on, copied or not. Each copy is a change of the
        // extent tree, too.
        let split = trees.all.min(reached);
        let changes = heads.saturating_add(copied);
        let grown = split.saturating_add(changes.saturating_mul(BYTES_PER_HEAD) / (node / 2));
        (copied + grown + BLOCKS_PER_COMMIT + self.quota_blocks()) * node
    }

    /// Leaves that a commit may copy only because other leaves were copied: the leaf of the extent tree that has a copied block's item changes,
    /// so it is copied, too, and its own old place changes another leaf, and so on until that chain meets a leaf that was
    /// copied already. It goes through all leaves that have items of tree blocks at most, and through those of the free space
    /// tree beside them.
    fn ripple(&self) -> u64 {
        let node = u64::from(self.node_size());
        let blocks = self.space.figures(SpaceKind::Metadata).used / node;
        2 + 2 * blocks.saturating_mul(BYTES_PER_BLOCK_ITEM) / (node / 2)
    }

    /// Bytes that the commit with the closed gate may allocate: for itself and for changes that were put off. Every promise
    /// left that much for it (RESERVE-1).
    pub(super) fn need_of_this_commit(&self) -> u64 {
        let kept = self.reservations.promised_to_handles();
        kept + self.commit_need(kept / u64::from(self.node_size()))
    }

    /// Whether data and metadata share their block groups.
    pub(super) fn shares_groups(&self) -> bool {
        self.incompat().contains(Incompat::MIXED_GROUPS)
    }

    /// Bytes that data may take now of block groups that it shares with metadata: it has to leave the room that handles, the
    /// commit and the freeing of files need, in this transaction and in those after.
    pub(super) fn data_headroom(&self) -> u64 {
        let spare = SPARE_UNITS * BLOCKS_PER_UNIT * u64::from(self.node_size());
        let promised = self.reservations.may_use() + self.delalloc.metadata();
        let taken = promised + self.whole_commit_need(SPARE_UNITS * BLOCKS_PER_UNIT) + spare;
        self.space.available(SpaceKind::Metadata).saturating_sub(taken)
    }

    /// Bytes that removing a block group may take: in the trees of block groups, of free space and of devices.
    pub(super) fn removal_bytes(&self) -> u64 {
        ITEMS_PER_REMOVAL * self.item_bytes()
    }

    /// References that the items or children of one tree block make at most.
    #[must_use]
    pub fn references_of_a_block(&self) -> u32 {
        self.node_size() / creamery_format::KEY_PTR_LEN as u32
    }

    /// Bytes that changing an item may take.
    pub(super) fn item_bytes(&self) -> u64 {
        BLOCKS_PER_UNIT * u64::from(self.node_size())
    }

    /// Reserves metadata for `units`. If it has to, it allocates a chunk, waits for its turn, runs reclaimers or commits.
    pub(super) fn promise(&self, units: Units) -> Result<Ticket<'_>> {
        let (mut tried, mut was_called_in) = (Tried::default(), false);
        let (mut others, mut passed) = (self.reservations.freeing_tickets(), 0);
        loop {
            let chunks = self.chunks.made();
            if let Some(ticket) = self.promise_at_once(units) {
                return Ok(ticket);
            }
            // A thread that can stand in line does this once, for only the line keeps other threads from new advances.
            if !(was_called_in && units.policy.stands_in_line()) && self.reservations.call_in() {
                was_called_in = true;
                continue;
            }
            // A chunk is no help where only room that is kept for delayed data is missing.
            if self.lacks_blocks_for(units) && self.allocate_chunk(SpaceKind::Metadata, chunks)? {
                continue;
            }
            if let Some(ticket) = self.promise_in_turn(units) {
                return Ok(ticket);
            }
            if !self.make_room(&mut tried, units.policy, SpaceKind::Metadata)? {
                let now = self.reservations.freeing_tickets();
                if !units.policy.frees() || now == others || passed == PASSED_MAX {
                    return Err(self.no_room_for(units));
                }
                // Other operations that free space took the room that came back. They bring more of it.
                (tried, others, passed) = (Tried::default(), now, passed + 1);
            }
            was_called_in = false;
        }
    }

    /// Reserves room from this thread's advance, else from the free room.
    fn promise_at_once(&self, units: Units) -> Option<Ticket<'_>> {
        let policy = units.policy;
        let in_line = if policy.takes_reserve() { 0 } else { self.reservations.left_to_those_in_line()? };
        let fits = |sum: u64, policy, room| self.fits(sum.saturating_add(in_line), policy, room);
        let has_plenty = |sum| fits(sum, FlushPolicy::FlushAll, Room::Plenty);
        let advanced = self.reservations.take_advanced(self.wish(units), &has_plenty);
        advanced.or_else(|| self.reservations.take(self.wish(units), &|sum| fits(sum, policy, Room::Enough)))
    }

    /// Waits in line for the reservation; `None` when no other ticket is left that could free room.
    fn promise_in_turn(&self, units: Units) -> Option<Ticket<'_>> {
        let policy = units.policy;
        // Other threads may wait for reclaimed space.
        if !policy.stands_in_line() {
            return None;
        }
        self.reservations.take_in_turn(|| self.wish(units), &|sum| self.fits(sum, policy, Room::Enough))
    }

    /// The request of a handle for `units`. It reads the generation before anything that depends on it (RESERVE-5).
    fn wish(&self, units: Units) -> Wish {
        Wish { units, item: self.item_bytes(), generation: self.generation() }
    }

    fn no_room_for(&self, units: Units) -> Error {
        let Units { items, policy, subvolume, .. } = units;
        let need = u64::from(items) * self.item_bytes();
        let of = subvolume.map_or(String::new(), |subvolume| format!(" of subvolume {subvolume}"));
        let message = format!("reserving {need} bytes of metadata for {items} items{of} ({policy:?})");
        Error::new(ErrorKind::NoSpace, message)
    }

    /// Whether the blocks that can be handed out leave this `room` after a promise of `sum` (RESERVE-1).
    fn fits(&self, sum: u64, policy: FlushPolicy, room: Room) -> bool {
        let wanted = self.wanted(sum, policy);
        let now = if room == Room::Plenty { wanted.saturating_add(wanted / PLENTY_PART) } else { wanted };
        let leaves_room = self.delalloc.metadata() == 0 || policy == FlushPolicy::FlushLimit;
        self.available_blocks() >= now && (leaves_room || self.fits_later(sum, policy))
    }

    /// Bytes that tree blocks may take of the existing block groups: without delayed data that has its place there.
    pub(super) fn available_blocks(&self) -> u64 {
        let data = if self.shares_groups() { self.delalloc.data() } else { 0 };
        self.space.available(SpaceKind::Metadata).saturating_sub(data)
    }

    /// Whether the existing block groups have too little for `units` and their references, not counting room that is kept for
    /// delayed data.
    fn lacks_blocks_for(&self, units: Units) -> bool {
        let fits = |sum| self.available_blocks() >= self.wanted(sum, units.policy);
        self.reservations.take(self.wish(units), &fits).is_none()
    }

    /// Bytes that have to be available when `sum` is promised: for handles, for freeing space, for the commit.
    pub(super) fn wanted(&self, sum: u64, policy: FlushPolicy) -> u64 {
        let (reserve, copies) = self.left_by(policy);
        self.needed(sum + reserve, copies, Self::commit_need)
    }

    /// Bytes like those of `wanted`, for a transaction that has copied nothing yet.
    pub(super) fn wanted_later(&self, sum: u64, policy: FlushPolicy) -> u64 {
        let (reserve, copies) = self.left_by(policy);
        self.needed(sum + reserve, copies, Self::whole_commit_need)
    }

    /// Bytes of the reserve that this policy leaves, and the number of copies of shared blocks that it leaves room for.
    fn left_by(&self, policy: FlushPolicy) -> (u64, u64) {
        let (units, copies) = match policy {
            _ if policy.takes_all_of_the_reserve() => (0, 0),
            _ if policy.takes_reserve() => (DROPPING_UNITS, u64::from(self.root_tree.has_copied_shared())),
            _ => (FREEING_UNITS, 2),
        };
        (units * self.item_bytes(), copies)
    }

    /// Bytes for `handles`, for their commit, and for the permanent growth by so many `copies` of shared blocks.
    fn needed(&self, handles: u64, copies: u64, commit_need: fn(&Self, u64) -> u64) -> u64 {
        let growth = copies * self.growth_by_a_shared_copy();
        handles + growth + commit_need(self, handles / u64::from(self.node_size()))
    }

    /// Bytes that copying one leaf that a snapshot shares may take for good: the copy adds a reference to each extent that the leaf
    /// names, and each of these may split another leaf of the extent tree.
    fn growth_by_a_shared_copy(&self) -> u64 {
        if !self.root_tree.shares_blocks() {
            return 0;
        }
        let leaves = u64::from(self.references_of_a_block()).min(self.commit_tree_blocks().all);
        leaves * u64::from(self.node_size())
    }
}
