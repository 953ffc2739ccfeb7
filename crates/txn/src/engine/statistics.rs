//! Figures of the engine's work and state.

use std::collections::BTreeMap;

use creamery_base::{HistogramSnapshot, Logical, TreeId};
use creamery_format::BlockGroupFlags;
use creamery_tree::{ReadAheadCounters, TreeCounters};

use super::Engine;
use crate::chunk_allocator::DeviceReport;
use crate::space_info::SpaceKind;

/// Figures of a running engine.
///
/// ```
/// assert_eq!(creamery_txn::EngineCounters::default().commits, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct EngineCounters {
    /// Transactions made durable.
    pub commits: u64,
    /// Tree blocks written by them.
    pub blocks_written: u64,
    /// How long commits took from beginning to end, microseconds. A call that found nothing to commit is not counted.
    pub commit_micros: HistogramSnapshot,
    /// How long they kept handles from beginning, microseconds: from the moment when a commit asks for the gate, since no handle begins
    /// while it waits for the open ones.
    pub gate_closed_micros: HistogramSnapshot,
    /// Writes of logs, each of which served all syncs until then.
    pub log_writes: u64,
    /// Tree blocks written by them.
    pub log_blocks_written: u64,
    /// How long they took, microseconds.
    pub log_micros: HistogramSnapshot,
    /// Bytes of metadata promised to handles that have not ended.
    pub promised_bytes: u64,
    /// Extents with changes of references that wait for the next commit.
    pub delayed_refs: u64,
    /// Figures of the block cache.
    pub store: creamery_tree::StoreCounters,
}

/// How the space of a filesystem is used, bytes.
///
/// ```
/// assert_eq!(creamery_txn::SpaceReport::default().total, 0);
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct SpaceReport {
    /// Size of all devices.
    pub total: u64,
    /// In extents.
    pub used: u64,
    /// On the devices and in no chunk.
    pub unallocated: u64,
    /// Bytes of data for which chunks can be made of the unallocated space.
    pub data_allocatable: u64,
    /// In data block groups.
    pub data_total: u64,
    /// In data extents.
    pub data_used: u64,
    /// Change of `data_used` by the next commit; an extent that other files refer to as well counts as freed until then.
    pub data_pending: i64,
    /// Data that is being written, and in no file yet.
    pub data_handed_out: u64,
    /// In metadata block groups.
    pub metadata_total: u64,
    /// In tree blocks.
    pub metadata_used: u64,
    /// How many copies a metadata chunk takes on the devices.
    pub metadata_copies: u64,
    /// How many copies a data chunk takes on the devices.
    pub data_copies: u64,
}

/// The block groups of one kind and profile, together, bytes.
///
/// ```
/// # fn example(engine: &creamery_txn::Engine) {
/// let in_groups: u64 = engine.group_sums().iter().map(|sum| sum.total).sum();
/// assert!(in_groups <= engine.space().total);
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupSum {
    /// Their type and profile.
    pub flags: BlockGroupFlags,
    /// Their length, each copy counted once.
    pub total: u64,
    /// Bytes in extents, by their items.
    pub used: u64,
}

impl Engine {
    /// Figures of the engine's work so far.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        let (commits, blocks_written) = self.counters.commits();
        let (commit_micros, gate_closed_micros) = self.counters.times();
        let (log_writes, log_blocks_written, log_micros) = self.counters.logs();
        EngineCounters {
            commits,
            blocks_written,
            commit_micros,
            gate_closed_micros,
            log_writes,
            log_blocks_written,
            log_micros,
            promised_bytes: self.reservations.promised_to_handles(),
            delayed_refs: self.extent_tree.refs().len() as u64,
            store: self.store.counters(),
        }
    }

    /// Figures of reading ahead in the extent tree, in the checksum tree, or in all others together.
    #[must_use]
    pub fn read_ahead_of(&self, tree: TreeId) -> ReadAheadCounters {
        self.store.read_ahead_of(tree)
    }

    /// The devices of the filesystem, by the order of their ids.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceReport> {
        self.chunks.devices()
    }

    /// The block groups by kind and profile, those of data first, in the last commit.
    #[must_use]
    pub fn group_sums(&self) -> Vec<GroupSum> {
        let mut sums = BTreeMap::new();
        for group in self.space.groups() {
            let flags = group.flags & (BlockGroupFlags::TYPES | BlockGroupFlags::PROFILES);
            let sum = sums.entry(flags.bits()).or_insert(GroupSum { flags, total: 0, used: 0 });
            sum.total += group.len;
            sum.used += group.recorded_used();
        }
        sums.into_values().collect()
    }

    /// The start of each block group, and its bytes in extents, in the last commit.
    #[must_use]
    pub fn group_uses(&self) -> Vec<(Logical, u64)> {
        self.space.groups().map(|group| (group.start, group.recorded_used())).collect()
    }

    /// How long write locks on tree blocks were held and waited for, by level, leaves first; all zero unless
    /// [`Options::lock_times`](crate::Options::lock_times) is on.
    #[must_use]
    pub fn lock_times(&self) -> Vec<creamery_tree::LockTimes> {
        self.store.lock_times().to_vec()
    }

    /// Figures of each open tree so far, in order of their ids.
    #[must_use]
    pub fn tree_counters(&self) -> Vec<(TreeId, TreeCounters)> {
        self.root_tree.all().iter().map(|tree| (tree.id(), tree.counters())).collect()
    }

    /// How the space is used now. Pending changes have a field of their own, as far as they are known before the commit.
    #[must_use]
    pub fn space(&self) -> SpaceReport {
        // In the order in which data moves on: some may count twice meanwhile, and none is missed.
        let data_handed_out = self.space.figures(SpaceKind::Data).handed_out;
        let data_pending = self.extent_tree.refs().data_bytes();
        let [data, metadata] = [SpaceKind::Data, SpaceKind::Metadata].map(|kind| self.space.figures(kind));
        SpaceReport {
            total: self.volume().superblock().total_bytes(),
            used: self.space.bytes_used(),
            unallocated: self.chunks.unallocated(),
            data_allocatable: self.headroom().allocatable_data(),
            data_total: data.total,
            data_used: data.used,
            data_pending,
            data_handed_out,
            metadata_total: metadata.total,
            metadata_used: metadata.used,
            metadata_copies: self.space.copies(SpaceKind::Metadata),
            data_copies: self.space.copies(SpaceKind::Data),
        }
    }
}
