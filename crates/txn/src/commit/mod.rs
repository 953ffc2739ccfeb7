//! The commit: from a running transaction to a durable one.
//!
//! ```text
//!   run delayed refs in steps       handles begin and end beside it
//!   close the gate                  all handles have ended, none begins
//!     participants settle what they put off
//!     settle: chunks, the refs that are left, block groups, roots - until nothing changes any more
//!     take the dirty blocks and the superblock; switch commit roots; next generation
//!   open the gate                   the next transaction runs; it copies whatever it changes
//!   write out                       the blocks, flush, the superblocks, flush (see `write_out`)
//! ```
//! A crash before the superblock is on the platter leaves the old superblock and everything that it reaches,
//! because nothing that it reaches was overwritten: freed space is handed out only after the last flush. A crash
//! after it leaves the new one, and everything that it reaches was flushed before.
//!
//! Settling is a fixed point: running a delayed ref changes the extent tree and the free space tree, which copies
//! blocks, which queues delayed refs; recording roots changes the root tree. A block is copied only once per
//! transaction, so it comes to rest; [`PASSES_MAX`] bounds it all the same. With the gate closed nobody works, so what can
//! be run before is (`run_refs`), down to [`LEFT_FOR_THE_GATE`].
//!
//! | file | |
//! |---|---|
//! | `phase` | what is done when, and what a crash leaves |
//! | `turn` | one at a time; who was overtaken goes home |
//! | `participant` | what layers above put off |
//! | `settle` | the critical section |
//! | `next_superblock` | what the superblock will say |
//! | `write_out` | from memory to the platter |
//! | `commit_root` | what old roots still need |
//!
//! # Invariants
//! - COMMIT-1: when the gate opens, every block reachable from the new superblock is either durable or in the
//!   list to be written, and no delayed ref, pending chunk or unrecorded root is left.
//! - COMMIT-2: a block in the list to be written is not changed any more but for its checksum and WRITTEN mark.

mod commit_root;
mod next_superblock;
mod participant;
mod phase;
mod settle;
mod turn;
mod write_out;

use creamery_base::{Error, ErrorKind, Generation, Result};
use creamery_volume::Durable;

use crate::engine::Engine;
use crate::handle::Handle;
use crate::run_refs::Turn;

pub use commit_root::CommitRootGuard;
pub use participant::CommitParticipant;
pub use phase::CommitPhase;

pub(crate) use commit_root::CommitRoots;
pub(crate) use next_superblock::NextSuperblock;
pub(crate) use participant::Participants;
pub(crate) use phase::PhaseNow;
pub(crate) use turn::CommitTurns;

use turn::CommitTurn;
use write_out::WriteOut;

/// Heads that are left for the critical section: about a millisecond's work.
const LEFT_FOR_THE_GATE: usize = 512;
/// Rounds of heads before the gate closes. Those who work beside them queue more, and might do so for ever.
const ROUNDS_MAX: usize = 8;
/// From which part of [`Options::delayed_refs_max`](crate::Options::delayed_refs_max) on those who work run heads.
const RUN_FROM: usize = 4;

/// What commits share.
pub(crate) struct CommitPipeline {
    turns: CommitTurns,
    phase: PhaseNow,
    roots: CommitRoots,
    participants: Participants,
    write_out: WriteOut,
}

impl CommitPipeline {
    /// Transaction `durable` is the last one.
    pub(crate) fn new(durable: Generation) -> Self {
        Self {
            turns: CommitTurns::new(durable),
            phase: PhaseNow::default(),
            roots: CommitRoots::new(durable),
            participants: Participants::default(),
            write_out: WriteOut::default(),
        }
    }

    /// What the commit on its way is at.
    pub(crate) fn phase(&self) -> CommitPhase {
        self.phase.get()
    }
}

impl Engine {
    /// Commits the running transaction: everything that ended before this call is durable when it returns. Never
    /// call it with a handle. What was opened for reading has nothing to commit.
    /// Errors: whatever made the transaction abort, now or before.
    pub fn commit(&self) -> Result<()> {
        self.commit_through(self.generation())
    }

    /// Makes transaction `generation` and all before it durable, which may have happened already: somebody else's commit
    /// serves whoever has a part in it. Never call it with a handle.
    /// Errors: as [`Engine::commit`].
    pub fn commit_through(&self, generation: Generation) -> Result<()> {
        if self.is_opened_for_reading() {
            return Ok(());
        }
        self.check_writable()?;
        let Some(turn) = self.pipeline.turns.take_unless_durable(generation) else { return Ok(()) };
        self.check_writable()?;
        let done = self.end_write_out().and_then(|()| {
            // The transaction that was being written may have been the one.
            if generation < self.generation() {
                return Ok(());
            }
            self.pipeline.turns.gather(&turn, generation, self.env().monotonic());
            self.close(&turn)
        });
        done.and_then(|()| self.end_write_out()).map_err(|error| self.named(error))
    }

    /// Takes part in what is due: writing a commit that others began, running heads, and beginning a commit when so much is
    /// waiting that memory or the commit's length asks for it. One step of each at most; waits for a commit only when the
    /// budget is used up.
    pub(crate) fn commit_if_due(&self) -> Result<()> {
        self.share_write_out()?;
        let heads = self.extent_tree.refs().len();
        if self.many_refs_wait() {
            self.wake_background();
            self.share_run_refs()?;
        }
        let budget = self.options.dirty_bytes;
        let due_at = self.due_at();
        if !self.is_commit_due(due_at) {
            return Ok(());
        }
        self.wake_background();
        let used_up = || self.is_commit_due(budget.saturating_sub(self.store().writing_bytes()));
        if self.background.has_threads() && !used_up() {
            return Ok(());
        }
        if heads > LEFT_FOR_THE_GATE && !used_up() {
            return self.share_run_refs();
        }
        let turn = match self.pipeline.turns.try_take() {
            Some(turn) => turn,
            None if !used_up() => return Ok(()),
            None => self.pipeline.turns.take(),
        };
        // Who waited for another commit may have nothing left to do.
        if self.is_commit_due(due_at) && (self.pipeline.write_out.is_over() || used_up()) {
            self.end_write_out()?;
            self.close(&turn)?;
        }
        Ok(())
    }

    /// Bytes of dirty blocks at which a commit is due. Each copies blocks again that were just written, so the later the better;
    /// what is left of the budget is for those who go on meanwhile.
    fn due_at(&self) -> u64 {
        self.options.dirty_bytes / 4 * 3
    }

    /// Whether so many heads wait that it is time to run some beside those who work.
    pub(crate) fn many_refs_wait(&self) -> bool {
        self.extent_tree.refs().len() > self.options.delayed_refs_max / RUN_FROM
    }

    /// Whether memory, or the length of the commit itself, asks for one.
    pub(crate) fn is_a_commit_due(&self) -> bool {
        self.is_commit_due(self.due_at())
    }

    fn is_commit_due(&self, dirty_max: u64) -> bool {
        self.store().dirty_bytes() > dirty_max
            || self.extent_tree.refs().len() > self.options.delayed_refs_max
    }

    /// Runs a step of heads, if nobody else does.
    pub(crate) fn share_run_refs(&self) -> Result<()> {
        let handle = self.handle_for_refs()?;
        match self.runner.try_turn() {
            // Who only began an operation is not to take it for an answer to that.
            Some(turn) => self.run_a_step(handle, turn).map_err(|error| {
                let what = "running delayed references";
                self.named(Error::with_source(ErrorKind::Aborted, what, error))
            }),
            None => {
                handle.end();
                Ok(())
            }
        }
    }

    /// Runs all heads there are but for a few, in steps beside others who work.
    fn run_refs_before_the_gate(&self) -> Result<()> {
        let refs = self.extent_tree.refs();
        for _ in 0..ROUNDS_MAX {
            let mut left = refs.len();
            if left <= LEFT_FOR_THE_GATE {
                break;
            }
            while left > 0 {
                let handle = self.handle_for_refs()?;
                let turn = self.runner.turn();
                self.run_a_step(handle, turn)?;
                left = left.saturating_sub(crate::run_refs::STEP);
            }
        }
        Ok(())
    }

    fn run_a_step(&self, handle: Handle<'_>, mut turn: Turn<'_>) -> Result<()> {
        let record_chunks = || self.record_chunks(&handle);
        let ran = self.or_abort(turn.step(self.ports(&record_chunks), &handle));
        drop(turn);
        handle.end();
        ran
    }

    /// Closes the running transaction, when the one before is over, and begins to write it out.
    fn close(&self, _turn: &CommitTurn<'_>) -> Result<()> {
        self.run_refs_before_the_gate()?;
        let closed = self.or_abort(self.close_transaction());
        self.pipeline.phase.enter(CommitPhase::Running);
        if let Some((closed, blocks)) = closed? {
            self.begin_write_out(closed, &blocks);
        }
        Ok(())
    }

    /// What was written and that no metadata tells of is flushed, too, when somebody asks for durability.
    fn flush_written(&self, written: Option<creamery_volume::Written>) -> Result<()> {
        let Some(written) = written else { return Ok(()) };
        let _durable: Durable = self.volume().flush(written)?;
        Ok(())
    }

    /// A guard for reading the trees as the last commit left them.
    pub fn commit_root_guard(&self) -> CommitRootGuard {
        self.pipeline.roots.guard()
    }
}
