//! How layers above take part in a commit and in making room, without this crate knowing them.

use std::sync::Arc;

use creamery_base::Result;
use parking_lot::RwLock;

/// The phases of a commit in which others take part.
///
/// | phase | when | may |
/// |---|---|---|
/// | `Prepare` | before the gate closes | begin handles and change trees |
/// | `Committed` | after the superblock is durable | let go of what waited for that |
///
/// ```
/// assert_ne!(creamery_txn::Phase::Prepare, creamery_txn::Phase::Committed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Before the gate closes.
    Prepare,
    /// The transaction is durable.
    Committed,
}

/// Somebody who has work to do in a commit.
pub trait CommitParticipant: Send + Sync {
    /// Does its work of `phase`. An error aborts the transaction.
    fn take_part(&self, phase: Phase) -> Result<()>;
}

/// Somebody who can make room when space runs short, before a commit is tried.
pub trait Reclaimer: Send + Sync {
    /// Gives back what it can; true when it gave back anything.
    fn reclaim(&self) -> Result<bool>;
}

#[derive(Default)]
pub(crate) struct Participants {
    participants: RwLock<Vec<Arc<dyn CommitParticipant>>>,
    reclaimers: RwLock<Vec<Arc<dyn Reclaimer>>>,
}

impl Participants {
    pub(crate) fn run(&self, phase: Phase) -> Result<()> {
        let participants = self.participants.read().clone();
        participants.iter().try_for_each(|participant| participant.take_part(phase))
    }

    pub(crate) fn reclaim(&self) -> Result<bool> {
        let reclaimers = self.reclaimers.read().clone();
        reclaimers.iter().try_fold(false, |any, reclaimer| Ok(any | reclaimer.reclaim()?))
    }

    pub(crate) fn add(&self, participant: Arc<dyn CommitParticipant>) {
        self.participants.write().push(participant);
    }

    pub(crate) fn add_reclaimer(&self, reclaimer: Arc<dyn Reclaimer>) {
        self.reclaimers.write().push(reclaimer);
    }
}

impl crate::Engine {
    /// Lets `participant` take part in every commit from now on.
    pub fn register(&self, participant: Arc<dyn CommitParticipant>) {
        self.participants.add(participant);
    }

    /// Asks `reclaimer` from now on before "no space" is answered.
    pub fn register_reclaimer(&self, reclaimer: Arc<dyn Reclaimer>) {
        self.participants.add_reclaimer(reclaimer);
    }
}
