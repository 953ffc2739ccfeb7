//! How layers above take part in a commit, without this crate knowing them.

use std::sync::Arc;

use creamery_base::Result;
use creamery_base::lock::{RankedRwLock, rank};

use crate::handle::Handle;

/// Somebody who puts work off until the transaction closes.
///
/// ```
/// use creamery_txn::{CommitParticipant, Handle};
/// struct Nothing;
/// impl CommitParticipant for Nothing {
///     fn settle(&self, _: &Handle<'_>) -> creamery_base::Result<()> {
///         Ok(())
///     }
/// }
/// ```
pub trait CommitParticipant: Send + Sync {
    /// Does all that was put off, with the commit's own handle: no other is open, and none begins before it is done. It must
    /// not wait for somebody who may be waiting for a handle. What it put off was promised ([`Handle::keep`]), so there is
    /// room. An error aborts the transaction.
    fn settle(&self, handle: &Handle<'_>) -> Result<()>;

    /// Whether it put something off that is a reason for a commit by itself. Asked when no handle is open.
    fn has_work(&self) -> bool {
        false
    }

    /// Somebody asked for a commit, or it fell due by time: what is to be part of it and takes handles of its own is done now.
    /// Nobody has closed anything yet.
    fn prepare(&self) {}
}

#[derive(Default)]
pub(crate) struct Participants(RankedRwLock<Vec<Arc<dyn CommitParticipant>>, { rank::LEAF }>);

impl Participants {
    /// Lets `participant` take part from now on.
    pub(crate) fn register(&self, participant: Arc<dyn CommitParticipant>) {
        self.0.write().push(participant);
    }

    pub(crate) fn have_work(&self) -> bool {
        let participants = self.0.read().clone();
        participants.iter().any(|participant| participant.has_work())
    }

    pub(crate) fn prepare(&self) {
        let participants = self.0.read().clone();
        participants.iter().for_each(|participant| participant.prepare());
    }

    pub(crate) fn settle(&self, handle: &Handle<'_>) -> Result<()> {
        let participants = self.0.read().clone();
        participants.iter().try_for_each(|participant| participant.settle(handle))
    }
}
