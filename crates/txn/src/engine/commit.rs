//! Starting commits: explicit commits, and commits that fall due. The module `commit` describes a commit, its order and why it survives a
//! crash; `settle` has its critical section.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Generation, Result};
use creamery_tree::CommitRootGuard;
use creamery_volume::Committed;

use super::Engine;
use crate::commit::{Closed, CommitParticipant, CommitPhase, CommitTurn};
use crate::handle::Handle;
use crate::run_refs::{self, RunRefsGuard};
use crate::transaction::AbortsWhenItPanics;

/// Heads that stay for the critical section: about a millisecond's work.
const LEFT_FOR_THE_GATE: usize = 512;
/// Rounds of heads before the gate closes. The bound is needed because working threads keep queueing heads.
const ROUNDS_MAX: usize = 8;

impl Engine {
    /// Commits the running transaction: every change that ended before this call is durable when it returns. Never
    /// call it with a handle. On an engine opened for reading it does nothing.
    /// Errors: the reason of the abort, which may be an earlier one.
    pub fn commit(&self) -> Result<()> {
        self.pipeline.participants.prepare();
        self.commit_running()
    }

    /// Commits the running transaction without calling the participants' `prepare`, for a caller in the middle of an operation that needs freed space.
    pub(super) fn commit_running(&self) -> Result<()> {
        self.commit_through(self.generation())
    }

    /// Makes transaction `generation` and all before it durable, unless they are already: one commit
    /// serves every thread that has a part in it. Never call it with a handle.
    /// Errors: those of [`Engine::commit`]; unsupported, before the log is replayed.
    pub fn commit_through(&self, generation: Generation) -> Result<()> {
        if self.is_opened_for_reading() {
            return Ok(());
        }
        self.check_writable()?;
        if self.logs.is_replay_due() {
            return Err(Error::unsupported("committing before the log is replayed")); // REPLAY-2
        }
        let Some(turn) = self.pipeline.turns.take_unless_durable(generation) else { return Ok(()) };
        self.check_writable()?;
        let done = self.end_write_out().and_then(|()| {
            // The transaction that was just written may be `generation`.
            if generation < self.generation() {
                return Ok(());
            }
            self.pipeline.turns.gather(&turn, generation, self.env().monotonic());
            self.close(&turn)
        });
        done.and_then(|()| self.end_write_out()).map_err(|error| self.transaction.aborts().named(error))
    }

    /// Does a share of the work that is due: writes a batch of the commit that is being written, runs heads, and begins a commit when waiting
    /// changes take too much memory or make the commit too long. At most one step of each; it waits for a commit only when the
    /// budget is used up.
    pub(super) fn commit_if_due(&self) -> Result<()> {
        if self.logs.is_replay_due() {
            return Ok(()); // REPLAY-2
        }
        self.share_write_out()?;
        let due = self.commit_due();
        let heads = self.extent_tree.refs().len();
        // Background work is woken only where no thread runs heads: it has one runner, and many handles come by.
        if due.many_refs_wait() && self.share_run_refs()? {
            self.background.wake();
        }
        if !due.is_due() {
            return Ok(());
        }
        if !self.pipeline.turns.is_taken() {
            self.background.wake();
        }
        if self.background.has_threads() && !due.is_budget_used() {
            return Ok(());
        }
        if heads > LEFT_FOR_THE_GATE && !due.is_budget_used() {
            return self.share_run_refs().map(drop);
        }
        let turn = match self.pipeline.turns.try_take() {
            Some(turn) => turn,
            None if !due.is_budget_used() => return Ok(()),
            None => self.pipeline.turns.take(),
        };
        // Another commit, for which this thread waited, may have done all of it.
        if due.is_due() && (self.pipeline.write_out.is_over() || due.is_budget_used()) {
            self.end_write_out()?;
            self.close(&turn)?;
        }
        Ok(())
    }

    /// Runs a step of heads, unless another thread does. Returns whether it ran one.
    pub(super) fn share_run_refs(&self) -> Result<bool> {
        let handle = self.handle_for_refs()?;
        match self.runner.try_turn() {
            // The kind `Aborted` tells a caller that begins an operation that the error is not its own.
            Some(turn) => self.run_a_step(handle, turn).map(|()| true).map_err(|error| {
                let what = "running delayed references";
                self.transaction.aborts().named(Error::with_source(ErrorKind::Aborted, what, error))
            }),
            None => {
                handle.end();
                Ok(false)
            }
        }
    }

    /// Runs a step of heads; waits for the thread that runs one.
    pub(super) fn run_refs(&self) -> Result<()> {
        let handle = self.handle_for_refs()?;
        let turn = self.runner.turn();
        self.run_a_step(handle, turn)
    }

    /// Runs all heads but for a few, in steps beside working threads.
    fn run_refs_before_the_gate(&self) -> Result<()> {
        let refs = self.extent_tree.refs();
        for _ in 0..ROUNDS_MAX {
            let mut left = refs.len();
            if left <= LEFT_FOR_THE_GATE {
                break;
            }
            while left > 0 {
                self.run_refs()?;
                left = left.saturating_sub(run_refs::STEP);
            }
        }
        Ok(())
    }

    fn run_a_step(&self, handle: Handle<'_>, mut turn: RunRefsGuard<'_>) -> Result<()> {
        let ran = self.transaction.or_abort(turn.step(self.ports(), &handle));
        drop(turn);
        handle.end();
        ran
    }

    /// Closes the running transaction, when the one before is over, and begins to write it out.
    fn close(&self, _turn: &CommitTurn<'_>) -> Result<()> {
        // It is dropped before the turn: no other thread may commit a half-closed transaction.
        let _aborts = AbortsWhenItPanics(&self.transaction);
        let generation = self.generation();
        self.logs.close(generation);
        self.run_refs_before_the_gate()?;
        let closed = self.transaction.or_abort(self.close_transaction());
        self.transaction.enter(CommitPhase::Running);
        let closed = closed?;
        if closed.is_none() {
            self.logs.reopen(generation);
        }
        if let Some((closed, blocks)) = closed {
            let nothing = self.volume().nothing_written();
            self.pipeline.write_out.begin(&self.transaction, closed, &blocks, nothing);
            self.background.wake();
        }
        Ok(())
    }

    /// Writes a batch, if a transaction is being written out and no other thread writes one: threads that write to the same file would queue
    /// there instead of doing other work.
    /// Errors: those of the devices.
    fn share_write_out(&self) -> Result<()> {
        if self.store.writing_bytes() == 0 {
            return Ok(());
        }
        self.pipeline.write_out.share(&self.write_out_ports(&|closed, proof| self.committed(closed, proof)))
    }

    /// Writes a batch of the transaction that is being written out.
    /// Errors: those of the devices.
    pub(super) fn write_a_batch(&self) -> Result<()> {
        self.pipeline.write_out.step(&self.write_out_ports(&|closed, proof| self.committed(closed, proof)))
    }

    /// Writes the remaining batches of the transaction that is being written out, and waits until it is durable.
    /// Errors: those of the devices; the failure of another thread.
    pub(super) fn end_write_out(&self) -> Result<()> {
        let committed = |closed: Closed, proof: &_| self.committed(closed, proof);
        self.pipeline.write_out.complete(&self.write_out_ports(&committed))
    }

    /// Ends a commit that is durable: releases the space that it freed, and wakes the threads that wait for it.
    fn committed(&self, closed: Closed, proof: &Committed) -> Result<()> {
        self.extent_tree.refs().forget_lost(closed.generation);
        let roots = &self.pipeline.roots;
        roots.publish(closed.generation, closed.pinned, proof);
        // Blocks that no durable superblock and no reader of an old root needs.
        self.store.forget_unread_ahead();
        self.discarder().release(&roots.take_releasable())?;
        self.chunks.release_device_extents(self.volume().generation());
        self.transaction.enter(CommitPhase::Running);
        let now = self.env().monotonic();
        let took = now.saturating_sub(closed.begun);
        self.pipeline.turns.durable(closed.generation, took, now);
        self.counters.committed(closed.block_count, took);
        Ok(())
    }

    /// A guard for reading the trees of the last commit.
    pub fn commit_root_guard(&self) -> CommitRootGuard {
        self.pipeline.roots.guard()
    }

    /// Lets `participant` take part in every commit from now on.
    pub fn register(&self, participant: Arc<dyn CommitParticipant>) {
        self.pipeline.participants.register(participant);
    }
}
