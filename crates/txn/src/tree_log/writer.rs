//! The logs of the running transaction, and the turn to write them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedGuard, RankedMutex, rank};
use creamery_base::{Generation, InodeId, Logical, ObjectId, Result, TreeId};
use creamery_device::AlignedBuffer;
use creamery_format::Key;
use creamery_tree::{BufferStore, CommitRootGuard, ExtentBuffer, RootPointer, Tree};
use creamery_volume::{Logged, Volume, WriteBatch};

use super::blocks::DroppedBlocks;
use super::inode_log::{LogGroup, LogLink, LogScope};
use super::items::{CsumSource, Log, read_csums};
use crate::commit::sealed;
use crate::handle::Handle;

/// Most blocks of logs in a transaction. With more, the commit takes as long as ever, and the replay longer.
const BLOCKS_MAX: usize = 2048;
/// Longest wait of a writer for other syncs: a tick of Linux' clock, which waits as long.
const GATHER_MAX: Duration = Duration::from_millis(4);

/// A subvolume's tree in the last commit, which is durable: a replay of the running transaction's logs begins from it.
///
/// ```no_run
/// # fn look(base: &creamery_txn::LogBase) {
/// println!("logs of transaction {} begin from {} blocks", base.generation(), base.tree().blocks());
/// # }
/// ```
pub struct LogBase {
    generation: Generation,
    subvolume: TreeId,
    tree: Tree,
    _kept: CommitRootGuard,
}

impl LogBase {
    pub(crate) fn new(
        generation: Generation,
        subvolume: TreeId,
        tree: Tree,
        kept: CommitRootGuard,
    ) -> Arc<Self> {
        assert_eq!(kept.generation().next(), generation, "LOG-4: a log is for the last commit");
        Arc::new(Self { generation, subvolume, tree, _kept: kept })
    }

    /// The transaction that the logs belong to.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// The id of the subvolume.
    #[must_use]
    pub const fn subvolume(&self) -> TreeId {
        self.subvolume
    }

    /// The subvolume's items, which must not change.
    #[must_use]
    pub const fn tree(&self) -> &Tree {
        &self.tree
    }
}

/// A change that a caller has put into the logs. [`LogWriter::sync`](crate::LogWriter::sync) makes it durable.
///
/// ```no_run
/// # fn sync(engine: &creamery_txn::Engine, ticket: creamery_txn::LogTicket) -> creamery_base::Result<()> {
/// engine.logs().sync(ticket)
/// # }
/// ```
#[must_use]
#[derive(Clone, Copy, Debug)]
pub struct LogTicket {
    generation: Generation,
    batch: u64,
}

impl LogTicket {
    /// The transaction that it is part of.
    pub(crate) const fn generation(self) -> Generation {
        self.generation
    }
}

/// Whether logs take more inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogStage {
    Open,
    /// Their transaction is about to close.
    Closing,
    /// Logs cannot record a change, or putting it failed half way.
    Useless,
}

struct LogState {
    /// The transaction whose logs these are.
    generation: Generation,
    stage: LogStage,
    bases: HashMap<TreeId, Arc<LogBase>>,
    log: Option<Log>,
    /// The batch that writes the inodes put now.
    filling: u64,
    /// How many puts are in the filling batch, and in the one before.
    puts: usize,
    served: usize,
    /// This batch and those before it are durable.
    durable: u64,
    writing: bool,
}

/// The logs of the running transaction.
pub(crate) struct TreeLogs {
    state: RankedMutex<LogState, { rank::TREE_LOG }>,
    changed: RankedCondvar,
    /// Whether a writer waits for other syncs first.
    gathers: bool,
    more: RankedCondvar,
    /// Whether logs on the devices wait for their replay (REPLAY-2).
    replay_waits: AtomicBool,
}

type LockedLog<'l> = RankedGuard<'l, LogState, { rank::TREE_LOG }>;

/// The work that is left for a thread that has put something.
pub(crate) enum WriteTurn<'l> {
    /// Nothing: it is durable.
    Durable,
    /// A commit: the logs are given up or closed.
    Commit,
    /// Writing, for all threads that have put something.
    Write(SealedLog<'l>),
}

/// Logs that do not change any more, to be written. If this is dropped before they are durable, the logs are useless.
#[must_use]
pub(crate) struct SealedLog<'l> {
    logs: &'l TreeLogs,
    store: Arc<BufferStore>,
    blocks: Vec<Arc<ExtentBuffer>>,
    given_up: Option<DroppedBlocks>,
    batch: u64,
    /// The root of the logs, for the superblock.
    pub(crate) root: RootPointer,
    /// The writes to make.
    pub(crate) writes: WriteBatch,
}

impl LogState {
    /// Begins the logs of the running transaction `generation`, unless they have begun.
    fn begin(&mut self, generation: Generation) {
        if self.generation < generation {
            assert!(self.log.is_none(), "LOG-2: logs of transaction {} were not ended", self.generation);
            assert!(!self.writing, "LOG-4: logs of transaction {} are being written", self.generation);
            (self.generation, self.stage) = (generation, LogStage::Open);
            self.puts = 0;
            self.bases.clear();
        }
    }
}

impl TreeLogs {
    /// Creates the logs after a commit: transaction `generation` has none yet.
    pub(crate) fn new(generation: Generation, gathers: bool) -> Self {
        let state = LogState {
            generation,
            stage: LogStage::Open,
            bases: HashMap::new(),
            log: None,
            filling: 1,
            puts: 0,
            served: 0,
            durable: 0,
            writing: false,
        };
        let (changed, more) = (RankedCondvar::new(), RankedCondvar::new());
        let replay_waits = AtomicBool::new(false);
        Self { state: RankedMutex::new(state), changed, gathers, more, replay_waits }
    }

    /// Notes that logs on the devices have to be replayed before anything is committed (REPLAY-2).
    pub(crate) fn expect_replay(&self) {
        self.replay_waits.store(true, Ordering::Release);
    }

    /// Notes that the changes of the logs on the devices are in the trees.
    pub(crate) fn replayed(&self) {
        self.replay_waits.store(false, Ordering::Release);
    }

    /// Whether logs on the devices have to be replayed before anything is committed.
    pub(crate) fn is_replay_due(&self) -> bool {
        self.replay_waits.load(Ordering::Acquire)
    }

    /// Locks the logs of transaction `generation`, which runs; `None` when they take no more.
    fn of(&self, generation: Generation) -> Option<LockedLog<'_>> {
        let mut state = self.state.lock();
        state.begin(generation);
        (state.generation == generation && state.stage == LogStage::Open).then_some(state)
    }

    /// The last commit's view of a subvolume, which `open` opens at the first call; `None` when the logs take no more.
    pub(crate) fn base(
        &self,
        generation: Generation,
        subvolume: TreeId,
        open: impl FnOnce() -> Result<Option<Arc<LogBase>>>,
    ) -> Result<Option<Arc<LogBase>>> {
        let Some(state) = self.of(generation) else { return Ok(None) };
        if let Some(base) = state.bases.get(&subvolume) {
            return Ok(Some(Arc::clone(base)));
        }
        drop(state);
        let Some(base) = open()? else { return Ok(None) };
        let Some(mut state) = self.of(generation) else { return Ok(None) };
        Ok(Some(Arc::clone(state.bases.entry(subvolume).or_insert(base))))
    }

    /// The ticket of the put of an inode that had at least `sequence` changes then.
    pub(crate) fn ticket_of(&self, base: &LogBase, ino: ObjectId, sequence: u64) -> Option<LogTicket> {
        let state = self.of(base.generation)?;
        let batch = state.log.as_ref()?.batch_of(base.subvolume, ino, sequence)?;
        Some(LogTicket { generation: base.generation, batch })
    }

    /// The items of a subvolume's log from the one at or before `first` to `last`. Errors: damage.
    pub(crate) fn items(&self, base: &LogBase, first: &Key, last: &Key) -> Result<Vec<(Key, Vec<u8>)>> {
        let state = self.of(base.generation);
        let log = state.as_ref().and_then(|state| state.log.as_ref());
        log.map_or_else(|| Ok(Vec::new()), |log| log.items(base.subvolume, first, last))
    }

    /// The inodes other than `ino` that a subvolume's log has given one of these names, or the number of one.
    pub(crate) fn owners(&self, base: &LogBase, ino: ObjectId, links: &[LogLink]) -> Vec<ObjectId> {
        let state = self.of(base.generation);
        let log = state.as_ref().and_then(|state| state.log.as_ref());
        log.map_or_else(Vec::new, |log| log.owners(base.subvolume, ino, links))
    }

    /// The names that a subvolume's log has given an inode.
    pub(crate) fn names_of(&self, base: &LogBase, ino: ObjectId) -> Vec<LogLink> {
        let state = self.of(base.generation);
        let log = state.as_ref().and_then(|state| state.log.as_ref());
        log.map_or_else(Vec::new, |log| log.names_of(base.subvolume, ino))
    }

    /// The numbers of a directory's entries in a subvolume's log, each with its inode.
    pub(crate) fn entries_of(&self, base: &LogBase, dir: ObjectId) -> Vec<(u64, ObjectId)> {
        let state = self.of(base.generation);
        let log = state.as_ref().and_then(|state| state.log.as_ref());
        log.map_or_else(Vec::new, |log| log.entries_of(base.subvolume, dir))
    }

    /// Puts inodes into the logs; `None` when they cannot record it: then the caller commits.
    pub(crate) fn put(
        &self,
        handle: &Handle<'_>,
        store: &BufferStore,
        base: &LogBase,
        group: &LogGroup,
        csums: &CsumSource<'_>,
    ) -> Option<LogTicket> {
        let generation = base.generation;
        assert_eq!(handle.generation(), generation, "LOG-4: a handle of the logs' transaction");
        let mut state = self.of(generation)?;
        let batch = state.filling;
        let subvolume = base.subvolume;
        let is_said = match &state.log {
            Some(log) => {
                // Another thread has put this state or a later one.
                if let Some(batch) = log.batch_of_all(subvolume, group) {
                    return Some(LogTicket { generation, batch });
                }
                let has_room = log.block_count() < BLOCKS_MAX && !log.takes_back_many(subvolume, group);
                has_room
                    && !log.has_names_of_others(subvolume, group)
                    && group.inodes.iter().all(|inode| log.is_followed_by(subvolume, inode))
            }
            None => group.inodes.iter().all(|inode| !matches!(inode.scope, LogScope::Extents { .. })),
        };
        if !is_said {
            return None;
        }
        // This fails when the file has other data there by now: then the sync commits.
        let csums = read_csums(state.log.as_ref(), subvolume, group, csums).ok()?;
        // No thread writes a half-put inode, not even after a panic in between. A failure is not an error of the sync, which commits.
        state.stage = LogStage::Useless;
        let put = match &mut state.log {
            Some(log) => log.put(handle, subvolume, group, batch, &csums),
            none => Log::new(store, handle)
                .and_then(|log| none.insert(log).put(handle, subvolume, group, batch, &csums)),
        };
        if put.is_err() {
            drop(state);
            self.changed.notify_all();
            return None;
        }
        state.stage = LogStage::Open;
        state.puts += 1;
        self.more.notify_all();
        Some(LogTicket { generation, batch })
    }

    /// Waits, up to `GATHER_MAX`, until as many threads put something as the last write served.
    fn gather<'l>(&'l self, state: LockedLog<'l>, ticket: LogTicket) -> LockedLog<'l> {
        let missing = |state: &mut LogState| {
            let is_open = state.stage == LogStage::Open && state.generation == ticket.generation;
            is_open && !state.writing && state.durable < ticket.batch && state.puts < state.served
        };
        self.more.pass_while_for(Reason::Commit, state, GATHER_MAX, missing)
    }

    /// The work that is left for the owner of `ticket`; waits for the thread that writes. Once all blocks of the logs exist, `says_all`
    /// answers whether the last commit has all the chunks that they may lie in (LOG-4).
    /// Errors: those of reading the logs' root.
    pub(crate) fn turn(
        &self,
        volume: &Volume,
        ticket: LogTicket,
        says_all: impl FnOnce() -> bool,
    ) -> Result<WriteTurn<'_>> {
        let waits = |state: &mut LogState| {
            state.writing && state.generation == ticket.generation && state.durable < ticket.batch
        };
        let mut state = self.state.lock();
        if self.gathers && state.served > 1 {
            state = self.gather(state, ticket);
        }
        if waits(&mut state) {
            state = self.changed.pass_while(Reason::Commit, state, waits);
        }
        if state.generation != ticket.generation {
            return Ok(WriteTurn::Commit);
        }
        if state.durable >= ticket.batch {
            return Ok(WriteTurn::Durable);
        }
        if state.stage == LogStage::Open && !says_all() {
            state.stage = LogStage::Useless;
            self.changed.notify_all();
        }
        let (batch, is_open) = (state.filling, state.stage == LogStage::Open);
        let Some(log) = state.log.as_mut().filter(|_| is_open) else { return Ok(WriteTurn::Commit) };
        let (root, store, blocks) = (log.root()?, Arc::clone(log.store()), log.store().take_dirty()?);
        let mut copies = Arc::new(AlignedBuffer::zeroed(blocks.len() * volume.node_size() as usize));
        let writes = sealed(volume, &blocks, &mut copies);
        let given_up = Some(log.blocks_mut().seal());
        (state.writing, state.filling) = (true, batch + 1);
        (state.puts, state.served) = (0, state.puts);
        Ok(WriteTurn::Write(SealedLog { logs: self, store, blocks, given_up, batch, root, writes }))
    }

    /// Closes the logs of transaction `generation`, which is about to close, and waits for the thread that writes them.
    pub(crate) fn close(&self, generation: Generation) {
        let mut state = self.state.lock();
        // Perhaps no thread has synced anything in it yet: one that comes now is too late all the same.
        state.begin(generation);
        if state.generation == generation && state.stage == LogStage::Open {
            state.stage = LogStage::Closing;
        }
        if state.writing {
            let writing = |state: &mut LogState| state.writing;
            drop(self.changed.pass_while(Reason::Commit, state, writing));
        }
    }

    /// Gives up the logs of the running transaction `generation`: they cannot record a change. With `of`,
    /// only if they contain that inode.
    pub(crate) fn give_up(&self, generation: Generation, of: Option<InodeId>) {
        let Some(mut state) = self.of(generation) else { return };
        let has = |id: InodeId| state.log.as_ref().is_some_and(|log| log.has(id));
        if of.is_none_or(has) {
            state.stage = LogStage::Useless;
            drop(state);
            self.changed.notify_all();
        }
    }

    /// Opens the logs again: the transaction did not close, for it had nothing to commit, and so nothing to log.
    pub(crate) fn reopen(&self, generation: Generation) {
        let mut state = self.state.lock();
        if state.generation == generation && state.stage == LogStage::Closing {
            assert!(state.log.is_none(), "LOG-2: who logs has something to commit");
            state.stage = LogStage::Open;
        }
    }

    /// Ends the logs of transaction `generation`, which closes. Returns their blocks, which are freed when it is durable (LOG-2).
    pub(crate) fn end(&self, generation: Generation) -> Vec<Logical> {
        let mut state = self.state.lock();
        if state.generation > generation {
            return Vec::new();
        }
        assert!(!state.writing, "LOG-4: logs are written behind their commit's back");
        (state.generation, state.stage) = (generation, LogStage::Closing);
        state.bases.clear();
        state.log.take().map_or_else(Vec::new, |log| log.into_blocks().into_all())
    }

    /// Memory in use, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.state.lock().log.as_ref().map_or(0, Log::memory)
    }
}

impl SealedLog<'_> {
    /// The number of blocks to write.
    pub(crate) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// Records that the logs are durable; dropping this wakes the threads that wait.
    pub(crate) fn durable(mut self, _proof: &Logged) {
        self.store.written(&self.blocks);
        let given_up = self.given_up.take().expect("this is the end of it");
        let mut state = self.logs.state.lock();
        let log = state.log.as_mut().expect("LOG-4: nobody ends logs that are being written");
        log.blocks_mut().durable(given_up);
        state.durable = self.batch;
    }
}

impl Drop for SealedLog<'_> {
    fn drop(&mut self) {
        let mut state = self.logs.state.lock();
        state.writing = false;
        if self.given_up.is_some() {
            state.stage = LogStage::Useless;
        }
        drop(state);
        self.logs.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_closed_before_anybody_has_synced() {
        let [seven, eight] = [7, 8].map(Generation::new);
        let logs = TreeLogs::new(seven, false);
        assert!(logs.of(seven).is_some());
        logs.close(seven);
        assert_eq!(logs.end(seven), []);
        logs.close(eight);
        assert!(logs.of(eight).is_none(), "the transaction closes");
        logs.reopen(eight);
        assert!(logs.of(eight).is_some(), "there was nothing to commit");
        logs.give_up(eight, None);
        assert!(logs.of(eight).is_none(), "something was changed that logs cannot say");
    }
}
