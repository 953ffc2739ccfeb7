//! Changes that run while a transaction closes (snapshots), because nothing else may change the filesystem meanwhile.
//!
//! The caller that asks for such a change has locked everything the change needs and holds a reservation for it. The thread that closes the transaction runs the
//! change with the commit's own handle. The caller waits for that.

use creamery_base::Result;
use creamery_base::lock::{RankedMutex, rank};
use creamery_txn::{BlockReserve, CommitParticipant, Handle};

type ChangeAtClose = Box<dyn FnOnce(&Handle<'_>) -> Result<()> + Send>;

/// The changes that wait for the running transaction to close.
#[derive(Default)]
pub(crate) struct AtClose(RankedMutex<Vec<(ChangeAtClose, BlockReserve)>, { rank::LEAF }>);

impl AtClose {
    /// Queues `change` to run when the transaction closes that `room` was reserved in.
    pub(crate) fn push(&self, change: ChangeAtClose, room: BlockReserve) {
        self.0.lock().push((change, room));
    }

    /// Drops the changes that did not run: the transaction failed, so they never run.
    pub(crate) fn forget(&self) {
        let forgotten = std::mem::take(&mut *self.0.lock());
        drop(forgotten);
    }
}

impl CommitParticipant for AtClose {
    fn has_work(&self) -> bool {
        !self.0.lock().is_empty()
    }

    fn settle(&self, handle: &Handle<'_>) -> Result<()> {
        let changes = std::mem::take(&mut *self.0.lock());
        for (change, room) in changes {
            change(handle)?;
            drop(room);
        }
        Ok(())
    }
}
