//! The counters of a tree: its operations, and the outcomes of its insertions. Each is declared once, with a name and a sentence.

use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::PerThread;

/// Declares [`LeafSteps`], [`TreeCounters`], and the counters that a thread adds to.
macro_rules! counters {
    (
        steps { $($(#[$step_doc:meta])* $step:ident,)* }
        counts { $($(#[$doc:meta])* $count:ident,)* }
    ) => {
        /// Outcomes of the leaf step of insertions. Each insertion is in one of these.
        ///
        /// ```
        /// let steps = creamery_tree::LeafSteps { hit: 9, slot0: 1, ..Default::default() };
        /// assert_eq!(steps.sum(), 10);
        /// ```
        #[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
        pub struct LeafSteps {
            $($(#[$step_doc])* pub $step: u64,)*
        }

        impl LeafSteps {
            /// Returns the sum of all outcomes.
            #[must_use]
            pub fn sum(&self) -> u64 {
                [$(self.$step),*].into_iter().sum()
            }
        }

        /// Counts of a tree's operations.
        ///
        /// ```
        /// assert_eq!(creamery_tree::TreeCounters::default().leaf_splits, 0);
        /// ```
        #[derive(Clone, Copy, Default, Debug)]
        pub struct TreeCounters {
            $($(#[$doc])* pub $count: u64,)*
            /// The leaf steps of the insertions that reached their leaf.
            pub leaf_steps: LeafSteps,
            /// Insertions that unlocked the parents before searching the leaf.
            pub early_unlocks: u64,
        }

        /// The counters of one stripe: the threads that share a number add to them.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $step: AtomicU64,)*
            $(pub(crate) $count: AtomicU64,)*
        }

        impl TreeCounters {
            /// Returns the sums over all threads.
            pub(crate) fn sum_of(stripes: &PerThread<Counters>) -> Self {
                let sum = |counter: fn(&Counters) -> &AtomicU64| {
                    stripes.all().map(|stripe| counter(stripe).load(Ordering::Relaxed)).sum()
                };
                let leaf_steps = LeafSteps { $($step: sum(|stripe| &stripe.$step),)* };
                let early_unlocks = leaf_steps.let_go_early();
                Self { $($count: sum(|stripe| &stripe.$count),)* leaf_steps, early_unlocks }
            }
        }
    };
}

counters! {
    steps {
        /// The key is greater than the leaf's first: the parents were unlocked before the search, which began at slot 1.
        hit,
        /// The key is smaller than the leaf's first: it becomes the first. The parents stayed locked only if they find the leaf by a greater key.
        slot0,
        /// The key is the leaf's first: the parents were unlocked, and no search was needed.
        exact,
        /// The insertion does not fit into the leaf: the parents stayed locked for a split.
        no_space,
        /// The leaf is the root and has no parent.
        root_leaf,
        /// The parents stayed locked because early unlocking is switched off.
        keep,
        /// The thread had a finger on the leaf: its parents were not locked at all.
        finger,
    }
    counts {
        /// Searches for modification.
        searches,
        /// Searches begun again because a lock was not strong enough.
        restarts,
        /// Searches for an insertion, or for growing an item, of at least one byte.
        insertions,
        /// Insertions that searched their leaf under a locked parent although they fit and the key is greater
        /// than the leaf's first: 0 while early unlocking is switched on.
        searched_under_parent,
        /// Searches that compared slot 0 of the leaf after the parents were unlocked: always 0.
        compared_at_slot0,
        /// Parents unlocked early although they had to stay locked: always 0.
        keep_violations,
        /// Removals in a leaf that the thread had a finger on: no other block was locked.
        removals_by_finger,
        /// Blocks copied.
        copies,
        /// Leaves split.
        leaf_splits,
        /// Leaf insertions that found room by pushing items to a sibling.
        leaf_pushes,
        /// Leaves merged away.
        leaf_merges,
        /// Inner nodes split.
        node_splits,
    }
}

impl LeafSteps {
    /// Returns the number of insertions that unlocked the parents before they searched the leaf.
    #[must_use]
    pub fn let_go_early(&self) -> u64 {
        self.hit + self.exact
    }
}
