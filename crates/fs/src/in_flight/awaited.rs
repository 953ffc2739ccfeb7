//! A wait for something that requests carry, which completes those requests as they land (DIRECT-9, DIRECT-14).

use creamery_base::gate::Reason;
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};
use creamery_base::{InodeId, TreeId};

use super::{InFlight, Purpose, Request};

/// What somebody waits for that requests may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Carried {
    /// Something of an inode.
    OfInode(InodeId),
    /// A change of a subvolume.
    OfSubvolume(TreeId),
}

impl Carried {
    fn is_by(self, request: &Request) -> bool {
        match self {
            Self::OfInode(id) => request.id == id,
            Self::OfSubvolume(id) => request.id.subvolume == id && request.purpose == Purpose::Write,
        }
    }
}

/// The requests that may carry what somebody waits for.
#[derive(Clone, Copy)]
pub(crate) struct Awaited<'f> {
    in_flight: &'f InFlight,
    carried: Carried,
}

impl Awaited<'_> {
    /// Waits, with `lock` and `changed`, until `waits` says no; completes these requests as they land (DIRECT-9), and no others (DIRECT-14).
    /// `changed` is one of those that a request wakes which carries that.
    pub(crate) fn wait<T>(
        self,
        reason: Reason,
        (lock, changed): (&RankedMutex<T, { rank::LEAF }>, &RankedCondvar),
        mut waits: impl FnMut(&mut T) -> bool,
    ) {
        drop(Held::wait(Place::of(rank::WRITEBACK)));
        let Self { in_flight, carried } = self;
        let (mut is_over, mut seen) = (false, in_flight.landings_if_all_are_gone());
        while !is_over {
            let guard = changed.pass_while(reason, lock.lock(), |state| {
                is_over = !waits(state);
                !is_over && seen == Some(in_flight.landings())
            });
            drop(guard);
            if !is_over {
                // What lands behind this the next look at the number finds.
                let landings = in_flight.landings();
                seen = Some(landings).filter(|_| !in_flight.help_with(|request| carried.is_by(request)));
            }
        }
    }
}

impl InFlight {
    /// Those that may carry what somebody waits for.
    pub(crate) const fn awaited(&self, carried: Carried) -> Awaited<'_> {
        Awaited { in_flight: self, carried }
    }
}
