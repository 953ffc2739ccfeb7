//! Quota groups: what subvolumes refer to, what of it is theirs alone, and limits of both.
//!
//! Each subvolume has a group, and groups may be members of others, of a higher level. A group's *referenced* bytes are those of
//! all extents - tree blocks and data, as they lie on disk - that a subvolume in it can reach; its *exclusive* bytes those that
//! none outside it can. Both follow from the set of subvolumes that reach an extent, its *roots*: who changes that set changes
//! the sums of the groups that see the difference ([`forest`]).
//!
//! # What a change costs
//! Linux notes every extent whose references change, and walks its back references twice when the transaction closes: in the
//! trees of the last commit and in those to come. Here most are known without a walk ([`Owners`]): an extent whose references
//! all name one subvolume, and which is younger than that subvolume's last snapshot, is reached from there alone, before and
//! after. So a head that runs (`run_refs`) says what becomes of the sums, and they are added up at once. What is left - extents that snapshots or
//! clones share - is noted ([`changed`]), once for a transaction, and walked when it closes (`engine/quota`).
//!
//! What is queued for an extent may cancel out and change its roots all the same: who copies a shared block gives what it points
//! to a reference of its own, and takes that back when he copies the next block down. So a head of which everything was taken back
//! stays, and is told of when it would have run (`RefHead::cancelled`).
//!
//! The roots of an extent may change while its references do not: with the tree of a deleted subvolume goes a pointer to a
//! block that others have, too, and all that is below it loses a root. Who gives up such a pointer has what is below noted
//! first ([`trace`]). And a snapshot adds a root to everything that its source reaches. That is one sum: what was exclusive to the source, its own
//! root block left out, is exclusive no more, and the new group refers to as much as the source's does ([`snapshots`]). For that all
//! that was done before has to be counted, so a snapshot first runs the heads there are.
//!
//! Groups above the source may see a difference that no sum tells. Then the numbers are marked as inconsistent, as Linux does it, and
//! a rescan ([`rescan`]) makes them true again.
//!
//! # Simple quotas
//! There an extent counts for the subvolume that made it, as long as it exists and whoever refers to it. Data has its owner in its
//! extent item, a tree block in its header; what is older than the quotas counts for nobody. Nothing is walked.
//!
//! # On disk
//! The quota tree is written while the transaction closes and by nobody else: a status, and two items for each group. The status names the
//! transaction, so whoever opens a filesystem that somebody without quotas has written since finds them inconsistent.
//!
//! # Limits
//! Room is taken from a limit before anything is written: for data with the room of its space (`space_info/delalloc`), for
//! metadata with the handle. What was used counts again when the transaction closes; until then it stands in `pending` ([`charge`]).
//!
//! # Invariants
//! - QGROUP-1: until the transaction closes, each extent whose roots changed is either counted as it stands in the extent tree,
//!   or noted with what was counted for it before. Shown by `groups_count_what_a_walk_finds`.
//! - QGROUP-2: while a rescan runs, what is below its mark is counted, and nothing above it.
//!   Shown by `a_rescan_beside_those_who_write_counts_right`.
//! - QGROUP-3: a reservation is given back once. Held by `Charge`.
//! - QGROUP-4: what was taken from a limit is reserved until the transaction has it that counts it, and pending until that closes: data in
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
pub(crate) use state::{State, Switch};

/// How quotas are counted.
///
/// ```
/// assert_ne!(creamery_txn::QuotaMode::Full, creamery_txn::QuotaMode::Simple);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaMode {
    /// An extent counts for all who refer to it.
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
    state: RankedMutex<Option<Box<State>>, { rank::LEAF }>,
    /// Held by who switches them, or changes groups.
    pub(crate) changing: RankedMutex<(), { rank::QGROUP_CHANGE }>,
    /// What is to become of them when the transaction closes.
    switch: RankedMutex<Option<Switch>, { rank::LEAF }>,
    pub(crate) counting: Counting,
}

impl Qgroups {
    /// How they are counted; none while there are no quotas.
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

    /// From now on these count; none, nobody does.
    pub(crate) fn set(&self, state: Option<Box<State>>) {
        let mode = match state.as_deref().map(State::mode) {
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

    /// Has the quotas switched when the running transaction closes.
    /// Errors: in use, when they are about to be switched already.
    pub(crate) fn switch_at_close(&self, switch: Switch) -> Result<()> {
        let mut waiting = self.switch.lock();
        if waiting.is_some() {
            return Err(Error::new(ErrorKind::Busy, "quotas that are about to be switched"));
        }
        *waiting = Some(switch);
        Ok(())
    }

    /// What waits to be done with the gate closed.
    pub(crate) fn take_switch(&self) -> Option<Switch> {
        self.switch.lock().take()
    }

    /// Whether the numbers or groups were changed by somebody who wants them written.
    pub(crate) fn has_work(&self) -> bool {
        self.switch.lock().is_some() || self.with(|state| state.has_writes()).unwrap_or(false)
    }

    /// Whether so many extents wait to be walked that the transaction ought to close.
    pub(crate) fn is_much_noted(&self) -> bool {
        self.noted.load(Ordering::Relaxed) > NOTED_DUE
    }

    /// The transaction has closed.
    pub(crate) fn begin_next(&self) {
        self.with(State::begin_next);
        self.set_noted(None);
    }

    fn set_noted(&self, noted: Option<usize>) {
        self.noted.store(noted.unwrap_or(0), Ordering::Relaxed);
    }

    /// Looks at what there is; none while there are no quotas.
    pub(crate) fn with<R>(&self, look: impl FnOnce(&mut State) -> R) -> Option<R> {
        if self.mode.load(Ordering::Acquire) == OFF {
            return None;
        }
        self.state.lock().as_deref_mut().map(look)
    }

    /// Changes groups at somebody's wish. Errors: not found, while there are no quotas; those of `edit`.
    pub(crate) fn edit<R>(&self, edit: impl FnOnce(&mut State) -> Result<R>) -> Result<R> {
        let edited = self.with(|state| (edit(state), state.forest.is_limited()));
        let (edited, limited) = edited.ok_or_else(quotas_are_off)?;
        self.limited.store(limited, Ordering::Relaxed);
        edited
    }

    /// A head of the extent at `at` has run.
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

    /// A subvolume was made in the running transaction, in the subvolume `within`, and is in these groups.
    pub(crate) fn subvolume_created(&self, id: TreeId, within: TreeId, groups: &[QgroupId]) {
        self.with(|state| state.subvolume_created(id, within, groups));
    }

    /// Nothing is left of a subvolume's tree: its group goes when it counts nothing any more.
    pub(crate) fn subvolume_gone(&self, id: TreeId) {
        self.with(|state| state.gone.push(id));
    }
}

pub(crate) fn quotas_are_off() -> Error {
    Error::new(ErrorKind::NotFound, "quotas are not enabled")
}
