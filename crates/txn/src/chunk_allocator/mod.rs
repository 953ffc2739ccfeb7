//! Chunks: allocating them, recording them in the trees, and giving empty ones back.
//!
//! A chunk is made during a reservation, never under a node lock. Its mapping and its block group can be
//! used at once; the commit writes their items (chunk, device extents, device, block group, free space)
//! from a list of pending chunks, before anything else, so that the contents of the
//! chunk and the chunk itself become durable together.
//!
//! # Invariants
//! - CHUNK-1: a chunk is added only under the transaction's gate, so never between the commit's last look at the
//!   pending list and the end of its critical section.
//! - CHUNK-2: before any other chunk, there is room for the chunk tree's own edits in the system groups. Shown by
//!   `many_groups_cost_no_more_than_few`.
//! - CHUNK-4: bytes reported as allocatable can be had by making chunks, in any steps, as long as nothing else makes some. Shown by
//!   `chunks_find_what_the_holes_offer`.
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

use crate::space_info::SpaceKind;

pub(crate) use allocate::{Claim, NewChunk};
pub use device_space::DeviceReport;
pub(crate) use device_space::DeviceSpace;
pub(crate) use excluded::excluded_ranges;
pub(crate) use load::{claim_chunks, read_device_extents, read_devices};
use queues::{Leaving, Pending};

/// Copies of a chunk on one device, at most.
const COPIES_MAX: usize = 2;

/// The chunks of a filesystem, on its devices and in its chunk and device trees.
pub(crate) struct ChunkAllocator {
    volume: Arc<Volume>,
    chunk_tree: Arc<Tree>,
    dev_tree: Arc<Tree>,
    state: RankedMutex<AllocatorState, { rank::CHUNK_ALLOCATION }>,
    /// Unallocated bytes on the devices, and bytes of chunks that can be made of them with one copy and with two; for threads
    /// that must not wait.
    unallocated: AtomicU64,
    for_data: [AtomicU64; COPIES_MAX],
    for_metadata: [AtomicU64; COPIES_MAX],
    pending: AtomicU64,
    made: AtomicU64,
    newest: AtomicU64,
    removed: AtomicU64,
}

/// The state under the chunk mutex.
struct AllocatorState {
    devices: Vec<DeviceSpace>,
    pending: Pending,
    /// Number of chunks taken from `pending` that are being recorded.
    recording: u64,
    leaving: Leaving,
    /// A thread waits for the removal of empty groups.
    removal_wanted: bool,
}

impl AllocatorState {
    fn unallocated(&self) -> u64 {
        self.devices.iter().map(DeviceSpace::unused_bytes).fold(0, u64::saturating_add)
    }

    /// Bytes of chunks that can be made, all on the first device.
    fn allocatable(&self, kind: SpaceKind, copies: usize) -> u64 {
        self.devices.first().map_or(0, |device| device.allocatable(kind, copies as u64))
    }
}

impl ChunkAllocator {
    pub(crate) fn new(
        volume: Arc<Volume>,
        chunk_tree: Arc<Tree>,
        dev_tree: Arc<Tree>,
        devices: Vec<DeviceSpace>,
    ) -> Self {
        let state = AllocatorState {
            devices,
            pending: Pending::default(),
            recording: 0,
            leaving: Leaving::default(),
            removal_wanted: false,
        };
        let zero = || AtomicU64::new(0);
        Self {
            unallocated: AtomicU64::new(state.unallocated()),
            for_data: [1, 2].map(|copies| AtomicU64::new(state.allocatable(SpaceKind::Data, copies))),
            for_metadata: [1, 2].map(|copies| AtomicU64::new(state.allocatable(SpaceKind::Metadata, copies))),
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

    /// Number of chunks made since the filesystem was opened: a thread that finds no room in the existing ones compares this before it
    /// makes one.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// The transaction that made the last chunk; 0 when none was made since the filesystem was opened. A thread that got space of a
    /// chunk and then calls this sees at least that chunk.
    pub(crate) fn newest(&self) -> Generation {
        Generation::new(self.newest.load(Ordering::SeqCst))
    }

    /// Number of chunks removed since the filesystem was opened.
    pub(crate) fn removed(&self) -> u64 {
        self.removed.load(Ordering::Acquire)
    }

    /// Number of chunks that wait for their items.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Acquire)
    }

    /// Bytes on the devices that are in no chunk.
    pub(crate) fn unallocated(&self) -> u64 {
        self.unallocated.load(Ordering::Acquire)
    }

    /// Bytes of chunks of this kind with so many `copies` that can be made, in any steps (CHUNK-4).
    pub(crate) fn allocatable(&self, kind: SpaceKind, copies: u64) -> u64 {
        let by_copies = match kind {
            SpaceKind::Data => &self.for_data,
            SpaceKind::Metadata | SpaceKind::System => &self.for_metadata,
        };
        let copies = usize::try_from(copies).expect("one or two");
        by_copies[copies - 1].load(Ordering::Acquire)
    }

    /// Recounts after a change.
    fn recount_unallocated(&self, state: &AllocatorState) {
        self.unallocated.store(state.unallocated(), Ordering::Release);
        for (kind, by_copies) in
            [(SpaceKind::Data, &self.for_data), (SpaceKind::Metadata, &self.for_metadata)]
        {
            for (copies, bytes) in (1..).zip(by_copies) {
                bytes.store(state.allocatable(kind, copies), Ordering::Release);
            }
        }
    }

    /// Memory of the maps of the devices, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.state.try_lock().map_or(0, |state| state.devices.iter().map(DeviceSpace::memory).sum())
    }

    /// The devices in the chunk tree.
    pub(crate) fn devices(&self) -> Vec<DeviceReport> {
        self.state.lock().devices.iter().map(DeviceSpace::report).collect()
    }

    /// Number of devices in the chunk tree.
    pub(crate) fn device_count(&self) -> u64 {
        self.state.lock().devices.len() as u64
    }
}
