//! A scrub that never ends, as background work: beside whatever is done, nothing may ever look bad to it.

use std::num::NonZero;
use std::sync::{Arc, Weak};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{DevId, Result};
use creamery_maint::scrub::{Counts, DeviceScrub, Finding, Scrub, Sink, Step};
use creamery_txn::{BackgroundWork, Due, Engine};

/// Bytes that a step reads.
const STEP: u64 = 128 << 10;

/// Scrubs the one device of an engine, again after each commit.
///
/// ```no_run
/// # fn example(engine: &std::sync::Arc<creamery_txn::Engine>) {
/// let scrubbing = creamery_sim::Scrubbing::begin(engine);
/// // Work, and steps of the background.
/// assert!(scrubbing.findings().is_empty());
/// # }
/// ```
pub struct Scrubbing {
    engine: Weak<Engine>,
    state: RankedMutex<ScrubbingState, { rank::LEAF }>,
}

#[derive(Default)]
struct ScrubbingState {
    device: Option<DeviceScrub>,
    /// Not while a step is taken.
    is_at_it: bool,
    /// The commit that was scrubbed last.
    scrubbed: u64,
    rounds: u64,
    bytes: u64,
    findings: Vec<String>,
}

impl Scrubbing {
    /// Has the background scrub from now on.
    #[must_use]
    pub fn begin(engine: &Arc<Engine>) -> Arc<Self> {
        let scrubbing = Arc::new(Self { engine: Arc::downgrade(engine), state: RankedMutex::default() });
        engine.background().register(Arc::clone(&scrubbing) as Arc<dyn BackgroundWork>);
        scrubbing
    }

    /// What was bad.
    #[must_use]
    pub fn findings(&self) -> Vec<String> {
        self.state.lock().findings.clone()
    }

    /// How often the device was scrubbed whole, and how many bytes of data and tree blocks that were.
    #[must_use]
    pub fn done(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.rounds, state.bytes)
    }

    fn go_on(&self, engine: &Engine, device: Option<DeviceScrub>) -> Result<Option<DeviceScrub>> {
        let scrub = Scrub::mending(engine, engine.volume().mender()?)
            .beside_commits()
            .on_threads(NonZero::<usize>::MIN);
        let Some(mut device) = device else {
            let now = engine.volume().superblock().generation().get();
            self.state.lock().scrubbed = now;
            return scrub.begin(DevId::new(1), self).map(Some);
        };
        match scrub.step(&mut device, STEP, self)? {
            Step::More | Step::Waits => Ok(Some(device)),
            Step::Ended(_) => {
                let counts = *device.counts();
                let mut state = self.state.lock();
                state.rounds += 1;
                state.bytes += counts.data_bytes_scrubbed + counts.tree_bytes_scrubbed;
                if counts.errors() + counts.corrected_errors > 0 {
                    state.findings.push(format!("{counts:?}"));
                }
                Ok(None)
            }
        }
    }
}

impl Sink for Scrubbing {
    fn found(&self, finding: &Finding) {
        self.state.lock().findings.push(format!("{finding:?}"));
    }

    fn goes_on(&self, _: DevId, _: &Counts) -> bool {
        true
    }
}

impl BackgroundWork for Scrubbing {
    fn name(&self) -> &'static str {
        "scrub"
    }

    fn due(&self) -> Due {
        let Some(engine) = self.engine.upgrade() else { return Due::Never };
        let now = engine.volume().superblock().generation().get();
        let may_write = engine.read_only().is_none();
        let state = self.state.lock();
        let is_news = now != state.scrubbed;
        let is_due = may_write && !state.is_at_it && (state.device.is_some() || is_news);
        if is_due { Due::Now } else { Due::Never }
    }

    fn step(&self) -> Result<()> {
        let Some(engine) = self.engine.upgrade() else { return Ok(()) };
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.is_at_it, true) {
            return Ok(());
        }
        let device = state.device.take();
        drop(state);
        let left = self.go_on(&engine, device);
        let mut state = self.state.lock();
        state.is_at_it = false;
        state.device = left?;
        Ok(())
    }
}
