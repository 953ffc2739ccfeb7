//! Requests in flight: requests that outlive the call that began them, and the queue of those that wait to be completed.
//!
//! A device answers on a thread of its own, which waits for nothing. That thread ends a request whose completion does not wait.
//! Other completions take handles, and may wait long. Their requests go into a queue, from which three kinds of threads take them:
//!
//! ```text
//!   device ---> land -+-> complete
//!                     +-> [ landed | landed | landed ] ---> the background, a few at once
//!                                                     ---> a thread that waits for something that a request carries
//!                                                     ---> a thread that finds no room, or closes the filesystem
//! ```
//! A thread that waits for something a request carries *helps* first ([`Awaited::wait`]). It completes the landed requests that may
//! carry it, and waits only while there are none. A request that lands wakes all threads that may wait for it
//! ([`Submitted::wake`]). So no waiter depends on the background: with no thread there, or all of them busy, each waiter itself
//! does the work that it waits for. A waiter does no more than that while it holds its locks: a request of another file may take
//! long to complete, and its own may land meanwhile.
//!
//! A thread that waits for the answer itself helps in this way, with requests of the inode ([`Poller::wait`]). A polling caller
//! ([`Poller`]) waits for nothing. The background completes the request; where it has no threads, a request that lands wakes the
//! poller, and the next poll completes it.
//!
//! A request is known by its inode from before it carries anything until its answer.
//!
//! # A filesystem that is dropped
//! A request keeps its inode alive, and by that the filesystem. It stands in a table here. A device has only the number of the
//! request and the answer owed to its caller, and nothing of the filesystem. So a device may keep a request for ever, or drop it
//! late on a thread of its own: the device keeps no filesystem alive. Its thread drops the last reference only where the filesystem
//! is dropped while it ends a request. The last user of a filesystem may go without closing it. Then the table lets go of all its
//! requests ([`InFlight::abandon`]). Each caller gets an error for an answer: at once where the request has landed, else when the
//! device, which has the buffer until then, answers or drops it.
//!
//! # Invariants
//! - DIRECT-3: no request begins once closing the filesystem has begun, and none is in flight when the devices are given back.
//!   Shown by `who_closes_a_filesystem_waits_for_its_requests`.
//! - DIRECT-9: a thread that waits for something a request carries completes that request once it has landed.
//!   Shown by `whoever_waits_for_what_a_request_carries_completes_it`.
//! - DIRECT-14: a waiting thread completes only requests that may carry the awaited thing: those about the inode, or those that
//!   write in the subvolume. Shown by `who_waits_completes_nothing_of_other_files`.
//! - DIRECT-11: when the last user of a filesystem is gone no request keeps it alive.
//!   Shown by `a_filesystem_that_is_dropped_lets_go_of_its_device_whatever_is_in_flight`.
//! - DIRECT-10: making a file, or all, durable ends the writes that began before, and waits for none that begins later.
//!   Shown by `who_syncs_waits_for_the_requests_that_began_before`.
//! - DIRECT-12: an operation that a commit did not help fails with ENOSPC or EDQUOT only after the requests that carried room at that
//!   time have ended. A request that carries all that it needs waits for nothing held by a thread that looks for room. A request that
//!   does not carry it yet may wait for that thread's locks, so the thread does not wait for it.
//!   Shown by `nobody_finds_no_room_because_of_requests_in_flight`.
//! - DIRECT-13: the bytes of submitted requests in flight stay within the limit, but for one request that is alone. Requests begin
//!   in the order in which they were submitted. Shown by `who_submits_more_than_may_be_in_flight_waits`.
//! - DIRECT-15: a waiting caller gets its answer, and a polling caller is woken for it, with background threads, without them, and
//!   when they end. Shown by `who_waits_for_an_answer_completes_what_lands`,
//!   `who_polls_is_woken_by_what_lands_where_nobody_is_in_the_background`, `who_polls_is_woken_when_the_background_ends`.
//!
//! # Locking
//! The queue is a table (rank TABLE). A request that lands wakes other threads while this lock is held, by their innermost locks, and so
//! lives until it has done that. A helping thread holds no lock that completing takes: rank WRITEBACK.

mod awaited;
mod line;
mod poller;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use creamery_base::gate::Reason;
use creamery_base::lock::{HeldNote, LockPosition, RankedCondvar, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, InodeId, Result};
use creamery_txn::Reclaimer;

pub(crate) use awaited::{Awaited, Carried, GivesUp};
pub(crate) use line::BytesInFlight;
pub(crate) use poller::Poller;

/// A request that was sent to its devices.
pub(crate) trait Submitted: Send {
    /// Wakes the threads that may wait for something this request carries. It takes innermost locks only, and waits for nothing.
    fn wake(&self);

    /// Whether threads in the background complete requests.
    fn has_background(&self) -> bool;

    /// Completes a request that has landed, answers it, and gives its resources back. It does not panic: the thread may be in the
    /// midst of something else.
    fn complete(self: Box<Self>);

    /// Completes the request, as [`complete`](Self::complete) does, if that waits for nothing and the thread may call the caller's
    /// completion: a thread that must not wait may not. Otherwise returns the request.
    fn complete_at_once(self: Box<Self>) -> Option<Box<dyn Submitted>>;

    /// Gives its resources back when the filesystem is gone, and answers it if it has landed. It does not panic either.
    fn abandon(self: Box<Self>);
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestPurpose {
    /// Changes nothing, and keeps no room.
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
    /// Requests ever put into the queue, for threads that wait with another lock.
    landings: AtomicU64,
    requests: RankedMutex<Requests, { rank::TABLE }>,
    changed: RankedCondvar,
}

#[derive(Default)]
struct Requests {
    is_closed: bool,
    is_abandoned: bool,
    next_ticket: u64,
    /// Bytes of the requests that are submitted.
    bytes: u64,
    next_turn: u64,
    /// The turns of requests that wait until there is room for their bytes.
    line: VecDeque<u64>,
    /// All requests, in the order in which they began.
    begun: BTreeMap<u64, RequestInFlight>,
    /// Requests that devices have not answered yet.
    submitted: BTreeMap<u64, Box<dyn Submitted>>,
    /// Requests that wait to be completed, in the order in which they landed.
    landed: VecDeque<(u64, Box<dyn Submitted>)>,
    /// Requests that have ended and wait to be made durable, in the order in which they ended.
    owed: VecDeque<(u64, Box<dyn Submitted>)>,
    next_poller: u64,
    /// The waker of each poller, and the inode that its request is about.
    pollers: BTreeMap<u64, (InodeId, Waker)>,
}

impl Requests {
    /// Takes the wakers of the pollers of requests about an inode that is `wanted`: each of them polls again, and leaves another
    /// one. Wakers run foreign code, so none is cloned, woken or dropped under this lock.
    fn take_wakers(&mut self, wanted: impl Fn(InodeId) -> bool) -> Vec<Waker> {
        let numbers: Vec<u64> =
            self.pollers.iter().filter(|(_, (id, _))| wanted(*id)).map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| Some(self.pollers.remove(number)?.1)).collect()
    }

    /// The place in the queue of the first request that is `wanted`.
    fn first_landed(&self, wanted: impl Fn(&RequestInFlight) -> bool) -> Option<usize> {
        self.landed.iter().position(|(ticket, _)| wanted(&self.begun[ticket]))
    }

    /// The place of the first `wanted` request in the queue of those that owe a sync.
    fn first_owed(&self, wanted: impl Fn(&RequestInFlight) -> bool) -> Option<usize> {
        self.owed.iter().position(|(ticket, _)| wanted(&self.begun[ticket]))
    }

    /// Whether a `wanted` request has work for a thread that `helps` so far.
    fn has_work(&self, wanted: impl Fn(&RequestInFlight) -> bool, helps: Helps) -> bool {
        self.first_landed(&wanted).is_some() || helps == Helps::Syncs && self.first_owed(wanted).is_some()
    }
}

/// The work that a thread does for the requests of others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Helps {
    /// The thread may hold locks, and completes requests that have landed.
    Completes,
    /// The thread holds no lock, and also syncs for requests that owe a sync (DIRECT-16).
    Syncs,
}

impl Helps {
    /// The thread holds no lock of this rank or behind it.
    fn place(self) -> LockPosition {
        LockPosition::of(if self == Self::Syncs { rank::INODE } else { rank::WRITEBACK })
    }
}

/// A request that began.
struct RequestInFlight {
    /// The inode that it is about.
    id: InodeId,
    purpose: RequestPurpose,
    /// The request has all that it needs to end, and no thread holds any of that.
    is_carried: bool,
}

impl RequestInFlight {
    /// Whether its end gives room back, and waits for nothing that a thread holds while it looks for room.
    fn keeps_room(&self) -> bool {
        self.is_carried && self.purpose == RequestPurpose::Write
    }
}

/// A request that is known to be in flight until this value drops.
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

    /// Marks the request as carrying all that it needs to end.
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
    /// Makes the table; at most `most` bytes of submitted requests are in flight.
    pub(crate) fn new(most: u64) -> Self {
        Self { most, ..Self::default() }
    }

    /// Begins a request about data of the inode `id`. Errors: the filesystem is being closed.
    pub(crate) fn begin(self: &Arc<Self>, id: InodeId, purpose: RequestPurpose) -> Result<Begun> {
        let mut requests = self.requests.lock();
        if requests.is_closed {
            return Err(Error::new(ErrorKind::Stale, "the filesystem is being closed")); // DIRECT-3
        }
        let ticket = requests.next_ticket;
        requests.next_ticket += 1;
        requests.begun.insert(ticket, RequestInFlight { id, purpose, is_carried: false });
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

    /// Records the request with this number, which is about to be sent to its devices.
    pub(crate) fn submit(&self, ticket: u64, request: Box<dyn Submitted>) {
        let before = self.requests.lock().submitted.insert(ticket, request);
        assert!(before.is_none(), "DIRECT-1: a request is submitted once");
    }

    /// Takes the request with this number after all devices have answered it. The request is then complete, or waits to be completed, and
    /// the threads that wait for it wake up. Waits for nothing. False when it was abandoned.
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
        // Under the lock: the thread that completes it, and lets go of all it has, waits for that.
        let landed = &requests.landed.back().expect("just pushed").1;
        landed.wake();
        let about = Some(requests.begun[&ticket].id).filter(|_| !landed.has_background());
        let wakers = requests.take_wakers(|id| about == Some(id));
        drop(requests);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
        true
    }

    /// Queues a request that has ended and carries nothing any more. It owes a sync, which a thread without locks carries out.
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

    /// Wakes the threads that wait for an answer, after a request was answered.
    pub(crate) fn tell_of_an_answer(&self) {
        drop(self.requests.lock());
        self.changed.notify_all();
    }

    /// Wakes all pollers, because no background thread completes requests any more and they have to (DIRECT-15).
    pub(crate) fn wake_pollers(&self) {
        let wakers = self.requests.lock().take_wakers(|_| true);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Abandons all requests: the last user of the filesystem is gone, and no thread will complete anything (DIRECT-11).
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

    /// Whether there is work for a thread that has no locks.
    pub(crate) fn has_work(&self) -> bool {
        self.has_landed() || self.owed.load(Ordering::SeqCst) > 0
    }

    fn landings(&self) -> u64 {
        self.landings.load(Ordering::SeqCst)
    }

    /// The number of landed requests, if none of them waits to be completed.
    fn landings_if_all_are_gone(&self) -> Option<u64> {
        Some(self.landings()).filter(|_| !self.has_landed())
    }

    /// Completes the request that landed first. Where there is none, makes the first one durable that owes a sync. False when there
    /// was neither. The caller has no locks.
    pub(crate) fn help(&self) -> bool {
        self.help_with(|_| true, Helps::Syncs)
    }

    /// Completes the `wanted` request that landed first. Where there is none and the thread syncs, makes the first `wanted` one
    /// durable that owes a sync. False when there was nothing to do.
    fn help_with(&self, wanted: impl Fn(&RequestInFlight) -> bool, helps: Helps) -> bool {
        drop(HeldNote::wait(helps.place()));
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

    /// Refuses new requests, and waits until none is in flight. Completes requests as they land (DIRECT-3).
    pub(crate) fn close(&self) {
        self.requests.lock().is_closed = true;
        self.wait_until(|_| true, Helps::Syncs, |requests| requests.begun.is_empty());
    }

    /// Waits for the writes to `wanted` inodes that began before. Completes them as they land (DIRECT-10).
    pub(crate) fn wait_for_those_begun(&self, wanted: impl Fn(InodeId) -> bool) {
        self.wait_for(|request| request.purpose == RequestPurpose::Write && wanted(request.id), Helps::Syncs);
    }

    /// Waits for the `awaited` requests that began before. Completes them as they land.
    fn wait_for(&self, awaited: impl Fn(&RequestInFlight) -> bool, helps: Helps) {
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

    /// Waits until `has_ended`. Completes `awaited` requests as they land.
    fn wait_until(
        &self,
        awaited: impl Fn(&RequestInFlight) -> bool,
        helps: Helps,
        has_ended: impl Fn(&Requests) -> bool,
    ) {
        drop(HeldNote::wait(helps.place()));
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

/// A thread that finds no room completes writes that have landed. That gives back the room that was kept for them, and the space of
/// the data that they replaced. Completing asks no reclaimer to free anything (RECLAIM-1). Where a commit of all that does not
/// help, the thread waits for the writes that are on their way (DIRECT-12).
impl Reclaimer for InFlight {
    fn reclaim_step(&self) -> Result<bool> {
        Ok(self.help_with(RequestInFlight::keeps_room, Helps::Completes))
    }

    /// False: a commit follows on the wait for requests on their way, and gives back space freed by other operations as well.
    fn has_freed(&self) -> bool {
        false
    }

    fn wait_for_work(&self) -> bool {
        self.wait_for(RequestInFlight::keeps_room, Helps::Completes);
        self.requests.lock().next_ticket > 0
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use creamery_base::{ObjectId, TreeId};

    use super::*;

    /// A request whose completion begins another one.
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
            let next = own.in_flight.begin(id(2), RequestPurpose::Write).expect("it is open");
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
            (in_flight.begin(id(2), RequestPurpose::Write), in_flight.begin(id(1), RequestPurpose::Write));
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

    /// The small request would have room at once.
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
        let begun = in_flight.begin(id(1), RequestPurpose::Write).expect("it is open");
        drop(Begun { in_flight: Arc::clone(&in_flight), ticket: begun.ticket });
        drop(begun);
    }
}
