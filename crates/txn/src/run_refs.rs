//! Running delayed refs: in rounds, each of which takes the extents in the order of their addresses, and in steps, beside working
//! threads.
//!
//! A commit can end only when no head is left, and with its gate closed no other thread can work. So most heads run before:
//!
//! - a thread that begins an operation while a great many heads wait takes one step first, if no other thread runs one;
//! - it also does so when a commit has fallen due, until few enough are left for the gate;
//! - a caller of a commit takes all steps that are left, beside the threads that go on working.
//!
//! Heads that these queue meanwhile, and changes that need the closed gate (roots, block groups), are left for the
//! commit's last rounds. Waiting pays, too: an extent that is allocated and freed again before its head has run never comes into the
//! tree. So no thread runs heads earlier than needed.
//!
//! A step has a part of the gate, like a handle, but no promise: every promise leaves the room that heads take for
//! the commit (RESERVE-1), and it does not matter whether they take it now or then.
//!
//! # Invariants
//! - RUN-1: one thread at a time runs heads: it alone changes the extent tree (beside the commit's critical section, which
//!   excludes all others) and the free space tree, and counts used space. Held by `RunRefsGuard`.
//! - RUN-2: the items of a chunk are there before the free space tree learns of changes in its space. An extent's chunk was
//!   made before its head; it is recorded after the head has run, so no chunk is missed. Shown by
//!   `what_data_leaves_is_there_for_metadata`.
//! - RUN-3: a step ends with the free space tree up to date for all heads that it ran. So between two steps, and whenever the
//!   gate is closed, the two trees agree. Shown by `commits_that_fell_due_survive_every_power_cut`.

use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Logical, Result, memory};
use creamery_tree::CowHost;

use crate::csum_tree::CsumTree;
use crate::extent_tree::{ExtentKind, ExtentTree, Outcome, Ran};
use crate::free_space_tree::SpacePlan;
use crate::group_records::GroupRecords;
use crate::qgroup::Qgroups;

/// Heads that one step runs: some hundred microseconds.
pub(crate) const STEP: usize = 64;

type HeldExtents = Vec<(Logical, u64)>;

/// Runs delayed refs.
#[derive(Default)]
pub(crate) struct RefRunner {
    round: RankedMutex<Round, { rank::RUN_REFS }>,
}

/// The work of a runner: heads to run, and extents freed.
#[derive(Default)]
pub(crate) struct Round {
    /// Extents whose heads this round is to run, descending.
    left: Vec<Logical>,
    /// Extents that lost their last reference in this transaction.
    freed: HeldExtents,
}

/// The owners that running heads changes.
#[derive(Clone, Copy)]
pub(crate) struct Ports<'e> {
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) csum_tree: &'e CsumTree,
    pub(crate) qgroups: &'e Qgroups,
    /// Their space, and the items of the chunks that were made since the last step (RUN-2).
    pub(crate) groups: GroupRecords<'e>,
}

/// The right to run heads (RUN-1).
pub(crate) type RunRefsGuard<'r> = RankedGuard<'r, Round, { rank::RUN_REFS }>;

impl RefRunner {
    /// Waits for the thread that runs heads. The caller has a part of the gate, or all of it.
    pub(crate) fn turn(&self) -> RunRefsGuard<'_> {
        self.round.lock()
    }

    /// The right to run heads, if no thread has it.
    pub(crate) fn try_turn(&self) -> Option<RunRefsGuard<'_>> {
        self.round.try_lock()
    }
}

impl Round {
    /// Runs the next heads; after the last one of a round another round begins.
    ///
    /// # Errors
    /// No space, device errors; damage. The caller aborts.
    pub(crate) fn step(&mut self, ports: Ports<'_>, host: &dyn CowHost) -> Result<()> {
        if self.left.is_empty() {
            self.left = ports.extent_tree.refs().extents();
        }
        let mut plan = SpacePlan::default();
        let mut ran = 0;
        while ran < STEP
            && let Some(at) = self.left.pop()
        {
            // It may have been cancelled since the round began.
            if let Some(head) = ports.extent_tree.run(host, at)? {
                self.account(ports, host, at, head, &mut plan)?;
                ran += 1;
            }
        }
        ports.groups.record_chunks(host)?;
        apply(ports, host, plan)
    }

    /// Runs all heads that there are now. False when there were none.
    ///
    /// # Errors
    /// Those of [`Round::step`].
    pub(crate) fn round(&mut self, ports: Ports<'_>, host: &dyn CowHost) -> Result<bool> {
        self.left = ports.extent_tree.refs().extents();
        let any = !self.left.is_empty();
        while !self.left.is_empty() {
            self.step(ports, host)?;
        }
        Ok(any)
    }

    /// Memory of its lists, bytes: of heads to run, and of freed extents.
    pub(crate) fn memory(&self) -> (u64, u64) {
        (memory::vec::<Logical>(self.left.capacity()), memory::vec::<(Logical, u64)>(self.freed.capacity()))
    }

    /// The extents that the transaction freed.
    pub(crate) fn take_freed(&mut self) -> HeldExtents {
        std::mem::take(&mut self.freed)
    }

    /// Accounts for an extent whose head has run: its quota groups, its space, its checksums.
    fn account(
        &mut self,
        ports: Ports<'_>,
        host: &dyn CowHost,
        at: Logical,
        head: Ran,
        plan: &mut SpacePlan,
    ) -> Result<()> {
        let Ran { kind, len, applied } = head;
        ports.qgroups.ran(at, &head, host.generation());
        match applied.outcome {
            Outcome::Changed => return Ok(()),
            Outcome::Inserted => {
                ports.groups.space.count_used(at, len, true)?;
                plan.push(at, len, false);
                return Ok(());
            }
            Outcome::Freed => {
                ports.groups.space.count_used(at, len, false)?;
                plan.push(at, len, true);
            }
            Outcome::NeverThere => {}
        }
        if kind == ExtentKind::Data {
            ports.csum_tree.remove(host, at, len)?;
        }
        ports.groups.space.pin(at, len)?;
        self.freed.push((at, len));
        Ok(())
    }
}

/// Brings the free space tree up to date (RUN-3).
fn apply(ports: Ports<'_>, host: &dyn CowHost, plan: SpacePlan) -> Result<()> {
    let group_at = |at: Logical| {
        let group = ports.groups.space.group_at(at);
        let group = group
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("extent {at} lies in no block group")))?;
        let end = group.end();
        Ok((group, end))
    };
    for (group, runs) in plan.by_group(group_at)? {
        if let Some(free) = ports.groups.free_space_tree.of_group(&group) {
            free.apply(host, &runs)?;
        }
    }
    Ok(())
}
