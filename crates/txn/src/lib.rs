//! Transactions: changing many trees as one.
//!
//! An [`Engine`] is an open filesystem below the level of files. Many threads change trees at once, each with a
//! [`Handle`] on the one running transaction; [`Engine::commit`] makes every change durable that ended before the call. Each
//! mechanism has its own module, with an essay at the head of its file:
//!
//! | file | mechanism |
//! |---|---|
//! | `engine` | composes the others: operations that span several of them |
//! | `engine/reserve`, `space_info/reservations` | metadata is reserved before a handle begins |
//! | `headroom` | how much may still be promised, and what a commit may need |
//! | `space_info/thread_reserve` | each thread reserves more than it asks for, where there is plenty |
//! | `engine/delalloc`, `space_info/delalloc` | room for data that is written later |
//! | `engine/make_room`, `reclaim` | a thread that finds no room runs work that frees space |
//! | `handle`, `units`, `flush_policy` | the right to change trees, its size and how far it goes for room; the trees' host for copy on write |
//! | `extent_tree` | references to extents, and the queued changes of them |
//! | `run_refs` | applies queued changes to the extent tree, in steps beside the working threads |
//! | `space_info` | block groups, their sums, their free space in memory |
//! | `free_space_tree`, `block_group_items`, `group_records`, `group_loader` | block groups and free space on disk |
//! | `idle_groups` | removes empty block groups |
//! | `conversion`, `engine/convert` | moves free space or block groups to other trees |
//! | `chunk_allocator` | where block groups come from and go to |
//! | `engine/data`, `data_extent`, `data_io`, `csum_tree` | data extents, their bytes and their checksums |
//! | `transaction` | the generation and the gate |
//! | `commit` | closing a transaction, the way to durability, and the space that old roots still need |
//! | `commit_due` | when a commit falls due |
//! | `backref_walk` | from an extent to its users |
//! | `qgroup`, `quota_accounting`, `engine/quota` | quota groups: usage of subvolumes, and their limits |
//! | `background` | work that no caller waits for, in steps |
//! | `abort` | the end of all writing, with its reason and its place |
//! | `roots`, `root_items` | the root tree; trees by their ids |
//! | `tree_log`, `log_writer`, `engine/replay` | the log that fsync leaves for the next open of the filesystem |
//! | `discard`, `discarder` | discards free space on the devices |
//! | `counters` | counts of work done |
//!
//! # Locking
//! Inode and range locks of the layer above, a turn to commit, then the transaction's gate (a handle), the turn to run
//! delayed refs, the chunk mutex, node locks with a locked head before those of the extent tree, then the short locks of `creamery_base::lock::rank`.
//! A thread that holds a handle never waits for a commit.

mod abort;
mod background;
mod backref_walk;
mod block_group_items;
mod chunk_allocator;
mod commit;
mod commit_due;
mod conversion;
mod counters;
mod csum_tree;
mod data_extent;
mod data_io;
mod discard;
mod discarder;
mod drop_tree;
mod engine;
mod extent_tree;
mod flush_policy;
mod free_space_tree;
mod fsid_change;
mod group_loader;
mod group_records;
mod handle;
mod headroom;
mod held;
mod idle_groups;
mod log_writer;
mod nocow_writer;
mod qgroup;
mod quota_accounting;
mod reclaim;
mod reserve_items;
mod root_items;
mod roots;
mod run_refs;
mod snapshot;
mod space_caches;
mod space_info;
mod transaction;
mod transaction_port;
mod tree_log;

pub use abort::Abort;
pub use background::{Background, BackgroundReport, BackgroundThreads, BackgroundWork, Due};
pub use backref_walk::{ExtentUser, ExtentUsers};
pub use chunk_allocator::DeviceReport;
pub use commit::{CommitParticipant, CommitPhase};
pub use conversion::Conversion;
pub use data_extent::DataExtent;
pub use data_io::{DataCsums, DataIo, FoundCsums};
pub use discard::{DiscardPolicy, Trimmed};
pub use drop_tree::{Dropping, SubvolumeDrop};
pub use engine::{
    DurableTree, DurableTrees, Engine, EngineCounters, EngineMemory, GroupSum, Options, Replay, Sharing,
    SpaceReport,
};
pub use flush_policy::FlushPolicy;
pub use fsid_change::{FsidProgress, change_fsid};
pub use handle::Handle;
pub use log_writer::LogWriter;
pub use nocow_writer::NocowWriter;
pub use qgroup::{Qgroup, QgroupCounters, QgroupLimits, QgroupUsage, QuotaMode, QuotaStatus};
pub use quota_accounting::{KeptGroups, QuotaAccounting};
pub use reclaim::Reclaimer;
pub use reserve_items::ReserveItems;
pub use snapshot::NewSnapshot;
pub use space_info::{BlockReserve, DelallocReservation, SpaceKind};
pub use tree_log::{InodeLog, LogBase, LogGroup, LogLink, LogScope, LogTicket, LogTree};
