//! What is done while a transaction closes: snapshots, which nobody may work beside.
//!
//! Whoever asks for it has locked what it needs and was promised the room; it is done by whoever closes the transaction, with the
//! commit's own handle, and the asker waits for that.

use creamery_base::Result;
use creamery_base::lock::{RankedMutex, rank};
use creamery_txn::{CommitParticipant, Handle, KeptPromise};

type Change = Box<dyn FnOnce(&Handle<'_>) -> Result<()> + Send>;

/// The changes that wait for the running transaction to close.
#[derive(Default)]
pub(crate) struct AtClose(RankedMutex<Vec<(Change, KeptPromise)>, { rank::LEAF }>);

impl AtClose {
    /// Has `change` made when the transaction closes in which `room` was promised.
    pub(crate) fn push(&self, change: Change, room: KeptPromise) {
        self.0.lock().push((change, room));
    }

    /// What was not made is never made: the transaction came to nothing.
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
