//! Who puts an inode into the logs: one at a time.

use creamery_base::lock::{RankedGuard, RankedMutex, rank};

/// Whose turn it is.
#[derive(Default)]
pub(crate) struct LogTurn(RankedMutex<(), { rank::FSYNC }>);

/// The witness that nobody else puts the inode into the logs.
pub(crate) type Turn<'a> = RankedGuard<'a, (), { rank::FSYNC }>;

impl LogTurn {
    /// Lets one at a time put the inode into the logs.
    pub(crate) fn take(&self) -> Turn<'_> {
        self.0.lock()
    }

    /// The same for who does not wait for another.
    pub(crate) fn try_take(&self) -> Option<Turn<'_>> {
        self.0.try_lock()
    }
}
