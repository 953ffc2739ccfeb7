//! Transactions: changing many trees as one.
//!
//! An [`Engine`] is an open filesystem below the level of files. Many threads change trees at once, each with a
//! [`Handle`] on the one running transaction; [`Engine::commit`] makes everything durable that ended before. The
//! mechanisms live in rooms of their own, each with its essay at the head of its file:
//!
//! | file | mechanism |
//! |---|---|
//! | `reserve` | metadata is promised before a handle begins |
//! | `reclaim` | who finds no room has others do what frees space |
//! | `advance` | each thread is promised more than it asks for, where there is plenty |
//! | `handle` | the right to change trees; the trees' host for copy on write |
//! | `extent_tree` | who refers to which extent, and changes of that which wait |
//! | `run_refs` | putting them into the tree, in steps beside those who work |
//! | `free_space`, `free_space_tree` | free space in memory and on disk |
//! | `block_group`, `space`, `chunks`, `device_space` | where space comes from |
//! | `data`, `csum_tree` | data extents and their checksums |
//! | `transaction` | the generation and the gate |
//! | `commit` | closing a transaction, the way to durability, and what old roots still need |
//! | `abort` | the end of all writing, with its reason and its place |
//! | `roots`, `open` | the root tree; opening |
//!
//! # Locking
//! Inode and range locks of the layer above, then the transaction's gate (a handle), then the chunk mutex or node
//! locks, then the short locks of `creamery_base::lock::rank`. Whoever holds a handle never waits for a commit.

mod abort;
mod advance;
mod block_group;
mod chunks;
mod commit;
mod counters;
mod csum_tree;
mod data;
mod device_space;
mod engine;
mod extent_tree;
#[cfg(feature = "faults")]
mod fault;
mod free_space;
mod free_space_tree;
mod handle;
mod open;
mod reclaim;
mod reserve;
mod roots;
mod run_refs;
mod space;
mod transaction;

pub use abort::Abort;
pub use commit::{CommitParticipant, CommitPhase, CommitRootGuard};
pub use counters::{EngineCounters, SpaceReport};
pub use data::{DataCsums, DataExtent};
pub use engine::{Engine, Options};
pub use handle::Handle;
pub use reclaim::Reclaimer;
pub use reserve::{KeptPromise, Units};
pub use space::SpaceKind;
