//! Quota groups: the extents that subvolumes refer to, the part that only they refer to, and limits of both.
//!
//! Each subvolume has a group, and groups may be members of others, of a higher level. A group's *referenced* bytes are those of
//! all extents - tree blocks and data, as they lie on disk - that a subvolume in it can reach; its *exclusive* bytes those that
//! no subvolume outside it can. Both follow from the set of subvolumes that reach an extent, its *roots*: a change of that set changes
//! the sums of the groups that see the difference ([`forest`]).
//!
//! # What a change costs
//! Linux notes every extent whose references change, and walks its back references twice when the transaction closes: in the
//! trees of the last commit and in those to come. Here most are known without a walk ([`Owners`]): an extent whose references
//! all name one subvolume, and which is younger than that subvolume's last snapshot, is reached from there alone, before and
//! after. So a head that runs (`run_refs`) gives the difference of the sums, which is added at once. The rest, extents that snapshots or
//! clones share, is noted ([`changed`]), once for a transaction, and walked when it closes (`quota_accounting`).
//!
//! Queued changes of an extent may cancel out and change its roots all the same: copying a shared block adds references of the copy to
//! the block's children, and copying the next block down takes one back. So a head whose changes all cancelled
//! stays, and is reported when it would have run (`RefHead::cancelled`).
//!
//! The roots of an extent may change while its references do not: the tree of a deleted subvolume takes a pointer to a
//! shared block with it, and everything below that block loses a root. Dropping such a pointer notes all extents below it
//! first ([`trace`]). And a snapshot adds a root to every extent that its source reaches. That is one sum: bytes that were exclusive to the source,
//! except its own root block, are exclusive no more, and the new group refers to as much as the source's does ([`snapshots`]). That needs
//! all earlier changes to be counted, so a snapshot first runs the heads there are.
//!
//! Groups above the source may see a difference that no sum gives. Then the numbers are marked as inconsistent, as in Linux, and
//! a rescan ([`rescan`]) corrects them.
//!
//! # Simple quotas
//! An extent counts for the subvolume that made it, as long as the extent exists, independent of its references. Data has its owner in its
//! extent item, a tree block in its header; extents older than the quotas count for no subvolume. There are no walks.
//!
//! # On disk
//! Only the commit's critical section writes the quota tree: a status, and two items for each group. The status names the
//! transaction. If a writer without quotas commits, the next open sees an older status and marks the numbers as inconsistent.
//!
//! # Limits
//! Room is taken from a limit before anything is written: for data with the room of its space (`space_info/delalloc`), for
//! metadata with the handle. The used part counts again when the transaction closes; until then it stands in `pending` ([`charge`]).
//!
//! # Invariants
//! - QGROUP-1: until the transaction closes, each extent whose roots changed is either counted by its state in the extent tree,
//!   or noted with the roots that were counted for it before. Shown by `groups_count_what_a_walk_finds`.
//! - QGROUP-2: while a rescan runs, extents below its mark are counted, and none above it.
//!   Shown by `a_rescan_beside_those_who_write_counts_right`.
//! - QGROUP-3: a reservation is given back once. Held by `Charge`.
//! - QGROUP-4: bytes taken from a limit are reserved until they are in the transaction that counts them, and pending until it closes: data in
//!   flight while one closes is reserved for the next. Shown by `data_in_flight_counts_against_a_limit_when_a_transaction_closes`.

mod changed;
mod charge;
mod counters;
mod forest;
mod items;
mod load;
mod rescan;
mod snapshots;
mod state;
mod trace;

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Generation, Logical, QgroupId, Result, TreeId};

use crate::extent_tree::{Outcome, Ran};

pub(crate) use changed::{Changed, SnapshotTaken};
pub(crate) use charge::Charge;
pub(crate) use counters::Counting;
pub use counters::QgroupCounters;
pub use forest::{Qgroup, QgroupLimits, QgroupUsage};
pub(crate) use rescan::{Counted, STEP as RESCAN_STEP};
pub use state::QuotaStatus;
pub(crate) use state::{QuotaState, Switch};

/// How quotas are counted.
///
/// ```
/// assert_ne!(creamery_txn::QuotaMode::Full, creamery_txn::QuotaMode::Simple);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaMode {
    /// An extent counts for all subvolumes that refer to it.
    Full,
    /// An extent counts for the subvolume that made it.
    Simple,
}

/// Extents that wait to be walked at which a commit is due: they are walked with the gate closed.
const NOTED_DUE: usize = 8 << 10;

const OFF: u8 = 0;
const FULL: u8 = 1;
const SIMPLE: u8 = 2;

/// The quota groups of a filesystem, if it has any.
#[derive(Default)]
pub(crate) struct Qgroups {
    mode: AtomicU8,
    /// Whether any group has a limit.
    limited: AtomicBool,
    epochs: AtomicU64,
    /// Extents that wait to be walked.
    noted: AtomicUsize,
    state: RankedMutex<Option<Box<QuotaState>>, { rank::LEAF }>,
    /// Held while quotas are switched, or groups change.
    pub(crate) changing: RankedMutex<(), { rank::QGROUP_CHANGE }>,
    /// The switch of quotas to do when the transaction closes.
    switch: RankedMutex<Option<Switch>, { rank::LEAF }>,
    pub(crate) counting: Counting,
}

impl Qgroups {
    /// How extents are counted; `None` while quotas are off.
    pub(crate) fn mode(&self) -> Option<QuotaMode> {
        match self.mode.load(Ordering::Acquire) {
            FULL => Some(QuotaMode::Full),
            SIMPLE => Some(QuotaMode::Simple),
            _ => None,
        }
    }

    pub(crate) fn is_limited(&self) -> bool {
        self.limited.load(Ordering::Relaxed)
    }

    /// Replaces the state of the quotas, which counts from now on; `None` turns them off.
    pub(crate) fn set(&self, state: Option<Box<QuotaState>>) {
        let mode = match state.as_deref().map(QuotaState::mode) {
            None => OFF,
            Some(QuotaMode::Full) => FULL,
            Some(QuotaMode::Simple) => SIMPLE,
        };
        let limited = state.as_deref().is_some_and(|state| state.forest.is_limited());
        let state = state.map(|mut state| {
            state.epoch = self.epochs.fetch_add(1, Ordering::Relaxed);
            state
        });
        *self.state.lock() = state;
        self.limited.store(limited, Ordering::Relaxed);
        self.mode.store(mode, Ordering::Release);
    }

    /// Switches the quotas when the running transaction closes.
    /// Errors: in use, when another switch waits.
    pub(crate) fn switch_at_close(&self, switch: Switch) -> Result<()> {
        let mut waiting = self.switch.lock();
        if waiting.is_some() {
            return Err(Error::new(ErrorKind::Busy, "another quota change is pending"));
        }
        *waiting = Some(switch);
        Ok(())
    }

    /// Takes the switch that waits for the closed gate.
    pub(crate) fn take_switch(&self) -> Option<Switch> {
        self.switch.lock().take()
    }

    /// Whether the quota tree has to be written: a switch waits, or numbers or groups have changes to write.
    pub(crate) fn has_work(&self) -> bool {
        self.switch.lock().is_some() || self.with(|state| state.has_writes()).unwrap_or(false)
    }

    /// Whether so many extents wait to be walked that the transaction ought to close.
    pub(crate) fn is_much_noted(&self) -> bool {
        self.noted.load(Ordering::Relaxed) > NOTED_DUE
    }

    /// Blocks of the quota tree that the commit may copy or make.
    pub(crate) fn blocks_needed(&self, node_size: u32) -> u64 {
        self.with(|state| state.blocks_needed(node_size)).unwrap_or(0)
    }

    /// Begins the next transaction: the running one has closed.
    pub(crate) fn begin_next(&self) {
        self.with(QuotaState::begin_next);
        self.set_noted(None);
    }

    fn set_noted(&self, noted: Option<usize>) {
        self.noted.store(noted.unwrap_or(0), Ordering::Relaxed);
    }

    /// Calls `look` with the state; `None` while quotas are off.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut QuotaState) -> R) -> Option<R> {
        if self.mode.load(Ordering::Acquire) == OFF {
            return None;
        }
        self.state.lock().as_deref_mut().map(look)
    }

    /// Changes groups for a caller. Errors: not found, while quotas are off; those of `edit`.
    pub(crate) fn edit<R>(&self, edit: impl FnOnce(&mut QuotaState) -> Result<R>) -> Result<R> {
        let edited = self.with(|state| (edit(state), state.forest.is_limited()));
        let (edited, limited) = edited.ok_or_else(quotas_are_off)?;
        self.limited.store(limited, Ordering::Relaxed);
        edited
    }

    /// Counts a head of the extent at `at` that has run.
    pub(crate) fn ran(&self, at: Logical, ran: &Ran, generation: Generation) {
        match self.mode.load(Ordering::Acquire) {
            FULL => {
                let noted = self.with(|state| {
                    state.ran(at, ran, &self.counting);
                    state.changed.len()
                });
                self.set_noted(noted);
            }
            SIMPLE => self.ran_simple(ran, generation),
            _ => {}
        }
    }

    fn ran_simple(&self, ran: &Ran, running: Generation) {
        let Some((root, made)) = ran.applied.payer.filter(|(root, _)| root.is_subvolume()) else { return };
        let (made, gone) = match ran.applied.outcome {
            Outcome::Inserted => (running, false),
            Outcome::Freed => (made, true),
            Outcome::Changed | Outcome::NeverThere => return,
        };
        self.with(|state| {
            if made >= state.enabled_in {
                self.counting.known.add(1);
                state.count_one(root, ran.len, gone);
            }
        });
    }

    /// Adds a group for a subvolume made in the running transaction in the subvolume `within`, as a member of `groups`.
    pub(crate) fn subvolume_created(&self, id: TreeId, within: TreeId, groups: &[QgroupId]) {
        self.with(|state| state.subvolume_created(id, within, groups));
    }

    /// Notes that a subvolume's tree is gone: its group goes when it counts nothing any more.
    pub(crate) fn subvolume_gone(&self, id: TreeId) {
        self.with(|state| state.gone.push(id));
    }
}

pub(crate) fn quotas_are_off() -> Error {
    Error::new(ErrorKind::NotFound, "quotas are not enabled")
}
