//! Chunks: allocating them, recording them in the trees, and giving empty ones back.
//!
//! A chunk is made while somebody reserves space, never under a node lock. Its mapping and its block group can be
//! used at once; the items that tell of them - chunk, device extents, device, block group, free space - are
//! written by the commit from a list of pending chunks, before anything else, so that what was placed in the
//! chunk and the chunk itself become durable together.
//!
//! # Invariants
//! - CHUNK-1: a chunk is added only under the transaction's gate, so never between the commit's last look at the
//!   pending list and the end of its critical section.
//! - CHUNK-2: before any other chunk, there is room for the chunk tree's own edits in the system groups. Shown by
//!   `many_groups_cost_no_more_than_few`.
//! - CHUNK-3: the device extents of a removed chunk are used again only after the commit that removed it.

mod allocate;
mod device_space;
mod discard;
mod excluded;
mod grow;
mod load;
mod queues;
mod record;
mod remove;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use creamery_base::Generation;
use creamery_base::lock::{RankedMutex, rank};
use creamery_tree::Tree;
use creamery_volume::Volume;

pub(crate) use allocate::NewChunk;
pub use device_space::DeviceReport;
pub(crate) use device_space::DeviceSpace;
pub(crate) use excluded::excluded_ranges;
pub(crate) use load::{claim_chunks, read_device_extents, read_devices};
use queues::{Leaving, Pending};

/// Chunks are made of whole stripes.
const STRIPE: u64 = 65536;

/// The chunks of a filesystem, on its devices and in its chunk and device trees.
pub(crate) struct ChunkAllocator {
    volume: Arc<Volume>,
    chunk_tree: Arc<Tree>,
    dev_tree: Arc<Tree>,
    state: RankedMutex<State, { rank::CHUNK_ALLOCATION }>,
    /// Bytes on the devices that no chunk has, for those who may not wait.
    unallocated: AtomicU64,
    pending: AtomicU64,
    made: AtomicU64,
    newest: AtomicU64,
    removed: AtomicU64,
}

/// What chunk allocation guards.
struct State {
    devices: Vec<DeviceSpace>,
    pending: Pending,
    /// How many were taken from there, and are being recorded.
    recording: u64,
    leaving: Leaving,
    /// Somebody waits for groups in which nothing lives to be removed.
    removal_wanted: bool,
}

impl State {
    fn unallocated(&self) -> u64 {
        self.devices.iter().map(DeviceSpace::unused_bytes).sum()
    }
}

impl ChunkAllocator {
    pub(crate) fn new(
        volume: Arc<Volume>,
        chunk_tree: Arc<Tree>,
        dev_tree: Arc<Tree>,
        devices: Vec<DeviceSpace>,
    ) -> Self {
        let state = State {
            devices,
            pending: Pending::default(),
            recording: 0,
            leaving: Leaving::default(),
            removal_wanted: false,
        };
        let zero = || AtomicU64::new(0);
        Self {
            unallocated: AtomicU64::new(state.unallocated()),
            volume,
            chunk_tree,
            dev_tree,
            state: RankedMutex::new(state),
            made: zero(),
            newest: zero(),
            removed: zero(),
            pending: zero(),
        }
    }

    /// How many chunks were made since the filesystem was opened: who finds no room in those there are compares this before he
    /// makes one.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// The transaction that made a chunk last; 0 when none did since the filesystem was opened. Whoever was handed space of a
    /// chunk and asks then is told of that chunk.
    pub(crate) fn newest(&self) -> Generation {
        Generation::new(self.newest.load(Ordering::SeqCst))
    }

    /// How many chunks were removed since the filesystem was opened.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// How many chunks wait for their items.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Acquire)
    }

    /// Bytes on the devices that no chunk has.
    pub(crate) fn unallocated(&self) -> u64 {
        self.unallocated.load(Ordering::Acquire)
    }

    /// Tells it anew after a change.
    fn recount_unallocated(&self, state: &State) {
        self.unallocated.store(state.unallocated(), Ordering::Release);
    }

    /// What the maps of the devices take in memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.state.try_lock().map_or(0, |state| state.devices.iter().map(DeviceSpace::memory).sum())
    }

    /// The devices that the chunk tree lists.
    pub(crate) fn devices(&self) -> Vec<DeviceReport> {
        self.state.lock().devices.iter().map(DeviceSpace::report).collect()
    }

    /// How many devices the chunk tree lists.
    pub(crate) fn device_count(&self) -> u64 {
        self.state.lock().devices.len() as u64
    }
}
