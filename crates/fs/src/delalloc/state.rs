//! The delayed data of one file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedCondvar, RankedGuard, RankedMutex, rank};
use creamery_base::{Timespec, memory};
use creamery_device::AlignedBuffer;
use creamery_format::file_extent::EXTENT_LEN_MAX;
use creamery_txn::DelallocReservation;

use super::pages::{PageRanges, Pages, Taken, copy};
use crate::items::InodeItem;

/// The delayed data of one inode. An inode without any takes almost no memory.
pub(crate) struct Delalloc {
    state: RankedMutex<Option<Box<DelayedData>>, { rank::DELALLOC }>,
    /// Whether any data is delayed; changes under the mutex.
    any: AtomicBool,
    /// Whether the inode stands in the writeback queue; changes with the queue locked.
    queued: AtomicBool,
    /// A run landed.
    landed: RankedCondvar,
    /// The version of the last set of dirty pages that is gone; changes under the mutex.
    version: AtomicU64,
}

/// The delayed data itself.
pub(crate) struct DelayedData {
    pages: Pages,
    in_flight: Option<RunInFlight>,
    /// The reservation for the dirty pages; `None` before the first of them.
    room: Option<DelallocReservation>,
    /// The size of the file.
    size: u64,
    /// Its size in the tree.
    complete: u64,
    /// The end of the run that was taken last.
    next: u64,
    /// The time of the last write, and the number of writes that the item does not count yet.
    written: Option<(Timespec, u64)>,
    /// Bytes, dirty or in flight, that have no space on a device yet.
    new: u64,
    /// The most separate runs that the dirty pages can be.
    runs: u64,
    /// When the first page became dirty since the file was clean, or since all dirty pages had been taken, by the monotonic clock.
    since: Duration,
    /// When a page became dirty last.
    latest: Duration,
    /// The file is to be written back soon.
    hasty: bool,
    /// The inode is about to be deleted: nothing is written back.
    held: bool,
}

/// Since when a file is dirty. An older file is less.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DirtySince {
    /// Writeback is due at once.
    Hasty,
    /// Since this time, by the monotonic clock.
    Time(Duration),
}

/// The result of asking for the next run.
pub(super) enum NextRun {
    /// This run, which is in flight now, and its reservation.
    Taken(Arc<DelallocRange>, DelallocReservation),
    /// Another run is in flight.
    InFlight,
    None,
}

/// Data on its way to a device.
pub(crate) struct DelallocRange {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pieces: Vec<Arc<AlignedBuffer>>,
    /// The size of the file when this was taken.
    pub(crate) size: u64,
}

/// The run that is in flight.
struct RunInFlight {
    run: Arc<DelallocRange>,
    /// From here on the run is in flight; the part before is in the tree.
    at: u64,
    new: u64,
}

impl DelallocRange {
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

    /// The least size of the file when this run is complete.
    pub(crate) fn data_end(&self) -> u64 {
        self.end.min(self.size)
    }
}

impl RunInFlight {
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

impl DelayedData {
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

    /// Copies the delayed bytes from `offset` on into `out`. Returns the parts that are not delayed.
    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) -> PageRanges {
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

    /// Whether any of `[start, end)` is delayed, or part of a run in flight. The front of that run may be in the tree already: its
    /// items still change with the rest (DELALLOC-3).
    fn touches(&self, start: u64, end: u64) -> bool {
        let flying = self.in_flight.as_ref().map_or((0, 0), |flying| (flying.run.start, flying.run.end));
        start.max(flying.0) < end.min(flying.1) || self.pages.missing(start, end)[..] != [(start, end)]
    }

    /// Adds the writes that the item does not count yet to the item.
    fn stamp(&self, item: &mut InodeItem) {
        if let Some((time, count)) = self.written {
            (item.mtime, item.ctime) = (time, time);
            item.sequence = item.sequence.wrapping_add(count);
        }
    }

    /// The range in flight.
    pub(crate) fn in_flight_range(&self) -> (u64, u64) {
        self.in_flight.as_ref().map_or((0, 0), RunInFlight::range)
    }

    /// The dirty pages.
    pub(crate) const fn pages(&self) -> &Pages {
        &self.pages
    }

    /// Makes whole clean sectors dirty; `new` are the parts without space on a device. Returns whether they are a run of their
    /// own.
    pub(crate) fn insert(&mut self, start: u64, data: &[u8], new: &PageRanges) -> bool {
        let end = start + data.len() as u64;
        let apart = !self.pages.adjoins(start, end);
        self.new += self.pages.insert(start, data, new);
        self.runs += u64::from(apart);
        apart
    }

    /// Copies `data` over the dirty bytes at `offset`.
    pub(crate) fn overwrite(&mut self, offset: u64, data: &[u8]) {
        self.pages.overwrite(offset, data);
    }

    /// Notes that a write ended at `end` and at the time `now`; `room` is the reservation for its dirty data.
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

    /// Takes the first run at or behind `from`, which is in flight then, and its reservation.
    fn take_run(&mut self, from: u64) -> Option<(Arc<DelallocRange>, DelallocReservation)> {
        assert!(self.in_flight.is_none(), "DELALLOC-3: one run is in flight at a time");
        if self.held {
            return None;
        }
        let Taken { start, end, pieces, new } = self.pages.take_run(from, EXTENT_LEN_MAX)?;
        let mut room = self.room.take().expect("DELALLOC-2: what is dirty has room");
        let is_all = self.pages.bytes() == 0;
        // Each run gets its share and the last one the rest; a long run may be taken in several parts.
        let metadata = if is_all { u64::MAX } else { room.metadata_bytes() / self.runs.max(2) };
        self.runs = if is_all { 0 } else { self.runs.saturating_sub(1) };
        self.next = end;
        let mine = room.take(end - start, metadata);
        if !is_all {
            self.room = Some(room);
        }
        let run = Arc::new(DelallocRange { start, end, pieces, size: self.size });
        self.in_flight = Some(RunInFlight { run: Arc::clone(&run), at: start, new });
        Some((run, mine))
    }

    /// Takes the first run behind the last one that was taken, and starts from the front when nothing is left there. So a page
    /// that is written again and again keeps no other from a device. Data behind the size in the tree goes in order (DELALLOC-4).
    /// When all pages have had their turn, the file counts as newly dirty.
    fn take_next_run(&mut self) -> Option<(Arc<DelallocRange>, DelallocReservation)> {
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

/// The parts of a range outside another one.
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

    fn lock(&self) -> RankedGuard<'_, Option<Box<DelayedData>>, { rank::DELALLOC }> {
        self.state.lock()
    }

    /// Copies the delayed bytes from `offset` on into `out`. Returns the parts that are not delayed.
    pub(crate) fn copy_out(&self, offset: u64, out: &mut [u8]) -> PageRanges {
        match &*self.lock() {
            Some(state) => state.copy_out(offset, out),
            None => PageRanges::from_slice(&[(offset, offset + out.len() as u64)]),
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

    /// Runs `change` on the delayed data, which it makes if there is none, for a file of `size` bytes, at this time. The data
    /// counts as delayed if any is left after the change.
    pub(crate) fn begin<R>(&self, size: u64, now: Duration, change: impl FnOnce(&mut DelayedData) -> R) -> R {
        let mut state = self.lock();
        let version = || self.version.load(Ordering::Relaxed) + 1;
        let inner = state.get_or_insert_with(|| Box::new(DelayedData::new(size, now, version())));
        inner.latest = now;
        if inner.pages.bytes() == 0 {
            (inner.since, inner.hasty) = (now, false);
        }
        let changed = change(inner);
        self.any.store(true, Ordering::Release);
        self.forget_if_clean(&mut state);
        changed
    }

    /// Makes `item`, the item of the tree, show the file with its delayed data. The caller holds the item's lock.
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

    /// The size of the file, if the file has delayed data.
    pub(crate) fn size(&self) -> Option<u64> {
        if self.any() { self.lock().as_ref().map(|state| state.size) } else { None }
    }

    /// Adds the times and the count of the writes until now to the item, which is about to change in the tree. The caller holds its lock.
    pub(crate) fn take_times(&self, item: &mut InodeItem) {
        if self.any()
            && let Some(state) = &mut *self.lock()
        {
            state.stamp(item);
            state.written = None;
        }
    }

    /// Moves the time shown for the delayed data up to `now`: another write changed the file then, with the item locked.
    pub(crate) fn move_times(&self, now: Timespec) {
        if self.any()
            && let Some(state) = &mut *self.lock()
            && let Some((time, _)) = &mut state.written
        {
            *time = now.max(*time);
        }
    }

    /// Takes the first run at or behind `from`, which is in flight then. Waits for the run in flight before that. Returns `None`
    /// when no run is left there, or when the inode is about to be deleted.
    pub(super) fn take_run(&self, from: u64) -> Option<(Arc<DelallocRange>, DelallocReservation)> {
        self.land().as_mut()?.take_run(from)
    }

    /// Takes the run whose turn it is, without waiting.
    pub(super) fn try_take_run(&self) -> NextRun {
        match &mut *self.lock() {
            Some(state) if state.in_flight.is_some() => NextRun::InFlight,
            Some(state) => {
                state.take_next_run().map_or(NextRun::None, |(run, room)| NextRun::Taken(run, room))
            }
            None => NextRun::None,
        }
    }

    /// The start of the first run of dirty pages that overlaps `[start, end)`.
    pub(super) fn run_in(&self, start: u64, end: u64) -> Option<u64> {
        self.lock().as_ref()?.pages.run_in(start, end)
    }

    /// The end of the file with its delayed data, and the result of `beside` at the same moment: no run lands between the two.
    pub(super) fn end_and<R>(&self, beside: impl FnOnce() -> R) -> Option<(u64, R)> {
        if self.any() { self.lock().as_ref().map(|state| (state.size, beside())) } else { None }
    }

    /// Whether the file stands in the writeback queue. The caller has made it dirty: a thread that takes the file out of the
    /// queue later sees that.
    pub(super) fn is_queued(&self) -> bool {
        self.queued.fetch_or(false, Ordering::AcqRel)
    }

    /// Notes whether the file stands in the writeback queue; returns whether it did.
    pub(crate) fn set_queued(&self, queued: bool) -> bool {
        self.queued.swap(queued, Ordering::AcqRel)
    }

    /// Makes writeback due; returns false when nothing is dirty.
    pub(crate) fn start_writeback(&self) -> bool {
        let mut state = self.lock();
        let dirty = state.as_mut().filter(|state| state.pages.bytes() > 0);
        dirty.map(|state| state.hasty = true).is_some()
    }

    /// Whether the file goes to the end of the queue: it is dirty, and all pages that were dirty when it got its place were
    /// taken.
    pub(super) fn begins_anew(&self) -> bool {
        self.any() && self.lock().as_ref().is_some_and(|state| state.pages.bytes() > 0 && state.next == 0)
    }

    /// Since when the file is dirty, if a run of it may be taken. The thread that has a run in flight checks again.
    pub(super) fn dirty_since(&self) -> Option<DirtySince> {
        let state = self.lock();
        let dirty = state.as_deref().filter(|state| state.may_be_taken());
        dirty.map(|state| if state.hasty { DirtySince::Hasty } else { DirtySince::Time(state.since) })
    }

    /// Waits until nothing is in flight.
    fn land(&self) -> RankedGuard<'_, Option<Box<DelayedData>>, { rank::DELALLOC }> {
        let flies = |state: &mut Option<Box<DelayedData>>| {
            state.as_ref().is_some_and(|state| state.in_flight.is_some())
        };
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

    /// Notes that the run in flight is in the tree up to `stop`. The item, which is locked, shows that part from now on.
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

    /// Ends the run in flight: it is in the tree, or it failed and the rest of its data is lost. `note` records the result in the
    /// same moment: a thread that finds the run gone finds the record.
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

    fn forget_if_clean(&self, state: &mut Option<Box<DelayedData>>) {
        if let Some(clean) = state.take_if(|state| state.is_clean()) {
            self.version.store(clean.pages.version(), Ordering::Relaxed);
            self.any.store(false, Ordering::Release);
        }
    }

    /// Forgets the dirty data behind `size`, the new end of the file, and zeroes the rest of its last sector. A larger size than
    /// before forgets nothing. Returns how many bytes were dirty. The caller has the inode locked exclusively.
    ///
    /// It forgets nothing at all where the tree has data behind `size` and there is not room enough to be sure that this can be cut
    /// (SHRINK-1).
    pub(crate) fn cut(&self, size: u64, sector: u64, has_room: bool) -> u64 {
        let mut guard = self.lock();
        let Some(state) = &mut *guard else { return 0 };
        let in_tree =
            state.in_flight.as_ref().map_or(state.complete, |flying| state.complete.max(flying.run.end));
        if in_tree > size && !has_room {
            return 0;
        }
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

    /// Keeps dirty data from being written back. Returns false, and does nothing, when some of it is in flight.
    pub(crate) fn hold(&self) -> bool {
        let mut state = self.lock();
        let Some(state) = &mut *state else { return true };
        state.held = state.in_flight.is_none();
        state.held
    }

    /// Allows writeback again.
    pub(crate) fn let_go(&self) {
        if let Some(state) = &mut *self.lock() {
            state.held = false;
        }
    }

    /// Calls `look` with the delayed data, which does not change meanwhile.
    pub(crate) fn look<R>(&self, look: impl FnOnce(Option<&DelayedData>) -> R) -> R {
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

    /// The memory it takes besides the bytes of the data.
    pub(crate) fn memory(&self) -> u64 {
        if !self.any() {
            return 0;
        }
        let state = self.lock();
        state.as_ref().map_or(0, |state| memory::vec::<DelayedData>(1) + state.pages.overhead())
    }
}
