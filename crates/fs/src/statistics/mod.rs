//! Counts of an open filesystem's work since it was opened, in a form that leaves the process: every number has a name, and the
//! name of a field or its documentation says the unit. Counts only grow; momentary values stand in [`PendingStatistics`] and in
//! fields whose names say so.
//!
//! The rooms below count for themselves, each in a structure of its own. `counts!` is the one place where those become statistics,
//! field by field: a counter that a room gains does not compile until it is named here, and appears from then on in the JSON and in
//! the output of `creamery stats`.

mod contention;
mod counts;
mod direct;
mod nowait;

use creamery_base::HistogramSnapshot;
use creamery_device::DirectRequests;
use creamery_tree::{LeafSteps, ReadAheadCounters, StoreCounters, TreeCounters};
use creamery_txn::{Abort, EngineCounters};
use creamery_volume::Counters as VolumeCounters;
use serde::{Deserialize, Serialize};

use crate::background_statistics::BackgroundStatistics;
use crate::compression::CompressionCounters;
use crate::counters::{FsyncCounters, NocowCounters, SeekCounters};
use crate::delalloc::WritebackCounters;
use crate::inode::Inodes;
use crate::memory::MemoryReport;
use crate::quota::QuotaStatistics;
pub use contention::ContentionStatistics;
use counts::counts;
pub use direct::DirectStatistics;
pub use nowait::NowaitStatistics;

counts! {
    /// Counts of the work of trees.
    ///
    /// ```
    /// let mut sum = creamery_fs::TreeStatistics::default();
    /// sum += creamery_fs::TreeStatistics { leaf_splits: 2, ..sum };
    /// assert!(sum.named().any(|count| count == ("leaf_splits", 2)));
    /// ```
    TreeStatistics of TreeCounters {
        /// Searches for modification.
        searches,
        /// Searches begun again because a lock was not strong enough.
        restarts,
        /// Searches for an insertion, or for growing an item.
        insertions,
        /// Insertions that let go of the parents before searching the leaf.
        early_unlocks,
        /// Insertions that searched their leaf under a locked parent without need; 0 while letting go early is on.
        searched_under_parent,
        /// Searches that looked at slot 0 of the leaf after the parents were let go; always 0.
        compared_at_slot0,
        /// Parents let go early although they were to be kept; always 0.
        keep_violations,
        /// Removals in a leaf that the thread had a finger on: no other block was locked.
        removals_by_finger,
        /// Blocks copied.
        copies,
        /// Leaves split.
        leaf_splits,
        /// Leaf insertions that found room by pushing items to a sibling.
        leaf_pushes,
        /// Leaves merged away.
        leaf_merges,
        /// Inner nodes split.
        node_splits,
    }
    and LeafSteps of leaf_steps {
        /// Insertions behind the first key of their leaf: parents let go before the search.
        leaf_step_hit = hit,
        /// Insertions before the first key of their leaf: parents kept.
        leaf_step_slot0 = slot0,
        /// Insertions at the first key of their leaf: parents let go, nothing to search.
        leaf_step_exact = exact,
        /// Insertions into a leaf without the room: parents kept for a split.
        leaf_step_no_space = no_space,
        /// Insertions into a leaf that is the root.
        leaf_step_root_leaf = root_leaf,
        /// Insertions that kept the parents because letting go early is off.
        leaf_step_keep = keep,
        /// Insertions straight into a leaf that the thread had a finger on: parents not locked at all.
        leaf_step_finger = finger,
    }
}

counts! {
    /// Counts of the cache of tree blocks.
    ///
    /// ```
    /// assert_eq!(creamery_fs::BlockCacheStatistics::default().hits, 0);
    /// ```
    BlockCacheStatistics of StoreCounters {
        /// Blocks found in it.
        hits,
        /// Blocks read from the devices.
        misses,
        /// Times that a thread waited for a block that another one was reading.
        reads_joined,
        /// Clean blocks dropped to keep the budget.
        evictions,
        /// Bytes in blocks that wait for the next commit, now.
        dirty_bytes,
        /// Bytes in blocks that a commit is writing out, now.
        writing_bytes,
    }
    and ReadAheadCounters of ahead {
        /// Blocks requested from a device before a search came to them.
        read_ahead_issued = issued,
        /// Blocks read ahead that a search came to.
        read_ahead_hit = hit,
        /// Blocks read ahead that left the cache before, or were not as expected.
        read_ahead_wasted = wasted,
        /// Blocks that were not requested: too much was queued, or a commit was faster.
        read_ahead_dropped = dropped,
    }
}

counts! {
    /// Reads and writes of the devices.
    ///
    /// ```
    /// assert_eq!(creamery_fs::VolumeStatistics::default().write_bytes, 0);
    /// ```
    VolumeStatistics of VolumeCounters {
        /// Tree blocks asked for.
        tree_block_reads,
        /// Bytes of data asked for.
        data_read_bytes,
        /// Calls that asked for data.
        data_reads,
        /// Tree blocks or data sectors that had to come from another copy than the first one tried.
        mirror_fallbacks,
        /// Bytes of parity read, to rebuild others.
        parity_read_bytes,
        /// Bytes that were rebuilt from parity, right or not.
        rebuilt_bytes,
        /// Bad copies that have been rewritten from a good one.
        repaired,
        /// Bad copies that could not be rewritten.
        repair_failures,
        /// Tree blocks or data sectors of which no copy was good.
        unreadable,
        /// Tree blocks written, each counted once however many copies it has.
        tree_block_writes,
        /// Write requests for tree blocks and data.
        writes,
        /// Bytes in these write requests.
        write_bytes,
        /// Write requests that failed while another copy was written.
        write_failures,
        /// Flushes of all devices.
        flushes,
        /// Superblocks published.
        publishes,
        /// Superblock copies other than the first that could not be written.
        superblock_copy_failures,
        /// Bytes discarded.
        discarded_bytes,
        /// Discards that failed.
        discard_failures,
    }
    and DirectRequests of direct {
        /// Reads and writes between memory and a device, past the page cache of the host; 0 without direct I/O.
        device_direct = straight,
        /// Reads and writes past the page cache by way of an aligned buffer.
        device_direct_bounced = bounced,
        /// Reads and writes of a device with direct I/O of which some bytes went through the page cache all the same.
        device_direct_cached = cached,
    }
}

counts! {
    /// Delayed data (data that a write left in memory), and its writeback.
    ///
    /// ```
    /// assert_eq!(creamery_fs::WritebackStatistics::default().runs, 0);
    /// ```
    WritebackStatistics of WritebackCounters {
        /// Bytes that are in memory and not yet in the tree, now.
        delayed_bytes,
        /// Runs of pages that were written back.
        runs,
        /// Bytes of these runs.
        bytes,
        /// Runs that failed: their data is lost, and fsync reports it.
        failures,
        /// Runs that found no space although room was kept for them: a bug, so 0 (DELALLOC-8).
        no_space,
        /// Writes that found too much delayed, and wrote some of it back first.
        throttled,
        /// Writes for which there was no room to be delayed, so that they went to the devices at once.
        at_once,
    }
}

counts! {
    /// Data that might have been written in place: in NODATACOW files, and in preallocated space.
    ///
    /// ```
    /// assert_eq!(creamery_fs::NocowStatistics::default().written, 0);
    /// ```
    NocowStatistics of NocowCounters {
        /// Extents, or parts of one, that were chosen to be written in place.
        written,
        /// Extents that have another reference: their data went to new space.
        shared,
        /// Extents with checksums, which would have been wrong: their data went to new space.
        with_csums,
        /// Extents in no block group, or in one that takes no writes: their data went to new space.
        no_group,
        /// Ranges that were not checked, because a snapshot was being taken: their data went to new space.
        barred,
        /// Searches for the next extent behind one whose data went to new space.
        searched_again,
        /// Looks at other trees with the file's leaf held; 0 without the switch for that.
        looks_with_leaf,
    }
}

counts! {
    /// The cost of searches for data and holes in files. An open file adds its own counts after 32 searches, and the rest when it is
    /// closed.
    ///
    /// ```
    /// assert_eq!(creamery_fs::SeekStatistics::default().calls, 0);
    /// ```
    SeekStatistics of SeekCounters {
        /// Searches whose offset was in the file.
        calls,
        /// Descents into the map of a file's dirty pages.
        map_descents,
        /// Pieces of dirty pages that were looked at there.
        pieces,
        /// Looks at dirty pages that the open file's memory answered.
        cursor_hits,
        /// Looks behind or before the remembered ranges.
        cursor_misses,
        /// Looks that found pages written or written back since.
        cursor_stale,
        /// Searches that did without the open file's memory, because another thread used it.
        cursor_contended,
        /// Looks at the run in flight.
        in_flight_lookups,
        /// Searches of the tree: one at most for each call.
        tree_searches,
        /// Calls that went on in the leaf where the last one ended.
        bookmarks_used,
        /// Leaves that the searches looked at.
        leaves,
        /// Items and gaps between them that the searches looked at.
        items,
    }
}

counts! {
    /// Compression of new data, and reads of compressed data.
    ///
    /// ```
    /// assert_eq!(creamery_fs::CompressionStatistics::default().chunks, 0);
    /// ```
    CompressionStatistics of CompressionCounters {
        /// Chunks of at most 128 KiB that are stored compressed.
        chunks,
        /// Bytes of these chunks in the files.
        bytes,
        /// Bytes of these chunks on the devices, or in the tree.
        packed_bytes,
        /// Chunks that did not get shorter.
        refused,
        /// Chunks that did not look compressible.
        unlikely,
        /// Compressed extents that were unpacked to be read.
        unpacked,
        /// Reads of a compressed extent that was kept unpacked.
        unpacked_hits,
    }
}

counts! {
    /// Calls of fsync that had something to do, by their way.
    ///
    /// ```
    /// assert_eq!(creamery_fs::FsyncStatistics::default().logged, 0);
    /// ```
    FsyncStatistics of FsyncCounters {
        /// Calls for which a log was enough.
        logged,
        /// Calls that committed because a replay could not give the inode its names, or would have taken some away.
        names,
        /// Calls that committed because so many extents had changed.
        extents,
        /// Calls that committed because the logs took no more.
        refused,
    }
}

/// The distribution of values, counted in powers of two; the unit is in the name of the field that holds it.
///
/// ```
/// let histogram = creamery_base::Histogram::new();
/// histogram.record(300);
/// let seen = creamery_fs::Distribution::from(&histogram.snapshot());
/// assert_eq!((seen.count, seen.p50, seen.max), (1, 300, 300));
/// assert_eq!(seen.buckets, [creamery_fs::Bucket { up_to: 511, count: 1 }]);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    /// The number of values.
    pub count: u64,
    /// The sum of the values.
    pub sum: u64,
    /// Half of the values are not larger; never too small, less than twice too large.
    pub p50: u64,
    /// 99 of 100 values are not larger; as exact as `p50`.
    pub p99: u64,
    /// The largest value.
    pub max: u64,
    /// The buckets that are not empty, smallest values first.
    pub buckets: Vec<Bucket>,
}

/// Values between two powers of two.
///
/// ```
/// assert_eq!(creamery_fs::Bucket { up_to: 1023, count: 2 }.count, 2);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Bucket {
    /// The largest value that belongs here.
    pub up_to: u64,
    /// The number of values.
    pub count: u64,
}

impl From<&HistogramSnapshot> for Distribution {
    fn from(seen: &HistogramSnapshot) -> Self {
        Self {
            count: seen.count(),
            sum: seen.sum(),
            p50: seen.percentile(50),
            p99: seen.percentile(99),
            max: seen.max(),
            buckets: seen.buckets().map(|(up_to, count)| Bucket { up_to, count }).collect(),
        }
    }
}

/// Transactions made durable.
///
/// ```
/// assert_eq!(creamery_fs::CommitStatistics::default().gate_closed_micros.p99, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CommitStatistics {
    /// The number of commits.
    pub count: u64,
    /// Tree blocks written by them.
    pub tree_blocks_written: u64,
    /// How long each took from beginning to end, microseconds.
    pub duration_micros: Distribution,
    /// How long each kept operations from beginning, microseconds.
    pub gate_closed_micros: Distribution,
}

/// Logs made durable: the writes of fsync in place of commits.
///
/// ```
/// assert_eq!(creamery_fs::LogStatistics::default().count, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LogStatistics {
    /// The number of log writes, each for all callers so far.
    pub count: u64,
    /// Tree blocks written by them.
    pub tree_blocks_written: u64,
    /// How long each took, microseconds.
    pub duration_micros: Distribution,
}

/// The work that the next commit will have, now.
///
/// ```
/// assert_eq!(creamery_fs::PendingStatistics::default().delayed_refs, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct PendingStatistics {
    /// Bytes of metadata reserved for operations under way.
    pub promised_bytes: u64,
    /// Extents with changes of references that are not yet in the extent tree.
    pub delayed_refs: u64,
    /// Directories of which changes are not yet in their tree.
    pub delayed_directories: u64,
    /// Direct requests that are not answered yet.
    pub direct_in_flight: u64,
}

/// One tree's counts.
///
/// ```
/// assert_eq!(creamery_fs::NamedTree::default().counts.searches, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct NamedTree {
    /// Its number: 5 is the top level subvolume, 256 and more are other subvolumes.
    pub tree: u64,
    /// Its counts.
    #[serde(flatten)]
    pub counts: TreeStatistics,
}

/// Write locks on the tree blocks of one level, in all trees. Measured only when that was asked for.
///
/// ```
/// assert_eq!(creamery_fs::LockStatistics::default().level, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct LockStatistics {
    /// The level; 0 is that of leaves.
    pub level: usize,
    /// Time from locking to unlocking, nanoseconds.
    pub held_nanos: Distribution,
    /// Time from asking to locking, where another thread had the lock, nanoseconds.
    pub waited_nanos: Distribution,
}

/// The end of all writing: the filesystem is read-only from there on, and on disk it has the state of the last commit.
///
/// ```
/// let aborted = creamery_fs::Aborted { reason: "no space left on device".to_owned(), ..Default::default() };
/// assert_eq!(aborted.transaction, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Aborted {
    /// The transaction that is lost.
    pub transaction: u64,
    /// The phase of the commit on its way; `running` when there was none.
    pub phase: String,
    /// The place in the program.
    pub place: String,
    /// The reason.
    pub reason: String,
}

impl From<&Abort> for Aborted {
    fn from(abort: &Abort) -> Self {
        let Abort { transaction, phase, place, reason } = abort;
        Self {
            transaction: transaction.get(),
            phase: phase.to_string(),
            place: place.clone(),
            reason: reason.clone(),
        }
    }
}

/// Counts of the work of a filesystem since it was opened.
///
/// ```no_run
/// # fn example(fs: &creamery_fs::Filesystem) {
/// let done = fs.statistics();
/// println!("{} commits, half of them in {} us", done.commits.count, done.commits.duration_micros.p50);
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Statistics {
    /// The reason why nothing can be written any more, if so.
    pub aborted: Option<Aborted>,
    /// Commits, and how long they took.
    pub commits: CommitStatistics,
    /// Logs, and how long they took to write.
    pub logs: LogStatistics,
    /// Calls of fsync, by their way.
    pub fsyncs: FsyncStatistics,
    /// The work that waits for the next commit.
    pub pending: PendingStatistics,
    /// The cache of tree blocks.
    pub block_cache: BlockCacheStatistics,
    /// Inode objects in memory, now.
    pub inodes_cached: u64,
    /// Memory, by owner, now.
    pub memory: MemoryReport,
    /// Counts of all trees together.
    pub trees: TreeStatistics,
    /// Counts of each open tree, in order of their numbers.
    pub by_tree: Vec<NamedTree>,
    /// Locks on tree blocks, by level; empty unless their times are taken.
    pub locks: Vec<LockStatistics>,
    /// Locks that were found taken, by rank, outer ranks first; empty unless they are counted.
    pub contention: Vec<ContentionStatistics>,
    /// The devices.
    pub volume: VolumeStatistics,
    /// Data that was written and is in memory first.
    pub writeback: WritebackStatistics,
    /// Data written in place.
    pub nocow: NocowStatistics,
    /// Reads and writes between a device and the caller's buffer.
    pub direct: DirectStatistics,
    /// Direct reads and writes that must not wait.
    pub nowait: NowaitStatistics,
    /// Data compressed.
    pub compression: CompressionStatistics,
    /// Searches for data and holes.
    pub seek: SeekStatistics,
    /// The cost of counting for quotas.
    pub quotas: QuotaStatistics,
    /// Background work, one sort after the other.
    pub background: Vec<BackgroundStatistics>,
}

impl Statistics {
    /// The statistics of the filesystem of these inodes, with its use of `memory`.
    pub(crate) fn of(inodes: &Inodes, memory: MemoryReport) -> Self {
        let (engine, context) = (inodes.engine(), inodes.context());
        let counters = context.counters();
        let EngineCounters {
            commits,
            blocks_written,
            commit_micros,
            gate_closed_micros,
            log_writes,
            log_blocks_written,
            log_micros,
            promised_bytes,
            delayed_refs,
            store,
        } = engine.counters();
        let by_tree: Vec<NamedTree> = engine
            .tree_counters()
            .iter()
            .map(|(id, counters)| NamedTree { tree: id.get(), counts: counters.into() })
            .collect();
        let mut trees = TreeStatistics::default();
        by_tree.iter().for_each(|tree| trees += tree.counts);
        let locks = engine.lock_times().into_iter().enumerate().filter(|(_, times)| times.held.count() > 0);
        Self {
            aborted: engine.aborted().map(Aborted::from),
            commits: CommitStatistics {
                count: commits,
                tree_blocks_written: blocks_written,
                duration_micros: (&commit_micros).into(),
                gate_closed_micros: (&gate_closed_micros).into(),
            },
            logs: LogStatistics {
                count: log_writes,
                tree_blocks_written: log_blocks_written,
                duration_micros: (&log_micros).into(),
            },
            fsyncs: (&counters.fsyncs.counters()).into(),
            pending: PendingStatistics {
                promised_bytes,
                delayed_refs,
                delayed_directories: context.delayed().len() as u64,
                direct_in_flight: context.in_flight().len() as u64,
            },
            block_cache: (&store).into(),
            inodes_cached: inodes.table().len() as u64,
            memory,
            trees,
            by_tree,
            locks: locks
                .map(|(level, times)| LockStatistics {
                    level,
                    held_nanos: (&times.held).into(),
                    waited_nanos: (&times.waited).into(),
                })
                .collect(),
            contention: ContentionStatistics::all(),
            volume: (&engine.volume().counters()).into(),
            writeback: (&context.writeback().counters()).into(),
            nocow: (&counters.nocow.counters()).into(),
            direct: (&counters.direct.counters()).into(),
            nowait: (&counters.nowait.counters()).into(),
            compression: (&context.compression().counters()).into(),
            quotas: engine.quotas().counters().into(),
            seek: (&counters.seeks.counters()).into(),
            background: engine.background().report().into_iter().map(BackgroundStatistics::from).collect(),
        }
    }
}
