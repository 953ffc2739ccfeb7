//! Scrubbing one device, step by step.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use creamery_base::{DevId, Error, ErrorKind, Generation, Physical, Result, TreeId};
use creamery_format::BlockGroupFlags;
use creamery_tree::ReadAhead;
use creamery_txn::{DurableTree, DurableTrees, Engine};
use creamery_volume::{Chunk, Mender, Stripe};

use super::counts::Counts;
use super::device_extents::{DeviceExtent, chunk_at, extents_of, in_use_on, not_scrubbed, stripe_at};
use super::finding::{Sink, Unheard};
use super::group::GroupWalk;
use super::judge::Judge;
use super::mend::Mending;
use super::pace::Pace;
use super::rows::RowWalk;
use super::searches::{SearchCounters, Searches, Trees};
use super::together::{Arrival, Lead, Over, Part, Together};
use super::used::Position;
use super::workers::{IN_FLIGHT, Run, Walk, Went, Workers};

/// Bytes of a device that a step reads where no limit says how many: the devices of a chunk with parity learn of one another between steps.
const STEP: u64 = 64 << 20;

/// How long a scrub waits at most before it looks whether it is to go on.
const PAUSE: Duration = Duration::from_millis(100);

/// A scrub of the devices of a filesystem.
///
/// ```no_run
/// # fn example(engine: &creamery_txn::Engine, sink: &dyn creamery_maint::scrub::Sink) -> creamery_base::Result<()> {
/// use creamery_base::DevId;
/// use creamery_maint::scrub::Scrub;
/// let (counts, _) = Scrub::reading(engine).device(DevId::new(1), sink)?;
/// println!("{} errors", counts.errors());
/// # Ok(())
/// # }
/// ```
pub struct Scrub<'e> {
    engine: &'e Engine,
    mending: Mending<'e>,
    ahead: ReadAhead,
    /// Where devices begin, if not at their beginning.
    starts: BTreeMap<DevId, u64>,
    together: Arc<Together>,
    /// Threads that read and judge.
    workers: usize,
    searches: SearchCounters,
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

/// What a step of a device's scrub leaves.
///
/// ```
/// use creamery_maint::scrub::{Ended, Step};
/// assert_ne!(Step::More, Step::Ended(Ended::Whole));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is more to scrub.
    More,
    /// The next chunk has parity, and the scrub of another device has it in hands.
    Waits,
    /// It has ended.
    Ended(Ended),
}

/// The scrub of one device, as far as it is. [`Scrub::begin`] makes it, [`Scrub::step`] takes it on.
///
/// ```no_run
/// # fn example(scrub: &creamery_maint::scrub::Scrub<'_>, sink: &dyn creamery_maint::scrub::Sink) -> creamery_base::Result<()> {
/// use creamery_base::DevId;
/// use creamery_maint::scrub::Step;
/// let mut device = scrub.begin(DevId::new(1), sink)?;
/// while scrub.step(&mut device, 8 << 20, sink)? == Step::More {}
/// println!("{:?}", device.counts());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DeviceScrub {
    dev: DevId,
    /// Where on the device it began.
    from: u64,
    /// The commit that the extents are of.
    listed: Generation,
    /// What is left of it; the first one is at hand.
    extents: VecDeque<DeviceExtent>,
    /// Where in the first one it goes on; none at its beginning.
    position: Option<Position>,
    counts: Counts,
    /// Groups that could not be scrubbed behind the place that was reached. A scrub that goes on there comes to them again, so they do not count yet.
    skipped: u64,
    asked: u64,
    worked: Duration,
}

impl DeviceScrub {
    /// The device.
    #[must_use]
    pub const fn device(&self) -> DevId {
        self.dev
    }

    /// What was counted so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// How many bytes of the device all steps have asked for.
    #[must_use]
    pub const fn bytes_asked(&self) -> u64 {
        self.asked
    }

    /// How long processors were at work for all steps, together. A step that waits for a device costs none.
    #[must_use]
    pub const fn processor_time(&self) -> Duration {
        self.worked
    }

    /// The first extent is done with.
    fn next_extent(&mut self) {
        if let Some(extent) = self.extents.pop_front() {
            self.counts.last_physical = extent.start.saturating_add(extent.len);
        }
        self.position = None;
    }
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
        let judge = Judge::new(engine.volume());
        let mending = Mending { engine, judge, mender, accepts_unsummed: false, is_live: false };
        Self {
            engine,
            mending,
            ahead: ReadAhead::ForwardAlways,
            starts: BTreeMap::new(),
            together: Arc::default(),
            workers: IN_FLIGHT,
            searches: SearchCounters::default(),
        }
    }

    /// Reads nothing of the trees ahead, to measure what that is worth.
    #[must_use]
    pub fn without_read_ahead(self) -> Self {
        Self { ahead: ReadAhead::None, ..self }
    }

    /// Takes data without checksums as it stands where its parity differs, and rewrites the parity.
    #[must_use]
    pub fn accepting_unsummed(mut self) -> Self {
        self.mending.accepts_unsummed = true;
        self
    }

    /// Reads and judges on so many threads, of which the one that takes a step is the first. Without this there are as many as keep a device busy that takes its
    /// time.
    #[must_use]
    pub fn on_threads(self, threads: NonZero<usize>) -> Self {
        Self { workers: threads.get().min(IN_FLIGHT), ..self }
    }

    /// Goes on with what another one has begun, of which it is a later step.
    #[must_use]
    pub fn sharing(self, together: &Arc<Together>) -> Self {
        Self { together: Arc::clone(together), ..self }
    }

    /// Lets commits be made meanwhile: superblocks are left to them, and the next one makes those good that are bad
    /// ([`are_superblocks_good`](Self::are_superblocks_good)).
    #[must_use]
    pub fn beside_commits(mut self) -> Self {
        self.mending.is_live = true;
        self
    }

    /// How often it has searched the trees, for all devices together.
    #[must_use]
    pub fn searches(&self) -> Searches {
        self.searches.now()
    }

    /// Whether the superblocks of a device are good.
    #[must_use]
    pub fn are_superblocks_good(&self, dev: DevId) -> bool {
        let mut counts = Counts::default();
        self.mending.superblocks(dev, &mut counts, &Unheard);
        counts.super_errors == 0
    }

    /// Begins devices where an earlier scrub of them stopped ([`Counts::last_physical`]), bytes of the device.
    #[must_use]
    pub fn starting_at(self, starts: BTreeMap<DevId, u64>) -> Self {
        let sector = u64::from(self.engine.sector_size());
        let starts = starts.into_iter().map(|(dev, from)| (dev, from - from % sector)).collect();
        Self { starts, ..self }
    }

    /// Scrubs what lies on a device, and its superblocks, to the end.
    ///
    /// # Errors
    /// The device is missing, or the trees of the filesystem do not tell what lies on it.
    pub fn device(&self, dev: DevId, sink: &dyn Sink) -> Result<(Counts, Ended)> {
        let mut device = self.begin(dev, sink)?;
        let ended = self.to_the_end(&mut device, sink);
        match ended {
            Ok(Ended::Whole) => {}
            Ok(_) => self.give_up(&mut device),
            Err(_) => self.give_up_as_failed(&mut device),
        }
        Ok((device.counts, ended?))
    }

    fn to_the_end(&self, device: &mut DeviceScrub, sink: &dyn Sink) -> Result<Ended> {
        let dev = device.dev;
        let (mut pace, env) = (Pace::default(), self.engine.env());
        loop {
            let limit = sink.limit(dev);
            let wait = limit.map_or(Duration::ZERO, |limit| pace.wait(env.monotonic(), limit));
            if !wait.is_zero() {
                sink.pause(wait.min(PAUSE));
                if !sink.goes_on(dev, &self.counts_of(device)) {
                    return Ok(Ended::Cancelled);
                }
                continue;
            }
            let (before, begun) = (device.asked, env.monotonic());
            match self.step(device, limit.map_or(STEP, Pace::step), sink)? {
                Step::More => {}
                Step::Waits => self.wait_for_others(device),
                Step::Ended(ended) => return Ok(ended),
            }
            match limit {
                Some(limit) => pace.read(begun, device.asked - before, limit),
                None => pace = Pace::default(),
            }
        }
    }

    /// All that was counted of a device so far.
    #[must_use]
    pub fn counts_of(&self, device: &DeviceScrub) -> Counts {
        let mut counts = device.counts;
        if let Some(extent) = device.extents.front() {
            counts += self.together.counted(extent.chunk, device.dev);
        }
        counts
    }

    /// What the scrubs of other devices have counted of one that has ended, and that did not come for it. To be asked once all have ended. Of a chunk that it has
    /// not come to, it is only what was mended there: a scrub that goes on finds the rest again.
    #[must_use]
    pub fn unclaimed(&self, dev: DevId) -> Counts {
        self.together.unclaimed(dev)
    }

    /// The scrub of a device is not taken on any more: other devices that wait for it end as well. What others have counted of it is [`unclaimed`](Self::unclaimed).
    pub fn give_up(&self, device: &mut DeviceScrub) {
        self.give_up_as(device, Over::Cancelled);
    }

    /// As [`give_up`](Self::give_up), where a step of the device has failed.
    pub fn give_up_as_failed(&self, device: &mut DeviceScrub) {
        self.give_up_as(device, Over::Failed("the scrub of another device failed".to_owned()));
    }

    fn give_up_as(&self, device: &mut DeviceScrub, over: Over) {
        let comes = |dev: DevId| self.engine.volume().device(dev).is_some();
        if let Some(extent) = device.extents.front() {
            device.counts += self.together.give_up((extent.chunk, device.dev), over, comes);
        }
    }

    /// Scrubs the superblocks of a device, and lists what else is to be scrubbed.
    ///
    /// # Errors
    /// The device is missing, or the trees of the filesystem do not tell what lies on it.
    pub fn begin(&self, dev: DevId, sink: &dyn Sink) -> Result<DeviceScrub> {
        if self.engine.volume().device(dev).is_none() {
            return Err(Error::new(ErrorKind::DeviceMissing, format!("device {dev}")));
        }
        let from = self.starts.get(&dev).copied().unwrap_or(0);
        let size = in_use_on(self.engine, dev);
        let mut counts = Counts { last_physical: from, size, ..Counts::default() };
        // A scrub that is gone on with has judged them.
        if from == 0 {
            self.mending.superblocks(dev, &mut counts, sink);
        }
        let durable = self.engine.durable_trees()?;
        let extents = extents_of(&durable, self.ahead, (dev, from))?;
        let (listed, position, asked, worked) = (durable.generation(), None, 0, Duration::ZERO);
        Ok(DeviceScrub { dev, from, listed, extents, position, counts, skipped: 0, asked, worked })
    }

    /// Takes the scrub of a device on by as many `bytes` of it at most, and a batch more. A group whose trees are damaged is a finding, and the scrub goes on behind
    /// it.
    ///
    /// # Errors
    /// The trees of the filesystem cannot be read.
    pub fn step(&self, device: &mut DeviceScrub, bytes: u64, sink: &dyn Sink) -> Result<Step> {
        let (skipped, place) = (std::mem::take(&mut device.skipped), device.counts.last_physical);
        device.counts.uncorrectable_errors += skipped;
        let Some(extent) = device.extents.front().copied() else { return Ok(Step::Ended(Ended::Whole)) };
        let stepped = self.step_into(device, extent, bytes, sink);
        if device.counts.last_physical == place {
            device.counts.uncorrectable_errors -= skipped;
            device.skipped += skipped;
        }
        match stepped? {
            Some(step) => Ok(step),
            None if sink.goes_on(device.dev, &device.counts) => Ok(Step::More),
            None => Ok(Step::Ended(Ended::Cancelled)),
        }
    }

    /// Takes an extent on. None: it is done with.
    fn step_into(
        &self,
        device: &mut DeviceScrub,
        extent: DeviceExtent,
        bytes: u64,
        sink: &dyn Sink,
    ) -> Result<Option<Step>> {
        // Anew for each step, so that it is soon let go of what a guard keeps.
        let durable = self.engine.durable_trees()?;
        let went = match chunk_at(&durable, extent.chunk, self.engine.volume().sector_size()) {
            Err(error) => Err(error),
            Ok(chunk) if chunk.has_parity() => self.step_together(&durable, device, &chunk, bytes, sink),
            Ok(chunk) => self.step_alone(&durable, device, &chunk, bytes, sink).map(Some),
        };
        match went {
            Ok(None) => return Ok(Some(Step::Waits)),
            Ok(Some(Went::Pauses)) => return Ok(Some(Step::More)),
            Ok(Some(Went::Cancelled)) => return Ok(Some(Step::Ended(Ended::Cancelled))),
            Ok(Some(Went::Through)) => device.next_extent(),
            // The chunk is gone since the extents were listed, or another one has its address.
            Err(error) if error.kind() == ErrorKind::NotFound && durable.generation() > device.listed => {
                device.next_extent();
            }
            Err(error) => {
                device.skipped += 1;
                let reached = device.counts.last_physical;
                sink.found(&not_scrubbed(device.dev, &extent, reached, &error));
                device.next_extent();
                // It was not scrubbed, so a later scrub may go back to it.
                device.counts.last_physical = reached;
            }
        }
        Ok(None)
    }

    /// Waits until the scrub of another device has no more in hands what this one waits for ([`Step::Waits`]).
    pub fn wait_for_others(&self, device: &DeviceScrub) {
        if let Some(extent) = device.extents.front() {
            self.together.wait(extent.chunk);
        }
    }

    /// Takes a chunk without parity on.
    fn step_alone(
        &self,
        durable: &DurableTrees<'_>,
        device: &mut DeviceScrub,
        chunk: &Arc<Chunk>,
        bytes: u64,
        sink: &dyn Sink,
    ) -> Result<Went> {
        let Some(extent) = device.extents.front() else { return Ok(Went::Through) };
        let place = Physical { dev: device.dev, offset: extent.start };
        let stripe = stripe_at(chunk, place)?;
        let begins =
            || Position::at(chunk, chunk.address_from(stripe, device.from.saturating_sub(place.offset)));
        let position = device.position.unwrap_or_else(begins);
        let device_end = self.engine.volume().device(device.dev).map_or(0, |device| device.len());
        let (extents, sums) = self.trees(durable, chunk)?;
        let trees = self.trees_of(&extents, sums.as_ref());
        let walk = GroupWalk::new(durable, trees, (chunk, stripe, device_end), &position)?;
        let mut part = [Part {
            dev: device.dev,
            offset: place.offset,
            from: device.from,
            before: Some(device.counts),
            counts: Counts::default(),
            mended: Counts::default(),
        }];
        let workers =
            Workers::new((chunk, &self.mending, durable), Walk::OneDevice(walk), (&mut part, bytes), sink);
        let Run { asked, worked, position, went } = workers.run(self.workers);
        device.asked += asked;
        device.worked += worked;
        device.position = Some(position);
        device.counts += part[0].counts;
        went
    }

    /// Takes a chunk with parity on, for all of its devices. None where another one does.
    fn step_together(
        &self,
        durable: &DurableTrees<'_>,
        device: &mut DeviceScrub,
        chunk: &Arc<Chunk>,
        bytes: u64,
        sink: &dyn Sink,
    ) -> Result<Option<Went>> {
        let Some(extent) = device.extents.front().copied() else { return Ok(Some(Went::Through)) };
        stripe_at(chunk, Physical { dev: device.dev, offset: extent.start })?;
        let its = (device.dev, device.counts);
        let mut lead = match self.together.arrive(chunk.start, its, || self.parts_of(chunk)) {
            Arrival::Waits => return Ok(None),
            Arrival::Over(over, counts) => {
                device.counts += counts;
                return match over {
                    Over::Whole => Ok(Some(Went::Through)),
                    Over::Cancelled => Ok(Some(Went::Cancelled)),
                    Over::Failed(why) => Err(Error::new(ErrorKind::Corrupt, why)),
                };
            }
            Arrival::Leads(lead) => lead,
        };
        let went = self.rows(durable, (&mut lead, device), chunk, bytes, sink);
        let over = match &went {
            Ok(Went::Pauses) => {
                lead.put();
                return Ok(Some(Went::Pauses));
            }
            Ok(Went::Through) => Over::Whole,
            Ok(Went::Cancelled) => Over::Cancelled,
            Err(error) => Over::Failed(error.to_string()),
        };
        let comes = |dev: DevId| self.engine.volume().device(dev).is_some();
        device.counts += lead.end(device.dev, over, comes);
        went.map(Some)
    }

    fn rows(
        &self,
        durable: &DurableTrees<'_>,
        (lead, device): (&mut Lead<'_>, &mut DeviceScrub),
        chunk: &Arc<Chunk>,
        bytes: u64,
        sink: &dyn Sink,
    ) -> Result<Went> {
        let (extents, sums) = self.trees(durable, chunk)?;
        let trees = self.trees_of(&extents, sums.as_ref());
        let walk = Walk::Rows(RowWalk::new(durable, trees, chunk, &lead.position)?);
        let workers = Workers::new((chunk, &self.mending, durable), walk, (&mut lead.parts, bytes), sink);
        let Run { asked, worked, position, went } = workers.run(self.workers);
        device.asked += asked;
        device.worked += worked;
        lead.position = position;
        went
    }

    const fn trees_of<'t>(&'t self, extents: &'t DurableTree, sums: Option<&'t DurableTree>) -> Trees<'t> {
        Trees { extents, sums, ahead: self.ahead, searches: &self.searches }
    }

    /// The stripes of a chunk to which no device came before, and where its scrub begins: where the first of its devices does.
    fn parts_of(&self, chunk: &Chunk) -> (Vec<Part>, Position) {
        // What a missing device has is rebuilt to judge the parity, and is no finding of its own.
        let from = |dev: DevId| match self.engine.volume().device(dev) {
            Some(_) => self.starts.get(&dev).copied().unwrap_or(0),
            None => u64::MAX,
        };
        let begins = |(number, stripe): (usize, &Stripe)| {
            chunk.address_from(number, from(stripe.dev).saturating_sub(stripe.offset))
        };
        let first = chunk.stripes.iter().enumerate().map(begins).min().unwrap_or(chunk.start);
        let part = |stripe: &Stripe| Part {
            dev: stripe.dev,
            offset: stripe.offset,
            from: from(stripe.dev),
            before: None,
            counts: Counts::default(),
            mended: Counts::default(),
        };
        (chunk.stripes.iter().map(part).collect(), Position::at(chunk, first))
    }

    /// The extent tree, and for data the checksum tree.
    fn trees(&self, durable: &DurableTrees<'_>, chunk: &Chunk) -> Result<(DurableTree, Option<DurableTree>)> {
        let has_data = chunk.flags.contains(BlockGroupFlags::DATA);
        let sums = has_data.then(|| durable.tree(TreeId::CSUM)).transpose()?;
        Ok((durable.tree(TreeId::EXTENT)?, sums))
    }
}
