//! One open filesystem below the level of files: its trees, its space, its running transaction.
//!
//! The engine composes. Each stateful component (an owner) has a module of its own and does not depend on the engine. A component that
//! reckons with several owners or changes them, as `headroom` or `quota_accounting`, borrows them (`compose`), and begins handles of its
//! own through a port (`port`). Operations that span more than that are methods of the engine, here:
//!
//! | file | operation |
//! |---|---|
//! | `open` | makes the owners from the devices |
//! | `compose`, `port` | lend each component the owners that it uses, and let it begin handles |
//! | `refusal` | reasons that forbid writing |
//! | `left_out` | opens a damaged filesystem without some trees |
//! | `handles`, `reserve`, `make_room` | begin handles, with reserved room |
//! | `data` | hands out space for data |
//! | `delalloc` | keeps room for data that is written later |
//! | `discard` | discards all free space |
//! | `drop_tree` | drops deleted subvolumes in steps |
//! | `convert` | converts the trees that describe space |
//! | `grow` | takes more of a device |
//! | `space` | makes block groups |
//! | `background` | work that no caller waits for |
//! | `commit`, `settle` | close a transaction and make it durable |
//! | `quota` | makes room in the limits of subvolumes, and takes snapshots |
//! | `replay` | brings logs into the trees |
//! | `space_caches` | removes caches that Linux would believe |
//! | `abort` | ends all writing |
//! | `durable` | shows the trees of the last durable commit |
//! | `users` | finds the users of data |
//! | `statistics`, `memory` | report counts, and the memory in use |
//!
//! Only these files name [`Engine`]. The rules are in the modules of the owners.

mod abort;
mod background;
mod commit;
mod compose;
mod convert;
mod data;
mod delalloc;
mod discard;
mod drop_tree;
mod durable;
#[cfg(feature = "faults")]
mod fault;
mod grow;
mod handles;
mod left_out;
mod make_room;
mod memory;
mod open;
mod port;
mod quota;
mod refusal;
mod replay;
mod reserve;
mod settle;
mod space;
mod space_caches;
mod statistics;
mod users;

pub use durable::{DurableTree, DurableTrees};
pub use memory::EngineMemory;
pub use replay::Replay;
pub use statistics::{EngineCounters, GroupSum, SpaceReport};
pub use users::Sharing;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::{Env, Error, ErrorKind, Generation, Result, SystemEnv, TreeId, panics};
use creamery_codec::ChecksumType;
use creamery_format::{Incompat, RawRootItem};
use creamery_tree::{BufferStore, Tree};
use creamery_volume::Volume;

use crate::background::{Background, CommitTimer};
use crate::block_group_items::BlockGroupItems;
use crate::chunk_allocator::{ChunkAllocator, DeviceSpace};
use crate::commit::{CommitPipeline, NextSuperblock};
use crate::conversion::Conversions;
use crate::counters::Counters;
use crate::csum_tree::CsumTree;
use crate::discard::Discards;
use crate::extent_tree::ExtentTree;
use crate::free_space_tree::FreeSpaceTree;
use crate::qgroup::Qgroups;
use crate::reclaim::{Reclaimers, RoomClaims};
use crate::reserve_items::ReserveItems;
use crate::roots::{RootTree, Switches};
use crate::run_refs::RefRunner;
use crate::space_info::{DelallocAccount, Reservations, Space};
use crate::transaction::Transaction;
use crate::tree_log::TreeLogs;

/// How an engine runs.
///
/// ```
/// let options = creamery_txn::Options { read_only: true, ..Default::default() };
/// assert!(options.cache_bytes > 0);
/// ```
#[derive(Clone)]
pub struct Options {
    /// Never write.
    pub read_only: bool,
    /// Clean tree blocks to keep.
    pub cache_bytes: u64,
    /// Dirty tree blocks to have at most, those that a commit is writing out among them; a commit is due at three quarters.
    pub dirty_bytes: u64,
    /// Extents with queued changes of references at which a commit is due. From a quarter of it on, handles run some of them.
    pub delayed_refs_max: usize,
    /// Insertions let go of parents before they search the leaf. Off, to measure what that is worth.
    pub early_unlock: bool,
    /// Batches of items that continue the thread's last one go straight to its leaf. Off, to measure what that is worth.
    pub fingers: bool,
    /// Walks through trees read ahead. Off, to measure what that is worth.
    pub read_ahead: bool,
    /// A sync writes to a log, where that is enough. Off, every sync is a commit (Linux' `notreelog`).
    pub tree_log: bool,
    /// A sync waits a moment for others before it writes a log, when the last log served several: on a rotational device one
    /// more write costs more than the wait (Linux' `nossd`).
    pub gather_syncs: bool,
    /// Refuses to read data that should have checksums where the checksum tree is unreadable and left out: a later commit may have
    /// reused the space of an earlier one.
    pub earlier_commit: bool,
    /// Measures the times of locks on tree blocks.
    pub lock_times: bool,
    /// Clock and randomness.
    pub env: Arc<dyn Env>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            cache_bytes: 256 << 20,
            dirty_bytes: 128 << 20,
            delayed_refs_max: 200_000,
            early_unlock: true,
            fingers: true,
            read_ahead: true,
            tree_log: true,
            gather_syncs: false,
            earlier_commit: false,
            lock_times: false,
            env: Arc::new(SystemEnv),
        }
    }
}

/// An open filesystem's transactions and trees. Files and directories belong to the layer above.
///
/// ```no_run
/// # fn open(volume: creamery_volume::Volume) -> creamery_base::Result<()> {
/// let engine = creamery_txn::Engine::open(volume, creamery_txn::Options::default())?;
/// println!("transaction {} runs", engine.generation());
/// engine.commit()?;
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    volume: Arc<Volume>,
    store: Arc<BufferStore>,
    options: Options,
    root_tree: RootTree,
    chunk_tree: Arc<Tree>,
    dev_tree: Arc<Tree>,
    extent_tree: ExtentTree,
    csum_tree: CsumTree,
    free_space_tree: FreeSpaceTree,
    block_groups: BlockGroupItems,
    space: Space,
    reservations: Arc<Reservations>,
    delalloc: Arc<DelallocAccount>,
    chunks: ChunkAllocator,
    runner: RefRunner,
    reclaimers: Reclaimers,
    room_claims: RoomClaims,
    discards: Discards,
    counters: Counters,
    superblock: NextSuperblock,
    conversions: Conversions,
    transaction: Transaction,
    pipeline: CommitPipeline,
    logs: TreeLogs,
    qgroups: Arc<Qgroups>,
    background: Arc<Background>,
    timer: CommitTimer,
    /// The reason, known at open, that forbids writing.
    read_only: Option<String>,
    /// Whether reads return data with a wrong or missing checksum.
    takes_unchecked_data: bool,
    /// Whether it was closed: no operation may begin.
    closed: AtomicBool,
    #[cfg(feature = "faults")]
    settles_nothing: AtomicBool,
}

/// Everything that [`Engine::open`](Engine::open) found.
struct Parts {
    volume: Arc<Volume>,
    store: Arc<BufferStore>,
    root_tree: Tree,
    chunk_tree: Tree,
    dev_tree: Tree,
    extent_tree: Tree,
    csum_tree: Tree,
    free_space_tree: Option<Tree>,
    block_group_tree: Option<Tree>,
    devices: Vec<DeviceSpace>,
    read_only: Option<String>,
    takes_unchecked_data: bool,
}

impl Engine {
    fn from_parts(parts: Parts, options: Options) -> Self {
        panics::note_places(); // an abort after a panic reports its place
        let superblock = parts.volume.superblock();
        parts.store.set_lock_timing(options.lock_times);
        let switches = Switches { early_unlock: options.early_unlock, fingers: options.fingers };
        let root_tree = RootTree::new(parts.root_tree, switches);
        let keep = |tree: Tree| root_tree.keep(tree);
        let chunk_tree = keep(parts.chunk_tree);
        let dev_tree = keep(parts.dev_tree);
        let extent_tree = keep(parts.extent_tree);
        let csum_tree = keep(parts.csum_tree);
        let free_space_tree = parts.free_space_tree.map(keep);
        let block_group_tree = parts.block_group_tree.map(keep);
        let readers = parts.store.readers().clone();
        let logs = TreeLogs::new(superblock.generation().next(), options.gather_syncs);
        if superblock.log_root().is_some() && parts.read_only.is_none() {
            logs.expect_replay();
        }
        Self {
            block_groups: BlockGroupItems::new(Arc::clone(&extent_tree), block_group_tree),
            chunks: ChunkAllocator::new(
                Arc::clone(&parts.volume),
                Arc::clone(&chunk_tree),
                Arc::clone(&dev_tree),
                parts.devices,
            ),
            volume: parts.volume,
            store: parts.store,
            background: Arc::new(Background::new(Arc::clone(&options.env))),
            timer: CommitTimer::default(),
            options,
            chunk_tree,
            dev_tree,
            extent_tree: ExtentTree::new(
                extent_tree,
                superblock.node_size(),
                superblock.incompat().contains(Incompat::SKINNY_METADATA),
            ),
            csum_tree: CsumTree::new(csum_tree, superblock.checksum_type(), superblock.sector_size()),
            free_space_tree: FreeSpaceTree::new(free_space_tree, superblock.sector_size()),
            root_tree,
            space: Space::new(superblock.bytes_used()),
            reservations: Arc::default(),
            delalloc: Arc::new(DelallocAccount::new(ReserveItems::bytes_of_an_item(superblock.node_size()))),
            runner: RefRunner::default(),
            reclaimers: Reclaimers::default(),
            room_claims: RoomClaims::default(),
            discards: Discards::default(),
            counters: Counters::default(),
            transaction: Transaction::after(superblock.generation()),
            pipeline: CommitPipeline::new(readers, superblock.generation()),
            logs,
            qgroups: Arc::default(),
            superblock: NextSuperblock::new(superblock),
            conversions: Conversions::default(),
            read_only: parts.read_only,
            takes_unchecked_data: parts.takes_unchecked_data,
            closed: AtomicBool::new(false),
            #[cfg(feature = "faults")]
            settles_nothing: AtomicBool::new(false),
        }
    }

    /// The tree `id`: a fixed one, or a subvolume's, which is read at the first call.
    /// Errors: not found; device errors; damage.
    pub fn tree(&self, id: TreeId) -> Result<Arc<Tree>> {
        self.root_tree.get(id)
    }

    /// A tree's root item in the root tree. Its address of the root is the one of the last commit.
    /// Errors: not found; device errors; damage.
    pub fn root_item(&self, id: TreeId) -> Result<RawRootItem> {
        self.root_tree.item(id).map(|(_, item)| item)
    }

    /// The devices below.
    #[must_use]
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Clock and randomness.
    #[must_use]
    pub fn env(&self) -> &dyn Env {
        &*self.options.env
    }

    /// Unit of data, bytes.
    #[must_use]
    pub fn sector_size(&self) -> u32 {
        self.volume.sector_size()
    }

    /// Unit of metadata, bytes.
    #[must_use]
    pub fn node_size(&self) -> u32 {
        self.volume.node_size()
    }

    /// The checksum of everything.
    #[must_use]
    pub fn checksum_type(&self) -> ChecksumType {
        self.volume.checksum_type()
    }

    /// Features needed to open this filesystem.
    #[must_use]
    pub fn incompat(&self) -> Incompat {
        self.superblock.incompat()
    }

    /// The label that the next commit writes.
    #[must_use]
    pub fn label(&self) -> Vec<u8> {
        self.superblock.label()
    }

    /// Generation of the running transaction.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.transaction.generation()
    }

    /// The reason that the filesystem cannot be written; `None` when it can.
    #[must_use]
    pub fn read_only(&self) -> Option<String> {
        self.aborted().map(ToString::to_string).or_else(|| self.read_only.clone())
    }

    /// Whether it was opened for reading: then there never is anything to write.
    #[must_use]
    pub fn is_opened_for_reading(&self) -> bool {
        self.read_only.is_some()
    }

    /// Checks that the filesystem can be written. Errors: read-only, with the reason.
    pub fn check_writable(&self) -> Result<()> {
        self.abort_when_poisoned();
        match self.read_only() {
            None => Ok(()),
            Some(reason) => Err(Error::new(ErrorKind::ReadOnly, reason)),
        }
    }

    /// Refuses callers that come after [`shut_down`](Self::shut_down).
    /// Errors: closed.
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Stale, "the filesystem was closed"));
        }
        Ok(())
    }

    /// Commits, refuses every later operation, and gives the devices back even if references to the engine
    /// remain. Never call it with a handle.
    /// Errors: those of the commit and of the devices; it is closed all the same.
    pub fn shut_down(&self) -> Result<()> {
        // A thread that begins a handle reads this while it holds a part of the gate. In the one order of all these (SeqCst), a thread that joins
        // a transaction later than the one to commit reads `true`, and is refused.
        self.closed.store(true, Ordering::SeqCst);
        let committed = self.commit();
        if committed.is_ok() {
            // The last chance. A failing device loses no data by it.
            while self.has_changes() && !self.discards.is_empty() && self.discarder().step().is_ok() {}
        }
        committed.and(self.volume.close())
    }
}
