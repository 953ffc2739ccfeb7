//! A wait for something that requests carry. The waiting thread completes those requests as they land (DIRECT-9, DIRECT-14).
//!
//! A device may never answer. A caller that may give up looks first, then waits in rounds: no thread wakes it when only its own decision
//! changes.

use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_base::{InodeId, TreeId};

use super::{Helps, InFlight, RequestInFlight, RequestPurpose};

/// How long a caller that may give up waits before it is asked again.
const ROUND: Duration = Duration::from_millis(100);

/// Whether a waiting caller gives up.
#[derive(Clone, Copy)]
pub(crate) enum GivesUp<'a> {
    Never,
    /// Gives up when the function returns true. It is called again and again while there is something to wait for, with no lock of
    /// the wait held.
    When(&'a dyn Fn() -> bool),
}

impl GivesUp<'_> {
    fn now(self) -> bool {
        match self {
            Self::Never => false,
            Self::When(is_interrupted) => is_interrupted(),
        }
    }
}

/// Something that requests may carry and a thread may wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carried {
    /// Something of an inode.
    OfInode(InodeId),
    /// A change of a subvolume.
    OfSubvolume(TreeId),
}

impl Carried {
    fn is_by(self, request: &RequestInFlight) -> bool {
        match self {
            Self::OfInode(id) => request.id == id,
            Self::OfSubvolume(id) => request.id.subvolume == id && request.purpose == RequestPurpose::Write,
        }
    }
}

/// The requests that may carry the thing that a thread waits for.
#[derive(Clone, Copy)]
pub(crate) struct Awaited<'f> {
    in_flight: &'f InFlight,
    carried: Carried,
}

impl Awaited<'_> {
    /// Waits, with `lock` and `changed`, until `waits` returns false. Completes these requests as they land (DIRECT-9), and no others
    /// (DIRECT-14). A request that carries the awaited thing wakes `changed`.
    pub(crate) fn wait<T>(
        self,
        reason: Reason,
        on: (&RankedMutex<T, { rank::LEAF }>, &RankedCondvar),
        waits: impl FnMut(&mut T) -> bool,
    ) {
        self.wait_unless(GivesUp::Never, reason, on, waits);
    }

    /// Waits like [`wait`](Self::wait), for a caller that may give up. The caller itself checks the state of the awaited thing.
    pub(crate) fn wait_unless<T>(
        self,
        gives_up: GivesUp<'_>,
        reason: Reason,
        (lock, changed): (&RankedMutex<T, { rank::LEAF }>, &RankedCondvar),
        mut waits: impl FnMut(&mut T) -> bool,
    ) {
        drop(HeldNote::wait(LockPosition::of(rank::WRITEBACK)));
        let Self { in_flight, carried } = self;
        let (mut is_over, mut seen) = match gives_up {
            GivesUp::Never => (false, in_flight.landings_if_all_are_gone()),
            GivesUp::When(_) => (false, None),
        };
        while !is_over {
            let passes = |state: &mut T| {
                is_over = !waits(state);
                !is_over && seen == Some(in_flight.landings())
            };
            drop(match gives_up {
                GivesUp::Never => changed.pass_while(reason, lock.lock(), passes),
                GivesUp::When(_) => changed.pass_while_for(reason, lock.lock(), ROUND, passes),
            });
            if !is_over {
                // The next look at the number finds requests that land after this.
                let landings = in_flight.landings();
                seen = Some(landings)
                    .filter(|_| !in_flight.help_with(|request| carried.is_by(request), Helps::Completes));
                is_over = gives_up.now();
            }
        }
    }
}

impl InFlight {
    /// The requests that may carry `carried`.
    pub(crate) const fn awaited(&self, carried: Carried) -> Awaited<'_> {
        Awaited { in_flight: self, carried }
    }
}
