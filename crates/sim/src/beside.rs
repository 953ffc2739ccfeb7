//! Work during which the background takes its steps, in the middle of operations, in an order that follows from the seed.
//!
//! No operation asks for a commit: the background's timer and memory do. A transaction that closed in the middle of an operation has it
//! whole or not at all. Both are legal, as the simulator does not see which it was.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use creamery_fs::Filesystem;
use creamery_testkit::Random;
use creamery_txn::DiscardPolicy;

use crate::device::{Fault, SimDevice};
use crate::driver::{self, Driver};
use crate::due::{Transaction, fs_options, next, small_budgets};
use crate::faulty_run::verify_what_is_left;
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::model::Model;
use crate::operation::{Generator, Operation, Taste};
use crate::quotas;
use crate::turns::Beside;
use crate::workload::{Commit, Features, History};

/// Operations of a workload.
const OPERATIONS: u64 = 500;
/// Operations of a run with a failure; they make names in existing directories.
const FEW_OPERATIONS: u64 = 150;
/// A trim follows one of this many operations, in runs that discard freed space.
const TRIMS_ONE_IN: u64 = 50;
/// One of this many operations makes a file durable whose data is not.
const FSYNCS_ONE_IN: u64 = 12;
/// Arbitrary: the simulator decides when the time has passed.
const INTERVAL: Duration = Duration::from_secs(30);

/// The transactions that a run has written.
struct Watcher {
    device: Arc<SimDevice>,
    running: Transaction,
    /// The possible contents of closed transactions whose superblocks are not written yet.
    closed: VecDeque<Vec<Model>>,
    commits: Vec<Commit>,
    seen: usize,
}

impl Watcher {
    fn begin(device: &Arc<SimDevice>, model: &Model) -> Self {
        Self {
            device: Arc::clone(device),
            running: Transaction::begin(model),
            closed: VecDeque::new(),
            commits: vec![Commit::first(model)],
            seen: device.log_len(),
        }
    }

    /// Closes `count` transactions during an operation after which the files are `after`.
    fn close(&mut self, count: u64, after: Option<&Model>) -> Result<()> {
        for _ in 0..count {
            let before = self.running.close()?;
            self.closed.push_back(std::iter::once(before).chain(after.cloned()).collect());
        }
        Ok(())
    }

    /// Notes that a file was made durable: the newest superblock includes it, and so do later ones.
    fn synced(&mut self, fsync: &Operation) -> Result<()> {
        let newest = self.commits.last().and_then(|commit| commit.superblock);
        // Of two possible contents of a superblock, one may be from before the file was made.
        self.commits.retain_mut(|commit| {
            commit.superblock != newest || {
                let has_it = commit.model.apply(fsync).is_ok();
                commit.snapshot = commit.model.snapshot();
                has_it
            }
        });
        let is_there = self.commits.last().is_some_and(|commit| commit.superblock == newest);
        ensure!(is_there, "{fsync:?} succeeded, and the newest commit has no such file");
        for models in &mut self.closed {
            models.retain_mut(|model| model.apply(fsync).is_ok());
            ensure!(
                !models.is_empty(),
                "{fsync:?} succeeded, and a transaction that closed has no such file"
            );
        }
        Ok(())
    }

    /// Assigns newly written superblocks to the closed transactions, in order.
    fn look(&mut self) -> Result<()> {
        for superblock in self.device.superblocks_since(self.seen) {
            let models = self.closed.pop_front().context("a superblock of no transaction")?;
            for model in models {
                let snapshot = model.snapshot();
                self.commits.push(Commit {
                    model,
                    snapshot,
                    superblock: Some(superblock),
                    durable: usize::MAX,
                });
            }
        }
        self.seen = self.device.log_len();
        Ok(())
    }
}

/// The result of a run.
struct Ran {
    watcher: Watcher,
    features: Features,
    /// Whether an operation met a failure.
    failed: bool,
}

/// Runs operations of `seed` with the background beside them, until `operations` are done or one fails.
fn run(
    device: &Arc<SimDevice>,
    seed: u64,
    operations: u64,
    prepare: impl FnOnce(&Filesystem),
) -> Result<Ran> {
    let mut driver = Driver::open_fresh_with(device, small_budgets(), fs_options(seed))?;
    if device.may_fail() {
        driver.expect_losses();
    } else {
        quotas::enable(driver.filesystem(), seed)?;
    }
    let engine = Arc::clone(driver.filesystem().engine());
    prepare(driver.filesystem());
    engine.commit_every(Some(INTERVAL));
    // Discards must not hit anything that a commit may leave.
    engine.set_discard([DiscardPolicy::Off, DiscardPolicy::Async, DiscardPolicy::Sync][seed as usize % 3]);
    let beside = Beside::begin(&engine, seed);
    let mut random = Random::new(seed);
    let mut watcher = Watcher::begin(device, driver.model());
    let (mut failed, mut fsyncs) = (false, 0);
    for number in 0..operations {
        let generation = engine.generation().get();
        let operation = some_fsync(&mut random, driver.model())
            .unwrap_or_else(|| next(&mut random, driver.model(), number));
        let place = || format!("seed {seed}, operation {number}");
        let mut error = beside.run(|| driver.try_apply(&operation)).with_context(place)?;
        let after = if error.is_none() { Some(driver.model()) } else { None };
        if error.is_none() && !seed.is_multiple_of(3) && random.below(TRIMS_ONE_IN) == 0 {
            error = beside.run(|| engine.trim((0, u64::MAX), 0)).err();
        }
        failed = error.is_some() || engine.read_only().is_some();
        watcher.close(engine.generation().get() - generation, after)?;
        watcher.look().with_context(place)?;
        driver.take_losses().into_iter().for_each(|loss| watcher.running.lose(loss));
        if let (None, Operation::Fsync { .. }) = (&error, &operation) {
            watcher.synced(&operation).with_context(place)?;
            fsyncs += 1;
        }
        if let Some(error) = error {
            ensure!(device.has_failed(), "{}: {operation:?} failed, the device did not: {error:?}", place());
            break;
        }
        watcher.running.push(operation);
    }
    let generation = engine.generation().get();
    let steps = beside.end();
    watcher.close(engine.generation().get() - generation, None)?;
    watcher.look()?;
    if !failed && engine.read_only().is_none() {
        driver.compare()?;
    }
    let failed = failed || engine.read_only().is_some();
    let features = Features { commits: watcher.commits.len() - 1, steps, fsyncs, ..Features::default() };
    Ok(Ran { watcher, features, failed })
}

/// Picks a file whose data is not durable, now and then.
fn some_fsync(random: &mut Random, model: &Model) -> Option<Operation> {
    let files = model.unsynced();
    let which = random.below(FSYNCS_ONE_IN * files.len().max(1) as u64) as usize;
    files.get(which).map(|inode| Operation::Fsync { inode: *inode })
}

/// Runs the workload of `seed` on an empty filesystem, with the background beside it. `prepare` may set a failpoint.
///
/// # Errors
/// Engine and model differ.
pub fn record_beside(base: &Image, seed: u64, prepare: impl FnOnce(&Filesystem)) -> Result<History> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    let Ran { watcher, features, failed } = run(&device, seed, OPERATIONS, prepare)?;
    ensure!(!failed, "seed {seed}: aborted without a reason");
    Ok(History { base: base.clone(), events: device.take_log(), commits: watcher.commits, features })
}

/// Runs like [`faulty_run`](crate::faulty_run), with the background beside the work: wherever the failure strikes, the remaining state is a
/// legal commit. Returns whether the failure struck.
///
/// # Errors
/// An answer is wrong, or the remaining state is no legal commit.
pub fn faulty_run_beside(base: &Image, seed: u64, fault: Fault) -> Result<bool> {
    faulty_run_beside_with(base, seed, fault, |_| ())
}

/// Runs like [`faulty_run_beside`]; `prepare` may set a failpoint of the engine.
///
/// # Errors
/// Those of [`faulty_run_beside`].
pub fn faulty_run_beside_with(
    base: &Image,
    seed: u64,
    fault: Fault,
    prepare: impl FnOnce(&Filesystem),
) -> Result<bool> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    device.fail(fault);
    let Ran { watcher, failed, .. } = match run(&device, seed, FEW_OPERATIONS, prepare) {
        Ok(ran) => ran,
        // The failure kept the filesystem from opening.
        Err(error) if device.has_failed() && is_of_the_device(&error) => return Ok(true),
        Err(error) => return Err(error),
    };
    verify_what_is_left(base, &device, watcher.commits, seed, &|_| ())?;
    Ok(failed)
}

/// The number of requests in a run of [`faulty_run_beside`] without failures.
///
/// # Errors
/// The run does not work even without failures.
pub fn requests_of_a_run_beside(base: &Image, seed: u64, kind: crate::Kind) -> Result<u64> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    let ran = run(&device, seed, FEW_OPERATIONS, |_| ())?;
    ensure!(!ran.failed, "a run without failures failed");
    Ok(device.count(kind))
}

fn is_of_the_device(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<creamery_base::Error>();
    cause.is_some_and(|cause| driver::is_of_the_device(cause.kind()))
}

/// Runs like [`random_run`](crate::random_run), with the background beside the operations.
///
/// # Errors
/// Engine and model differ; the error has the seed and the number of the operation.
pub fn random_run_beside(seed: u64, count: u64, made_by: &MadeBy, taste: Taste) -> Result<(u64, u64)> {
    let device = Arc::new(SimDevice::new(fresh_image(made_by)?));
    let mut driver = Driver::open_fresh_with(&device, small_budgets(), fs_options(seed))?;
    quotas::enable(driver.filesystem(), seed)?;
    let engine = Arc::clone(driver.filesystem().engine());
    engine.commit_every(Some(INTERVAL));
    let beside = Beside::begin(&engine, seed);
    drop(engine);
    let mut generator = Generator::new(seed, taste);
    let first: Vec<_> = generator.first().collect();
    for operation in first {
        beside.run(|| driver.apply(&operation))?;
    }
    for number in 0..count {
        let operation = some_fsync(&mut generator.random, driver.model())
            .unwrap_or_else(|| generator.next(driver.model()));
        beside
            .run(|| driver.apply(&operation))
            .with_context(|| format!("seed {seed}, operation {number}"))?;
    }
    let counts = beside.end();
    driver.compare().with_context(|| format!("seed {seed}, at the end"))?;
    let last = || format!("seed {seed}, the last restart");
    let driver = driver.restart(&device).with_context(last)?;
    quotas::ensure_counted(driver.filesystem()).with_context(last)?;
    Ok(counts)
}
