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
//! transaction, so it comes to rest; its passes are bounded all the same. No other thread works with the gate closed, so as many refs as possible
//! run before (`run_refs`), down to about a millisecond's work.
//!
//! This module has the owners. The engine defines the order: `engine/commit` starts commits when they fall due (`commit_due`),
//! `engine/settle` is the critical section.
//!
//! | file | |
//! |---|---|
//! | `phase` | the phases, and the state after a crash in each |
//! | `turn` | one commit at a time; a commit serves all threads that asked before it |
//! | `participant` | deferred work of the layers above |
//! | `next_superblock` | the next superblock |
//! | `write_out` | from memory to the platter |
//! | `commit_root` | space that old roots still need |
//!
//! # Invariants
//! - COMMIT-1: when the gate opens, every block reachable from the new superblock is either durable or in the
//!   list to be written, and no delayed ref, pending chunk or unrecorded root is left.
//! - COMMIT-2: a block in the list to be written does not change any more, except its checksum and WRITTEN mark. Shown by
//!   `commits_that_fell_due_survive_every_power_cut`.

mod commit_root;
mod next_superblock;
mod participant;
mod phase;
mod turn;
mod write_out;

use creamery_base::Generation;
use creamery_tree::Readers;

pub use participant::CommitParticipant;
pub use phase::CommitPhase;

pub(crate) use commit_root::CommitRoots;
pub(crate) use next_superblock::{NextSuperblock, SuperblockUpdate};
pub(crate) use participant::Participants;
pub(crate) use phase::PhaseNow;
pub(crate) use turn::{CommitTurn, CommitTurns};
pub(crate) use write_out::{BlockList, Closed, CommittedPort, WriteOut, WriteOutPorts, sealed};

/// State that commits share.
pub(crate) struct CommitPipeline {
    pub(crate) turns: CommitTurns,
    pub(crate) roots: CommitRoots,
    pub(crate) participants: Participants,
    pub(crate) write_out: WriteOut,
}

impl CommitPipeline {
    /// Creates the pipeline; transaction `durable` is the last durable one.
    pub(crate) fn new(readers: Readers, durable: Generation) -> Self {
        Self {
            turns: CommitTurns::new(durable),
            roots: CommitRoots::new(readers, durable),
            participants: Participants::default(),
            write_out: WriteOut::default(),
        }
    }

    /// Memory in use: for writing a transaction out, and for the lists of freed extents; bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let (write_out, freed) = self.write_out.memory();
        (write_out, freed + self.roots.memory())
    }
}
