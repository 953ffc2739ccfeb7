//! Writing a closed transaction out: its blocks in batches, on every thread that comes by, then the superblock.
//!
//! The working threads write a commit that falls due in the middle of the work: a thread that starts a handle takes one
//! batch first, if no other thread has one, until none is left. So no thread falls behind the others by a whole commit,
//! no thread waits for a commit beyond its critical section, and the engine needs no thread of its own. Background threads
//! (`background`), if there are any, take batches, too. A caller that asks for a commit takes batches until none is left, and waits for those that
//! other threads took.
//!
//! The thread that gives back the last batch makes the transaction durable, in the order that the volume's types demand:
//!
//! ```text
//!   the last batch is written  -> Written
//!   flush all devices          -> Durable
//!   write superblocks          -> Published
//!   flush all devices          -> Committed
//!   unpin what the transaction freed
//! ```
//! Without working threads and without background threads a write-out rests; an explicit commit, or the next one that falls
//! due, ends it first.
//!
//! # Invariants
//! - WRITEOUT-1: at most one transaction is being written; the next one is closed when its superblock is durable.
//! - WRITEOUT-2: a batch that was taken is given back, written or failed, however its thread leaves. A failed
//!   one ends the write-out and aborts the engine; no thread goes on waiting for it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedMutex, rank};
use creamery_base::{Generation, Logical, Result, memory, panics};
use creamery_device::{AlignedBuffer, SharedBytes};
use creamery_format::Superblock;
use creamery_tree::{BufferStore, ExtentBuffer};
use creamery_volume::{Committed, Volume, WriteBatch, Written};

use super::CommitPhase;
use crate::transaction::{AbortsWhenItPanics, Transaction};

/// Blocks written in one batch: neighbours go to the device together, and a thread that only came by is not kept for long.
const BATCH: usize = 32;

pub(crate) type BlockList = Vec<Arc<ExtentBuffer>>;

/// The output of the commit's critical section besides the blocks to write.
pub(crate) struct Closed {
    pub(crate) generation: Generation,
    pub(crate) superblock: Superblock,
    pub(crate) block_count: usize,
    pub(crate) pinned: Vec<(Logical, u64)>,
    /// Data that its metadata refers to.
    pub(crate) written: Written,
    /// When the commit began, by the engine's monotonic clock.
    pub(crate) begun: Duration,
}

/// Called with a transaction when it is durable.
pub(crate) type CommittedPort<'e> = dyn Fn(Closed, &Committed) -> Result<()> + Sync + 'e;

/// The parts of the engine that writing a transaction takes.
#[derive(Clone, Copy)]
pub(crate) struct WriteOutPorts<'e> {
    pub(crate) transaction: &'e Transaction,
    pub(crate) volume: &'e Volume,
    pub(crate) store: &'e BufferStore,
    pub(crate) committed: &'e CommittedPort<'e>,
}

/// The transaction that is being written, if there is one.
#[derive(Default)]
pub(crate) struct WriteOut {
    stage: RankedMutex<WriteStage, { rank::WRITE_OUT }>,
    changed: RankedCondvar,
}

#[derive(Default)]
enum WriteStage {
    #[default]
    Nothing,
    Writing(Writing),
    /// Every block is written; one thread makes the transaction durable.
    Finishing,
    /// A thread failed. There is no second try: the engine is aborted.
    Failed,
}

struct Writing {
    /// Batches that no thread has taken yet.
    batches: VecDeque<BlockList>,
    /// Batches that were not given back yet.
    left: usize,
    written: Written,
    closed: Closed,
    /// Memory for copies of blocks, for the next batches.
    spare: Vec<Arc<AlignedBuffer>>,
}

/// A part of the work that a thread has taken. If it is dropped before it is done, the whole write-out fails (WRITEOUT-2).
#[must_use]
struct Share<'w> {
    write_out: &'w WriteOut,
    done: bool,
}

/// Blocks to write.
struct Batch<'w> {
    share: Share<'w>,
    blocks: BlockList,
    /// Memory for their copies.
    copies: Arc<AlignedBuffer>,
}

/// The rest of the work when every block is written.
struct LastWork<'w> {
    share: Share<'w>,
    closed: Closed,
    written: Written,
}

impl WriteStage {
    fn goes_on(&self) -> bool {
        match self {
            Self::Writing(_) | Self::Finishing => true,
            Self::Nothing | Self::Failed => false,
        }
    }
}

impl WriteOut {
    /// Begins to write out a transaction that was closed; the one before is over.
    pub(crate) fn begin(
        &self,
        transaction: &Transaction,
        mut closed: Closed,
        blocks: &[Arc<ExtentBuffer>],
        nothing: Written,
    ) {
        transaction.enter(CommitPhase::WriteOut);
        let written = std::mem::replace(&mut closed.written, nothing);
        let mut batches: VecDeque<BlockList> = blocks.chunks(BATCH).map(<[_]>::to_vec).collect();
        if batches.is_empty() {
            batches.push_back(Vec::new()); // the thread that gives it back writes the superblock
        }
        let mut stage = self.stage.lock();
        assert!(matches!(*stage, WriteStage::Nothing), "WRITEOUT-1: one transaction is written at a time");
        let left = batches.len();
        *stage = WriteStage::Writing(Writing { batches, left, written, closed, spare: Vec::new() });
    }

    /// Plants a fault: a batch is taken, and dropped.
    #[cfg(feature = "faults")]
    pub(crate) fn lose_a_batch(&self) {
        drop(self.take(false));
    }

    pub(crate) fn is_over(&self) -> bool {
        !self.stage.lock().goes_on()
    }

    /// Memory in use besides the blocks, bytes: the lists of blocks with memory for copies, and the list of freed extents.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let WriteStage::Writing(writing) = &*self.stage.lock() else { return (0, 0) };
        let lists: u64 =
            writing.batches.iter().map(|batch| memory::vec::<Arc<ExtentBuffer>>(batch.capacity())).sum();
        let copies: u64 = writing.spare.iter().map(|copies| memory::vec::<u8>(copies.len())).sum();
        let queue = memory::vec::<BlockList>(writing.batches.capacity());
        (queue + lists + copies, memory::vec::<(Logical, u64)>(writing.closed.pinned.capacity()))
    }

    /// Whether there are batches that no thread has taken yet.
    pub(crate) fn has_batches(&self) -> bool {
        matches!(&*self.stage.lock(), WriteStage::Writing(writing) if !writing.batches.is_empty())
    }

    /// Takes the next batch; if `alone`, only when no other thread has one.
    fn take(&self, alone: bool) -> Option<Batch<'_>> {
        let mut stage = self.stage.lock();
        let WriteStage::Writing(writing) = &mut *stage else { return None };
        if alone && writing.left > writing.batches.len() {
            return None;
        }
        let blocks = writing.batches.pop_front()?;
        let copies = writing.spare.pop().unwrap_or_else(|| Arc::new(AlignedBuffer::zeroed(0)));
        Some(Batch { share: Share { write_out: self, done: false }, blocks, copies })
    }

    /// Waits until the other threads have given back their batches. False when one of them failed.
    fn wait(&self) -> bool {
        let mut stage = self.stage.lock();
        if stage.goes_on() {
            stage = self.changed.pass_while(Reason::Commit, stage, |stage| stage.goes_on());
        }
        matches!(*stage, WriteStage::Nothing)
    }

    fn end(&self, stage: WriteStage) {
        *self.stage.lock() = stage;
        self.changed.notify_all();
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.write_out.end(WriteStage::Failed);
        }
    }
}

impl<'w> Batch<'w> {
    /// Gives the batch back as written. After the last one, returns the rest of the work.
    fn give_back(self, theirs: Written) -> Option<LastWork<'w>> {
        let Self { mut share, copies, .. } = self;
        let mut stage = share.write_out.stage.lock();
        match std::mem::replace(&mut *stage, WriteStage::Finishing) {
            WriteStage::Writing(Writing { left: 1, written, closed, .. }) => {
                drop(stage);
                return Some(LastWork { share, closed, written: written.and(theirs) });
            }
            WriteStage::Writing(mut writing) => {
                writing.left -= 1;
                writing.written = writing.written.and(theirs);
                writing.spare.push(copies);
                *stage = WriteStage::Writing(writing);
            }
            failed => *stage = failed,
        }
        share.done = true;
        None
    }
}

impl WriteOut {
    /// Writes a batch, if a transaction is being written out and no other thread writes one.
    ///
    /// # Errors
    /// Those of the devices.
    pub(crate) fn share(&self, ports: &WriteOutPorts<'_>) -> Result<()> {
        self.write_a_batch(ports, true).map(|_| ())
    }

    /// Writes a batch, if there is one, also beside other threads.
    ///
    /// # Errors
    /// Those of the devices.
    pub(crate) fn step(&self, ports: &WriteOutPorts<'_>) -> Result<()> {
        self.write_a_batch(ports, false).map(|_| ())
    }

    /// Writes the remaining batches of the transaction that is being written out, and waits until it is durable.
    ///
    /// # Errors
    /// Those of the devices; the failure of another thread.
    pub(crate) fn complete(&self, ports: &WriteOutPorts<'_>) -> Result<()> {
        while self.write_a_batch(ports, false)? {}
        if self.wait() {
            return Ok(());
        }
        ports.transaction.check_not_aborted()?;
        unreachable!("WRITEOUT-2: whoever fails aborts before anybody learns of it")
    }

    /// Writes the next batch. False when there is none to take.
    fn write_a_batch(&self, ports: &WriteOutPorts<'_>, alone: bool) -> Result<bool> {
        panics::note_places();
        let Some(mut batch) = self.take(alone) else { return Ok(false) };
        let _aborts = AbortsWhenItPanics(ports.transaction); // dropped before the batch
        // Aborts before the share is dropped: threads that wait for it read the reason.
        let written = ports.transaction.or_abort(ports.write(&mut batch))?;
        if let Some(LastWork { mut share, closed, written }) = batch.give_back(written) {
            let _aborts = AbortsWhenItPanics(ports.transaction); // dropped before this share, too
            ports.transaction.or_abort(ports.make_durable(closed, written))?;
            share.done = true;
            self.end(WriteStage::Nothing);
        }
        Ok(true)
    }
}

impl WriteOutPorts<'_> {
    fn write(&self, batch: &mut Batch<'_>) -> Result<Written> {
        let Batch { blocks, copies, .. } = batch;
        let node_size = self.volume.node_size() as usize;
        // A device drops the memory when it answers (DEV-3). If one keeps it, the batch gets new memory.
        if copies.len() < blocks.len() * node_size || Arc::get_mut(copies).is_none() {
            *copies = Arc::new(AlignedBuffer::zeroed(blocks.len() * node_size));
        }
        let writes = sealed(self.volume, blocks, copies);
        let written = self.volume.write(writes)?;
        self.store.written(blocks);
        Ok(written)
    }

    fn make_durable(&self, mut closed: Closed, written: Written) -> Result<()> {
        self.transaction.enter(CommitPhase::Flush);
        let durable = self.volume.flush(written)?;
        self.transaction.enter(CommitPhase::Publish);
        let published = self.volume.publish(&mut closed.superblock, durable)?;
        self.transaction.enter(CommitPhase::Finish);
        let committed = self.volume.finish(published)?;
        self.transaction.enter(CommitPhase::Release);
        (self.committed)(closed, &committed)
    }
}

/// Marks blocks that do not change any more as written, and gives them their checksums. The writes are of copies, in
/// memory that nothing else uses.
pub(crate) fn sealed(
    volume: &Volume,
    blocks: &[Arc<ExtentBuffer>],
    copies: &mut Arc<AlignedBuffer>,
) -> WriteBatch {
    let node_size = volume.node_size() as usize;
    let memory = Arc::get_mut(copies).expect("nobody else has it");
    for (buffer, copy) in blocks.iter().zip(memory.chunks_mut(node_size)) {
        // Briefly and one at a time: holding several node locks here could deadlock with a search.
        let mut guard = Arc::clone(buffer).write();
        guard.seal(volume.checksum_type());
        copy.copy_from_slice(guard.block().bytes());
    }
    let copies = SharedBytes::from(Arc::clone(copies));
    let mut writes = WriteBatch::default();
    for (number, buffer) in blocks.iter().enumerate() {
        let copy = copies.slice(number * node_size..(number + 1) * node_size);
        writes.add_tree_block(buffer.logical(), copy);
    }
    writes
}
