//! Syncing without a commit: putting inodes into the logs of the running transaction, and making these durable. `tree_log` describes
//! logs; the layer above decides what an inode's log contains.

use std::sync::Arc;

use creamery_base::{Env, Error, ErrorKind, Generation, InodeId, Logical, ObjectId, Result, Wait};
use creamery_format::Key;
use creamery_tree::{BufferStore, Tree};
use creamery_volume::{Logged, Volume};

use crate::chunk_allocator::ChunkAllocator;
use crate::commit::{CommitPhase, CommitPipeline, NextSuperblock};
use crate::counters::Counters;
use crate::csum_tree::CsumTree;
use crate::handle::Handle;
use crate::reserve_items::ReserveItems;
use crate::transaction::{AbortsWhenItPanics, Transaction};
use crate::transaction_port::TransactionPort;
use crate::tree_log::{LogBase, LogGroup, LogLink, LogTicket, SealedLog, TreeLogs, WriteTurn};

/// Blocks that putting an inode takes at least: paths in the tree of its subvolume's log and in that of the roots, and one to the entry
/// of a name that it has lost.
const BLOCKS_PER_PUT: u64 = 18;

/// The logs that make synced files durable without a commit.
///
/// ```no_run
/// # fn sync(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// use creamery_base::TreeId;
/// let tree = engine.tree(TreeId::FS)?;
/// match engine.logs().base(&tree)? {
///     Some(base) => println!("logs of transaction {}", base.generation()),
///     None => engine.commit()?,
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy)]
pub struct LogWriter<'e> {
    pub(crate) logs: &'e TreeLogs,
    pub(crate) volume: &'e Volume,
    pub(crate) store: &'e Arc<BufferStore>,
    pub(crate) csum_tree: &'e CsumTree,
    pub(crate) chunks: &'e ChunkAllocator,
    pub(crate) superblock: &'e NextSuperblock,
    pub(crate) transaction: &'e Transaction,
    pub(crate) pipeline: &'e CommitPipeline,
    pub(crate) counters: &'e Counters,
    pub(crate) env: &'e dyn Env,
    pub(crate) port: &'e dyn TransactionPort,
    /// Whether syncs write logs.
    pub(crate) is_on: bool,
}

impl LogWriter<'_> {
    /// The last commit's view of a subvolume, for a caller that puts an inode of it into the logs. `None` when only a commit can record the
    /// changes since: the subvolume or a chunk is new, the filesystem has new features, or logs are off.
    /// Errors: those of the commit that is being written; device errors; damage.
    pub fn base(&self, tree: &Tree) -> Result<Option<Arc<LogBase>>> {
        if !self.is_on || self.logs.is_replay_due() {
            return Ok(None);
        }
        self.port.check_writable()?;
        // A log builds on the last commit, which may still be on its way.
        if !self.pipeline.write_out.is_over() {
            self.port.end_write_out()?;
        }
        let _running = self.transaction.join(); // nobody closes the transaction meanwhile
        let generation = self.transaction.generation();
        if !self.say_all(generation) || self.has_new_features() {
            return Ok(None);
        }
        self.logs.base(generation, tree.id(), || {
            let (root, kept) = (tree.commit_root(), self.pipeline.roots.guard());
            if root.generation == Generation::default() || kept.generation().next() != generation {
                return Ok(None);
            }
            let base = Tree::open(Arc::clone(self.store), tree.id(), root, 0, tree.last_snapshot())?;
            Ok(Some(LogBase::new(generation, tree.id(), base, kept)))
        })
    }

    /// Makes every sync from here on to the end of the handle's transaction a commit: the handle changes something that no log can record,
    /// and a replay would not find a synced file at its new place.
    pub fn give_up(&self, handle: &Handle<'_>) {
        self.logs.give_up(handle.generation(), None);
    }

    /// Gives up the logs if they contain the inode `id`: it gets a name, and a log of that name would need the inode's whole state.
    pub fn give_up_of(&self, handle: &Handle<'_>, id: InodeId) {
        self.logs.give_up(handle.generation(), Some(id));
    }

    /// Whether the last commit has all chunks that there are (LOG-4).
    fn say_all(&self, generation: Generation) -> bool {
        self.chunks.newest() < generation
    }

    /// Whether reading the running transaction takes a feature that the superblock on the devices does not name (LOG-7).
    fn has_new_features(&self) -> bool {
        self.superblock.incompat() != self.volume.superblock().incompat()
    }

    /// The ticket of an inode that is in the logs already, in its state after at least `sequence` changes.
    pub fn ticket_of(&self, base: &LogBase, ino: ObjectId, sequence: u64) -> Option<LogTicket> {
        self.logs.ticket_of(base, ino, sequence)
    }

    /// A subvolume's items in the logs, from the item at or before `first` to `last`. Empty, once the logs are closed.
    /// Errors: damage.
    pub fn items(&self, base: &LogBase, first: &Key, last: &Key) -> Result<Vec<(Key, Vec<u8>)>> {
        self.logs.items(base, first, last)
    }

    /// The inodes other than `ino` that have one of these names, or the number of one, in the logs: a replay could not give it to
    /// both, so a caller that logs `ino` logs these, too.
    pub fn owners(&self, base: &LogBase, ino: ObjectId, links: &[LogLink]) -> Vec<ObjectId> {
        self.logs.owners(base, ino, links)
    }

    /// The names that the logs have given an inode.
    pub fn names_of(&self, base: &LogBase, ino: ObjectId) -> Vec<LogLink> {
        self.logs.names_of(base, ino)
    }

    /// The numbers of a directory's entries in the logs, each with its inode.
    pub fn entries_of(&self, base: &LogBase, dir: ObjectId) -> Vec<(u64, ObjectId)> {
        self.logs.entries_of(base, dir)
    }

    /// Puts inodes into the logs, in place of their earlier state there. `None` when logs cannot record it: then the caller commits. Never call
    /// it with a handle.
    /// Errors: closed; read-only; aborted.
    pub fn put(&self, base: &LogBase, group: &LogGroup) -> Result<Option<LogTicket>> {
        let handle = match self.port.start(self.units_of_put(group)) {
            Ok(handle) => handle,
            // There is no room for a log, but there may be for a commit.
            Err(error) if error.kind() == ErrorKind::NoSpace => return Ok(None),
            Err(error) => return Err(error),
        };
        // After a commit of another thread the change is durable, or the caller commits. The caller also commits where the change takes a feature
        // that is newer than the base.
        let ticket = if handle.generation() == base.generation() && !self.has_new_features() {
            let csums = |at: Logical, len: u64| self.csums_of(at, len);
            self.logs.put(&handle, self.store, base, group, &csums)
        } else {
            None
        };
        handle.end();
        Ok(ticket)
    }

    /// The units of a handle that puts `group`. A group that does not fit into a handle is not logged.
    fn units_of_put(&self, group: &LogGroup) -> ReserveItems {
        let (node, sector) = (u64::from(self.volume.node_size()), u64::from(self.volume.sector_size()));
        let csum = self.volume.checksum_type().size() as u64;
        let items = (group.blocks(BLOCKS_PER_PUT, node, sector, csum) * node)
            .div_ceil(ReserveItems::bytes_of_an_item(self.volume.node_size()));
        ReserveItems::spare(u32::try_from(items).unwrap_or(u32::MAX))
    }

    /// Checksums of data, in runs as long as an item may be.
    /// Errors: not found: a sector has no checksum, because the file has other data there by now, and the sync commits.
    fn csums_of(&self, at: Logical, len: u64) -> Result<Vec<(Logical, Vec<u8>)>> {
        let (sector, most) = (u64::from(self.volume.sector_size()), self.csum_tree.most());
        let sectors = usize::try_from(len / sector).expect("an extent's sectors can be counted");
        let csums = self.csum_tree.read(at, sectors, Wait::Yes)?;
        let mut runs: Vec<(Logical, Vec<u8>)> = Vec::new();
        for index in 0..sectors {
            let at = at + index as u64 * sector;
            let csum = csums.get(index);
            let csum = csum.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("no checksum at {at}")))?;
            match runs.last_mut().filter(|(_, run)| run.len() + csum.len() <= most) {
                Some((_, run)) => run.extend_from_slice(csum),
                None => runs.push((at, csum.to_vec())),
            }
        }
        Ok(runs)
    }

    /// Makes the change of `ticket` durable, with all data that was written before: writes the logs, or waits for the thread that
    /// does; or commits, where a commit has begun. Never call it with a handle.
    /// Errors: those of the devices, and then all writing has ended; those of the commit.
    pub fn sync(&self, ticket: LogTicket) -> Result<()> {
        // On a device that is quicker than a thread's time slice no sync would ever share a write: threads that are about to put
        // something go first.
        std::thread::yield_now();
        loop {
            self.port.check_writable()?;
            let says_all = || self.say_all(ticket.generation());
            match self.logs.turn(self.volume, ticket, says_all)? {
                WriteTurn::Durable => return Ok(()),
                WriteTurn::Commit => return self.port.commit_through(ticket.generation()),
                WriteTurn::Write(mut log) => {
                    // Threads that wait for this write see the abort, if there is one, when they wake.
                    let written = self.transaction.or_abort(self.write(&mut log));
                    let logged = written.map_err(|error| self.transaction.aborts().named(error))?;
                    log.durable(&logged);
                }
            }
        }
    }

    fn write(&self, log: &mut SealedLog<'_>) -> Result<Logged> {
        let _aborts = AbortsWhenItPanics(self.transaction);
        self.transaction.enter(CommitPhase::Log);
        let begun = self.env.monotonic();
        let (volume, writes) = (self.volume, std::mem::take(&mut log.writes));
        let written = volume.write(writes)?;
        // TXN-GATE-3: the data of the items goes to the platter with them.
        let written = match self.transaction.take_written() {
            Some(data) => written.and(data),
            None => written,
        };
        let durable = volume.flush(written)?;
        let mut superblock = volume.superblock();
        superblock.set_log_root(log.root.logical, log.root.level);
        let published = volume.publish(&mut superblock, durable)?;
        let logged = volume.finish_log(published)?;
        self.counters.logged(log.block_count(), self.env.monotonic().saturating_sub(begun));
        self.transaction.enter(CommitPhase::Running);
        Ok(logged)
    }
}
