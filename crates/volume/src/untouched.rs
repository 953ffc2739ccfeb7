//! An untouched filesystem: opened for writing, but its devices still have their earlier bytes.
//!
//! Opening has writes of its own: the commit of a replayed log, the removal of space caches of the old kind, repairs of bad copies.
//! If they went to the devices at once, a command that fails (`rm` of a missing name) would change the image, and so would a
//! mount without a write. So a volume that is open for writing has its devices behind [`HeldDevice`]s, and every write that
//! nobody has asked for stays in memory:
//!
//! | the write | while the volume is untouched |
//! |---|---|
//! | under a [`HoldWrites`] (opening: replay, space caches) | held |
//! | repairs of bad copies that reads find | held, up to [`REPAIRS_MAX`] bytes; later ones are left to the next reader |
//! | anything else: tree blocks, data, logs, superblocks, discards | begins writing: first all held writes, in their order, then this |
//!
//! The first write of the last row is the first change that a user asked for, because background work (deleting orphans,
//! dropping deleted subvolumes, counting for quotas) waits while [`Volume::is_untouched`](crate::Volume::is_untouched) returns true and
//! nothing is to be committed.
//!
//! Reads see held writes. So the code above this room goes on as if they were on the devices. Held writes lead
//! from one durable state to another by their order and their flushes, and a crash between two of them leaves the state
//! that a crash at that write of opening would have left. A crash before, or dropping the volume, leaves the devices unchanged: a log that
//! was replayed in memory is still there, and is replayed again.
//!
//! # Invariants
//! - UNTOUCHED-1: while a volume is untouched, its devices get no write, no discard, and no flush that follows a write. Shown by
//!   `an_untouched_volume_writes_nothing`.
//! - UNTOUCHED-2: a held repair is written before any later change, so never over data that replaced
//!   the block. Held by HELD-2 of the device room.
//! - UNTOUCHED-3: nothing is discarded while writes are held: the held commit that freed it may not be durable. Shown by
//!   `a_discard_comes_behind_what_is_held`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::{DevId, Error, ErrorKind, Result};
use creamery_device::{BlockDevice, HeldDevice, Released};
use creamery_format::SUPERBLOCK_OFFSETS;

/// The largest size of all held writes at which a repair is still held, bytes.
const REPAIRS_MAX: u64 = 64 << 20;

/// Holds writes while it lives, if nothing was written before.
///
/// ```
/// fn open(volume: &creamery_volume::Volume) {
///     let _hold = volume.hold_writes();
///     // ... replay a log, commit ...
/// }
/// ```
#[must_use]
pub struct HoldWrites<'v>(&'v HeldWrites);

/// The devices of a volume that is open for writing, and whether writing has begun.
#[derive(Default)]
pub(crate) struct HeldWrites {
    devices: Vec<(DevId, Arc<HeldDevice>)>,
    has_begun: AtomicBool,
    holders: AtomicU64,
}

impl HeldWrites {
    /// Puts `device` behind a device that holds writes.
    pub(crate) fn hold(&mut self, dev: DevId, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        let held = Arc::new(HeldDevice::new(device));
        self.devices.push((dev, Arc::clone(&held)));
        held
    }

    /// Returns the device for repairs of `dev`.
    pub(crate) fn device(&self, dev: DevId) -> Result<&HeldDevice> {
        let found = self.devices.iter().find(|(id, _)| *id == dev);
        let missing = || Error::new(ErrorKind::NotFound, format!("device {dev} is not open for writing"));
        found.map(|(_, device)| &**device).ok_or_else(missing)
    }

    /// Whether writes go to the devices at once.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Holds writes until the guard is dropped.
    pub(crate) fn hold_writes(&self) -> HoldWrites<'_> {
        self.holders.fetch_add(1, Ordering::AcqRel);
        HoldWrites(self)
    }

    /// Whether a guard holds writes.
    pub(crate) fn has_holder(&self) -> bool {
        self.holders.load(Ordering::Acquire) > 0
    }

    /// Writes everything that is held. Called by one thread at a time.
    pub(crate) fn release(&self) -> Result<Released> {
        let mut all = Released::default();
        for (_, device) in &self.devices {
            all += device.release(&|offset| SUPERBLOCK_OFFSETS[1..].contains(&offset))?;
        }
        self.has_begun.store(true, Ordering::Release);
        Ok(all)
    }

    /// Whether a repair of `len` bytes may be written or held.
    pub(crate) fn takes_repair(&self, len: u64) -> bool {
        let held: u64 = self.devices.iter().map(|(_, device)| device.held_bytes()).sum();
        self.has_begun() || held.saturating_add(len) <= REPAIRS_MAX
    }

    /// Returns the memory of held writes, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.devices.iter().map(|(_, device)| device.memory()).sum()
    }
}

impl Drop for HoldWrites<'_> {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Ordering::AcqRel);
    }
}
