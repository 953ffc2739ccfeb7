//! What the engine did, counted.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::Engine;
use crate::space::SpaceKind;

#[derive(Default)]
pub(crate) struct Counters {
    commits: AtomicU64,
    blocks_written: AtomicU64,
}

impl Counters {
    pub(crate) fn committed(&self, blocks: usize) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.blocks_written.fetch_add(blocks as u64, Ordering::Relaxed);
    }
}

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
    /// What the block cache did.
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
    /// In data block groups.
    pub data_total: u64,
    /// In data extents.
    pub data_used: u64,
    /// In metadata block groups.
    pub metadata_total: u64,
    /// In tree blocks.
    pub metadata_used: u64,
    /// How many copies a metadata chunk takes on the devices.
    pub metadata_copies: u64,
    /// How many copies a data chunk takes on the devices.
    pub data_copies: u64,
}

impl Engine {
    /// What the engine did so far.
    #[must_use]
    pub fn counters(&self) -> EngineCounters {
        EngineCounters {
            commits: self.counters.commits.load(Ordering::Relaxed),
            blocks_written: self.counters.blocks_written.load(Ordering::Relaxed),
            store: self.store().counters(),
        }
    }

    /// How the space is used now, pending changes left out.
    #[must_use]
    pub fn space(&self) -> SpaceReport {
        let sum = |kind: SpaceKind| {
            self.space.groups_of(kind).iter().fold((0, 0, 1), |(total, used, copies), group| {
                let dup = group.flags.contains(creamery_format::BlockGroupFlags::DUP);
                (total + group.len, used + group.state.lock().used, if dup { 2 } else { copies })
            })
        };
        let (data_total, data_used, data_copies) = sum(SpaceKind::Data);
        let (metadata_total, metadata_used, metadata_copies) = sum(SpaceKind::Metadata);
        SpaceReport {
            total: self.volume().superblock().total_bytes(),
            used: self.space.bytes_used(),
            unallocated: self.unallocated(),
            data_total,
            data_used,
            metadata_total,
            metadata_used,
            metadata_copies,
            data_copies,
        }
    }
}
