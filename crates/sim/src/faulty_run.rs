//! Repeats a workload, each time with another request failing.
//!
//! After a failure the engine either goes on with right answers, or it is read-only and gives the reason; there is no third way. Then the
//! content of the platter, in all the forms that a power cut could give it, is opened on a working device, and must be a legal commit.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::{Context, Result, bail, ensure};
use creamery_base::ErrorKind;

use crate::crash::verify;
use crate::device::{Fault, Kind, SimDevice};
use crate::driver::{self, Driver};
use crate::image::Image;
use crate::model::Model;
use crate::operation::{Generator, Operation, Taste};
use crate::power_cut::{Class, CutState, PowerCut};
use crate::watch::Watch;
use crate::workload::{Commit, Features, History};

/// Operations of a run, and operations between two commits.
const OPERATIONS: usize = 60;
const PER_COMMIT: usize = 15;
/// Maximum number of states of the platter that are tried after a run.
const STATES: usize = 4;

/// The outcome of a run with a failure.
///
/// ```
/// assert_ne!(creamery_sim::FaultOutcome::ReadOnly, creamery_sim::FaultOutcome::NotOpened);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultOutcome {
    /// Nothing: the request was not made, or its answer was not needed.
    Unnoticed,
    /// An operation failed, and work went on.
    WentOn,
    /// The filesystem became read-only.
    ReadOnly,
    /// It could not be opened.
    NotOpened,
}

/// The number of requests of `kind` in a run without failures.
///
/// # Errors
/// The run does not work even without failures.
pub fn requests_of_a_run(base: &Image, model: &Model, seed: u64, kind: Kind) -> Result<u64> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    let mut run = FaultyRunState::open(&device, model)?;
    run.work(seed, &|_| ())?;
    ensure!(run.failed.is_none(), "a run without failures failed");
    Ok(device.count(kind))
}

/// Works on `base`, which has the content of `model`, with a failing device; then checks the state it leaves. `watch` gets every operation.
///
/// # Errors
/// An answer is wrong, or the remaining state is no legal commit.
pub fn faulty_run(
    base: &Image,
    model: &Model,
    seed: u64,
    fault: Fault,
    watch: &Watch,
) -> Result<FaultOutcome> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    device.fail(fault);
    let opened = FaultyRunState::open(&device, model);
    let (outcome, commits) = match opened {
        Ok(mut run) => {
            run.work(seed, &|operation| watch.doing(&(seed, fault, operation)))?;
            watch.doing(&(seed, fault, "comparing"));
            (run.outcome()?, run.commits)
        }
        Err(error) => {
            let Some(cause) = error.downcast_ref::<creamery_base::Error>() else { return Err(error) };
            ensure!(device.has_failed() && driver::is_of_the_device(cause.kind()), "opening: {error:#}");
            (FaultOutcome::NotOpened, vec![Commit::first(model)])
        }
    };
    verify_what_is_left(base, &device, commits, seed, &|number| {
        watch.doing(&(seed, fault, "what is left", number));
    })?;
    Ok(outcome)
}

/// Checks that every state a failing device with `base` may show afterwards is one of `commits`, and that work can go on from it.
pub(crate) fn verify_what_is_left(
    base: &Image,
    device: &SimDevice,
    commits: Vec<Commit>,
    seed: u64,
    doing: &dyn Fn(usize),
) -> Result<()> {
    let events = device.take_log();
    let position = events.len();
    let features = Features::default();
    let history = History { base: base.clone(), events: events.clone(), commits, features };
    // One state has all writes; the others have only some of those that no flush covered.
    let mut states = vec![device.image()];
    let mut cut = PowerCut::new(base.clone(), events, seed, false);
    states.extend(std::iter::from_fn(|| cut.next_at_end()).take(STATES));
    for (number, image) in states.into_iter().enumerate() {
        doing(number);
        let story = format!("state {number} after the failure");
        let state = CutState { image, position, class: Class::Subset, story };
        verify(&history, &state, &mut |_| Ok(())).with_context(|| state.story.clone())?;
    }
    Ok(())
}

struct FaultyRunState {
    device: Arc<SimDevice>,
    driver: Driver,
    commits: Vec<Commit>,
    failed: Option<creamery_base::Error>,
    /// Receives the reasons of aborts.
    told: Receiver<String>,
}

impl FaultyRunState {
    fn open(device: &Arc<SimDevice>, model: &Model) -> Result<Self> {
        let fs = driver::open(device)?;
        let (send, told) = std::sync::mpsc::channel();
        // If the receiver is gone, the run has ended.
        fs.engine().tell_abort(move |abort| send.send(abort.to_string()).unwrap_or_default());
        let mut driver = Driver::with_model(fs, model.clone())?;
        driver.expect_losses();
        Ok(Self {
            device: Arc::clone(device),
            driver,
            commits: vec![Commit::first(model)],
            failed: None,
            told,
        })
    }

    fn work(&mut self, seed: u64, doing: &dyn Fn(&Operation)) -> Result<()> {
        let taste = Taste { mistakes: 3, write_max: 30_000, ..Taste::default() };
        let mut generator = Generator::new(seed, taste);
        // The choice of operations must not depend on the failure.
        let mut ahead = self.driver.model().clone();
        for number in 0..OPERATIONS {
            let operation =
                if number % PER_COMMIT == PER_COMMIT - 1 { Operation::Sync } else { generator.next(&ahead) };
            if let Operation::Close { .. } = operation {
                continue;
            }
            let _ = ahead.apply(&operation);
            doing(&operation);
            self.step(&operation).with_context(|| format!("operation {number}"))?;
            if self.driver.filesystem().engine().read_only().is_some() {
                return Ok(());
            }
            if self.failed.is_some() {
                ahead = self.driver.model().clone();
            }
        }
        Ok(())
    }

    fn step(&mut self, operation: &Operation) -> Result<()> {
        let before = self.device.log_len();
        let error = self.driver.try_apply(operation)?;
        if operation.commits() {
            let (superblock, _) = self.device.superblock_since(before);
            let mut model = self.driver.model().clone();
            if error.is_some() {
                // The device has the written data all the same.
                let _ = model.apply(operation);
            }
            model.restart();
            let snapshot = model.snapshot();
            let durable = if error.is_none() { self.device.log_len() } else { usize::MAX };
            if superblock.is_some() {
                self.commits.push(Commit { model, snapshot, superblock, durable });
            }
        }
        let Some(error) = error else { return Ok(()) };
        ensure!(self.device.has_failed(), "{operation:?} failed, the device did not: {error:?}");
        self.failed = Some(error);
        Ok(())
    }

    /// The outcome, from the filesystem while it is still open.
    fn outcome(&mut self) -> Result<FaultOutcome> {
        let fs = Arc::clone(self.driver.filesystem());
        let told: Vec<String> = self.told.try_iter().collect();
        let reasons: Vec<String> = fs.engine().aborted().iter().map(ToString::to_string).collect();
        ensure!(told == reasons, "aborted because of {reasons:?}, told was {told:?}");
        if let Some(reason) = fs.engine().read_only() {
            ensure!(reason.contains("aborted"), "read-only without a reason: {reason}");
            let refused = fs.sync().err().map(|error| error.kind());
            ensure!(refused == Some(ErrorKind::ReadOnly), "a commit after the failure gives {refused:?}");
            let make = Operation::Create {
                dir: crate::ROOT,
                name: b"after the failure".to_vec(),
                kind: creamery_fs::FileType::File,
                mode: 0o600,
            };
            let refused = self.driver.try_apply(&make)?.map(|error| error.kind());
            ensure!(refused == Some(ErrorKind::ReadOnly), "a create after the failure gives {refused:?}");
            return Ok(FaultOutcome::ReadOnly);
        }
        match self.driver.compare() {
            Ok(()) if self.failed.is_some() => Ok(FaultOutcome::WentOn),
            Ok(()) => Ok(FaultOutcome::Unnoticed),
            Err(error) => match error.downcast_ref::<creamery_base::Error>() {
                Some(cause) if cause.kind().is_damage() => Ok(FaultOutcome::WentOn),
                _ => bail!("after {:?}: {error:#}", self.failed),
            },
        }
    }
}
