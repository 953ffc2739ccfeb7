//! Syncs files and directories one by one, with power cuts: in every remaining state they are as they were when synced.
//!
//! A power cut leaves a commit with a log; `log_states` has the states that this may show.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use creamery_base::InodeId;
use creamery_fs::{Filesystem, FsOptions};
use creamery_testkit::Random;
use creamery_txn::Options;

use crate::crash::judge;
use crate::device::{Canary, SimDevice};
use crate::driver::{Driver, open};
use crate::due::compress;
use crate::image::Image;
use crate::log_states::{Found, Moment};
use crate::model::{Content, ROOT};
use crate::operation::{Generator, Operation, Taste};
use crate::power_cut::{CutState, PowerCut};
use crate::quotas;
use crate::room_watch::ensure_room_was_kept;
use crate::snapshot::walk;
use crate::workload::{Commit, Features, History};

/// Operations of a run.
const OPERATIONS: u64 = 700;
/// A commit follows one of this many operations; an fsync follows one of the next number.
const COMMITS_ONE_IN: u64 = 30;
const FSYNCS_ONE_IN: u64 = 3;

/// An fsync that needed only a log.
struct Synced {
    /// The commit before it.
    commit: usize,
    id: u64,
    /// The number of events before it began, and when it was durable.
    begun: usize,
    durable: usize,
    moment: Moment,
}

/// The results of a run.
///
/// ```
/// assert_eq!(creamery_sim::LogReport::default().states, 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LogReport {
    /// Calls of fsync that needed only a log.
    pub logged: usize,
    /// Calls of fsync that committed.
    pub committed: usize,
    /// States that power cuts left.
    pub states: usize,
    /// States in which files came from a log.
    pub replayed: usize,
}

struct LogRecorder {
    device: Arc<SimDevice>,
    driver: Driver,
    commits: Vec<Commit>,
    synced: Vec<Synced>,
    report: LogReport,
}

/// Works on an empty filesystem on `base`, syncs files, and checks up to `states` states that power cuts leave.
///
/// # Errors
/// The first state with wrong content; the error tells how to reproduce it.
pub fn log_run(base: &Image, seed: u64, states: usize, canary: Option<Canary>) -> Result<LogReport> {
    log_run_with(base, seed, states, canary, |_| ())
}

/// Runs like [`log_run`] after `prepare`, which may set a failpoint that should be noticed.
///
/// # Errors
/// Those of [`log_run`].
pub fn log_run_with(
    base: &Image,
    seed: u64,
    states: usize,
    canary: Option<Canary>,
    prepare: impl FnOnce(&Filesystem),
) -> Result<LogReport> {
    let device = Arc::new(SimDevice::recording(base.clone(), canary));
    let delayed_bytes = if seed.is_multiple_of(4) { 0 } else { 1 << 30 };
    let fs_options = FsOptions { delayed_bytes, compress: compress(seed / 4), ..FsOptions::default() };
    let driver = Driver::open_fresh_with(&device, Options::default(), fs_options)?;
    prepare(driver.filesystem());
    quotas::enable(driver.filesystem(), seed)?;
    let commits = vec![Commit::first(driver.model())];
    let mut recorder = LogRecorder {
        device: Arc::clone(&device),
        driver,
        commits,
        synced: Vec::new(),
        report: LogReport::default(),
    };
    recorder.work(seed).with_context(|| format!("seed {seed}"))?;
    let LogRecorder { driver, commits, synced, mut report, .. } = recorder;
    let numbers = driver.numbers();
    drop(driver);
    let events = device.take_log();
    let history = History { base: base.clone(), events, commits, features: Features::default() };
    let mut cut = PowerCut::new(history.base.clone(), history.events.clone(), seed, false);
    while report.states < states {
        let Some(state) = cut.next_state() else { break };
        let told = || format!("seed {seed}, state {}: {}", report.states, state.story);
        let replayed = verify(&history, &synced, &numbers, &state).with_context(told)?;
        report.states += 1;
        report.replayed += usize::from(replayed);
    }
    Ok(report)
}

impl LogRecorder {
    fn work(&mut self, seed: u64) -> Result<()> {
        let taste = Taste { mistakes: 3, names: 60, write_max: 30_000, ..Taste::default() };
        let (mut generator, mut random) = (Generator::new(seed, taste), Random::new(seed));
        let first: Vec<_> = generator.first().collect();
        first.iter().try_for_each(|operation| self.apply(operation))?;
        for number in 0..OPERATIONS {
            let operation = generator.next(self.driver.model());
            self.apply(&operation).with_context(|| format!("operation {number}"))?;
            if random.below(COMMITS_ONE_IN) == 0 {
                self.apply(&Operation::Sync).with_context(|| format!("behind operation {number}"))?;
            }
            let files: Vec<u64> = self.named();
            if random.below(FSYNCS_ONE_IN) == 0 && !files.is_empty() {
                // Often one of the six newest.
                let most = if random.below(2) == 0 { files.len().min(6) } else { files.len() };
                let inode = files[files.len() - 1 - random.below(most as u64) as usize];
                self.apply(&Operation::Fsync { inode })
                    .with_context(|| format!("behind operation {number}"))?;
            }
        }
        self.driver.compare()
    }

    /// Inodes that can be synced and have a name.
    fn named(&self) -> Vec<u64> {
        let model = self.driver.model();
        let can_be = |id: &u64| matches!(model.nodes[id].content, Content::File(_) | Content::Directory(_));
        model.paths().into_keys().filter(|id| *id == ROOT || can_be(id)).collect()
    }

    fn apply(&mut self, operation: &Operation) -> Result<()> {
        let engine = Arc::clone(self.driver.filesystem().engine());
        let (begun, generation) = (self.device.log_len(), engine.generation());
        let before = engine.counters();
        self.driver.apply(operation)?;
        let after = engine.counters();
        let durable = self.device.log_len();
        if engine.generation() != generation {
            let (superblock, _) = self.device.superblock_since(begun);
            let mut model = self.driver.model().clone();
            model.restart();
            let snapshot = model.snapshot();
            self.commits.push(Commit { model, snapshot, superblock, durable });
            self.report.committed += usize::from(matches!(operation, Operation::Fsync { .. }));
        } else if let Operation::Fsync { inode } = *operation
            && after.log_writes > before.log_writes
        {
            self.synced(inode, begun, durable);
        }
        Ok(())
    }

    fn synced(&mut self, id: u64, begun: usize, durable: usize) {
        let commit = self.commits.len() - 1;
        let moment = Moment::of(self.driver.model());
        self.synced.push(Synced { commit, id, begun, durable, moment });
        self.report.logged += 1;
    }
}

/// Opens a state (which replays its log), and compares. Returns whether anything came from the log.
fn verify(
    history: &History,
    synced: &[Synced],
    numbers: &HashMap<InodeId, u64>,
    state: &CutState,
) -> Result<bool> {
    let device = Arc::new(SimDevice::new(state.image.clone()));
    let fs = open(&device).context("opening what the power cut left")?;
    let replayed = fs.replayed().is_some();
    let walked = walk(&fs, true).context("walking what the power cut left")?;
    fs.shut_down()?;
    ensure_room_was_kept(&fs)?;
    judge(&device.image()).context("verifying what was replayed")?;
    let found = Found::new(&walked, numbers)?;
    let legal = history.legal(state.position);
    let is_first = |commit: &Commit| std::ptr::eq(commit, &raw const legal[0]);
    let first = history.commits.iter().position(is_first).context("a commit of the run")?;
    let mut told = String::new();
    for (number, commit) in (first..).zip(legal) {
        let behind = synced.iter().filter(|synced| synced.commit == number && synced.begun < state.position);
        match check(&found, commit, behind, state.position) {
            Ok(()) => return Ok(replayed),
            Err(error) => told.push_str(&format!("against commit {number}: {error:#}\n")),
        }
    }
    bail!("the files are those of no legal commit with its log\n{told}")
}

/// Checks that a commit and the calls of fsync behind it explain the state.
fn check<'s>(
    found: &Found<'_>,
    commit: &Commit,
    behind: impl Iterator<Item = &'s Synced>,
    position: usize,
) -> Result<()> {
    let committed = Moment::of(&commit.model);
    let (mut moments, mut since) = (vec![&committed], HashMap::new());
    for synced in behind {
        if synced.durable <= position {
            since.insert(synced.id, moments.len());
        }
        moments.push(&synced.moment);
    }
    found.check(&moments, &since)
}
