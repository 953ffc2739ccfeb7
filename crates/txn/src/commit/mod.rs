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
//! transaction, so it comes to rest; its passes are bounded all the same. With the gate closed nobody works, so what can
//! be run before is (`run_refs`), down to about a millisecond's work.
//!
//! This room has the owners. The order of all that is the engine's: who asks for a commit and when one falls due is in
//! `engine/commit`, the critical section in `engine/settle`.
//!
//! | file | |
//! |---|---|
//! | `phase` | what is done when, and what a crash leaves |
//! | `turn` | one at a time; who was overtaken goes home |
//! | `participant` | what layers above put off |
//! | `next_superblock` | what the superblock will say |
//! | `write_out` | from memory to the platter |
//! | `commit_root` | what old roots still need |
//!
//! # Invariants
//! - COMMIT-1: when the gate opens, every block reachable from the new superblock is either durable or in the
//!   list to be written, and no delayed ref, pending chunk or unrecorded root is left.
//! - COMMIT-2: a block in the list to be written is not changed any more but for its checksum and WRITTEN mark. Shown by
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
pub(crate) use next_superblock::{Facts, NextSuperblock};
pub(crate) use participant::Participants;
pub(crate) use phase::PhaseNow;
pub(crate) use turn::{CommitTurn, CommitTurns};
pub(crate) use write_out::{Blocks, Closed, CommittedPort, WriteOut, WriteOutPorts, sealed};

/// What commits share.
pub(crate) struct CommitPipeline {
    pub(crate) turns: CommitTurns,
    pub(crate) roots: CommitRoots,
    pub(crate) participants: Participants,
    pub(crate) write_out: WriteOut,
}

impl CommitPipeline {
    /// Transaction `durable` is the last one.
    pub(crate) fn new(readers: Readers, durable: Generation) -> Self {
        Self {
            turns: CommitTurns::new(durable),
            roots: CommitRoots::new(readers, durable),
            participants: Participants::default(),
            write_out: WriteOut::default(),
        }
    }

    /// What it takes in memory: for writing a transaction out, and the lists of what transactions freed; bytes.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let (write_out, freed) = self.write_out.memory();
        (write_out, freed + self.roots.memory())
    }
}
