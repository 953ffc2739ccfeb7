//! What is delayed of one file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedGuard, RankedMutex, rank};
use creamery_base::{Timespec, memory};
use creamery_device::AlignedBuffer;
use creamery_format::file_extent::EXTENT_LEN_MAX;
use creamery_txn::DelallocReservation;

use super::pages::{Pages, Ranges, Taken, copy};
use crate::items::InodeItem;

/// The delayed data of one inode; costs next to nothing while there is none.
pub(crate) struct Delalloc {
    state: RankedMutex<Option<Box<State>>, { rank::DELALLOC }>,
    /// Whether there is any; changes under the mutex.
    any: AtomicBool,
    /// Whether it stands in the line of those to be written back; changes with the line locked.
    queued: AtomicBool,
    /// A run is in flight no more.
    landed: RankedCondvar,
    /// That of the last set of dirty pages that is no more; changes under the mutex.
    version: AtomicU64,
}

/// What is delayed.
pub(crate) struct State {
    pages: Pages,
    in_flight: Option<InFlight>,
    /// For the dirty pages; none before the first of them.
    room: Option<DelallocReservation>,
    /// The size of the file.
    size: u64,
    /// Its size in the tree.
    complete: u64,
    /// Behind the run that was taken last.
    next: u64,
    /// When it was written last, and how often since the item knows of it.
    written: Option<(Timespec, u64)>,
    /// Bytes, dirty or in flight, that have no space on a device yet.
    new: u64,
    /// How many runs of their own the dirty pages were when they were written, at most.
    runs: u64,
    /// When the first page became dirty since there was none, or since all that were dirty had been taken, by the monotonic clock.
    since: Duration,
    /// When one became dirty last.
    latest: Duration,
    /// It is to be written back soon.
    hasty: bool,
    /// It is about to be deleted: nothing is written back.
    held: bool,
}

/// Since when a file is dirty; what is older is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DirtySince {
    /// Long enough: it is to be written back soon.
    Hasty,
    /// This time, by the monotonic clock.
    Time(Duration),
}

/// What there is to be written back.
pub(super) enum NextRun {
    /// This, which is in flight now, with the room that is kept for it.
    Taken(Arc<Run>, DelallocReservation),
    /// Another run is in flight.
    InFlight,
    None,
}

/// Data on its way to a device.
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pieces: Vec<Arc<AlignedBuffer>>,
    /// The size of the file when this was taken.
    pub(crate) size: u64,
}

/// The run that is in flight.
struct InFlight {
    run: Arc<Run>,
    /// From here on; what is before is in the tree.
    at: u64,
    new: u64,
}

impl Run {
    /// Its sectors, piece by piece.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (u64, &Arc<AlignedBuffer>)> {
        self.pieces.iter().scan(self.start, |at, piece| {
            let start = *at;
            *at += piece.len() as u64;
            Some((start, piece))
        })
    }

    pub(crate) const fn len(&self) -> u64 {
        self.end - self.start
    }

    /// The size that the file has when this is complete, at least.
    pub(crate) fn data_end(&self) -> u64 {
        self.end.min(self.size)
    }
}

impl InFlight {
    fn range(&self) -> (u64, u64) {
        (self.at, self.run.end)
    }

    fn copy_out(&self, offset: u64, out: &mut [u8]) {
        let end = offset + out.len() as u64;
        for (start, piece) in
            self.run.pieces().skip_while(|(start, piece)| start + piece.len() as u64 <= offset)
        {
            if start >= end {
                break;
            }
            copy(piece, start, out, offset);
        }
    }
}

impl State {
    fn new(size: u64, since: Duration, version: u64) -> Self {
        Self {
            pages: Pages::new(version),
            in_flight: None,
            room: None,
            size,
            complete: size,
            next: 0,
            written: None,
            new: 0,
            runs: 0,
            since,
            latest: since,
            hasty: false,
            held: false,
        }
    }

    /// Copies what is delayed of the bytes from `offset` on into `out`; returns which parts are not.
    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) -> Ranges {
        let end = offset + out.len() as u64;
        let mut missing = self.pages.missing(offset, end);
        if let Some(flying) = &self.in_flight {
            let (start, stop) = flying.range();
            flying.copy_out(
                offset.max(start).min(end),
                &mut out[as_len(offset.max(start).min(end) - offset)..],
            );
            missing = missing.iter().flat_map(|range| without(*range, (start, stop))).collect();
        }
        self.pages.copy_out(offset, out);
        missing
    }

    /// Whether `[start, end)`, a sector, is delayed.
    pub(crate) fn has(&self, start: u64, end: u64) -> bool {
        let flying = self.in_flight.as_ref().is_some_and(|flying| {
            let range = flying.range();
            range.0 <= start && end <= range.1
        });
        flying || self.pages.has(start, end)
    }

    /// Whether any of `[start, end)` is delayed, or part of a run that is in flight. The front of that may be in the tree already: the items that
    /// show it still change with the rest (DELALLOC-3).
    fn touches(&self, start: u64, end: u64) -> bool {
        let flying = self.in_flight.as_ref().map_or((0, 0), |flying| (flying.run.start, flying.run.end));
        start.max(flying.0) < end.min(flying.1) || self.pages.missing(start, end)[..] != [(start, end)]
    }

    /// Tells the item of the writes that it does not know of yet.
    fn stamp(&self, item: &mut InodeItem) {
        if let Some((time, count)) = self.written {
            (item.mtime, item.ctime) = (time, time);
            item.sequence = item.sequence.wrapping_add(count);
        }
    }

    /// Where what is in flight lies.
    pub(crate) fn in_flight_range(&self) -> (u64, u64) {
        self.in_flight.as_ref().map_or((0, 0), InFlight::range)
    }

    /// The dirty pages.
    pub(crate) const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Makes whole sectors dirty of which none is; `new` are the parts without space on a device. Returns whether they are a run
    /// of their own.
    pub(crate) fn insert(&mut self, start: u64, data: &[u8], new: &Ranges) -> bool {
        let end = start + data.len() as u64;
        let apart = !self.pages.adjoins(start, end);
        self.new += self.pages.insert(start, data, new);
        self.runs += u64::from(apart);
        apart
    }

    /// Copies `data` over what is dirty at `offset`.
    pub(crate) fn overwrite(&mut self, offset: u64, data: &[u8]) {
        self.pages.overwrite(offset, data);
    }

    /// A write ended at `end` and at the time `now`; `room` is for what it made dirty.
    pub(crate) fn written(&mut self, end: u64, now: Timespec, room: Option<DelallocReservation>) {
        match (&mut self.room, room) {
            (Some(all), Some(room)) => all.add(room),
            (none, Some(room)) => *none = Some(room),
            (_, None) => {}
        }
        let kept = self.room.as_ref().map_or(0, DelallocReservation::data_bytes);
        assert_eq!(kept, self.pages.bytes(), "DELALLOC-2: what is dirty has room for all of it");
        self.size = self.size.max(end);
        self.written = Some((now, self.written.map_or(1, |(_, count)| count + 1)));
    }

    /// The first run at or behind `from`, which is in flight then, and its room.
    fn take_run(&mut self, from: u64) -> Option<(Arc<Run>, DelallocReservation)> {
        assert!(self.in_flight.is_none(), "DELALLOC-3: one run is in flight at a time");
        if self.held {
            return None;
        }
        let Taken { start, end, pieces, new } = self.pages.take_run(from, EXTENT_LEN_MAX)?;
        let mut room = self.room.take().expect("DELALLOC-2: what is dirty has room");
        let is_all = self.pages.bytes() == 0;
        // Each has its part and the last one what is left; of a long one there may be more to come.
        let metadata = if is_all { u64::MAX } else { room.metadata_bytes() / self.runs.max(2) };
        self.runs = if is_all { 0 } else { self.runs.saturating_sub(1) };
        self.next = end;
        let mine = room.take(end - start, metadata);
        if !is_all {
            self.room = Some(room);
        }
        let run = Arc::new(Run { start, end, pieces, size: self.size });
        self.in_flight = Some(InFlight { run: Arc::clone(&run), at: start, new });
        Some((run, mine))
    }

    /// The same behind the last one, and from the front when nothing is left there, so that a page that is written again and
    /// again keeps no other from a device. What is behind the size in the tree goes in order (DELALLOC-4). When all have had their
    /// turn, the file is dirty anew.
    fn take_next_run(&mut self) -> Option<(Arc<Run>, DelallocReservation)> {
        let from = self.next.min(self.complete);
        let taken = self.take_run(from).or_else(|| self.take_run(0));
        if taken.is_some() && !self.pages.any_from(self.next.min(self.complete)) {
            (self.next, self.since, self.hasty) = (0, self.latest, false);
        }
        taken
    }

    fn may_be_taken(&self) -> bool {
        self.pages.bytes() > 0 && !self.held && self.in_flight.is_none()
    }

    fn is_clean(&self) -> bool {
        self.pages.bytes() == 0 && self.in_flight.is_none()
    }
}

/// What is left of a range without another one.
pub(crate) fn without((start, end): (u64, u64), other: (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    [(start, end.min(other.0)), (start.max(other.1), end)].into_iter().filter(|(start, end)| start < end)
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}

impl Delalloc {
    pub(crate) fn new() -> Self {
        Self {
            state: RankedMutex::new(None),
            any: AtomicBool::new(false),
            queued: AtomicBool::new(false),
            landed: RankedCondvar::new(),
            version: AtomicU64::new(0),
        }
    }

    /// Whether anything is delayed.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn lock(&self) -> RankedGuard<'_, Option<Box<State>>, { rank::DELALLOC }> {
        self.state.lock()
    }

    /// Copies what is delayed of the bytes from `offset` on into `out`; returns which parts are not.
    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) -> Ranges {
        match &*self.lock() {
            Some(state) => state.copy_out(offset, out),
            None => Ranges::from_slice(&[(offset, offset + out.len() as u64)]),
        }
    }

    /// Whether `[start, end)`, a sector, is delayed.
    pub(crate) fn has(&self, start: u64, end: u64) -> bool {
        self.any() && self.lock().as_ref().is_some_and(|state| state.has(start, end))
    }

    /// Whether any of `[start, end)`, which is not empty, is delayed, or part of a run that has not landed.
    pub(crate) fn touches(&self, start: u64, end: u64) -> bool {
        self.any() && self.lock().as_ref().is_some_and(|state| state.touches(start, end))
    }

    /// What there is, made if there is nothing: of a file of `size` bytes, at this time. What is changed counts as delayed
    /// when it is there to stay.
    pub(crate) fn begin<R>(&self, size: u64, now: Duration, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let version = || self.version.load(Ordering::Relaxed) + 1;
        let inner = state.get_or_insert_with(|| Box::new(State::new(size, now, version())));
        inner.latest = now;
        if inner.pages.bytes() == 0 {
            (inner.since, inner.hasty) = (now, false);
        }
        let changed = change(inner);
        self.any.store(true, Ordering::Release);
        self.forget_if_clean(&mut state);
        changed
    }

    /// The item as the file is: `item` is that of the tree, and its lock is held.
    pub(crate) fn show(&self, item: &mut InodeItem) {
        if !self.any() {
            return;
        }
        if let Some(state) = &*self.lock() {
            item.size = state.size;
            item.nbytes = item.nbytes.saturating_add(state.new);
            state.stamp(item);
        }
    }

    /// The size of the file, if it is apart from that in the tree.
    pub(crate) fn size(&self) -> Option<u64> {
        if self.any() { self.lock().as_ref().map(|state| state.size) } else { None }
    }

    /// The item in the tree is about to change, with its lock held: it learns of the writes until now.
    pub(crate) fn take_times(&self, item: &mut InodeItem) {
        if self.any()
            && let Some(state) = &mut *self.lock()
        {
            state.stamp(item);
            state.written = None;
        }
    }

    /// Another write has changed the file at `now`, with its item locked: the times that are shown for what is delayed are not older.
    pub(crate) fn move_times(&self, now: Timespec) {
        if self.any()
            && let Some(state) = &mut *self.lock()
            && let Some((time, _)) = &mut state.written
        {
            *time = now.max(*time);
        }
    }

    /// Takes the first run at or behind `from`, which is in flight then; waits for the one that is. None when nothing is left
    /// there, or the inode is about to be deleted.
    pub(super) fn take_run(&self, from: u64) -> Option<(Arc<Run>, DelallocReservation)> {
        self.land().as_mut()?.take_run(from)
    }

    /// The same of the run whose turn it is, without waiting.
    pub(super) fn try_take_run(&self) -> NextRun {
        match &mut *self.lock() {
            Some(state) if state.in_flight.is_some() => NextRun::InFlight,
            Some(state) => {
                state.take_next_run().map_or(NextRun::None, |(run, room)| NextRun::Taken(run, room))
            }
            None => NextRun::None,
        }
    }

    /// Where the first run of dirty pages begins that has a part of `[start, end)`.
    pub(super) fn run_in(&self, start: u64, end: u64) -> Option<u64> {
        self.lock().as_ref()?.pages.run_in(start, end)
    }

    /// Where the delayed data ends, and what `beside` gives in the same moment: no run lands between the two.
    pub(super) fn end_and<R>(&self, beside: impl FnOnce() -> R) -> Option<(u64, R)> {
        if self.any() { self.lock().as_ref().map(|state| (state.size, beside())) } else { None }
    }

    /// Whether it stands in line. Who asks has made it dirty: whoever takes it out of the line later than this sees that.
    pub(super) fn is_queued(&self) -> bool {
        self.queued.fetch_or(false, Ordering::AcqRel)
    }

    /// Notes whether it stands in line; returns whether it did.
    pub(crate) fn set_queued(&self, queued: bool) -> bool {
        self.queued.swap(queued, Ordering::AcqRel)
    }

    /// Makes it due; false when nothing is dirty.
    pub(crate) fn hasten(&self) -> bool {
        let mut state = self.lock();
        let dirty = state.as_mut().filter(|state| state.pages.bytes() > 0);
        dirty.map(|state| state.hasty = true).is_some()
    }

    /// Whether it is to begin anew at the end of the line: it is dirty, and all that was so when it got its place was taken.
    pub(super) fn begins_anew(&self) -> bool {
        self.any() && self.lock().as_ref().is_some_and(|state| state.pages.bytes() > 0 && state.next == 0)
    }

    /// Since when it is dirty, if it is and a run of it may be taken: whoever has one in flight looks again.
    pub(super) fn dirty_since(&self) -> Option<DirtySince> {
        let state = self.lock();
        let dirty = state.as_deref().filter(|state| state.may_be_taken());
        dirty.map(|state| if state.hasty { DirtySince::Hasty } else { DirtySince::Time(state.since) })
    }

    /// Waits until nothing is in flight.
    fn land(&self) -> RankedGuard<'_, Option<Box<State>>, { rank::DELALLOC }> {
        let flies =
            |state: &mut Option<Box<State>>| state.as_ref().is_some_and(|state| state.in_flight.is_some());
        let mut state = self.lock();
        if flies(&mut state) {
            state = self.landed.pass_while(Reason::Writeback, state, flies);
        }
        state
    }

    /// Waits until nothing is in flight.
    pub(crate) fn wait_landed(&self) {
        if self.any() {
            drop(self.land());
        }
    }

    /// The run in flight is in the tree up to `stop`, of which the item, locked, tells from now on.
    pub(crate) fn complete_to(&self, stop: u64) {
        let mut state = self.lock();
        let state = state.as_mut().expect("a run is in flight");
        let flying = state.in_flight.as_mut().expect("DELALLOC-3: a run is in flight");
        assert!(flying.at < stop && stop <= flying.run.end, "DELALLOC-3: what is completed is in flight");
        let new = if stop == flying.run.end { flying.new } else { flying.new.min(stop - flying.at) };
        flying.at = stop;
        state.complete = state.complete.max(stop.min(flying.run.data_end()));
        flying.new -= new;
        state.new -= new;
    }

    /// The run is in flight no more: it is in the tree, or it failed and what is not there is lost. `note` notes which, in the
    /// moment in which that shows: a thread that finds the run gone finds the note.
    pub(super) fn land_run(&self, note: impl FnOnce()) {
        let mut state = self.lock();
        let inner = state.as_mut().expect("a run is in flight");
        let flying = inner.in_flight.take().expect("DELALLOC-3: a run is in flight");
        inner.new -= flying.new;
        note();
        self.forget_if_clean(&mut state);
        drop(state);
        self.landed.notify_all();
    }

    fn forget_if_clean(&self, state: &mut Option<Box<State>>) {
        if let Some(clean) = state.take_if(|state| state.is_clean()) {
            self.version.store(clean.pages.version(), Ordering::Relaxed);
            self.any.store(false, Ordering::Release);
        }
    }

    /// Forgets what is dirty behind a new end of the file, whose size is not less than that then, and makes the rest of its last
    /// sector zero. Returns how many bytes were dirty. Who cuts the file has it alone.
    pub(crate) fn cut(&self, size: u64, sector: u64) -> u64 {
        let mut guard = self.lock();
        let Some(state) = &mut *guard else { return 0 };
        let end = size.next_multiple_of(sector);
        let (bytes, new) = state.pages.discard(end);
        state.new -= new;
        state.size = state.size.min(size);
        state.complete = state.complete.min(size);
        state.pages.overwrite(size, &vec![0; as_len(end - size)]);
        if state.pages.bytes() == 0 {
            (state.room, state.runs) = (None, 0);
        } else if let Some(room) = &mut state.room {
            drop(room.take(bytes, 0));
        }
        self.forget_if_clean(&mut guard);
        bytes
    }

    /// Keeps what is dirty from being written back, unless some of it is in flight: false then.
    pub(crate) fn hold(&self) -> bool {
        let mut state = self.lock();
        let Some(state) = &mut *state else { return true };
        state.held = state.in_flight.is_none();
        state.held
    }

    /// Lets it be written back again.
    pub(crate) fn let_go(&self) {
        if let Some(state) = &mut *self.lock() {
            state.held = false;
        }
    }

    /// Looks at what there is, which stays as it is meanwhile.
    pub(crate) fn look<R>(&self, look: impl FnOnce(Option<&State>) -> R) -> R {
        look(self.lock().as_deref())
    }

    /// Bytes that are dirty or in flight.
    pub(crate) fn bytes(&self) -> u64 {
        if !self.any() {
            return 0;
        }
        let state = self.lock();
        state.as_ref().map_or(0, |state| {
            state.pages.bytes() + state.in_flight.as_ref().map_or(0, |flying| flying.run.len())
        })
    }

    /// What it takes in memory besides the bytes of the data.
    pub(crate) fn memory(&self) -> u64 {
        if !self.any() {
            return 0;
        }
        let state = self.lock();
        state.as_ref().map_or(0, |state| memory::vec::<State>(1) + state.pages.overhead())
    }
}
