//! The phases of a commit, by name.
//!
//! | phase | the gate | work | a crash leaves | a failure |
//! |---|---|---|---|---|
//! | `running` | open | handles begin and end; heads are run in steps | the last commit | of an operation that has changed something aborts |
//! | `close-gate` | closing | handles that have begun end | the last commit | of one of them aborts |
//! | `settle` | closed | deferred work is done: participants, chunks, heads, block groups, roots | the last commit | aborts |
//! | `take` | closed | the dirty blocks, the superblock and the freed extents are taken; the next generation begins | the last commit | aborts |
//! | `write-out` | open | the blocks are written, where nothing durable lies | the last commit | aborts |
//! | `flush` | open | all devices make them durable | the last commit | aborts |
//! | `publish` | open | the superblock is written | the last commit or this one | aborts; which of the two is not known |
//! | `finish` | open | all devices make it durable, and its copies follow | the last commit or this one | aborts; which of the two is not known |
//! | `release` | open | space that only the last commit reached can be handed out | this commit | aborts |
//! | `log` | open | no commit: the logs of the running transaction are written and made durable | the last commit, with these logs or those before | aborts; which of the two is not known |
//!
//! From `write-out` on the next transaction runs beside it. If data was written and there is nothing to commit,
//! `flush` comes right after `close-gate`. A panic in the middle of a phase aborts like a failure.
//!
//! `sim/tests/it/commit_faults.rs` shows the image that a failing device leaves in each of them, and the callers that get the error.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};

macro_rules! phases {
    ($($(#[$doc:meta])* $phase:ident $name:literal,)*) => {
        /// The phase of a commit.
        ///
        /// ```
        /// use creamery_txn::CommitPhase;
        /// assert_eq!(CommitPhase::WriteOut.to_string(), "write-out");
        /// assert!(CommitPhase::Flush < CommitPhase::Publish);
        /// assert_eq!(CommitPhase::ALL.len(), 10);
        /// ```
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
        pub enum CommitPhase {
            $($(#[$doc])* $phase,)*
        }

        impl CommitPhase {
            /// All phases, in their order.
            pub const ALL: &[Self] = &[$(Self::$phase),*];

            /// Its name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$phase => $name,)* }
            }
        }
    };
}

phases! {
    /// No commit is on its way.
    #[default]
    Running "running",
    /// No handle begins any more; open handles end.
    CloseGate "close-gate",
    /// Deferred work is done.
    Settle "settle",
    /// The blocks and the superblock to write are taken.
    Take "take",
    /// Blocks are written.
    WriteOut "write-out",
    /// Devices make them durable.
    Flush "flush",
    /// The superblock is written.
    Publish "publish",
    /// Devices make it durable.
    Finish "finish",
    /// Space that is not needed any more can be handed out.
    Release "release",
    /// No commit is on its way: logs are written.
    Log "log",
}

impl fmt::Display for CommitPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The phase of the commit that is on its way.
#[derive(Default)]
pub(crate) struct PhaseNow(AtomicU8);

impl PhaseNow {
    pub(crate) fn enter(&self, phase: CommitPhase) {
        self.0.store(phase as u8, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> CommitPhase {
        CommitPhase::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }
}
