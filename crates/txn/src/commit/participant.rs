//! The interface by which layers above take part in a commit.

use std::sync::Arc;

use creamery_base::Result;
use creamery_base::lock::{RankedRwLock, rank};

use crate::handle::Handle;

/// A component that defers work until the transaction closes.
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
    /// Does all deferred work, with the commit's own handle: no other is open, and none begins before it is done. It must
    /// not wait for a thread that may wait for a handle. Its room was promised ([`Handle::keep`]), so there
    /// is enough. An error aborts the transaction.
    fn settle(&self, handle: &Handle<'_>) -> Result<()>;

    /// Whether it has deferred work that is a reason for a commit by itself. Called when no handle is open.
    fn has_work(&self) -> bool {
        false
    }

    /// Called when a caller asks for a commit, or one falls due by time: it does work that belongs to the commit and takes handles of its own.
    /// The gate is still open.
    fn prepare(&self) {}
}

#[derive(Default)]
pub(crate) struct Participants(RankedRwLock<Vec<Arc<dyn CommitParticipant>>, { rank::LEAF }>);

impl Participants {
    /// Registers `participant` for all later commits.
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
