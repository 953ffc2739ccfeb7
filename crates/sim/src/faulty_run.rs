//! The same work again and again, each time with another request failing.
//!
//! After a failure the engine either goes on with right answers, or it is read-only and says why; there is nothing
//! between. What is on the platter then is opened on a device that works, in all the forms that a power cut could
//! give it, and has to be a legal commit.

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

/// Operations of a run, and between two commits.
const OPERATIONS: usize = 60;
const PER_COMMIT: usize = 15;
/// States of the platter that are tried after a run, at most.
const STATES: usize = 4;

/// How a run with a failure ended.
///
/// ```
/// assert_ne!(creamery_sim::FaultOutcome::ReadOnly, creamery_sim::FaultOutcome::NotOpened);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FaultOutcome {
    /// Nobody noticed: the request was not made, or the answer was not needed.
    Unnoticed,
    /// An operation failed, and work went on.
    WentOn,
    /// The filesystem became read-only.
    ReadOnly,
    /// It could not be opened.
    NotOpened,
}

/// How many requests of `kind` a run without failures makes.
///
/// # Errors
/// When the run does not work even so.
pub fn requests_of_a_run(base: &Image, model: &Model, seed: u64, kind: Kind) -> Result<u64> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    let mut run = Run::open(&device, model)?;
    run.work(seed, &|_| ())?;
    ensure!(run.failed.is_none(), "a run without failures failed");
    Ok(device.count(kind))
}

/// Works on `base`, which holds what `model` says, with a failing device; then looks at what that left. `watch` is told
/// of every operation.
///
/// # Errors
/// When an answer is wrong, or what is left is no legal commit.
pub fn faulty_run(
    base: &Image,
    model: &Model,
    seed: u64,
    fault: Fault,
    watch: &Watch,
) -> Result<FaultOutcome> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    device.fail(fault);
    let opened = Run::open(&device, model);
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

/// Whatever a failing device that held `base` may show after it, is one of `commits` and can be worked on.
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
    // All writes are there; and only some of those that no flush covered.
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

struct Run {
    device: Arc<SimDevice>,
    driver: Driver,
    commits: Vec<Commit>,
    failed: Option<creamery_base::Error>,
    /// Aborts that were told.
    told: Receiver<String>,
}

impl Run {
    fn open(device: &Arc<SimDevice>, model: &Model) -> Result<Self> {
        let fs = driver::open(device)?;
        let (send, told) = std::sync::mpsc::channel();
        // Who does not listen any more has ended the run.
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
        // Which operations there are must not depend on what failed.
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
                // What was written has it all the same.
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

    /// Looks at the filesystem while it is still open.
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
