//! Requests in flight: those that outlive the call that began them. Which there are, and those that wait to be completed.
//!
//! A device answers on a thread of its own, which waits for nothing. That thread ends a request whose completion does not wait. Other completions take
//! handles, and may wait long. Their requests go into a queue, from which three kinds of threads take them:
//!
//! ```text
//!   device ---> land -+-> complete
//!                     +-> [ landed | landed | landed ] ---> the background, a few at once
//!                                                     ---> whoever waits for something that a request carries
//!                                                     ---> whoever finds no room, or closes the filesystem
//! ```
//! Who waits for what a request carries *helps* first ([`Awaited::wait`]): it completes what has landed of that which may carry it, and waits
//! only while there is none; a request that lands wakes all who may wait for it ([`Submitted::wake`]). So nobody depends on the background:
//! with no thread there, or all of them busy, each waiter has done what it waits for. Nor does anybody do more than that, with the locks that he
//! has: a request of another file may take long to complete, and what he waits for may be there meanwhile.
//!
//! Who waits for the answer itself helps in the same way, with requests of the inode ([`Poller::wait`]). Who polls for it
//! ([`Poller`]) waits for nothing. The background completes the request; where it has no threads, what lands wakes the poller, and the next poll completes it.
//!
//! A request is known by its inode from before it carries anything to its answer.
//!
//! # A filesystem that is dropped
//! A request keeps its inode alive, and by that the filesystem. It stands in a table here. A device has its number and what is owed to its
//! caller, and nothing of the filesystem. So a device may keep a request for ever, or drop it late on a thread of its own: the device keeps no
//! filesystem alive. Its thread drops the last reference only where the filesystem is dropped while it ends a request. The last user of a filesystem may go without closing it. Then the table lets go of all its requests
//! ([`InFlight::abandon`]). Each caller gets an error for an answer: at once where the request has landed, else when the device, which has the
//! buffer until then, answers or drops it.
//!
//! # Invariants
//! - DIRECT-3: no request begins once somebody has begun to close the filesystem, and none is in flight when the devices are given back.
//!   Shown by `who_closes_a_filesystem_waits_for_its_requests`.
//! - DIRECT-9: what has landed is completed by whoever waits for what it carries.
//!   Shown by `whoever_waits_for_what_a_request_carries_completes_it`.
//! - DIRECT-14: who waits for what a request carries completes no requests that carry nothing of the kind: of an inode he completes
//!   those about it, of a subvolume those that write there. Shown by `who_waits_completes_nothing_of_other_files`.
//! - DIRECT-11: when the last user of a filesystem is gone no request keeps it alive.
//!   Shown by `a_filesystem_that_is_dropped_lets_go_of_its_device_whatever_is_in_flight`.
//! - DIRECT-10: who makes a file, or all, durable has those writes ended that began before, and waits for none that begins later.
//!   Shown by `who_syncs_waits_for_the_requests_that_began_before`.
//! - DIRECT-12: the answer "no space", or that a limit is in the way, comes only after those requests have ended that carried room when a commit
//!   had not helped. A request that carries what it needs waits for nothing that a thread has which looks for room; one that does not yet may wait
//!   for that thread's locks, and is not waited for.
//!   Shown by `nobody_finds_no_room_because_of_requests_in_flight`.
//! - DIRECT-13: of requests that are submitted no more bytes are in flight than may be, but for one request that is alone. They begin in the order
//!   in which they were submitted. Shown by `who_submits_more_than_may_be_in_flight_waits`.
//! - DIRECT-15: who waits for an answer gets it, and who polls for it is woken for it, whether threads are in the background, or none, or those
//!   that there are end. Shown by `who_waits_for_an_answer_completes_what_lands`, `who_polls_is_woken_by_what_lands_where_nobody_is_in_the_background`,
//!   `who_polls_is_woken_when_the_background_ends`.
//!
//! # Locking
//! The queue is a table (rank TABLE): a request that lands wakes others under it, by their innermost locks, and so lives until it has done
//! that. Who helps holds nothing that completing takes: rank WRITEBACK.

mod awaited;
mod line;
mod poller;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use creamery_base::gate::Reason;
use creamery_base::lock::{Held, Place, RankedCondvar, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, InodeId, Result};
use creamery_txn::Reclaimer;

pub(crate) use awaited::{Awaited, Carried, GivesUp};
pub(crate) use line::BytesInFlight;
pub(crate) use poller::Poller;

/// A request that was sent to its devices.
pub(crate) trait Submitted: Send {
    /// Wakes those who may wait for what it carries. It takes innermost locks only, and waits for nothing.
    fn wake(&self);

    /// Whether threads in the background complete requests.
    fn has_background(&self) -> bool;

    /// It has landed: completes it, answers it, and gives back what it carries. It does not panic: the thread may be in the midst of
    /// something else.
    fn complete(self: Box<Self>);

    /// Completes it, as [`complete`](Self::complete) does, if that waits for nothing and the thread waits for nothing either; else the request
    /// comes back.
    fn complete_at_once(self: Box<Self>) -> Option<Box<dyn Submitted>>;

    /// The filesystem is gone: gives back what it carries, and answers it if it has landed. It does not panic either.
    fn abandon(self: Box<Self>);
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// It changes nothing, and keeps no room.
    Read,
    Write,
}

/// The requests of a filesystem that are in flight.
#[derive(Default)]
pub(crate) struct InFlight {
    /// Bytes of submitted requests that may be in flight.
    most: u64,
    /// Requests in the queue.
    landed: AtomicUsize,
    /// Requests that wait to be made durable.
    owed: AtomicUsize,
    /// How many have ever been put there, for those who wait with another lock.
    landings: AtomicU64,
    requests: RankedMutex<Requests, { rank::TABLE }>,
    changed: RankedCondvar,
}

#[derive(Default)]
struct Requests {
    is_closed: bool,
    is_abandoned: bool,
    next_ticket: u64,
    /// Bytes of those that are submitted.
    bytes: u64,
    next_turn: u64,
    /// The turns of requests that wait until there is room for their bytes.
    line: VecDeque<u64>,
    /// All of them, by when they began.
    begun: BTreeMap<u64, Request>,
    /// Those that devices are still to answer.
    submitted: BTreeMap<u64, Box<dyn Submitted>>,
    /// Those that wait to be completed, in the order in which they landed.
    landed: VecDeque<(u64, Box<dyn Submitted>)>,
    /// Those that have ended and wait to be made durable, in the order in which they ended.
    owed: VecDeque<(u64, Box<dyn Submitted>)>,
    next_poller: u64,
    /// Whom to wake who polls, and the inode that the request is about.
    pollers: BTreeMap<u64, (InodeId, Waker)>,
}

impl Requests {
    /// Takes the wakers of those who poll for requests about an inode that is `wanted`: each of them polls again, and leaves another one. What
    /// a waker does is not ours, so none is cloned, woken or dropped under this lock.
    fn take_wakers(&mut self, wanted: impl Fn(InodeId) -> bool) -> Vec<Waker> {
        let numbers: Vec<u64> =
            self.pollers.iter().filter(|(_, (id, _))| wanted(*id)).map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| Some(self.pollers.remove(number)?.1)).collect()
    }

    /// Where in the queue the first one stands that is `wanted`.
    fn first_landed(&self, wanted: impl Fn(&Request) -> bool) -> Option<usize> {
        self.landed.iter().position(|(ticket, _)| wanted(&self.begun[ticket]))
    }

    /// Where the first one stands in the queue of those that owe a sync.
    fn first_owed(&self, wanted: impl Fn(&Request) -> bool) -> Option<usize> {
        self.owed.iter().position(|(ticket, _)| wanted(&self.begun[ticket]))
    }

    /// Whether there is something to do of what is `wanted` for a thread that does so much.
    fn has_work(&self, wanted: impl Fn(&Request) -> bool, helps: Helps) -> bool {
        self.first_landed(&wanted).is_some() || helps == Helps::Syncs && self.first_owed(wanted).is_some()
    }
}

/// What a thread does for the requests of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Helps {
    /// It may hold locks, and completes requests that have landed.
    Completes,
    /// It holds no lock, and also syncs for requests that owe a sync (DIRECT-16).
    Syncs,
}

impl Helps {
    /// The thread holds no lock of this rank or behind it.
    fn place(self) -> Place {
        Place::of(if self == Self::Syncs { rank::INODE } else { rank::WRITEBACK })
    }
}

/// A request that began.
struct Request {
    /// What it is about.
    id: InodeId,
    purpose: Purpose,
    /// It has all that it needs to end, and no thread has any of that.
    is_carried: bool,
}

impl Request {
    /// Whether its end gives room back, and waits for nothing that somebody has who looks for room.
    fn keeps_room(&self) -> bool {
        self.is_carried && self.purpose == Purpose::Write
    }
}

/// A request that is known to be in flight until this goes.
#[must_use]
pub(crate) struct Begun {
    in_flight: Arc<InFlight>,
    ticket: u64,
}

impl Begun {
    /// Its number.
    pub(crate) const fn ticket(&self) -> u64 {
        self.ticket
    }

    /// From now on the request carries all that it needs to end.
    pub(crate) fn is_carried(&self) {
        let mut requests = self.in_flight.requests.lock();
        requests.begun.get_mut(&self.ticket).expect("DIRECT-1: it has not ended").is_carried = true;
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let known = self.in_flight.requests.lock().begun.remove(&self.ticket);
        assert!(known.is_some(), "DIRECT-1: a request ends once");
        self.in_flight.changed.notify_all();
    }
}

impl InFlight {
    /// At most so many bytes of submitted requests are in flight.
    pub(crate) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// A request about data of the inode `id` begins. Errors: the filesystem is being closed.
    pub(crate) fn begin(self: &Arc<Self>, id: InodeId, purpose: Purpose) -> Result<Begun> {
        let mut requests = self.requests.lock();
        if requests.is_closed {
            return Err(Error::new(ErrorKind::Stale, "the filesystem is being closed")); // DIRECT-3
        }
        let ticket = requests.next_ticket;
        requests.next_ticket += 1;
        requests.begun.insert(ticket, Request { id, purpose, is_carried: false });
        drop(requests);
        Ok(Begun { in_flight: Arc::clone(self), ticket })
    }

    /// The inodes that requests are about, each once.
    pub(crate) fn inodes(&self) -> Vec<InodeId> {
        let mut ids: Vec<_> = self.requests.lock().begun.values().map(|request| request.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// How many requests there are.
    pub(crate) fn len(&self) -> usize {
        self.requests.lock().begun.len()
    }

    /// The request with this number is about to be sent to its devices.
    pub(crate) fn submit(&self, ticket: u64, request: Box<dyn Submitted>) {
        let before = self.requests.lock().submitted.insert(ticket, request);
        assert!(before.is_none(), "DIRECT-1: a request is submitted once");
    }

    /// All devices have answered the request with this number: it is complete, or waits to be completed, and whoever waits for it wakes up.
    /// Waits for nothing. False when it was abandoned.
    pub(crate) fn land(&self, ticket: u64) -> bool {
        let submitted = self.requests.lock().submitted.remove(&ticket);
        let Some(request) = submitted else { return false };
        let Some(request) = request.complete_at_once() else { return true };
        let mut requests = self.requests.lock();
        if requests.is_abandoned {
            drop(requests);
            request.abandon();
            return true;
        }
        self.landed.fetch_add(1, Ordering::SeqCst);
        self.landings.fetch_add(1, Ordering::SeqCst);
        requests.landed.push_back((ticket, request));
        // Under the lock: who completes it, and lets go of all it has, waits for that.
        let landed = &requests.landed.back().expect("just pushed").1;
        landed.wake();
        let about = Some(requests.begun[&ticket].id).filter(|_| !landed.has_background());
        let wakers = requests.take_wakers(|id| about == Some(id));
        drop(requests);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// The request with this number has ended, and carries nothing any more. It owes a sync, which a thread without locks carries out.
    pub(crate) fn owe(&self, ticket: u64, request: Box<dyn Submitted>) {
        let mut requests = self.requests.lock();
        if requests.is_abandoned {
            drop(requests);
            return request.abandon();
        }
        let begun = requests.begun.get_mut(&ticket).expect("DIRECT-1: it has not ended");
        begun.is_carried = false;
        let about = Some(begun.id).filter(|_| !request.has_background());
        request.wake();
        requests.owed.push_back((ticket, request));
        self.owed.fetch_add(1, Ordering::SeqCst);
        let wakers = requests.take_wakers(|id| about == Some(id));
        drop(requests);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// A request was answered: who waits for that looks.
    pub(crate) fn tell_of_an_answer(&self) {
        drop(self.requests.lock());
        self.changed.notify_all();
    }

    /// No thread in the background completes anything any more: who polls has to (DIRECT-15).
    pub(crate) fn wake_pollers(&self) {
        let wakers = self.requests.lock().take_wakers(|_| true);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The last user of the filesystem is gone, and nobody will complete anything (DIRECT-11).
    pub(crate) fn abandon(&self) {
        let (submitted, landed, owed) = {
            let mut requests = self.requests.lock();
            self.landed.fetch_sub(requests.landed.len(), Ordering::SeqCst);
            self.owed.fetch_sub(requests.owed.len(), Ordering::SeqCst);
            requests.is_abandoned = true;
            let Requests { submitted, landed, owed, .. } = &mut *requests;
            (std::mem::take(submitted), std::mem::take(landed), std::mem::take(owed))
        };
        let landed = landed.into_iter().chain(owed).map(|(_, request)| request);
        landed.chain(submitted.into_values()).for_each(Submitted::abandon);
    }

    /// Whether a request waits to be completed.
    pub(crate) fn has_landed(&self) -> bool {
        self.landed.load(Ordering::SeqCst) > 0
    }

    /// Whether there is something to do for a thread that has no locks.
    pub(crate) fn has_work(&self) -> bool {
        self.has_landed() || self.owed.load(Ordering::SeqCst) > 0
    }

    fn landings(&self) -> u64 {
        self.landings.load(Ordering::SeqCst)
    }

    /// How many have landed, if none of them waits to be completed.
    fn landings_if_all_are_gone(&self) -> Option<u64> {
        Some(self.landings()).filter(|_| !self.has_landed())
    }

    /// Completes the request that landed first, or makes durable the first one that waits for that. False when there was none. The
    /// caller has no locks.
    pub(crate) fn help(&self) -> bool {
        self.help_with(|_| true, Helps::Syncs)
    }

    /// Completes the request that landed first of those that are `wanted`; where there is none a thread that does so makes the first
    /// one of them durable that waits for that. False when there was nothing to do.
    fn help_with(&self, wanted: impl Fn(&Request) -> bool, helps: Helps) -> bool {
        drop(Held::wait(helps.place()));
        let next = {
            let mut requests = self.requests.lock();
            let landed = requests.first_landed(&wanted).and_then(|at| requests.landed.remove(at));
            self.landed.fetch_sub(usize::from(landed.is_some()), Ordering::SeqCst);
            landed.or_else(|| {
                let at = requests.first_owed(wanted).filter(|_| helps == Helps::Syncs)?;
                self.owed.fetch_sub(1, Ordering::SeqCst);
                requests.owed.remove(at)
            })
        };
        next.map(|(_, request)| request.complete()).is_some()
    }

    /// Lets none begin from now on, and waits until none is in flight; completes what lands (DIRECT-3).
    pub(crate) fn close(&self) {
        self.requests.lock().is_closed = true;
        self.wait_until(|_| true, Helps::Syncs, |requests| requests.begun.is_empty());
    }

    /// Waits until those writes have ended that began before and are to an inode that is `wanted`; completes them as they land (DIRECT-10).
    pub(crate) fn wait_for_those_begun(&self, wanted: impl Fn(InodeId) -> bool) {
        self.wait_for(|request| request.purpose == Purpose::Write && wanted(request.id), Helps::Syncs);
    }

    /// Waits until those have ended that began before and are `awaited`; completes them as they land.
    fn wait_for(&self, awaited: impl Fn(&Request) -> bool, helps: Helps) {
        let before = {
            let requests = self.requests.lock();
            if !requests.begun.values().any(&awaited) {
                return;
            }
            requests.next_ticket
        };
        let has_ended =
            |requests: &Requests| !requests.begun.range(..before).any(|(_, request)| awaited(request));
        self.wait_until(&awaited, helps, has_ended);
    }

    /// Waits for an end, and completes what lands of that which is `awaited`.
    fn wait_until(
        &self,
        awaited: impl Fn(&Request) -> bool,
        helps: Helps,
        has_ended: impl Fn(&Requests) -> bool,
    ) {
        drop(Held::wait(helps.place()));
        loop {
            let requests = self.requests.lock();
            if has_ended(&requests) {
                return;
            }
            if !requests.has_work(&awaited, helps) {
                let waits =
                    |requests: &mut Requests| !has_ended(requests) && !requests.has_work(&awaited, helps);
                drop(self.changed.pass_while(Reason::Writeback, requests, waits));
            } else {
                drop(requests);
                self.help_with(&awaited, helps);
            }
        }
    }
}

/// A thread that finds no room completes writes that have landed: that gives back the room that was kept for it, and the space of the data
/// that was replaced. Completing asks nobody to free anything (RECLAIM-1). Where a commit of all that does not help, it waits for those that
/// are on their way (DIRECT-12).
impl Reclaimer for InFlight {
    fn reclaim_step(&self) -> Result<bool> {
        Ok(self.help_with(Request::keeps_room, Helps::Completes))
    }

    /// A commit follows on the wait for those that are on their way, which gives back all that others have freed as well.
    fn has_freed(&self) -> bool {
        false
    }

    fn wait_for_work(&self) -> bool {
        self.wait_for(Request::keeps_room, Helps::Completes);
        self.requests.lock().next_ticket > 0
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use creamery_base::{ObjectId, TreeId};

    use super::*;

    /// When it is completed another one begins.
    struct BeginsAnother {
        own: Begun,
        begins: Arc<RankedMutex<Option<Begun>, { rank::LEAF }>>,
    }

    impl Submitted for BeginsAnother {
        fn wake(&self) {}

        fn has_background(&self) -> bool {
            false
        }

        fn complete_at_once(self: Box<Self>) -> Option<Box<dyn Submitted>> {
            Some(self)
        }

        fn complete(self: Box<Self>) {
            let Self { own, begins } = *self;
            let next = own.in_flight.begin(id(2), Purpose::Write).expect("it is open");
            *begins.lock() = Some(next);
            drop(own);
        }

        fn abandon(self: Box<Self>) {}
    }

    fn id(ino: u64) -> InodeId {
        InodeId::new(TreeId::FS, ObjectId::new(ino))
    }

    #[test]
    fn who_syncs_waits_for_the_requests_that_began_before() {
        let in_flight = Arc::<InFlight>::default();
        let (own, elsewhere) =
            (in_flight.begin(id(2), Purpose::Write), in_flight.begin(id(1), Purpose::Write));
        let (own, elsewhere) = (own.expect("it is open"), elsewhere.expect("it is open"));
        let begins = Arc::default();
        let ticket = own.ticket();
        in_flight.submit(ticket, Box::new(BeginsAnother { own, begins: Arc::clone(&begins) }));
        assert!(in_flight.land(ticket) && !in_flight.land(ticket));
        in_flight.wait_for_those_begun(|inode| inode == id(2));
        assert_eq!(
            in_flight.inodes(),
            [id(1), id(2)],
            "DIRECT-10: neither what is elsewhere nor what began later"
        );
        let later = begins.lock().take();
        drop((later, elsewhere));
        in_flight.wait_for_those_begun(|_| true);
        assert_eq!(in_flight.len(), 0);
    }

    /// It would have room at once.
    #[test]
    fn a_small_request_stands_in_line_behind_a_large_one() {
        let in_flight = Arc::new(InFlight::new(4));
        let first = in_flight.make_room(2);
        thread::scope(|scope| {
            let stand = |bytes| {
                let before = in_flight.requests.lock().line.len();
                let own = Arc::clone(&in_flight);
                let waits = scope.spawn(move || own.make_room(bytes));
                while in_flight.requests.lock().line.len() == before {
                    thread::yield_now();
                }
                waits
            };
            let (large, small) = (stand(4), stand(1));
            (0..1000).for_each(|_| thread::yield_now());
            assert!(!large.is_finished() && !small.is_finished(), "DIRECT-13");
            drop(first);
            let large = large.join().expect("it has room");
            assert!(!small.is_finished(), "DIRECT-13: the large one takes all");
            drop(large);
            drop(small.join().expect("it has room"));
        });
        let requests = in_flight.requests.lock();
        assert!(requests.bytes == 0 && requests.line.is_empty());
    }

    #[test]
    #[should_panic(expected = "DIRECT-1")]
    fn a_request_that_ends_twice_is_a_bug() {
        let in_flight = Arc::<InFlight>::default();
        let begun = in_flight.begin(id(1), Purpose::Write).expect("it is open");
        drop(Begun { in_flight: Arc::clone(&in_flight), ticket: begun.ticket });
        drop(begun);
    }
}
