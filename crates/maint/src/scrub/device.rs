//! Scrubbing one device, group by group.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Error, ErrorKind, Logical, ObjectId, Physical, Result, TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockGroupFlags, Key, KeyType, RawDevExtent};
use creamery_tree::{ReadAhead, Walk};
use creamery_txn::{DurableTrees, Engine};
use creamery_volume::{Chunk, Mender};
use zerocopy::FromBytes;

use super::counts::Counts;
use super::finding::{Finding, Outcome, Sink, What};
use super::group::{Batch, Content, GroupWalk, Task};
use super::judge::{Bad, Judge};
use super::mend::Mending;
use super::parity::count;
use super::sums::index;

/// Batches in flight for each device.
const IN_FLIGHT: usize = 2;

/// A scrub of the devices of a filesystem.
///
/// ```no_run
/// # fn example(engine: &creamery_txn::Engine, sink: &dyn creamery_maint::scrub::Sink) -> creamery_base::Result<()> {
/// use creamery_base::DevId;
/// use creamery_maint::scrub::Scrub;
/// let (counts, _) = Scrub::reading(engine).device(DevId::new(1), 0, sink)?;
/// println!("{} errors", counts.errors());
/// # Ok(())
/// # }
/// ```
pub struct Scrub<'e> {
    engine: &'e Engine,
    mending: Mending<'e>,
    ahead: ReadAhead,
}

/// How the scrub of a device ended: the worse it ended, the greater.
///
/// ```
/// use creamery_maint::scrub::Ended;
/// assert!(Ended::Whole < Ended::Cancelled && Ended::Cancelled < Ended::Failed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ended {
    /// All of it was scrubbed.
    Whole,
    /// The sink wanted no more.
    Cancelled,
    /// The trees do not tell what lies on it.
    Failed,
}

/// A part of the device that a chunk has.
struct DeviceExtent {
    start: u64,
    len: u64,
    chunk: Logical,
}

/// What the workers of a group share.
struct Shared<'s, 't> {
    durable: &'s DurableTrees<'s>,
    walk: RankedMutex<GroupWalk<'t>, { rank::SCRUB }>,
    progress: RankedMutex<Progress<'s>, { rank::LEAF }>,
}

/// How far a device is.
struct Progress<'s> {
    counts: &'s mut Counts,
    /// Where the batches begin that are in flight.
    in_flight: BTreeSet<u64>,
    /// Where the last one ended that was begun.
    begun: u64,
    /// Why no more is taken.
    end: Option<Result<Went>>,
}

/// How far a group went.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Went {
    Through,
    Cancelled,
    /// Somebody waits for what the guard keeps.
    Yields,
}

impl<'e> Scrub<'e> {
    /// One that writes nothing.
    #[must_use]
    pub fn reading(engine: &'e Engine) -> Self {
        Self::with(engine, None)
    }

    /// One that mends what it can.
    #[must_use]
    pub fn mending(engine: &'e Engine, mender: Mender<'e>) -> Self {
        Self::with(engine, Some(mender))
    }

    fn with(engine: &'e Engine, mender: Option<Mender<'e>>) -> Self {
        let mending = Mending { judge: Judge::new(engine.volume()), mender };
        Self { engine, mending, ahead: ReadAhead::Forward }
    }

    /// Reads nothing of the trees ahead, to measure what that is worth.
    #[must_use]
    pub fn without_read_ahead(self) -> Self {
        Self { ahead: ReadAhead::None, ..self }
    }

    /// Scrubs what lies on a device from `from` on, and its superblocks. A group whose trees are damaged is a finding, and the scrub goes on behind it.
    ///
    /// # Errors
    /// The device is missing, or the trees of the filesystem do not tell what lies on it.
    pub fn device(&self, dev: DevId, from: u64, sink: &dyn Sink) -> Result<(Counts, Ended)> {
        let volume = self.engine.volume();
        if volume.device(dev).is_none() {
            return Err(Error::new(ErrorKind::DeviceMissing, format!("device {dev}")));
        }
        let mut counts = Counts { last_physical: from, ..Counts::default() };
        self.mending.superblocks(dev, &mut counts, &mut |finding| sink.found(&finding));
        let durable = self.engine.durable_trees()?;
        let (listed, extents) = (durable.generation(), self.extents_of(&durable, dev, from)?);
        drop(durable);
        for extent in extents {
            let place = Physical { dev, offset: extent.start };
            let mut at = extent.chunk;
            let ended = loop {
                // Anew for each chunk, and as soon as somebody waits for what a guard keeps.
                let durable = self.engine.durable_trees()?;
                match self.group(&durable, place, (&extent, &mut at), &mut counts, sink) {
                    Ok(Went::Yields) => {}
                    // The chunk is gone since the extents were listed.
                    Err(error) if error.kind() == ErrorKind::NotFound && durable.generation() > listed => {
                        break Ok(Went::Through);
                    }
                    went => break went,
                }
            };
            match ended {
                Ok(Went::Cancelled) => return Ok((counts, Ended::Cancelled)),
                Ok(_) => counts.last_physical = extent.start.saturating_add(extent.len),
                Err(error) => {
                    counts.uncorrectable_errors += 1;
                    sink.found(&not_scrubbed(place, &extent, &error));
                }
            }
            if !sink.goes_on(dev, &counts) {
                return Ok((counts, Ended::Cancelled));
            }
        }
        Ok((counts, Ended::Whole))
    }

    /// What chunks have of a device, behind `from`.
    fn extents_of(&self, durable: &DurableTrees<'_>, dev: DevId, from: u64) -> Result<Vec<DeviceExtent>> {
        let tree = durable.tree(TreeId::DEV)?;
        let first = Key::new(ObjectId::new(dev.get()), KeyType::DEV_EXTENT, 0);
        let mut cursor = durable.cursor(&tree, &first, Walk::new(Wait::Yes, self.ahead))?;
        let mut extents = Vec::new();
        while let Some((key, data)) = cursor.item() {
            if (key.objectid, key.kind) != (first.objectid, first.kind) {
                break;
            }
            let item = RawDevExtent::ref_from_bytes(data)
                .map_err(|_| Error::new(ErrorKind::Corrupt, format!("device extent {key}: wrong length")))?;
            let extent = DeviceExtent {
                start: key.offset,
                len: item.length.get(),
                chunk: Logical::new(item.chunk_offset.get()),
            };
            if extent.start.saturating_add(extent.len) > from {
                extents.push(extent);
            }
            cursor.advance()?;
        }
        Ok(extents)
    }

    /// Scrubs what a chunk has of a device, from an address on, which goes on with it.
    /// Errors: not found: there is no such chunk. Damage of trees.
    fn group(
        &self,
        durable: &DurableTrees<'_>,
        place: Physical,
        (extent, from): (&DeviceExtent, &mut Logical),
        counts: &mut Counts,
        sink: &dyn Sink,
    ) -> Result<Went> {
        let chunk = self.chunk(durable, extent.chunk)?;
        let is_here =
            |stripe: &creamery_volume::Stripe| (stripe.dev, stripe.offset) == (place.dev, place.offset);
        let stripe = chunk.stripes.iter().position(is_here).ok_or_else(|| {
            let what = format!("chunk {} has no stripe at {place}, and a device extent says so", chunk.start);
            Error::new(ErrorKind::Corrupt, what)
        })?;
        let extent_tree = durable.tree(TreeId::EXTENT)?;
        let has_data = chunk.flags.contains(BlockGroupFlags::DATA);
        let csum_tree = has_data.then(|| durable.tree(TreeId::CSUM)).transpose()?;
        let device_end = self.engine.volume().device(place.dev).map_or(0, |device| device.len());
        let trees = (&extent_tree, csum_tree.as_ref());
        let walk = GroupWalk::new(durable, trees, (&chunk, stripe, device_end), *from, self.ahead)?;
        let progress = Progress { begun: extent.start, in_flight: BTreeSet::new(), counts, end: None };
        let shared = Shared { durable, walk: RankedMutex::new(walk), progress: RankedMutex::new(progress) };
        std::thread::scope(|threads| {
            for _ in 1..IN_FLIGHT {
                threads.spawn(|| self.work(&chunk, place.dev, &shared, sink));
            }
            self.work(&chunk, place.dev, &shared, sink);
        });
        *from = shared.walk.into_inner().reached();
        shared.progress.into_inner().end.unwrap_or(Ok(Went::Through))
    }

    fn chunk(&self, durable: &DurableTrees<'_>, at: Logical) -> Result<Arc<Chunk>> {
        let tree = durable.tree(TreeId::CHUNK)?;
        let key = Key::new(ObjectId::FIRST_CHUNK_TREE, KeyType::CHUNK_ITEM, at.get());
        let cursor = durable.cursor(&tree, &key, Wait::Yes)?;
        match cursor.item() {
            Some((found, data)) if found == key => {
                Chunk::from_item(at, data, self.engine.volume().sector_size()).map(Arc::new)
            }
            _ => {
                let what = format!("there is no chunk {at}, and a device extent says so");
                Err(Error::new(ErrorKind::NotFound, what))
            }
        }
    }

    /// Takes tasks until none is left.
    fn work(&self, chunk: &Chunk, dev: DevId, shared: &Shared<'_, '_>, sink: &dyn Sink) {
        let mut buffer = AlignedBuffer::zeroed(0);
        while let Some((task, start)) = shared.take() {
            let mut counts = Counts::default();
            let mut found = |finding: Finding| sink.found(&finding);
            match &task {
                Task::Read(batch) => self.read(batch, &mut buffer, &mut counts, &mut found),
                Task::Parity(row) => self.mending.parity(chunk, row, &mut counts, &mut found),
            }
            shared.done(start, counts, dev, sink);
        }
    }

    /// Reads and judges a batch, and mends what is bad.
    fn read(
        &self,
        batch: &Batch,
        buffer: &mut AlignedBuffer,
        counts: &mut Counts,
        found: &mut dyn FnMut(Finding),
    ) {
        let judge = &self.mending.judge;
        let (data, trees) = batch.used.extents;
        counts.data_extents_scrubbed += data;
        counts.tree_extents_scrubbed += trees;
        let len = index(batch.len);
        if buffer.len() < len {
            *buffer = AlignedBuffer::zeroed(len);
        }
        let read = &mut buffer[..len];
        let mut bad = Vec::new();
        let is_read = judge.volume.read_physical(batch.at, read).is_ok();
        match is_read {
            true => bad = judge.judge(&batch.used, read, counts),
            // What is bad of it, the rest need not be.
            false => self.read_by_block(batch, read, counts, &mut bad),
        }
        for bad in &bad {
            let at = place(batch, &bad.bytes);
            let outcome = self.mending.mend(&batch.used, bad, at);
            count(outcome, self.errors(bad), counts);
            let what = match batch.used.runs[bad.run].content {
                Content::Tree { .. } => What::Tree,
                Content::Data(_) => What::Data,
            };
            found(Finding { what, at, logical: Some(bad.at), why: bad.why.clone(), outcome });
        }
        if is_read {
            self.compare(batch, &buffer[..len], counts, found);
        }
    }

    /// A tree block counts once, as Linux counts.
    fn errors(&self, bad: &Bad) -> u64 {
        (bad.bytes.len() / self.mending.judge.sector).min(1) as u64
    }

    /// Reads tree block by tree block, and sector by sector.
    fn read_by_block(&self, batch: &Batch, read: &mut [u8], counts: &mut Counts, bad: &mut Vec<Bad>) {
        let judge = &self.mending.judge;
        for (number, run) in batch.used.runs.iter().enumerate() {
            let step = match run.content {
                Content::Tree { .. } => run.bytes.len(),
                Content::Data(_) => judge.sector,
            };
            for begin in run.bytes.clone().step_by(step) {
                let bytes = begin..begin + step;
                let outcome = judge.volume.read_physical(place(batch, &bytes), &mut read[bytes.clone()]);
                let Err(error) = outcome else {
                    judge.judge_part(&batch.used, (number, run), bytes.clone(), &read[bytes], counts, bad);
                    continue;
                };
                counts.read_errors += 1;
                let at = run.at + (begin - run.bytes.start) as u64;
                bad.push(Bad { run: number, bytes, at, why: error.to_string() });
            }
        }
    }

    /// Compares data without checksums with its other copies, where this is the first one.
    fn compare(&self, batch: &Batch, read: &[u8], counts: &mut Counts, found: &mut dyn FnMut(Finding)) {
        if batch.copy > 0 {
            return;
        }
        let judge = &self.mending.judge;
        for run in batch.used.runs.iter().filter(|run| run.content == Content::Data(None)) {
            let own = &read[run.bytes.clone()];
            let Ok(copies) = judge.volume.map(run.at, own.len() as u64) else { continue };
            for mirror in copies.mirrors().iter().skip(1) {
                let mut other = AlignedBuffer::zeroed(own.len());
                let mut begin = 0;
                let is_read = mirror.iter().all(|piece| {
                    let bytes = begin..begin + index(piece.len);
                    begin = bytes.end;
                    judge.volume.read_physical(piece.at, &mut other[bytes]).is_ok()
                });
                if !is_read {
                    continue; // the scrub of its device tells of that
                }
                let sectors = own.chunks(judge.sector).zip(other.chunks(judge.sector)).enumerate();
                for (number, _) in sectors.filter(|(_, (own, other))| own != other) {
                    let from = run.bytes.start + number * judge.sector;
                    counts.differing += 1;
                    counts.unverified_errors += 1;
                    found(Finding {
                        what: What::Differing,
                        at: place(batch, &(from..from + judge.sector)),
                        logical: Some(run.at + (number * judge.sector) as u64),
                        why: "another copy differs, and there is no checksum".to_owned(),
                        outcome: Outcome::Undecided,
                    });
                }
            }
        }
    }
}

impl Shared<'_, '_> {
    /// The next task, and where it begins; none when there is none, or no more is wanted.
    fn take(&self) -> Option<(Task, u64)> {
        let mut walk = self.walk.lock();
        if self.progress.lock().end.is_some() {
            return None;
        }
        if self.durable.is_in_the_way() {
            self.progress.lock().end = Some(Ok(Went::Yields));
            return None;
        }
        let next = walk.next();
        let mut progress = self.progress.lock();
        match next {
            Ok(task) => {
                let task = task?;
                let (start, end) = match &task {
                    Task::Read(batch) => (batch.at.offset, batch.at.offset + batch.len),
                    Task::Parity(row) => (row.at.offset, row.at.offset),
                };
                progress.in_flight.insert(start);
                progress.begun = end;
                Some((task, start))
            }
            Err(error) => {
                progress.end = Some(Err(error));
                None
            }
        }
    }

    fn done(&self, start: u64, counts: Counts, dev: DevId, sink: &dyn Sink) {
        let mut progress = self.progress.lock();
        progress.in_flight.remove(&start);
        let reached = progress.in_flight.first().copied().unwrap_or(progress.begun);
        let Progress { counts: all, .. } = &mut *progress;
        **all += counts;
        all.last_physical = reached;
        let now = **all;
        drop(progress);
        if !sink.goes_on(dev, &now) {
            self.progress.lock().end.get_or_insert(Ok(Went::Cancelled));
        }
    }
}

fn place(batch: &Batch, bytes: &Range<usize>) -> Physical {
    Physical { offset: batch.at.offset + bytes.start as u64, ..batch.at }
}

fn not_scrubbed(at: Physical, extent: &DeviceExtent, error: &Error) -> Finding {
    let why = format!("{} bytes of the device were not scrubbed: {error}", extent.len);
    Finding { what: What::NotScrubbed, at, logical: Some(extent.chunk), why, outcome: Outcome::Lost }
}
