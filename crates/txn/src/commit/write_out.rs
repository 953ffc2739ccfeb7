//! Writing a closed transaction out: its blocks in batches, each by whoever comes by, then the superblock.
//!
//! A commit that falls due in the middle of the work is written by those who work: who starts a handle takes one
//! batch first, if nobody else has one, until none is left. So no thread falls behind the others by a whole commit,
//! nobody waits for one beyond its critical section, and the engine needs no thread of its own. Where it has some
//! (`background`), they take batches, too. Who asks for a commit ([`Engine::commit`]) takes batches until none is left, and
//! waits for those that others took.
//!
//! Whoever gives back the last batch makes the transaction durable, in the order that the volume's types demand:
//!
//! ```text
//!   the last batch is written  -> Written
//!   flush all devices          -> Durable
//!   write superblocks          -> Published
//!   flush all devices          -> Committed
//!   unpin what the transaction freed
//! ```
//! Where nobody works and there are no such threads a write-out rests; a commit that is asked for, or the next one that falls
//! due, ends it first.
//!
//! # Invariants
//! - WRITEOUT-1: at most one transaction is being written; the next one is closed when its superblock is durable.
//! - WRITEOUT-2: a batch that was taken is given back, written or failed, by whatever way its taker leaves. A failed
//!   one ends the write-out and aborts the engine; nobody goes on waiting for it.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use creamery_base::gate::{self, Reason};
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, Generation, Logical, Result, panics};
use creamery_format::{Superblock, seal};
use creamery_tree::ExtentBuffer;
use creamery_volume::Written;

use super::CommitPhase;
use crate::engine::Engine;

/// Blocks written in one batch: neighbours go to the device together, and who only came by is not kept for long.
const BATCH: usize = 32;

pub(crate) type Blocks = Vec<Arc<ExtentBuffer>>;

/// What the commit's critical section hands over besides the blocks to write.
pub(crate) struct Closed {
    pub(crate) generation: Generation,
    pub(crate) superblock: Superblock,
    pub(crate) block_count: usize,
    pub(crate) pinned: Vec<(Logical, u64)>,
    /// Data that it shows.
    pub(crate) written: Written,
    /// When the commit began, by the engine's monotonic clock.
    pub(crate) begun: Duration,
}

/// The transaction that is being written, if there is one.
#[derive(Default)]
pub(crate) struct WriteOut {
    stage: RankedMutex<Stage, { rank::WRITE_OUT }>,
    changed: RankedCondvar,
}

#[derive(Default)]
enum Stage {
    #[default]
    Nothing,
    Writing(Writing),
    /// Every block is written; somebody makes the transaction durable.
    Finishing,
    /// Somebody failed. There is no second try: the engine is aborted.
    Failed,
}

struct Writing {
    /// What nobody has taken yet.
    batches: VecDeque<Blocks>,
    /// Batches that were not given back yet.
    left: usize,
    written: Written,
    closed: Closed,
    /// Memory for copies of blocks, for those who come next.
    spare: Vec<Vec<u8>>,
}

/// A part of the work that somebody has taken. Dropped before it is done, it fails the whole (WRITEOUT-2).
#[must_use]
struct Share<'w> {
    write_out: &'w WriteOut,
    done: bool,
}

/// Blocks to write.
struct Batch<'w> {
    share: Share<'w>,
    blocks: Blocks,
    /// Memory for their copies; its content is nobody's.
    copies: Vec<u8>,
}

/// What is left when every block is written.
struct Last<'w> {
    share: Share<'w>,
    closed: Closed,
    written: Written,
}

/// Tells the engine what the thread dies of that has this.
struct AbortsWhenItPanics<'e>(&'e Engine);

impl Drop for AbortsWhenItPanics<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = Error::new(ErrorKind::Aborted, "a thread died while it wrote a part of the commit");
            self.0.abort(&error, Location::caller());
        }
    }
}

impl Stage {
    fn goes_on(&self) -> bool {
        match self {
            Self::Writing(_) | Self::Finishing => true,
            Self::Nothing | Self::Failed => false,
        }
    }
}

impl WriteOut {
    fn begin(&self, mut closed: Closed, blocks: &[Arc<ExtentBuffer>], nothing: Written) {
        let written = std::mem::replace(&mut closed.written, nothing);
        let mut batches: VecDeque<Blocks> = blocks.chunks(BATCH).map(<[_]>::to_vec).collect();
        if batches.is_empty() {
            batches.push_back(Vec::new()); // whoever gives this one back writes the superblock
        }
        let mut stage = self.stage.lock();
        assert!(matches!(*stage, Stage::Nothing), "one transaction is written at a time (WRITEOUT-1)");
        let left = batches.len();
        *stage = Stage::Writing(Writing { batches, left, written, closed, spare: Vec::new() });
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.stage.lock().goes_on()
    }

    /// Whether there are batches that nobody has taken yet.
    fn has_batches(&self) -> bool {
        matches!(&*self.stage.lock(), Stage::Writing(writing) if !writing.batches.is_empty())
    }

    /// The next batch; if `alone`, only when nobody else has one.
    fn take(&self, alone: bool) -> Option<Batch<'_>> {
        let mut stage = self.stage.lock();
        let Stage::Writing(writing) = &mut *stage else { return None };
        if alone && writing.left > writing.batches.len() {
            return None;
        }
        let blocks = writing.batches.pop_front()?;
        let copies = writing.spare.pop().unwrap_or_default();
        Some(Batch { share: Share { write_out: self, done: false }, blocks, copies })
    }

    /// Waits until others have given back what they took. False when one of them failed.
    fn wait(&self) -> bool {
        let mut stage = self.stage.lock();
        if stage.goes_on() {
            stage = gate::passing(Reason::Commit, || self.changed.wait_while(stage, |stage| stage.goes_on()));
        }
        matches!(*stage, Stage::Nothing)
    }

    fn end(&self, stage: Stage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.write_out.end(Stage::Failed);
        }
    }
}

impl<'w> Batch<'w> {
    /// Gives it back as written. When it was the last one, what is left is the caller's.
    fn give_back(self, theirs: Written) -> Option<Last<'w>> {
        let Self { mut share, copies, .. } = self;
        let mut stage = share.write_out.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Finishing) {
            Stage::Writing(Writing { left: 1, written, closed, .. }) => {
                drop(stage);
                return Some(Last { share, closed, written: written.and(theirs) });
            }
            Stage::Writing(mut writing) => {
                writing.left -= 1;
                writing.written = writing.written.and(theirs);
                writing.spare.push(copies);
                *stage = Stage::Writing(writing);
            }
            failed => *stage = failed,
        }
        share.done = true;
        None
    }
}

impl Engine {
    /// Begins to write out a transaction that was closed; the one before is over.
    pub(super) fn begin_write_out(&self, closed: Closed, blocks: &[Arc<ExtentBuffer>]) {
        self.pipeline.phase.enter(CommitPhase::WriteOut);
        self.pipeline.write_out.begin(closed, blocks, self.volume().nothing_written());
        self.wake_background();
    }

    /// Whether there is something of a transaction to be written out that nobody has taken yet.
    pub(crate) fn has_batches(&self) -> bool {
        self.pipeline.write_out.has_batches()
    }

    /// Writes a batch, if a transaction is being written out and nobody else is at it: who writes to a file stands in line
    /// there, and there is other work to do.
    /// Errors: those of the devices.
    pub(super) fn share_write_out(&self) -> Result<()> {
        if self.store().writing_bytes() > 0 {
            self.write_a_batch(true)?;
        }
        Ok(())
    }

    /// Writes what is left of the transaction that is being written out, and waits until it is durable.
    /// Errors: those of the devices; that others failed.
    pub(super) fn end_write_out(&self) -> Result<()> {
        while self.write_a_batch(false)? {}
        if self.pipeline.write_out.wait() {
            return Ok(());
        }
        self.check_writable()?;
        unreachable!("whoever fails aborts before anybody learns of it (WRITEOUT-2)")
    }

    /// False when there is no batch to take; if `alone`, also when somebody else has one.
    pub(crate) fn write_a_batch(&self, alone: bool) -> Result<bool> {
        panics::note_places();
        let Some(mut batch) = self.pipeline.write_out.take(alone) else { return Ok(false) };
        let _aborts = AbortsWhenItPanics(self); // dropped before the batch
        // Aborted before the share is dropped: whoever waits for it asks why.
        let written = self.or_abort(self.write_batch(&mut batch))?;
        if let Some(Last { mut share, closed, written }) = batch.give_back(written) {
            self.or_abort(self.make_durable(closed, written))?;
            share.done = true;
            self.pipeline.write_out.end(Stage::Nothing);
        }
        Ok(true)
    }

    fn write_batch(&self, batch: &mut Batch<'_>) -> Result<Written> {
        let Batch { blocks, copies, .. } = batch;
        copies.clear();
        for buffer in blocks.iter() {
            // Briefly and one at a time: holding several node locks here could deadlock with a search.
            let mut guard = Arc::clone(buffer).write();
            guard.block_mut().mark_written();
            seal(guard.bytes_mut(), self.checksum_type());
            copies.extend_from_slice(guard.block().bytes());
        }
        let copies = copies.chunks(self.node_size() as usize);
        let copies: Vec<(Logical, &[u8])> =
            blocks.iter().zip(copies).map(|(buffer, copy)| (buffer.logical(), copy)).collect();
        let written = self.volume().write_tree_blocks(&copies)?;
        self.store().written(blocks);
        Ok(written)
    }

    fn make_durable(&self, mut closed: Closed, written: Written) -> Result<()> {
        let phase = &self.pipeline.phase;
        phase.enter(CommitPhase::Flush);
        let durable = self.volume().flush(written)?;
        phase.enter(CommitPhase::Publish);
        let published = self.volume().publish(&mut closed.superblock, durable)?;
        phase.enter(CommitPhase::Finish);
        let committed = self.volume().finish(published)?;
        phase.enter(CommitPhase::Release);
        self.pipeline.roots.publish(closed.generation, closed.pinned, &committed);
        self.release_unpinned()?;
        self.release_device_extents();
        phase.enter(CommitPhase::Running);
        let now = self.env().monotonic();
        let took = now.saturating_sub(closed.begun);
        self.pipeline.turns.durable(closed.generation, took, now);
        self.counters.committed(closed.block_count, took);
        Ok(())
    }

    /// Gives back pinned space that no durable superblock and no reader of an old root needs.
    fn release_unpinned(&self) -> Result<()> {
        self.pipeline.roots.take_releasable().into_iter().try_for_each(|(at, len)| self.space.unpin(at, len))
    }
}
