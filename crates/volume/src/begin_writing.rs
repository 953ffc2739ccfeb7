//! The first write of a volume, and the held writes that go before it. `untouched` explains why writes are held.

use creamery_base::Result;

use crate::untouched::HoldWrites;
use crate::volume::Volume;

impl Volume {
    /// Holds writes from here on: at least until the guard is dropped, and then until [`begin_writing`](Self::begin_writing).
    /// For code that opens a filesystem. Without effect if writing has begun.
    pub fn hold_writes(&self) -> HoldWrites<'_> {
        self.held.hold_writes()
    }

    /// Whether the devices have the same bytes as when the volume was opened.
    #[must_use]
    pub fn is_untouched(&self) -> bool {
        !self.held.has_begun()
    }

    /// Writes everything that is held; from then on writes go to the devices at once. Every write does this by itself; call it
    /// to keep the changes of opening if nothing else is written.
    ///
    /// # Errors
    /// Read-only; device errors, except those of repairs, of one copy of two, and of spare superblocks; then everything stays held.
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
