//! An untouched filesystem: one that was opened for writing, and whose devices have the bytes that they had before.
//!
//! Opening has things to write: the commit of a replayed log, the removal of space caches of the old kind, bad copies that it met.
//! If they went to the devices at once, a command that fails (`rm` of a missing name) would change the image, and so would a
//! mount that nobody writes to. So a volume that is open for writing has its devices behind [`HeldDevice`]s, and everything that
//! is not yet wanted stays in memory:
//!
//! | what is written | while the volume is untouched |
//! |---|---|
//! | under a [`HoldWrites`] (opening: replay, space caches) | held |
//! | repairs of bad copies that reads meet | held, up to [`REPAIRS_MAX`] bytes; later ones are left to the next reader |
//! | anything else: tree blocks, data, logs, superblocks, discards | begins writing: first all that is held, in its order, then this |
//!
//! The first write of the last row is the first change that somebody asked for, since what works by itself (deleting orphans,
//! dropping deleted subvolumes, counting for quotas) waits while [`Volume::is_untouched`](crate::Volume::is_untouched) says yes and nothing is to be committed.
//!
//! Reads see what is held. So all above this room goes on as if it were written; only the devices do not know. What is held leads
//! from one durable state to another by the order of its writes and flushes, and a crash between two of them leaves what it
//! would have left while opening. A crash before, or dropping the volume, leaves the devices as they were: a log that was replayed
//! in memory is still there, and is replayed again.
//!
//! # Invariants
//! - UNTOUCHED-1: while a volume is untouched, its devices get no write, no discard, and no flush that follows a write. Shown by
//!   `an_untouched_volume_writes_nothing`.
//! - UNTOUCHED-2: a repair that is held is written before anything that is changed later, so never over what took the place of
//!   the block. Held by HELD-2 of the device room.
//! - UNTOUCHED-3: nothing is discarded while writes are held: the held commit may not be durable that freed it. Shown by
//!   `a_discard_comes_behind_what_is_held`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use creamery_base::{DevId, Error, ErrorKind, Result};
use creamery_device::{BlockDevice, HeldDevice, Released};
use creamery_format::SUPERBLOCK_OFFSETS;

/// Bytes of held repairs, with all else that is held.
const REPAIRS_MAX: u64 = 64 << 20;

/// What is written while this lives is held, if nothing was written before.
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

    /// The device that repairs of `dev` go to.
    pub(crate) fn device(&self, dev: DevId) -> Result<&HeldDevice> {
        let found = self.devices.iter().find(|(id, _)| *id == dev);
        let missing = || Error::new(ErrorKind::NotFound, format!("device {dev} is not open for writing"));
        found.map(|(_, device)| &**device).ok_or_else(missing)
    }

    /// Whether writes go to the devices at once.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::Acquire)
    }

    /// Holds what is written until the guard is dropped.
    pub(crate) fn hold_writes(&self) -> HoldWrites<'_> {
        self.holders.fetch_add(1, Ordering::AcqRel);
        HoldWrites(self)
    }

    /// Whether a guard holds writes.
    pub(crate) fn has_holder(&self) -> bool {
        self.holders.load(Ordering::Acquire) > 0
    }

    /// Writes what is held. Called by one thread at a time.
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

    /// What is held in memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        self.devices.iter().map(|(_, device)| device.memory()).sum()
    }
}

impl Drop for HoldWrites<'_> {
    fn drop(&mut self) {
        self.0.holders.fetch_sub(1, Ordering::AcqRel);
    }
}
