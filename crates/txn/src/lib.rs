//! Transactions: changing many trees as one.
//!
//! An [`Engine`] is an open filesystem below the level of files. Many threads change trees at once, each with a
//! [`Handle`] on the one running transaction; [`Engine::commit`] makes everything durable that ended before. The
//! mechanisms live in rooms of their own, each with its essay at the head of its file:
//!
//! | file | mechanism |
//! |---|---|
//! | `engine` | composes the others: what several of them do together |
//! | `engine/reserve`, `space_info/reservations` | metadata is promised before a handle begins |
//! | `space_info/advance` | each thread is promised more than it asks for, where there is plenty |
//! | `engine/delalloc`, `space_info/delalloc` | room for data that is written later |
//! | `engine/make_room`, `reclaim` | who finds no room has others do what frees space |
//! | `handle`, `units`, `flush_policy` | the right to change trees, what it asks for and how far that goes; the trees' host for copy on write |
//! | `extent_tree` | who refers to which extent, and changes of that which wait |
//! | `run_refs` | putting them into the tree, in steps beside those who work |
//! | `space_info` | block groups, their sums, their free space in memory |
//! | `free_space_tree`, `block_group_items` | the same on disk |
//! | `engine/convert` | having it told in other trees |
//! | `chunk_allocator` | where block groups come from and go to |
//! | `engine/data`, `data_extent`, `csum_tree` | data extents and their checksums |
//! | `transaction` | the generation and the gate |
//! | `commit` | closing a transaction, the way to durability, and what old roots still need |
//! | `backref_walk` | from an extent to its users |
//! | `qgroup`, `engine/quota` | quota groups: what subvolumes have, and their limits |
//! | `background` | what has to be done and nobody waits for, in steps |
//! | `abort` | the end of all writing, with its reason and its place |
//! | `roots`, `root_items` | the root tree; trees by their ids |
//! | `tree_log`, `engine/log`, `engine/replay` | what fsync leaves for the next one who opens the filesystem |
//! | `discard` | telling devices what nobody needs any more |
//! | `counters` | what it did |
//!
//! # Locking
//! Inode and range locks of the layer above, a turn to commit, then the transaction's gate (a handle), the turn to run
//! delayed refs, the chunk mutex, node locks with a locked head before those of the extent tree, then the short locks of `creamery_base::lock::rank`. Whoever holds a handle never waits for a commit.

mod abort;
mod background;
mod backref_walk;
mod block_group_items;
mod chunk_allocator;
mod commit;
mod counters;
mod csum_tree;
mod data_extent;
mod discard;
mod drop_tree;
mod engine;
mod extent_tree;
mod flush_policy;
mod free_space_tree;
mod fsid_change;
mod handle;
mod held;
mod nocow_writer;
mod qgroup;
mod reclaim;
mod root_items;
mod roots;
mod run_refs;
mod snapshot;
mod space_info;
mod transaction;
mod tree_log;
mod units;

pub use abort::Abort;
pub use background::{BackgroundReport, BackgroundThreads, BackgroundWork, Due};
pub use backref_walk::{ExtentUser, ExtentUsers};
pub use chunk_allocator::DeviceReport;
pub use commit::{CommitParticipant, CommitPhase};
pub use data_extent::DataExtent;
pub use discard::{DiscardPolicy, Trimmed};
pub use drop_tree::{Dropping, SubvolumeDrop};
pub use engine::{
    Conversion, DataCsums, DurableTree, DurableTrees, Engine, EngineCounters, EngineMemory, FoundCsums,
    GroupSum, KeptGroups, Options, Replay, Sharing, SpaceReport,
};
pub use flush_policy::FlushPolicy;
pub use fsid_change::{FsidProgress, change_fsid};
pub use handle::Handle;
pub use nocow_writer::NocowWriter;
pub use qgroup::{Qgroup, QgroupCounters, QgroupLimits, QgroupUsage, QuotaMode, QuotaStatus};
pub use reclaim::Reclaimer;
pub use snapshot::NewSnapshot;
pub use space_info::{DelallocReservation, KeptPromise, SpaceKind};
pub use tree_log::{InodeLog, LogBase, LogGroup, LogLink, LogScope, LogTicket, LogTree};
pub use units::Units;
