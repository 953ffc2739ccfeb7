//! The counters of a tree: its operations, and the outcomes of its insertions.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::Striped;

/// Outcomes of the leaf step of insertions. Each insertion is in one of these.
///
/// ```
/// let steps = creamery_tree::LeafSteps { hit: 9, slot0: 1, ..Default::default() };
/// assert_eq!(steps.sum(), 10);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct LeafSteps {
    /// The key is greater than the leaf's first: the parents were unlocked before the search, which began at slot 1.
    pub hit: u64,
    /// The key is smaller than the leaf's first: it becomes the first. The parents stayed locked only if they find the leaf by a greater key.
    pub slot0: u64,
    /// The key is the leaf's first: the parents were unlocked, and no search was needed.
    pub exact: u64,
    /// The insertion does not fit into the leaf: the parents stayed locked for a split.
    pub no_space: u64,
    /// The leaf is the root and has no parent.
    pub root_leaf: u64,
    /// The parents stayed locked because early unlocking is switched off.
    pub keep: u64,
    /// The thread had a finger on the leaf: its parents were not locked at all.
    pub finger: u64,
}

impl LeafSteps {
    /// Returns the sum of all outcomes.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.hit + self.slot0 + self.exact + self.no_space + self.root_leaf + self.keep + self.finger
    }

    /// Returns the insertions that unlocked the parents before they searched the leaf.
    #[must_use]
    pub fn let_go_early(&self) -> u64 {
        self.hit + self.exact
    }
}

/// Counts of a tree's operations.
///
/// ```
/// assert_eq!(creamery_tree::TreeCounters::default().leaf_splits, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct TreeCounters {
    /// Searches for modification.
    pub searches: u64,
    /// Searches begun again because a lock was not strong enough.
    pub restarts: u64,
    /// Searches for an insertion, or for growing an item, of at least one byte.
    pub insertions: u64,
    /// The leaf steps of the insertions that reached their leaf.
    pub leaf_steps: LeafSteps,
    /// Insertions that unlocked the parents before searching the leaf.
    pub early_unlocks: u64,
    /// Insertions that searched their leaf under a locked parent although they fit and the key is greater
    /// than the leaf's first: 0 while early unlocking is switched on.
    pub searched_under_parent: u64,
    /// Searches that compared slot 0 of the leaf after the parents were unlocked: always 0.
    pub compared_at_slot0: u64,
    /// Parents unlocked early although they had to stay locked: always 0.
    pub keep_violations: u64,
    /// Removals in a leaf that the thread had a finger on: no other block was locked.
    pub removals_by_finger: u64,
    /// Blocks copied.
    pub copies: u64,
    /// Leaves split.
    pub leaf_splits: u64,
    /// Leaf insertions that found room by pushing items to a sibling.
    pub leaf_pushes: u64,
    /// Leaves merged away.
    pub leaf_merges: u64,
    /// Inner nodes split.
    pub node_splits: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) searches: AtomicU64,
    pub(crate) restarts: AtomicU64,
    pub(crate) insertions: AtomicU64,
    pub(crate) hit: AtomicU64,
    pub(crate) slot0: AtomicU64,
    pub(crate) exact: AtomicU64,
    pub(crate) no_space: AtomicU64,
    pub(crate) root_leaf: AtomicU64,
    pub(crate) keep: AtomicU64,
    pub(crate) finger: AtomicU64,
    pub(crate) searched_under_parent: AtomicU64,
    pub(crate) compared_at_slot0: AtomicU64,
    pub(crate) keep_violations: AtomicU64,
    pub(crate) removals_by_finger: AtomicU64,
    pub(crate) copies: AtomicU64,
    pub(crate) leaf_splits: AtomicU64,
    pub(crate) leaf_pushes: AtomicU64,
    pub(crate) leaf_merges: AtomicU64,
    pub(crate) node_splits: AtomicU64,
}

impl TreeCounters {
    /// Adds up the counters of all threads.
    pub(crate) fn sum_of(stripes: &Striped<Counters>) -> Self {
        let sum = |counter: fn(&Counters) -> &AtomicU64| {
            stripes.all().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum()
        };
        let leaf_steps = LeafSteps {
            hit: sum(|stripe| &stripe.hit),
            slot0: sum(|stripe| &stripe.slot0),
            exact: sum(|stripe| &stripe.exact),
            no_space: sum(|stripe| &stripe.no_space),
            root_leaf: sum(|stripe| &stripe.root_leaf),
            keep: sum(|stripe| &stripe.keep),
            finger: sum(|stripe| &stripe.finger),
        };
        Self {
            searches: sum(|stripe| &stripe.searches),
            restarts: sum(|stripe| &stripe.restarts),
            insertions: sum(|stripe| &stripe.insertions),
            leaf_steps,
            early_unlocks: leaf_steps.let_go_early(),
            searched_under_parent: sum(|stripe| &stripe.searched_under_parent),
            compared_at_slot0: sum(|stripe| &stripe.compared_at_slot0),
            keep_violations: sum(|stripe| &stripe.keep_violations),
            removals_by_finger: sum(|stripe| &stripe.removals_by_finger),
            copies: sum(|stripe| &stripe.copies),
            leaf_splits: sum(|stripe| &stripe.leaf_splits),
            leaf_pushes: sum(|stripe| &stripe.leaf_pushes),
            leaf_merges: sum(|stripe| &stripe.leaf_merges),
            node_splits: sum(|stripe| &stripe.node_splits),
        }
    }
}
