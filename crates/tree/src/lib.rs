//! The B-tree of Btrfs: cached tree blocks, their locks, searching and changing.
//!
//! A [`Tree`] is a root pointer over blocks that live in one [`BufferStore`]. A reader takes read locks from the
//! root down, and locks a child before it unlocks the parent. Only blocks that may still change are locked: a
//! written block never changes (`buffer`). A change takes write locks low in the tree only, copies
//! every block that the running transaction does not own yet (copy on write), and unlocks the upper levels as
//! soon as nothing below can need them (see `search`). [`CowHost`] supplies the rest - a new block's address,
//! the other references of a shared block - so this crate knows no transaction.
//!
//! # Invariants
//! - TREE-1: a node finds each child by a key that divides it from the child before; on disk it is the child's first key (LOW-KEY-1).
//!   Shown by `small_items_in_a_deep_tree`, `a_sealed_block_has_the_first_keys_of_its_children`.
//! - TREE-2: only the root may be an empty leaf; no other block is empty once its lock is released. Shown by `small_items_in_a_deep_tree`.
//! - TREE-3: a block is changed in place only if its generation is the running one and it was not written since.
//!   Shown by `a_written_leaf_is_copied_first`.
//! - OWN-1: a transaction does not copy its own blocks again, so it copies each block that it found once
//!   at most ([`Tree::blocks_to_copy`]). Only [`Tree::force_cow`] is exempt.
//! - TREE-4: one logical address has at most one live [`ExtentBuffer`]; a buffer leaves the index only under
//!   its shard's lock, and only when nothing else references it or its block was freed.
//! - TREE-5: a call that returns an error has left the tree as it was, copied blocks aside.
//!   Shown by `a_call_without_space_changes_nothing`.
//!
//! # Locking
//! Order: tree class (all other trees, then the checksum tree, then the extent tree), then level from the root down, then the block on the
//! way before its sibling (`order`). A thread locks a sibling only under the write lock of the parent, so the order among siblings cannot
//! cross. A [`Cursor`] holds one leaf and never waits for a second: to cross to the next leaf, it unlocks its leaf and searches again by
//! key. A thread that has a cursor on a tree must not change that tree.
//!
//! If a thread panics with a write guard, the guard's drop poisons the store before it unlocks: the half-edited
//! block can then never be committed.

mod block_read;
mod bookmark;
mod buffer;
mod commit_cursor;
mod committed;
mod counters;
mod cow;
mod cursor;
mod division;
mod drop_tree;
mod edit;
mod finger;
mod host;
mod leaf_step;
mod links;
mod load;
mod low_keys;
mod order;
mod path;
mod read;
mod read_ahead;
mod readers;
mod rebalance;
mod redistribute;
mod remove;
mod search;
mod seen;
mod sharing;
mod snapshot;
mod split;
mod store;
mod tree;
mod watch;

pub use bookmark::Bookmark;
pub use buffer::{ExtentBuffer, ReadGuard, WriteGuard};
pub use commit_cursor::CommitCursor;
pub use committed::CommittedBlock;
pub use counters::{LeafSteps, TreeCounters};
pub use cursor::Cursor;
pub use drop_tree::{DropProgress, Dropped, TreeDrop};
pub use host::{BlockReferences, CowHost, FreedBlock};
pub use read_ahead::{ReadAhead, ReadAheadCounters, Walk};
pub use readers::{CommitRootGuard, Readers};
pub use seen::SeenItem;
pub use store::{BufferStore, StoreCounters, StoreMemory};
pub use tree::{RootPointer, Tree};
pub use watch::LockTimes;

/// The number of levels a tree can have.
const LEVELS: usize = creamery_format::LEVEL_MAX as usize + 1;
