//! The first write of a volume: what it has held goes before it. Why writes are held is in `untouched`.

use creamery_base::Result;

use crate::untouched::HoldWrites;
use crate::volume::Volume;

impl Volume {
    /// Holds what is written from here on until the guard is dropped, and from then on until [`begin_writing`](Self::begin_writing):
    /// for whoever opens a filesystem. Without effect where writing has begun.
    pub fn hold_writes(&self) -> HoldWrites<'_> {
        self.held.hold_writes()
    }

    /// Whether the devices have the bytes that they had when the volume was opened.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        !self.held.has_begun()
    }

    /// Writes what is held, if anything is; from then on writes go to the devices at once. Every write does this by itself; call it
    /// where nothing else is written and what opening did is wanted.
    ///
    /// # Errors
    /// Read-only; device errors, but for those of repairs, of one copy of two, and of spare superblocks; then everything stays held.
    pub fn begin_writing(&self) -> Result<()> {
        if self.held.has_begun() || self.held.has_holder() {
            return Ok(());
        }
        self.check_writable()?;
        // No repair runs meanwhile, and a second caller finds the work done.
        let _alone = self.repairing.lock();
        if self.held.has_begun() {
            return Ok(());
        }
        let released = self.held.release()?;
        self.counters.repaired.add(released.repaired);
        self.counters.repair_failures.add(released.repairs_failed);
        self.counters.write_failures.add(released.copies_failed);
        self.counters.superblock_copy_failures.add(released.spares_failed);
        Ok(())
    }
}
