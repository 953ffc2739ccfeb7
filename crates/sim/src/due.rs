//! Work that nobody asks to be durable: commits fall due, and are written a batch at a time by the operations that come by.
//! These run delayed refs, too, while the transaction is open.
//!
//! A transaction has what was done before the operation that closed it; its superblock is written some operations later.
//! So a power cut falls between operations that belong to the next transaction and blocks of the last one.

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
/// More operations than so many commits take.
const OPERATIONS_MAX: u64 = 100_000;
/// So much that a commit has several batches.
const DIRTY_BYTES: u64 = 1 << 20;
/// So few that some are run beside operations: a quarter of it is enough for that.
const DELAYED_REFS_MAX: usize = 160;
const DIRECTORIES: u64 = 24;

/// Commits fall due soon, and refs are run beside operations. Who syncs commits: what a superblock has is looked at here, and logs
/// elsewhere (`log_run`).
pub(crate) fn small_budgets() -> Options {
    Options {
        dirty_bytes: DIRTY_BYTES,
        delayed_refs_max: DELAYED_REFS_MAX,
        tree_log: false,
        ..Options::default()
    }
}

/// How the filesystem is opened for the run of `seed`: none, little, or all that it writes may be delayed.
pub(crate) fn fs_options(seed: u64) -> FsOptions {
    let delayed_bytes = [0, 32 << 10, 256 << 10, 1 << 30][(seed % 4) as usize];
    FsOptions { delayed_bytes, compress: compress(seed / 4), ..FsOptions::default() }
}

/// What data is compressed with in the run of `seed`: nothing, or one of the three.
pub(crate) fn compress(seed: u64) -> Option<Compress> {
    let word = ["", "zstd", "lzo", "zlib"][(seed % 4) as usize];
    let compress: Compress = word.parse().ok()?;
    Some(Compress { force: seed % 8 < 4, ..compress })
}

/// What was done since the last transaction was closed.
pub(crate) struct Transaction {
    begun: Model,
    steps: Vec<Step>,
}

/// One after the other.
enum Step {
    Done(Operation),
    Lost(Loss),
}

impl Transaction {
    /// It begins with what `model` says.
    pub(crate) fn begin(model: &Model) -> Self {
        Self { begun: model.clone(), steps: Vec::new() }
    }

    /// An operation that succeeded is part of it.
    pub(crate) fn push(&mut self, operation: Operation) {
        self.steps.push(Step::Done(operation));
    }

    /// Delayed data was lost: later writes are on top of what was left.
    pub(crate) fn lose(&mut self, loss: Loss) {
        self.steps.push(Step::Lost(loss));
    }

    /// What it has when the operation that is not in it yet closes it. The next one begins.
    pub(crate) fn close(&mut self) -> Result<Model> {
        for step in self.steps.drain(..) {
            match step {
                Step::Done(operation) => {
                    let done = self.begun.apply(&operation);
                    ensure!(done.is_ok(), "{operation:?} succeeded before");
                }
                Step::Lost(loss) => self.begun.lose(&loss),
            }
        }
        Ok(self.begun.clone())
    }
}

/// Runs the workload of `seed` on an empty filesystem.
///
/// # Errors
/// Where engine and model differ.
pub fn record_due(base: &Image, seed: u64) -> Result<History> {
    let device = Arc::new(SimDevice::recording(base.clone(), None));
    let mut driver = Driver::open_fresh_with(&device, small_budgets(), fs_options(seed))?;
    quotas::enable(driver.filesystem(), seed)?;
    let mut random = Random::new(seed);
    let mut commits = vec![Commit::first(driver.model())];
    let mut running = Transaction::begin(driver.model());
    // What transactions have that are closed and not yet durable.
    let mut closed: VecDeque<Model> = VecDeque::new();
    let (mut logged, mut shared) = (device.log_len(), 0);
    for number in 0..OPERATIONS_MAX {
        let generation = driver.filesystem().engine().generation();
        let operation = next(&mut random, driver.model(), number);
        driver.apply(&operation).with_context(|| format!("seed {seed}, operation {number}"))?;
        // An operation that finds no room has commits made until there is; it is in none of them.
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

/// Something that takes one handle, so that a transaction has it whole or not at all.
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
