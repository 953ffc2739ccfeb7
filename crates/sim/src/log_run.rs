//! Files that are synced one by one, while power fails: whatever is left, those are what they were then.
//!
//! What a power cut leaves is a commit with a log. After the replay, every file that was synced behind that commit has to be what it
//! was when it was synced last, or later when somebody was about to sync it again; and all else is as the commit has it, but for
//! the names that such files have got since.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use creamery_fs::Filesystem;
use creamery_testkit::Random;
use creamery_txn::Options;

use crate::crash::judge;
use crate::device::{Canary, SimDevice};
use crate::driver::{Driver, open};
use crate::image::Image;
use crate::model::{Content, Model};
use crate::operation::{Generator, Operation, Taste};
use crate::power_cut::{CutState, PowerCut};
use crate::snapshot::{Entry, Snapshot, Walked, join, walk};
use crate::workload::{Commit, Features, History};

/// Operations of a run.
const OPERATIONS: u64 = 700;
/// One of so many operations is followed by a commit, and one of so many by an fsync.
const COMMITS_ONE_IN: u64 = 30;
const FSYNCS_ONE_IN: u64 = 3;

/// A file when it was synced.
struct Synced {
    /// The commit that it came behind.
    commit: usize,
    id: u64,
    /// Events before it was synced, and when it was.
    begun: usize,
    durable: usize,
    shown: Entry,
    /// Its names, in directories by their numbers.
    names: Vec<(u64, Vec<u8>)>,
}

/// What a run has seen.
///
/// ```
/// assert_eq!(creamery_sim::LogReport::default().states, 0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LogReport {
    /// Calls of fsync that a log was enough for.
    pub logged: usize,
    /// Those that committed.
    pub committed: usize,
    /// States that power cuts left, and in how many of them files came from a log.
    pub states: usize,
    /// As said.
    pub replayed: usize,
}

struct Recorder {
    device: Arc<SimDevice>,
    driver: Driver,
    commits: Vec<Commit>,
    synced: Vec<Synced>,
    report: LogReport,
}

/// Works on an empty filesystem on `base` and syncs files, and tries up to `states` states that power cuts leave of that.
///
/// # Errors
/// The first state that shows something else, in words that tell how to make it again.
pub fn log_run(base: &Image, seed: u64, states: usize, canary: Option<Canary>) -> Result<LogReport> {
    log_run_with(base, seed, states, canary, |_| ())
}

/// The same behind `prepare`, which may plant a fault that should be noticed.
///
/// # Errors
/// As [`log_run`].
pub fn log_run_with(
    base: &Image,
    seed: u64,
    states: usize,
    canary: Option<Canary>,
    prepare: impl FnOnce(&Filesystem),
) -> Result<LogReport> {
    let device = Arc::new(SimDevice::recording(base.clone(), canary));
    let delayed = if seed.is_multiple_of(4) { 0 } else { 1 << 30 };
    let driver = Driver::open_fresh_with(&device, Options::default(), delayed)?;
    prepare(driver.filesystem());
    let commits = vec![Commit::first(driver.model())];
    let mut recorder = Recorder {
        device: Arc::clone(&device),
        driver,
        commits,
        synced: Vec::new(),
        report: LogReport::default(),
    };
    recorder.work(seed).with_context(|| format!("seed {seed}"))?;
    let Recorder { driver, commits, synced, mut report, .. } = recorder;
    drop(driver);
    let events = device.take_log();
    let history = History { base: base.clone(), events, commits, features: Features::default() };
    let mut cut = PowerCut::new(history.base.clone(), history.events.clone(), seed, false);
    while report.states < states {
        let Some(state) = cut.next_state() else { break };
        let told = || format!("seed {seed}, state {}: {}", report.states, state.story);
        let replayed = verify(&history, &synced, &state).with_context(told)?;
        report.states += 1;
        report.replayed += usize::from(replayed);
    }
    Ok(report)
}

impl Recorder {
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
            let files: Vec<u64> = self.named_files();
            if random.below(FSYNCS_ONE_IN) == 0 && !files.is_empty() {
                // Mostly one of the newest.
                let most = if random.below(2) == 0 { files.len().min(6) } else { files.len() };
                let inode = files[files.len() - 1 - random.below(most as u64) as usize];
                self.apply(&Operation::Fsync { inode })
                    .with_context(|| format!("behind operation {number}"))?;
            }
        }
        self.driver.compare()
    }

    fn named_files(&self) -> Vec<u64> {
        let model = self.driver.model();
        let is_file = |id: &u64| matches!(model.nodes[id].content, Content::File(_));
        model.paths().into_keys().filter(is_file).collect()
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
            self.synced(inode, begun, durable)?;
        }
        Ok(())
    }

    fn synced(&mut self, id: u64, begun: usize, durable: usize) -> Result<()> {
        let model = self.driver.model();
        let path = model.path_of(id).context("a file with a name")?;
        let shown = model.snapshot().entries[&path].clone();
        let commit = self.commits.len() - 1;
        self.synced.push(Synced { commit, id, begun, durable, shown, names: names_of(model, id) });
        self.report.logged += 1;
        Ok(())
    }
}

fn names_of(model: &Model, id: u64) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    for (dir, node) in &model.nodes {
        if let Content::Directory(names) = &node.content {
            all.extend(names.iter().filter(|(_, child)| **child == id).map(|(name, _)| (*dir, name.clone())));
        }
    }
    all
}

/// Opens a state, which replays its log, and compares. Whether files came from the log.
fn verify(history: &History, synced: &[Synced], state: &CutState) -> Result<bool> {
    let device = Arc::new(SimDevice::new(state.image.clone()));
    let fs = open(&device).context("opening what the power cut left")?;
    let replayed = fs.replayed().is_some();
    let walked = walk(&fs, true).context("walking what the power cut left")?;
    fs.shut_down()?;
    judge(&device.image()).context("verifying what was replayed")?;
    let legal = history.legal(state.position);
    let first = history.commits.len()
        - history
            .commits
            .iter()
            .rev()
            .take_while(|commit| !std::ptr::eq(*commit, &raw const legal[0]))
            .count()
        - 1;
    let mut told = String::new();
    for (number, commit) in (first..).zip(legal) {
        let of_it = synced.iter().filter(|synced| synced.commit == number && synced.begun < state.position);
        match expected(commit, of_it, state.position, &walked) {
            Ok(wanted) if wanted == walked.snapshot => return Ok(replayed),
            Ok(wanted) => {
                let difference = wanted.difference(&walked.snapshot).unwrap_or_default();
                told.push_str(&format!("against commit {number}: {difference}\n"));
            }
            Err(error) => told.push_str(&format!("against commit {number}: {error:#}\n")),
        }
    }
    bail!("the files are those of no legal commit with its log\n{told}")
}

/// What a walk has to find behind a commit with a log.
fn expected<'s>(
    commit: &Commit,
    synced: impl Iterator<Item = &'s Synced>,
    position: usize,
    walked: &Walked,
) -> Result<Snapshot> {
    let mut versions: BTreeMap<u64, Vec<&Synced>> = BTreeMap::new();
    synced.for_each(|synced| versions.entry(synced.id).or_default().push(synced));
    let mut wanted = commit.model.snapshot_beside(walked);
    for (id, versions) in versions {
        // The last one that was durable, or one behind that.
        let oldest = versions.iter().rposition(|version| version.durable <= position);
        let found = versions[oldest.unwrap_or(0)..].iter().find(|version| is_there(commit, version, walked));
        match found {
            Some(version) => overlay(&mut wanted, commit, id, version)?,
            None if oldest.is_none() => {}
            None => {
                let paths = paths_of(commit, versions[oldest.unwrap_or(0)])?;
                let seen: Vec<_> = paths.iter().map(|path| walked.snapshot.entries.get(path)).collect();
                bail!("file {id} was synced as {:?}, found {seen:?}", versions[oldest.unwrap_or(0)].shown);
            }
        }
    }
    Ok(wanted)
}

/// Where a file's names are: directories may have been moved since the commit, and that was not synced.
fn paths_of(commit: &Commit, version: &Synced) -> Result<Vec<Vec<u8>>> {
    let path = |(dir, name): &(u64, Vec<u8>)| {
        let dir = commit.model.path_of(*dir).context("a directory that the commit does not have")?;
        Ok(join(&dir, name))
    };
    version.names.iter().map(path).collect()
}

/// Whether what was found has a file as it was synced, by one name at least.
fn is_there(commit: &Commit, version: &Synced, walked: &Walked) -> bool {
    let Ok(paths) = paths_of(commit, version) else { return false };
    let as_synced = |found: &Entry| {
        let same = Entry { nlink: found.nlink, first: found.first.clone(), ..version.shown.clone() };
        *found == same
    };
    paths.iter().all(|path| walked.snapshot.entries.get(path).is_some_and(as_synced))
}

/// Puts a file as it was synced in place of what the commit has of it.
fn overlay(wanted: &mut Snapshot, commit: &Commit, id: u64, version: &Synced) -> Result<()> {
    let had = names_of(&commit.model, id);
    ensure!(had.iter().all(|name| version.names.contains(name)), "a log took a name away");
    for (dir, name) in version.names.iter().filter(|name| !had.contains(name)) {
        let dir = commit.model.path_of(*dir).context("a directory that the commit does not have")?;
        let dir = wanted.entries.get_mut(&dir).context("a directory")?;
        dir.size += 2 * name.len() as u64;
    }
    let paths = paths_of(commit, version)?;
    let first = paths.iter().min().context("a name")?.clone();
    let nlink = u32::try_from(paths.len())?;
    for path in paths {
        wanted.entries.insert(path, Entry { nlink, first: first.clone(), ..version.shown.clone() });
    }
    Ok(())
}
