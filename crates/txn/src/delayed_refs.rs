//! Delayed references: changes of reference counts, queued until the commit runs them against the extent tree.
//!
//! Every extent with a change has one *head*: whether its extent item is still to be inserted, and by how much
//! each reference changes. Changes of the same reference merge in the head, so that an extent that is allocated
//! and freed within one transaction never reaches the extent tree. Heads live in shards by address; all access is
//! under the shard's short lock, which may be taken while a leaf of the extent tree is held: whoever asks about an
//! extent reads the tree first and the head second, with the leaf locked, and so misses nothing.
//!
//! # Invariants
//! - REF-1: a head whose extent is to be inserted never has a negative sum.
//! - REF-2: heads run only in the commit, when no handle is open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{CachePadded, Error, ErrorKind, InodeId, Logical, ObjectId, Result, TreeId};
use smallvec::SmallVec;

const SHARDS: usize = 32;

/// Who refers to an extent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Backref {
    /// A tree, by its id: the block's place is found by searching that tree.
    TreeBlock { root: TreeId },
    /// A tree block, by its parent's address.
    SharedBlock { parent: Logical },
    /// File extent items of one inode; `offset` is their key's offset less their offset into the extent.
    ExtentData { root: TreeId, ino: ObjectId, offset: u64 },
    /// File extent items in one leaf, by the leaf's address.
    SharedData { parent: Logical },
}

impl Backref {
    pub(crate) fn of_file(owner: InodeId, offset: u64) -> Self {
        Self::ExtentData { root: owner.subvolume, ino: owner.ino, offset }
    }
}

/// What an extent is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExtentKind {
    /// A tree block of this level.
    TreeBlock { level: u8 },
    /// File data.
    Data,
}

/// The queued changes of one extent.
#[derive(Clone, Debug)]
pub(crate) struct RefHead {
    pub(crate) kind: ExtentKind,
    pub(crate) len: u64,
    /// The extent was allocated in this transaction: its item does not exist yet.
    pub(crate) must_insert: bool,
    /// FULL_BACKREF is to be set.
    pub(crate) full_backref: bool,
    pub(crate) changes: SmallVec<[(Backref, i64); 2]>,
}

fn damaged(at: Logical, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("extent {at}, which was free, {what}"))
}

impl RefHead {
    /// The change of the reference count.
    pub(crate) fn sum(&self) -> i64 {
        self.changes.iter().map(|(_, change)| change).sum()
    }

    /// By how much the bytes in data extents change when the head runs, if nobody else refers to an extent that was
    /// there before.
    fn data_bytes(&self) -> i64 {
        if self.kind != ExtentKind::Data {
            return 0;
        }
        let len = i64::try_from(self.len).unwrap_or(i64::MAX);
        match (self.must_insert, self.sum().signum()) {
            (true, 1) => len,
            (false, -1) => -len,
            _ => 0,
        }
    }

    fn change(&mut self, at: Logical, backref: Backref, by: i64) -> Result<()> {
        match self.changes.iter().position(|(known, _)| *known == backref) {
            Some(at) => {
                self.changes[at].1 += by;
                if self.changes[at].1 == 0 {
                    self.changes.swap_remove(at);
                }
            }
            None => self.changes.push((backref, by)),
        }
        // REF-1. Only somebody else's pointer to space that was free can break it.
        if self.must_insert && self.sum() < 0 {
            return Err(damaged(at, "lost more references than it got"));
        }
        Ok(())
    }
}

type ShardMutex = RankedMutex<BTreeMap<Logical, RefHead>, { rank::DELAYED_REFS }>;

/// All heads of the running transaction.
pub(crate) struct DelayedRefs {
    shards: Vec<CachePadded<ShardMutex>>,
    heads: CachePadded<AtomicUsize>,
    /// The sum of [`RefHead::data_bytes`], wrapping.
    data_bytes: CachePadded<AtomicI64>,
}

impl DelayedRefs {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Self { shards, heads: CachePadded::default(), data_bytes: CachePadded::default() }
    }

    fn shard(&self, at: Logical) -> &ShardMutex {
        let mixed = (at.get() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        &self.shards[usize::try_from(mixed).expect("five bits")]
    }

    fn entry<'a>(
        &self,
        shard: &'a mut BTreeMap<Logical, RefHead>,
        at: Logical,
        len: u64,
        kind: ExtentKind,
    ) -> &'a mut RefHead {
        shard.entry(at).or_insert_with(|| {
            self.heads.fetch_add(1, Ordering::Relaxed);
            RefHead { kind, len, must_insert: false, full_backref: false, changes: SmallVec::new() }
        })
    }

    /// Queues the first reference of an extent that was just allocated.
    ///
    /// # Errors
    /// Damage: somebody had a reference to it while it was free.
    pub(crate) fn insert(&self, at: Logical, len: u64, kind: ExtentKind, backref: Backref) -> Result<()> {
        let head = RefHead {
            kind,
            len,
            must_insert: true,
            full_backref: false,
            changes: SmallVec::from_slice(&[(backref, 1)]),
        };
        let mut shard = self.shard(at).lock();
        match shard.get_mut(&at) {
            None => {
                self.count_data(head.data_bytes());
                shard.insert(at, head);
                self.heads.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Some(_) => Err(damaged(at, "has references that changed")),
        }
    }

    /// Queues one change of one reference.
    ///
    /// # Errors
    /// Damage: an extent of this transaction loses a reference that nobody got.
    pub(crate) fn change(
        &self,
        at: Logical,
        len: u64,
        kind: ExtentKind,
        backref: Backref,
        by: i64,
    ) -> Result<()> {
        let mut shard = self.shard(at).lock();
        let head = self.entry(&mut shard, at, len, kind);
        let before = head.data_bytes();
        let changed = head.change(at, backref, by);
        self.count_data(head.data_bytes().wrapping_sub(before));
        changed
    }

    fn count_data(&self, by: i64) {
        if by != 0 {
            self.data_bytes.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Queues setting FULL_BACKREF.
    pub(crate) fn set_full_backref(&self, at: Logical, len: u64, level: u8) {
        let mut shard = self.shard(at).lock();
        self.entry(&mut shard, at, len, ExtentKind::TreeBlock { level }).full_backref = true;
    }

    /// Drops the only reference of an extent allocated in this transaction and forgets the head; false, and
    /// nothing done, when the head is not of that sort.
    pub(crate) fn cancel(&self, at: Logical, backref: Backref) -> bool {
        let mut shard = self.shard(at).lock();
        let cancels = shard
            .get(&at)
            .is_some_and(|head| head.must_insert && head.changes.as_slice() == [(backref, 1)].as_slice());
        if cancels {
            if let Some(head) = shard.remove(&at) {
                self.count_data(-head.data_bytes());
            }
            self.heads.fetch_sub(1, Ordering::Relaxed);
        }
        cancels
    }

    /// The head of an extent as it is now.
    pub(crate) fn get(&self, at: Logical) -> Option<RefHead> {
        self.shard(at).lock().get(&at).cloned()
    }

    /// How many heads wait.
    pub(crate) fn len(&self) -> usize {
        self.heads.load(Ordering::Relaxed)
    }

    /// By how much the bytes in data extents will change when all heads have run. An extent that was there and that somebody
    /// else refers to counts as freed until then: who that is, only the extent tree knows.
    pub(crate) fn data_bytes(&self) -> i64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    /// What `head` stood for is counted elsewhere from now on: it was taken and has run.
    pub(crate) fn has_run(&self, head: &RefHead) {
        self.count_data(-head.data_bytes());
    }

    /// Takes all heads, in order of address. Their data counts until each [has run](Self::has_run).
    pub(crate) fn take(&self) -> Vec<(Logical, RefHead)> {
        let mut all = Vec::new();
        for shard in &self.shards {
            all.extend(std::mem::take(&mut *shard.lock()));
        }
        self.heads.fetch_sub(all.len(), Ordering::Relaxed);
        all.sort_unstable_by_key(|(at, _)| *at);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Logical = Logical::new(1 << 20);
    const BLOCK: ExtentKind = ExtentKind::TreeBlock { level: 0 };

    #[test]
    fn opposite_changes_of_one_reference_leave_nothing() {
        let refs = DelayedRefs::new();
        let backref = Backref::TreeBlock { root: TreeId::FS };
        refs.change(AT, 16384, BLOCK, backref, 1).expect("no damage");
        refs.change(AT, 16384, BLOCK, backref, -1).expect("no damage");
        assert!(refs.get(AT).expect("a head").changes.is_empty());
    }

    #[test]
    fn only_a_sole_new_reference_cancels() {
        let refs = DelayedRefs::new();
        let (ours, other) = (Backref::TreeBlock { root: TreeId::FS }, Backref::SharedBlock { parent: AT });
        refs.insert(AT, 16384, BLOCK, ours).expect("no damage");
        refs.change(AT, 16384, BLOCK, other, 1).expect("no damage");
        assert!(!refs.cancel(AT, ours));
        refs.change(AT, 16384, BLOCK, other, -1).expect("no damage");
        assert!(refs.cancel(AT, ours));
        assert_eq!(refs.len(), 0);
    }

    #[test]
    fn what_data_takes_is_known_before_heads_run() {
        const LEN: i64 = 1 << 20;
        let refs = DelayedRefs::new();
        let len = LEN.unsigned_abs();
        let owner = Backref::ExtentData { root: TreeId::FS, ino: ObjectId::FIRST_FREE, offset: 0 };
        let (new, old) = (AT, Logical::new(1 << 30));
        refs.insert(new, len, ExtentKind::Data, owner).expect("no damage");
        assert_eq!(refs.data_bytes(), LEN);
        refs.change(old, len, ExtentKind::Data, owner, -1).expect("no damage");
        assert_eq!(refs.data_bytes(), 0);
        refs.change(new, len, ExtentKind::Data, owner, -1).expect("no damage");
        assert_eq!(refs.data_bytes(), -LEN, "what comes and goes takes nothing");
        refs.change(old, len, ExtentKind::Data, owner, 1).expect("no damage");
        assert_eq!(refs.data_bytes(), 0);
        refs.insert(Logical::new(1 << 31), 16384, BLOCK, Backref::TreeBlock { root: TreeId::FS })
            .expect("no damage");
        refs.change(new, len, ExtentKind::Data, owner, 2).expect("no damage");
        assert_eq!(refs.data_bytes(), LEN);
        let heads = refs.take();
        assert_eq!(refs.data_bytes(), LEN);
        heads.iter().for_each(|(_, head)| refs.has_run(head));
        assert_eq!(refs.data_bytes(), 0);
    }

    #[test]
    fn heads_come_in_order_of_address() {
        let refs = DelayedRefs::new();
        for at in [7_u64, 3, 9, 1] {
            refs.insert(Logical::new(at << 14), 1 << 14, BLOCK, Backref::TreeBlock { root: TreeId::FS })
                .expect("no damage");
        }
        let order: Vec<u64> = refs.take().iter().map(|(at, _)| at.get() >> 14).collect();
        assert_eq!(order, [1, 3, 7, 9]);
    }

    #[test]
    fn references_to_space_that_was_free_are_damage() {
        let (ours, theirs) =
            (Backref::TreeBlock { root: TreeId::FS }, Backref::TreeBlock { root: TreeId::CSUM });
        let refs = DelayedRefs::new();
        refs.insert(AT, 16384, BLOCK, ours).expect("no damage");
        refs.change(AT, 16384, BLOCK, ours, -1).expect("no damage");
        assert!(refs.change(AT, 16384, BLOCK, theirs, -1).is_err(), "nobody gave it that reference");
        let refs = DelayedRefs::new();
        refs.change(AT, 16384, BLOCK, theirs, -1).expect("it may be in the tree");
        assert!(refs.insert(AT, 16384, BLOCK, ours).is_err(), "it cannot be new");
    }
}
