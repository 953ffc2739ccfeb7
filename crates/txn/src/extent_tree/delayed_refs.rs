//! Delayed references: changes of reference counts, queued until they are run against the extent tree.
//!
//! Every extent with a change has one *head*: whether its extent item is still to be inserted, and by how much
//! each reference changes. Changes of the same reference merge in the head, so that an extent that is allocated
//! and freed within one transaction mostly never reaches the extent tree. Handles queue changes (`handle`); `run_refs` decides when and on
//! which thread heads run; `run` runs one.
//!
//! # Where a reference is
//! A reference is in the extent tree or in a head. Running a head moves it, and takes longer than a short lock may be held.
//! So a head is *locked* while it runs: the running thread takes its changes out ([`DelayedRefs::lock`]), and puts them into
//! the tree. A thread that counts an extent's references looks at the head with the extent's leaf held, and finds it
//! locked while neither place has the truth. It must not wait with the leaf held, which the runner needs: it releases the
//! leaf, waits ([`DelayedRefs::wait`]), and looks again. A change queued meanwhile is relative to the tree after the
//! run.
//!
//! # Invariants
//! - REF-1: a head whose extent is to be inserted never has a negative sum. Only an older pointer to space that was
//!   free can break it, which is damage. Shown by `references_to_space_that_was_free_are_damage`.
//! - REF-2: a head is run by one thread at a time; a reference is seen in the tree, in the head, or the head is locked.
//! - REF-3: a locked head is given back, run or not.
//! - REF-4: a data reference is dropped when the leaf that had it is the transaction's own, or does not have it any more. Before,
//!   that reference may be the extent's only one in the extent tree, and copying the leaf adds the others: a head
//!   that ran in between would free an extent that a snapshot needs. Shown by
//!   `an_extent_is_freed_when_who_gives_it_up_is_done`.
//!
//! # Locking
//! Heads live in shards by address; all access is under the shard's short lock. A locked head has a place among the long
//! ones (`REF_HEAD`): before the extent tree's blocks, and behind those of file trees, with which it is waited for.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_base::{CachePadded, Generation, Logical, Result, TreeId, memory};

use super::backref::{Backref, ExtentKind};
use super::lost_references::LostReferences;
use super::ref_head::{RefHead, was_free};

const SHARDS: usize = 32;

/// A head, and whether a thread runs its earlier changes.
struct Entry {
    head: RefHead,
    locked: bool,
}

#[derive(Default)]
struct Shard {
    entries: RankedMutex<Entries, { rank::DELAYED_REFS }>,
    unlocked: RankedCondvar,
}

/// Heads by the address of their extent, and references that were dropped.
#[derive(Default)]
struct Entries {
    heads: BTreeMap<Logical, Entry>,
    lost: LostReferences,
}

/// All heads of the running transaction.
pub(crate) struct DelayedRefs {
    shards: Vec<CachePadded<Shard>>,
    heads: CachePadded<AtomicUsize>,
    /// The sum of [`RefHead::data_bytes`] of all heads, those that run included, wrapping.
    data_bytes: CachePadded<AtomicI64>,
    /// Whether a head whose changes all cancelled stays until it is reported.
    keeps_cancelled: AtomicBool,
    #[cfg(feature = "faults")]
    unlocked: std::sync::atomic::AtomicBool,
}

/// The queued changes of an extent, or a part of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Queued<Of = RefHead> {
    /// There is no head: the tree is complete.
    Nothing,
    /// These changes are queued.
    Changes(Of),
    /// The head runs: the state in the tree is unknown.
    Locked,
}

/// A head that runs (REF-2). [`LockedHead::ran`] unlocks it; if it is dropped before, its changes are queued again.
#[must_use]
pub(crate) struct LockedHead<'r> {
    refs: &'r DelayedRefs,
    at: Logical,
    head: RefHead,
    /// Whether it has run, and whether the extent is left then.
    ran: Option<bool>,
    _held: HeldNote,
}

impl LockedHead<'_> {
    pub(crate) fn head(&self) -> &RefHead {
        &self.head
    }

    /// Unlocks the head: its changes are in the tree. `is_left` says whether the extent still exists there.
    pub(crate) fn ran(mut self, is_left: bool) {
        self.ran = Some(is_left);
    }
}

impl Drop for LockedHead<'_> {
    fn drop(&mut self) {
        let shard = self.refs.shard(self.at);
        let mut entries = shard.entries.lock();
        let Entries { heads, lost } = &mut *entries;
        let entry = heads.get_mut(&self.at).expect("REF-3: a locked head stays until it is given back");
        assert!(entry.locked, "a head that runs is locked (REF-2)");
        entry.locked = false;
        if let Some(is_left) = self.ran {
            if !is_left {
                lost.forget(self.at);
            } else if self.head.kind == ExtentKind::Data {
                let dropped = self.head.changes.iter().filter(|(_, change)| *change < 0);
                dropped.for_each(|(backref, _)| lost.note(self.at, *backref)); // LOST-1
            }
            self.refs.count_data(-self.head.data_bytes());
            if entry.head.is_void() {
                heads.remove(&self.at);
                self.refs.heads.fetch_sub(1, Ordering::Relaxed);
            }
        } else {
            // The transaction is aborted. Until its end, readers find the queued changes.
            entry.head.must_insert |= self.head.must_insert;
            entry.head.full_backref |= self.head.full_backref;
            entry.head.cancelled |= self.head.cancelled;
            entry.head.changes.extend(self.head.changes.drain(..));
        }
        drop(entries);
        shard.unlocked.notify_all();
    }
}

impl DelayedRefs {
    pub(crate) fn new() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Self {
            shards,
            heads: CachePadded::default(),
            data_bytes: CachePadded::default(),
            keeps_cancelled: AtomicBool::new(false),
            #[cfg(feature = "faults")]
            unlocked: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Plants a fault: readers do not see that a head runs.
    #[cfg(feature = "faults")]
    pub(crate) fn run_unlocked(&self) {
        self.unlocked.store(true, Ordering::Relaxed);
    }

    /// Sets whether heads whose changes all cancelled stay to be reported.
    pub(crate) fn set_keeps_cancelled(&self, keeps: bool) {
        self.keeps_cancelled.store(keeps, Ordering::Relaxed);
    }

    fn shard(&self, at: Logical) -> &Shard {
        let mixed = (at.get() >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        &self.shards[usize::try_from(mixed).expect("five bits")]
    }

    /// Lets `edit` change the head of an extent, which is created if there is none. If the change by `dropped` cancels with a queued one,
    /// the dropped reference is noted (LOST-1).
    fn edit<R>(
        &self,
        at: Logical,
        len: u64,
        kind: ExtentKind,
        dropped: Option<Backref>,
        edit: impl FnOnce(&mut RefHead) -> R,
    ) -> R {
        let mut entries = self.shard(at).entries.lock();
        let Entries { heads, lost } = &mut *entries;
        let entry = heads.entry(at).or_insert_with(|| {
            self.heads.fetch_add(1, Ordering::Relaxed);
            Entry { head: RefHead::new(kind, len), locked: false }
        });
        let before = entry.head.data_bytes();
        let queued = entry.head.changes.len();
        let edited = edit(&mut entry.head);
        if entry.head.changes.len() < queued && self.keeps_cancelled.load(Ordering::Relaxed) {
            entry.head.cancelled = true;
        }
        if let Some(dropped) = dropped.filter(|_| entry.head.changes.len() < queued) {
            lost.note(at, dropped);
        }
        self.count_data(entry.head.data_bytes().wrapping_sub(before));
        edited
    }

    fn count_data(&self, by: i64) {
        if by != 0 {
            self.data_bytes.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Queues the first reference of an extent that was just allocated.
    ///
    /// # Errors
    /// Damage: a reference to it exists from the time when it was free.
    pub(crate) fn insert(&self, at: Logical, len: u64, kind: ExtentKind, backref: Backref) -> Result<()> {
        let head = RefHead::first(kind, len, backref);
        let mut entries = self.shard(at).entries.lock();
        if entries.heads.contains_key(&at) {
            return Err(was_free(at, "has references that changed"));
        }
        self.count_data(head.data_bytes());
        self.heads.fetch_add(1, Ordering::Relaxed);
        entries.heads.insert(at, Entry { head, locked: false });
        Ok(())
    }

    /// Queues one change of one reference.
    ///
    /// # Errors
    /// Damage: an extent of this transaction loses a reference that it never had.
    pub(crate) fn change(
        &self,
        at: Logical,
        len: u64,
        kind: ExtentKind,
        backref: Backref,
        by: i64,
    ) -> Result<()> {
        let dropped = (by < 0 && kind == ExtentKind::Data).then_some(backref);
        self.edit(at, len, kind, dropped, |head| head.change(at, backref, by))
    }

    /// Queues setting FULL_BACKREF.
    pub(crate) fn set_full_backref(&self, at: Logical, len: u64, level: u8) {
        self.edit(at, len, ExtentKind::TreeBlock { level }, None, |head| head.full_backref = true);
    }

    /// Queues dropping a reference of a tree block. The caller that drops the last one gives the block's tree as `owner`.
    ///
    /// # Errors
    /// Those of [`DelayedRefs::change`].
    pub(crate) fn give_up_block(
        &self,
        at: Logical,
        len: u64,
        level: u8,
        backref: Backref,
        owner: Option<TreeId>,
    ) -> Result<()> {
        self.edit(at, len, ExtentKind::TreeBlock { level }, None, |head| {
            head.owner = owner.or(head.owner);
            head.change(at, backref, -1)
        })
    }

    /// Drops the only reference of an extent allocated in this transaction and forgets the head. Returns false, and does
    /// nothing, when the head has other changes, or runs.
    pub(crate) fn cancel(&self, at: Logical, backref: Backref) -> bool {
        let mut entries = self.shard(at).entries.lock();
        let cancels =
            entries.heads.get(&at).is_some_and(|entry| !entry.locked && entry.head.is_sole(backref));
        if cancels && let Some(entry) = entries.heads.remove(&at) {
            self.count_data(-entry.head.data_bytes());
            self.heads.fetch_sub(1, Ordering::Relaxed);
        }
        cancels
    }

    /// The changes queued for an extent now. Read the extent's item before, and hold its leaf still (see the head of this file).
    pub(crate) fn queued(&self, at: Logical) -> Queued {
        self.queued_of(at, RefHead::clone)
    }

    /// A `part` of the changes queued for an extent now. Read the extent's item before, and hold its leaf still.
    pub(crate) fn queued_of<Of>(&self, at: Logical, part: impl FnOnce(&RefHead) -> Of) -> Queued<Of> {
        match self.shard(at).entries.lock().heads.get(&at) {
            None => Queued::Nothing,
            #[cfg(feature = "faults")]
            Some(entry) if self.unlocked.load(Ordering::Relaxed) => Queued::Changes(part(&entry.head)),
            Some(entry) if entry.locked => Queued::Locked,
            Some(entry) => Queued::Changes(part(&entry.head)),
        }
    }

    /// Waits until no thread runs the head of an extent. The caller holds no block of the extent tree.
    pub(crate) fn wait(&self, at: Logical) {
        let _held = HeldNote::wait(LockPosition::of(rank::REF_HEAD));
        let shard = self.shard(at);
        let locked = |entries: &mut Entries| entries.heads.get(&at).is_some_and(|entry| entry.locked);
        let mut entries = shard.entries.lock();
        if locked(&mut entries) {
            let _entries = shard.unlocked.pass_while(Reason::Commit, entries, locked);
        }
    }

    /// Locks a head and takes its changes; `None` when there is no head any more. A head without changes is forgotten.
    pub(crate) fn lock(&self, at: Logical) -> Option<LockedHead<'_>> {
        let mut entries = self.shard(at).entries.lock();
        let entry = entries.heads.get_mut(&at)?;
        assert!(!entry.locked, "one thread at a time runs a head (REF-2)");
        if entry.head.is_void() {
            entries.heads.remove(&at);
            self.heads.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        entry.locked = true;
        let later = RefHead::new(entry.head.kind, entry.head.len);
        let head = std::mem::replace(&mut entry.head, later);
        let held = HeldNote::tried(LockPosition::of(rank::REF_HEAD));
        Some(LockedHead { refs: self, at, head, ran: None, _held: held })
    }

    /// Whether a user other than `user` has dropped a reference of the extent and may have it again after a power cut (LOST-1). Call it after
    /// reading the extent tree and the queue.
    pub(crate) fn has_lost_others(&self, at: Logical, user: Backref) -> bool {
        self.shard(at).entries.lock().lost.has_others(at, user)
    }

    /// Closes the dropped references of transaction `generation`, which closes: no head is left.
    pub(crate) fn close_lost(&self, generation: Generation) {
        self.shards.iter().for_each(|shard| shard.entries.lock().lost.close(generation));
    }

    /// Forgets references that were dropped up to transaction `durable`: a power cut does not bring them back.
    pub(crate) fn forget_lost(&self, durable: Generation) {
        for shard in &self.shards {
            let forgotten = shard.entries.lock().lost.forget_durable(durable);
            drop(forgotten); // without the lock: there may be very many
        }
    }

    /// The number of heads.
    pub(crate) fn len(&self) -> usize {
        self.heads.load(Ordering::Relaxed)
    }

    /// Memory of the heads, bytes.
    pub(crate) fn memory(&self) -> u64 {
        let of = |shard: &CachePadded<Shard>| {
            let entries = shard.entries.lock();
            let outside: u64 = entries.heads.values().map(|entry| entry.head.memory()).sum();
            memory::btree::<Logical, Entry>(entries.heads.len()) + outside + entries.lost.memory()
        };
        self.shards.iter().map(of).sum()
    }

    /// By how much the bytes in data extents will change when all heads have run. An older extent with another
    /// user counts as freed until then: only the extent tree knows the other users.
    pub(crate) fn data_bytes(&self) -> i64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    /// The extents that have heads now, in descending order.
    pub(crate) fn extents(&self) -> Vec<Logical> {
        let mut all: Vec<Logical> = Vec::with_capacity(self.len());
        for shard in &self.shards {
            all.extend(shard.entries.lock().heads.keys().copied());
        }
        all.sort_unstable_by(|a, b| b.cmp(a));
        all
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::ObjectId;

    use super::*;

    const AT: Logical = Logical::new(1 << 20);
    const BLOCK: ExtentKind = ExtentKind::TreeBlock { level: 0 };

    #[test]
    fn opposite_changes_of_one_reference_leave_nothing() {
        let refs = DelayedRefs::new();
        let backref = Backref::TreeBlock { root: TreeId::FS };
        refs.change(AT, 16384, BLOCK, backref, 1).expect("no damage");
        refs.change(AT, 16384, BLOCK, backref, -1).expect("no damage");
        assert!(refs.lock(AT).is_none(), "nothing is left to run");
        assert_eq!(refs.len(), 0);
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
        for at in refs.extents() {
            let Some(locked) = refs.lock(at) else { continue }; // came and went
            let before = refs.data_bytes();
            let stood_for = locked.head().data_bytes();
            locked.ran(true);
            assert_eq!(refs.data_bytes(), before - stood_for, "it counts until it has run");
        }
        assert_eq!((refs.data_bytes(), refs.len()), (0, 0));
    }

    #[test]
    fn extents_come_in_order_of_address() {
        let refs = DelayedRefs::new();
        for at in [7_u64, 3, 9, 1] {
            refs.insert(Logical::new(at << 14), 1 << 14, BLOCK, Backref::TreeBlock { root: TreeId::FS })
                .expect("no damage");
        }
        let order: Vec<u64> = refs.extents().iter().map(|at| at.get() >> 14).collect();
        assert_eq!(order, [9, 7, 3, 1]);
    }

    #[test]
    fn what_comes_while_a_head_runs_is_a_change_from_what_it_leaves() {
        let refs = DelayedRefs::new();
        let (ours, other) = (Backref::TreeBlock { root: TreeId::FS }, Backref::SharedBlock { parent: AT });
        refs.insert(AT, 16384, BLOCK, ours).expect("no damage");
        let locked = refs.lock(AT).expect("a head");
        assert_eq!(refs.queued(AT), Queued::Locked);
        assert!(!refs.cancel(AT, ours), "it is on its way into the tree");
        refs.change(AT, 16384, BLOCK, ours, -1).expect("it is in the tree by then");
        refs.change(AT, 16384, BLOCK, other, 1).expect("no damage");
        assert_eq!(locked.head().sum(), 1);
        locked.ran(true);
        let Queued::Changes(later) = refs.queued(AT) else { panic!("a head is left") };
        assert!(!later.must_insert && later.changes.len() == 2);
        assert_eq!(refs.len(), 1);
    }

    #[test]
    fn a_head_that_was_not_run_is_queued_again() {
        let refs = DelayedRefs::new();
        let ours = Backref::TreeBlock { root: TreeId::FS };
        refs.insert(AT, 16384, BLOCK, ours).expect("no damage");
        drop(refs.lock(AT));
        assert!(refs.cancel(AT, ours));
        assert_eq!(refs.len(), 0);
    }

    #[test]
    #[should_panic(expected = "REF-3")]
    fn a_locked_head_that_somebody_takes_away_is_a_bug() {
        let refs = DelayedRefs::new();
        refs.insert(AT, 16384, BLOCK, Backref::TreeBlock { root: TreeId::FS }).expect("no damage");
        let locked = refs.lock(AT).expect("a head");
        refs.shard(AT).entries.lock().heads.clear();
        locked.ran(true);
    }

    #[test]
    #[should_panic(expected = "REF-2")]
    fn two_do_not_run_one_head() {
        let refs = DelayedRefs::new();
        refs.insert(AT, 16384, BLOCK, Backref::TreeBlock { root: TreeId::FS }).expect("no damage");
        let _first = refs.lock(AT);
        let _second = refs.lock(AT);
    }

    #[test]
    fn who_waits_for_a_head_goes_on_when_it_has_run() {
        let refs = DelayedRefs::new();
        refs.insert(AT, 16384, BLOCK, Backref::TreeBlock { root: TreeId::FS }).expect("no damage");
        let locked = refs.lock(AT).expect("a head");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                refs.wait(AT);
                refs.queued(AT)
            });
            std::thread::yield_now();
            locked.ran(true);
            assert_eq!(waits.join().expect("it goes on"), Queued::Nothing);
        });
        refs.wait(AT);
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

    #[test]
    fn a_reference_that_was_dropped_counts_until_that_is_durable() {
        const LEN: u64 = 1 << 20;
        let file = |ino| Backref::ExtentData { root: TreeId::FS, ino: ObjectId::new(ino), offset: 0 };
        let (ours, other) = (file(300), file(301));
        let of = Generation::new;
        let refs = DelayedRefs::new();
        // It came and went in one transaction, and may be in a log.
        refs.change(AT, LEN, ExtentKind::Data, other, 1).expect("no damage");
        refs.change(AT, LEN, ExtentKind::Data, other, -1).expect("no damage");
        assert!(refs.has_lost_others(AT, ours) && !refs.has_lost_others(AT, other));
        refs.close_lost(of(7));
        refs.forget_lost(of(6));
        assert!(refs.has_lost_others(AT, ours), "transaction 7 is being written out");
        // The next one drops one, too.
        refs.change(AT, LEN, ExtentKind::Data, other, -1).expect("no damage");
        assert!(refs.memory() > 0);
        refs.lock(AT).expect("a head").ran(true);
        refs.forget_lost(of(7));
        assert!(refs.has_lost_others(AT, ours), "transaction 8 runs");
        refs.close_lost(of(8));
        refs.forget_lost(of(8));
        assert!(!refs.has_lost_others(AT, ours));
        // An extent that is gone has no users.
        refs.change(AT, LEN, ExtentKind::Data, other, -1).expect("no damage");
        refs.lock(AT).expect("a head").ran(false);
        assert!(!refs.has_lost_others(AT, ours));
    }
}
