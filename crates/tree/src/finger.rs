//! Fingers: each thread's last leaves of batches and removals, so that the next change beside them needs no search from the root.
//!
//! New inodes have ascending numbers, and so have new entries of a directory: each batch of items goes behind the one
//! before, mostly into the same leaf. A search from the root would lock the same blocks again only to arrive there, and
//! every other thread passes through them, too. So [`Tree::insert_batch`] keeps a finger on the leaf that it found, and
//! on the first key behind that leaf. A key between the leaf's first key and that one goes into the leaf, and neither root nor parent
//! is touched. A thread that empties a directory removes the inodes and the entries in the same order, so removals keep fingers, too: a
//! key from the leaf's first one on is in this leaf or nowhere. The term is that of the literature on search trees (Guibas and others,
//! "A new representation for linear lists", 1977).
//!
//! # Invariants
//! - FINGER-1: a leaf is changed by its finger only while it is a block of this tree that the running transaction
//!   owns, and no key that its parent looks for behind it is smaller than the finger's `behind`.
//!   Shown by `a_written_leaf_is_copied_first`, `a_key_of_the_next_leaf_or_below_the_first_comes_from_the_root`,
//!   `a_smaller_key_of_the_next_leafs_first_item_ends_a_leaf_earlier`.
//!
//! The invariant holds because both conditions change only under the leaf's write lock, and the code that changes them calls
//! [`crate::WriteGuard::narrow`]: the two places that move a leaf's last items to the right, and the one that gives a block up.
//! The key by which a leaf is found never becomes smaller, which would move keys into the leaf that belong to the leaf before it. There are
//! two exceptions: the tree's first leaf has no leaf before it, and a re-keyed item's new key may be smaller
//! ([`Fingers::forget_all`]). The key may become greater (`low_keys`): the leaf before then covers more keys than its finger, which is safe.

use std::sync::{Arc, OnceLock};

use creamery_base::PerThread;
use creamery_base::lock::{HeldNote, RankedMutex, rank};
use creamery_format::Key;

use crate::buffer::{ExtentBuffer, WriteGuard};

/// Fingers of each thread: one for inodes, one for the entries of their directory.
const FINGERS: usize = 2;

/// A leaf, and the key behind it when a search found it.
#[derive(Clone)]
pub(crate) struct Finger {
    leaf: Arc<ExtentBuffer>,
    /// The leaf's first key.
    first: Key,
    /// The first key behind the leaf; `None` if it is the tree's last leaf.
    behind: Option<Key>,
    narrowed: u32,
}

impl Finger {
    /// Creates a finger on a leaf just found from the root. `behind` is the key by which the next leaf is found. `None` for an empty leaf.
    pub(crate) fn on(leaf: &WriteGuard, behind: Option<Key>) -> Option<Self> {
        let first = leaf.block().first_key()?;
        Some(Self { leaf: Arc::clone(leaf.buffer()), first, behind, narrowed: leaf.narrowed() })
    }

    /// The key by which the next leaf was found.
    pub(crate) fn behind(&self) -> Option<Key> {
        self.behind
    }

    fn covers(&self, key: &Key) -> bool {
        self.first < *key && self.behind.is_none_or(|behind| *key < behind)
    }

    /// Locks the leaf, and returns it if no keys have left it since.
    pub(crate) fn lock(self, held: HeldNote) -> Option<WriteGuard> {
        let leaf = self.leaf.write_as(held);
        (leaf.narrowed() == self.narrowed).then_some(leaf)
    }
}

type OfOneThread = RankedMutex<[Option<Finger>; FINGERS], { rank::FINGERS }>;

/// The fingers of all threads on one tree. A tree that is only read allocates none.
#[derive(Default)]
pub(crate) struct Fingers(OnceLock<PerThread<OfOneThread>>);

impl Fingers {
    /// Returns this thread's finger on the leaf of `key`.
    pub(crate) fn on(&self, key: &Key) -> Option<Finger> {
        let fingers = self.0.get()?.mine().lock();
        fingers.iter().flatten().find(|finger| finger.covers(key)).cloned()
    }

    /// Stores a finger of this thread. Replaces the one on the same leaf if that is the newest, else the oldest one.
    pub(crate) fn put(&self, finger: Finger) {
        let mut fingers = self.0.get_or_init(PerThread::default).mine().lock();
        if !fingers[0].as_ref().is_some_and(|newest| Arc::ptr_eq(&newest.leaf, &finger.leaf)) {
            fingers.rotate_right(1);
        }
        fingers[0] = Some(finger);
    }

    /// Memory of the fingers, bytes. The store counts the leaves.
    pub(crate) fn memory(&self) -> u64 {
        self.0.get().map_or(0, |_| PerThread::<OfOneThread>::memory())
    }

    /// Removes all fingers of all threads.
    pub(crate) fn forget_all(&self) {
        for fingers in self.0.get().into_iter().flat_map(|fingers| fingers.all()) {
            *fingers.lock() = [const { None }; FINGERS];
        }
    }
}
