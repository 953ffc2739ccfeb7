//! A lock for putting an inode into the logs: one thread at a time.

use creamery_base::lock::{RankedGuard, RankedMutex, rank};

/// The lock for putting an inode into the logs.
#[derive(Default)]
pub(crate) struct LogTurn(RankedMutex<(), { rank::FSYNC }>);

/// The witness that no other thread puts the inode into the logs.
pub(crate) type LogGuard<'a> = RankedGuard<'a, (), { rank::FSYNC }>;

impl LogTurn {
    /// Waits for the turn to put the inode into the logs.
    pub(crate) fn take(&self) -> LogGuard<'_> {
        self.0.lock()
    }

    /// Takes the turn if it is free.
    pub(crate) fn try_take(&self) -> Option<LogGuard<'_>> {
        self.0.try_lock()
    }
}
