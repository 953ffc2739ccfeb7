//! A wait for something that requests carry, which completes those requests as they land (DIRECT-9, DIRECT-14).
//!
//! A device may never answer. Somebody who is asked whether he gives up looks first, and waits in rounds then: nobody wakes him who only
//! changes his mind.

use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};
use creamery_base::{InodeId, TreeId};

use super::{Helps, InFlight, Purpose, Request};

/// How long somebody who may give up waits before he is asked again.
const ROUND: Duration = Duration::from_millis(100);

/// Whether somebody who waits gives up.
#[derive(Clone, Copy)]
pub(crate) enum GivesUp<'a> {
    Never,
    /// When this says so, which is asked while there is something to wait for, again and again, with no lock of the wait held.
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
        on: (&RankedMutex<T, { rank::LEAF }>, &RankedCondvar),
        waits: impl FnMut(&mut T) -> bool,
    ) {
        self.wait_unless(GivesUp::Never, reason, on, waits);
    }

    /// The same for somebody who may give up; he finds out himself what has become of what he waited for.
    pub(crate) fn wait_unless<T>(
        self,
        gives_up: GivesUp<'_>,
        reason: Reason,
        (lock, changed): (&RankedMutex<T, { rank::LEAF }>, &RankedCondvar),
        mut waits: impl FnMut(&mut T) -> bool,
    ) {
        drop(Held::wait(Place::of(rank::WRITEBACK)));
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
                // What lands behind this the next look at the number finds.
                let landings = in_flight.landings();
                seen = Some(landings)
                    .filter(|_| !in_flight.help_with(|request| carried.is_by(request), Helps::Completes));
                is_over = gives_up.now();
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
