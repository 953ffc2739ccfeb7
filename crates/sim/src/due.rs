//! Work without syncs: commits fall due, and the operations that come next write them one batch at a time. These operations also run
//! delayed refs while the transaction is open.
//!
//! A transaction has everything before the operation that closed it; its superblock is written some operations later. So a power cut falls
//! between operations of the next transaction and blocks of the last one.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use creamery_fs::{Compress, FileType, FsOptions, RenameMode};
use creamery_testkit::Random;
use creamery_txn::Options;

use crate::delayed_data::Loss;
use crate::device::SimDevice;
use crate::driver::Driver;
use crate::image::Image;
use crate::model::{Model, ROOT};
use crate::operation::Operation;
use crate::quotas;
use crate::workload::{Commit, Features, History};

/// Commits of a workload.
const COMMITS: usize = 30;
/// More operations than this many commits take.
const OPERATIONS_MAX: u64 = 100_000;
/// Bytes of dirty blocks: enough that a commit has several batches.
const DIRTY_BYTES: u64 = 1 << 20;
/// Few enough that operations run some refs: they do so from a quarter of it on.
const DELAYED_REFS_MAX: usize = 160;
const DIRECTORIES: u64 = 24;

/// Budgets with which commits fall due soon, and operations run refs. A sync commits: this run checks the content of superblocks, and
/// `log_run` that of logs.
pub(crate) fn small_budgets() -> Options {
    Options {
        dirty_bytes: DIRTY_BYTES,
        delayed_refs_max: DELAYED_REFS_MAX,
        tree_log: false,
        ..Options::default()
    }
}

/// The options of the filesystem in the run of `seed`: none, little, or all of its data may be delayed.
pub(crate) fn fs_options(seed: u64) -> FsOptions {
    let delayed_bytes = [0, 32 << 10, 256 << 10, 1 << 30][(seed % 4) as usize];
    FsOptions { delayed_bytes, compress: compress(seed / 4), ..FsOptions::default() }
}

/// The compression in the run of `seed`: none, or one of the three.
pub(crate) fn compress(seed: u64) -> Option<Compress> {
    let word = ["", "zstd", "lzo", "zlib"][(seed % 4) as usize];
    let compress: Compress = word.parse().ok()?;
    Some(Compress { force: seed % 8 < 4, ..compress })
}

/// The operations since the last transaction was closed.
pub(crate) struct Transaction {
    begun: Model,
    steps: Vec<DueStep>,
}

/// The steps of a transaction, in order.
enum DueStep {
    Done(Operation),
    Lost(Loss),
}

impl Transaction {
    /// Begins a transaction with the content of `model`.
    pub(crate) fn begin(model: &Model) -> Self {
        Self { begun: model.clone(), steps: Vec::new() }
    }

    /// Adds an operation that succeeded.
    pub(crate) fn push(&mut self, operation: Operation) {
        self.steps.push(DueStep::Done(operation));
    }

    /// Adds a loss of delayed data: later writes build on the remaining content.
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.steps.push(DueStep::Lost(loss));
    }

    /// The content of the transaction when an operation that is not part of it closes it. Begins the next one.
    pub(crate) fn close(&mut self) -> Result<Model> {
        for step in self.steps.drain(..) {
            match step {
                DueStep::Done(operation) => {
                    let done = self.begun.apply(&operation);
                    ensure!(done.is_ok(), "{operation:?} succeeded before");
                }
                DueStep::Lost(loss) => self.begun.lose(&loss),
            }
        }
        Ok(self.begun.clone())
    }
}

/// Runs the workload of `seed` on an empty filesystem.
///
/// # Errors
/// Engine and model differ.
pub fn record_due(base: &Image, seed: u64) -> Result<History> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    let mut driver = Driver::open_fresh_with(&device, small_budgets(), fs_options(seed))?;
    quotas::enable(driver.filesystem(), seed)?;
    let mut random = Random::new(seed);
    let mut commits = vec![Commit::first(driver.model())];
    let mut running = Transaction::begin(driver.model());
    // The content of transactions that are closed and not yet durable.
    let mut closed: VecDeque<Model> = VecDeque::new();
    let (mut logged, mut shared) = (device.log_len(), 0);
    for number in 0..OPERATIONS_MAX {
        let generation = driver.filesystem().engine().generation();
        let operation = next(&mut random, driver.model(), number);
        driver.apply(&operation).with_context(|| format!("seed {seed}, operation {number}"))?;
        // An operation that finds no room causes commits until there is room; it is part of none of them.
        for _ in generation.get()..driver.filesystem().engine().generation().get() {
            closed.push_back(running.close()?);
        }
        running.push(operation);
        shared += usize::from(!closed.is_empty());
        let superblocks = device.superblocks_since(logged);
        for (number, superblock) in superblocks.iter().enumerate() {
            let model = closed.pop_front().context("a superblock of no transaction")?;
            let durable = superblocks.get(number + 1).copied().unwrap_or_else(|| device.log_len());
            commits.push(Commit {
                snapshot: model.snapshot(),
                model,
                superblock: Some(*superblock),
                durable,
            });
            logged = device.log_len();
        }
        ensure!(closed.len() <= 1, "a transaction was closed before the last one was durable");
        if commits.len() > COMMITS {
            break;
        }
    }
    drop(driver);
    let features = Features { commits: commits.len() - 1, shared, ..Features::default() };
    Ok(History { base: base.clone(), events: device.take_log(), commits, features })
}

/// An operation with a single handle, so a transaction has it whole or not at all.
pub(crate) fn next(random: &mut Random, model: &Model, number: u64) -> Operation {
    let name = format!("a name of some length, for leaves shall fill: {number}").into_bytes();
    if number < DIRECTORIES {
        return Operation::Create { dir: ROOT, name, kind: FileType::Directory, mode: 0o750 };
    }
    let dir = ROOT + 1 + random.below(DIRECTORIES);
    let old = model.names(dir).ok().and_then(|names| {
        let which = random.below(names.len().max(1) as u64) as usize;
        names.iter().nth(which).map(|(name, inode)| (name.clone(), *inode))
    });
    match (random.below(10), old) {
        (0..2, Some((_, inode))) => {
            let len = 1 + random.below(9000) as usize;
            Operation::Write { inode, offset: 0, len, seed: random.next_u64() }
        }
        (2, Some((old, _))) => {
            let to = ROOT + 1 + random.below(DIRECTORIES);
            Operation::Rename { from: dir, name: old, to, new_name: name, mode: RenameMode::NoReplace }
        }
        _ => Operation::Create { dir, name, kind: FileType::File, mode: 0o640 },
    }
}
