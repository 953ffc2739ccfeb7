//! Scrubs one device, step by step.

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
use super::workers::{IN_FLIGHT, Walk, Went, Workers, WorkersResult};

/// Bytes of a device that a step reads if no read rate is set: the devices of a chunk with parity learn of one another between steps.
const STEP: u64 = 64 << 20;

/// The longest wait of a scrub before it checks whether to go on.
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
    /// The offset at which a device begins, if it is not 0.
    starts: BTreeMap<DevId, u64>,
    together: Arc<Together>,
    /// Threads that read and judge.
    workers: usize,
    searches: SearchCounters,
}

/// The end of a device's scrub: a worse end is greater.
///
/// ```
/// use creamery_maint::scrub::Ended;
/// assert!(Ended::Whole < Ended::Cancelled && Ended::Cancelled < Ended::Failed);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Ended {
    /// All of it was scrubbed.
    Whole,
    /// The sink asked for the end.
    Cancelled,
    /// The trees do not give the content of the device.
    Failed,
}

/// The state after a step of a device's scrub.
///
/// ```
/// use creamery_maint::scrub::{Ended, Step};
/// assert_ne!(Step::More, Step::Ended(Ended::Whole));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is more to scrub.
    More,
    /// The next chunk has parity, and the scrub of another device leads it.
    Waits,
    /// It has ended.
    Ended(Ended),
}

/// The progress of the scrub of one device. [`Scrub::begin`] makes it, and [`Scrub::step`] advances it.
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
    /// The device offset at which it began.
    from: u64,
    /// The commit of the extents.
    listed: Generation,
    /// The remaining extents; the first one is in progress.
    extents: VecDeque<DeviceExtent>,
    /// The position in the first extent; `None` at its beginning.
    position: Option<Position>,
    counts: Counts,
    /// Groups behind the reached place that could not be scrubbed. A scrub that goes on there comes to them again, so they do not count
    /// yet.
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

    /// The counts so far.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Bytes of the device that all steps have requested.
    #[must_use]
    pub const fn bytes_asked(&self) -> u64 {
        self.asked
    }

    /// The processor time of all steps, together. Waiting for a device takes none.
    #[must_use]
    pub const fn processor_time(&self) -> Duration {
        self.worked
    }

    /// Ends the first extent.
    fn next_extent(&mut self) {
        if let Some(extent) = self.extents.pop_front() {
            self.counts.last_physical = extent.start.saturating_add(extent.len);
        }
        self.position = None;
    }
}

impl<'e> Scrub<'e> {
    /// A scrub that writes nothing.
    #[must_use]
    pub fn reading(engine: &'e Engine) -> Self {
        Self::with(engine, None)
    }

    /// A scrub that repairs errors where it can.
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

    /// Turns off read-ahead in the trees, to measure its worth.
    #[must_use]
    pub fn without_read_ahead(self) -> Self {
        Self { ahead: ReadAhead::None, ..self }
    }

    /// Accepts data without checksums as it stands if its parity differs, and rewrites the parity.
    #[must_use]
    pub fn accepting_unsummed(mut self) -> Self {
        self.mending.accepts_unsummed = true;
        self
    }

    /// Sets the number of threads that read and judge; the thread that takes a step is the first. The default keeps a slow device busy.
    #[must_use]
    pub fn on_threads(self, threads: NonZero<usize>) -> Self {
        Self { workers: threads.get().min(IN_FLIGHT), ..self }
    }

    /// Makes this scrub a later step of the scrub that uses `together`.
    #[must_use]
    pub fn sharing(self, together: &Arc<Together>) -> Self {
        Self { together: Arc::clone(together), ..self }
    }

    /// Allows commits meanwhile: superblocks are left to them, and the next commit rewrites bad ones
    /// ([`are_superblocks_good`](Self::are_superblocks_good)).
    #[must_use]
    pub fn beside_commits(mut self) -> Self {
        self.mending.is_live = true;
        self
    }

    /// The number of searches in the trees, for all devices together.
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

    /// Begins devices at the offsets, bytes, where an earlier scrub of them stopped ([`Counts::last_physical`]).
    #[must_use]
    pub fn starting_at(self, starts: BTreeMap<DevId, u64>) -> Self {
        let sector = u64::from(self.engine.sector_size());
        let starts = starts.into_iter().map(|(dev, from)| (dev, from - from % sector)).collect();
        Self { starts, ..self }
    }

    /// Scrubs the content of a device, and its superblocks, to the end.
    ///
    /// # Errors
    /// The device is missing, or the trees of the filesystem do not give its content.
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

    /// All counts of a device so far.
    #[must_use]
    pub fn counts_of(&self, device: &DeviceScrub) -> Counts {
        let mut counts = device.counts;
        if let Some(extent) = device.extents.front() {
            counts += self.together.counted(extent.chunk, device.dev);
        }
        counts
    }

    /// The counts that the scrubs of other devices made for a device that has ended without taking them; call it once all have ended. For a
    /// chunk that the device has not come to, these are only repairs: a scrub that goes on finds the rest again.
    #[must_use]
    pub fn unclaimed(&self, dev: DevId) -> Counts {
        self.together.unclaimed(dev)
    }

    /// Stops the scrub of a device: other devices that wait for it end as well. The counts of others for it are
    /// [`unclaimed`](Self::unclaimed).
    pub fn give_up(&self, device: &mut DeviceScrub) {
        self.give_up_as(device, Over::Cancelled);
    }

    /// Stops like [`give_up`](Self::give_up), after a step of the device has failed.
    pub fn give_up_as_failed(&self, device: &mut DeviceScrub) {
        self.give_up_as(device, Over::Failed("the scrub of another device failed".to_owned()));
    }

    fn give_up_as(&self, device: &mut DeviceScrub, over: Over) {
        let comes = |dev: DevId| self.engine.volume().device(dev).is_some();
        if let Some(extent) = device.extents.front() {
            device.counts += self.together.give_up((extent.chunk, device.dev), over, comes);
        }
    }

    /// Scrubs the superblocks of a device, and lists its other parts to scrub.
    ///
    /// # Errors
    /// The device is missing, or the trees of the filesystem do not give its content.
    pub fn begin(&self, dev: DevId, sink: &dyn Sink) -> Result<DeviceScrub> {
        if self.engine.volume().device(dev).is_none() {
            return Err(Error::new(ErrorKind::DeviceMissing, format!("device {dev}")));
        }
        let from = self.starts.get(&dev).copied().unwrap_or(0);
        let size = in_use_on(self.engine, dev);
        let mut counts = Counts { last_physical: from, size, ..Counts::default() };
        // A resumed scrub has judged them already.
        if from == 0 {
            self.mending.superblocks(dev, &mut counts, sink);
        }
        let durable = self.engine.durable_trees()?;
        let extents = extents_of(&durable, self.ahead, (dev, from))?;
        let (listed, position, asked, worked) = (durable.generation(), None, 0, Duration::ZERO);
        Ok(DeviceScrub { dev, from, listed, extents, position, counts, skipped: 0, asked, worked })
    }

    /// Advances the scrub of a device by up to `bytes` of it, and one batch more. A group whose trees are damaged is a finding, and the
    /// scrub goes on behind it.
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

    /// Advances in an extent. `None`: it is done.
    fn step_into(
        &self,
        device: &mut DeviceScrub,
        extent: DeviceExtent,
        bytes: u64,
        sink: &dyn Sink,
    ) -> Result<Option<Step>> {
        // A new one for each step, so that the blocks a guard keeps are released soon.
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
            // The chunk has gone since the extents were listed, or another one has its address.
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

    /// Waits until the scrub of another device no longer leads the chunk that this one waits for ([`Step::Waits`]).
    pub fn wait_for_others(&self, device: &DeviceScrub) {
        if let Some(extent) = device.extents.front() {
            self.together.wait(extent.chunk);
        }
    }

    /// Advances in a chunk without parity.
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
        let WorkersResult { asked, worked, position, went } = workers.run(self.workers);
        device.asked += asked;
        device.worked += worked;
        device.position = Some(position);
        device.counts += part[0].counts;
        went
    }

    /// Advances in a chunk with parity, for all of its devices. `None` if another device leads it.
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
        let WorkersResult { asked, worked, position, went } = workers.run(self.workers);
        device.asked += asked;
        device.worked += worked;
        lead.position = position;
        went
    }

    const fn trees_of<'t>(&'t self, extents: &'t DurableTree, sums: Option<&'t DurableTree>) -> Trees<'t> {
        Trees { extents, sums, ahead: self.ahead, searches: &self.searches }
    }

    /// The stripes of a chunk to which no device came before, and the position where its scrub begins: the first of its devices'
    /// beginnings.
    fn parts_of(&self, chunk: &Chunk) -> (Vec<Part>, Position) {
        // The bytes of a missing device are rebuilt to judge the parity, and give no findings.
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

    /// The extent tree, and for a group with data the checksum tree.
    fn trees(&self, durable: &DurableTrees<'_>, chunk: &Chunk) -> Result<(DurableTree, Option<DurableTree>)> {
        let has_data = chunk.flags.contains(BlockGroupFlags::DATA);
        let sums = has_data.then(|| durable.tree(TreeId::CSUM)).transpose()?;
        Ok((durable.tree(TreeId::EXTENT)?, sums))
    }
}
