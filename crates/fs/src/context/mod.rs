//! The context of a filesystem's files: the engine below them, the policy, and the parts that all of them share.
//!
//! Each open filesystem has one. Every subvolume refers to it, and every inode does by its subvolume. The context refers to neither:
//! its parts lie below both, each with its own locks and rules. `Subvolumes` and `Inodes` have parts of their own that the other does
//! not need.

mod dead_inodes;
mod policy;

use std::sync::Arc;

use creamery_base::{Generation, InodeId};
use creamery_txn::Engine;

pub(crate) use dead_inodes::{DeadInodes, DeadInodesGuard};
pub(crate) use policy::Policy;

use crate::access_time::AccessTimes;
use crate::compression::CompressionState;
use crate::counters::FileCounters;
use crate::delalloc::Writeback;
use crate::delayed::DelayedRoot;
use crate::fault::{Fault, Planted};
use crate::in_flight::InFlight;
use crate::options::FsOptions;
use crate::overwrite_times::OverwriteTimes;
use crate::verity::KeptVerity;

/// The engine, the policy and the parts that all files of a filesystem share.
pub(crate) struct Context {
    engine: Arc<Engine>,
    policy: Policy,
    delayed: Arc<DelayedRoot>,
    dead: DeadInodes,
    writeback: Arc<Writeback>,
    access_times: Arc<AccessTimes>,
    overwrite_times: Arc<OverwriteTimes>,
    in_flight: Arc<InFlight>,
    compression: CompressionState,
    counters: FileCounters,
    kept_verity: KeptVerity,
    planted: Planted,
}

impl Context {
    /// The context of a filesystem on `engine` that is opened with `options`.
    pub(crate) fn new(engine: Arc<Engine>, options: &FsOptions) -> Arc<Self> {
        Arc::new(Self {
            engine,
            policy: Policy::of(options),
            delayed: Arc::default(),
            dead: DeadInodes::default(),
            writeback: Arc::new(Writeback::new(options.delayed_bytes)),
            access_times: Arc::default(),
            overwrite_times: Arc::default(),
            in_flight: Arc::new(InFlight::new(options.direct_bytes)),
            compression: CompressionState::new(options.compress),
            counters: FileCounters::default(),
            kept_verity: KeptVerity::default(),
            planted: Planted::default(),
        })
    }

    /// The engine below.
    pub(crate) const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The options that all files share.
    pub(crate) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The directories that have delayed items.
    pub(crate) const fn delayed(&self) -> &Arc<DelayedRoot> {
        &self.delayed
    }

    /// The inodes that wait for the cleaner.
    pub(crate) const fn dead(&self) -> &DeadInodes {
        &self.dead
    }

    /// The files that have delayed data, and the errors of writing it back.
    pub(crate) const fn writeback(&self) -> &Arc<Writeback> {
        &self.writeback
    }

    /// The access times that are not in a tree yet.
    pub(crate) const fn access_times(&self) -> &Arc<AccessTimes> {
        &self.access_times
    }

    /// The times of overwrites that are not in a tree yet.
    pub(crate) const fn overwrite_times(&self) -> &Arc<OverwriteTimes> {
        &self.overwrite_times
    }

    /// The requests that outlive the calls that began them.
    pub(crate) const fn in_flight(&self) -> &Arc<InFlight> {
        &self.in_flight
    }

    /// The compression method for new data, and recently decompressed extents.
    pub(crate) const fn compression(&self) -> &CompressionState {
        &self.compression
    }

    /// The counters of operations on files.
    pub(crate) const fn counters(&self) -> &FileCounters {
        &self.counters
    }

    /// Recently verified descriptors and Merkle tree blocks of sealed files.
    pub(crate) const fn kept_verity(&self) -> &KeptVerity {
        &self.kept_verity
    }

    /// Whether `fault` is planted.
    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.planted.has(fault)
    }

    /// Plants a fault, once.
    #[cfg(any(feature = "shuttle", feature = "faults"))]
    pub(crate) fn plant(&self, fault: Fault) {
        self.planted.plant(fault);
    }

    /// Leaves an inode that has neither a name nor a user to the cleaner; its items hold `nbytes` bytes of data.
    pub(crate) fn add_dead(&self, id: InodeId, nbytes: u64) {
        if self.dead.push(id, nbytes) {
            self.engine.background().wake();
        }
    }

    /// Notes that items were deleted in transaction `generation`.
    pub(crate) fn note_deleted(&self, generation: Generation) {
        if self.dead.note_deleted(generation) {
            self.engine.background().wake();
        }
    }
}
