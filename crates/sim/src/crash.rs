//! The crash test: every state that a power cut leaves is opened, compared, written on, and opened once more.
//!
//! A state passes when the engine opens it for writing, every file in it is what it was at the last durable commit
//! or at the one that was on the way (data that was not synced may be older: `delayed_data`), no inode is left without a path, and when work goes on from there as the model
//! says. Our verifier looks at it before and after, so a state that is damaged in a way nobody happens to look at is found,
//! too.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use creamery_check::{CheckOptions, NoProgress, check};
use creamery_device::BlockDevice;
use creamery_volume::{Mode, Volume};

use crate::device::SimDevice;
use crate::driver::{self, Driver};
use crate::image::Image;
use crate::model::ROOT;
use crate::operation::{Generator, Operation, Taste};
use crate::power_cut::{Class, CutState, PowerCut};
use crate::quotas;
use crate::snapshot::{Snapshot, walk};
use crate::workload::History;

/// Operations after a power cut.
const GOES_ON: u64 = 12;

/// What a run has seen.
///
/// ```
/// assert_eq!(creamery_sim::CrashReport::default().states(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct CrashReport {
    /// States by class.
    pub classes: BTreeMap<Class, usize>,
    /// States that showed the last durable commit.
    pub last: usize,
    /// States that showed the one on the way.
    pub in_flight: usize,
}

impl CrashReport {
    /// All states.
    #[must_use]
    pub fn states(&self) -> usize {
        self.classes.values().sum()
    }
}

impl std::fmt::Display for CrashReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} distinct states: {} show the last commit", self.states(), self.last)?;
        write!(f, ", {} the one in flight;", self.in_flight)?;
        self.classes.iter().try_for_each(|(class, count)| write!(f, " {class:?} {count}"))
    }
}

/// A state that passed, for other judges.
pub struct Survivor<'a> {
    /// As the power cut left it.
    pub state: &'a CutState,
    /// What a walk found in it.
    pub snapshot: &'a Snapshot,
    /// After work went on.
    pub after: Image,
}

/// Tries up to `count` distinct states of `history` that follow from `seed`; `each` gets those that passed.
///
/// # Errors
/// The first state that did not pass, in words that tell how to make it again; or what `each` says.
pub fn crash(
    history: &History,
    seed: u64,
    count: usize,
    each: &mut dyn FnMut(&Survivor<'_>) -> Result<()>,
) -> Result<CrashReport> {
    let two_copies = history.base.len() >= (64 << 20) + 4096;
    let mut cut = PowerCut::new(history.base.clone(), history.events.clone(), seed, two_copies);
    let mut report = CrashReport::default();
    while report.states() < count {
        let Some(state) = cut.next_state() else { break };
        let told = || format!("seed {seed}, state {}: {}", report.states(), state.story);
        let in_flight = verify(history, &state, each).with_context(told)?;
        *report.classes.entry(state.class).or_default() += 1;
        if in_flight {
            report.in_flight += 1;
        } else {
            report.last += 1;
        }
    }
    Ok(report)
}

/// Has our own verifier look at an image, data included.
///
/// # Errors
/// With the first of what it finds.
pub fn judge(image: &Image) -> Result<()> {
    let device: Arc<dyn BlockDevice> = Arc::new(SimDevice::new(image.clone()));
    let volume = Volume::open(vec![device], Mode::ReadOnly)?;
    let options = CheckOptions { check_data_csum: true, threads: 1, ..CheckOptions::default() };
    let report = check(&volume, &options, &NoProgress)?;
    let shown: Vec<String> = report.findings.iter().take(5).map(ToString::to_string).collect();
    ensure!(report.is_clean(), "{} errors: {}", report.counts.errors, shown.join("; "));
    Ok(())
}

/// Opens a state, compares, and works on. Whether it shows the commit on the way.
pub(crate) fn verify(
    history: &History,
    state: &CutState,
    each: &mut dyn FnMut(&Survivor<'_>) -> Result<()>,
) -> Result<bool> {
    let legal = history.legal(state.position);
    // Whose first superblock is torn is opened by its copy, which is a finding by itself.
    if state.class != Class::TornSuperblock {
        judge(&state.image).context("verifying what the power cut left")?;
    }
    let device = Arc::new(SimDevice::new(state.image.clone()));
    let fs = driver::open_after(state.class, &device).context("opening what the power cut left")?;
    let walked = walk(&fs, true).context("walking what the power cut left")?;
    let Some(number) =
        legal.iter().position(|commit| commit.model.snapshot_beside(&walked) == walked.snapshot)
    else {
        let mut told = String::new();
        for (name, commit) in ["the last durable commit", "the one in flight"].iter().zip(legal) {
            let wanted = commit.model.snapshot_beside(&walked);
            let difference = wanted.difference(&walked.snapshot).unwrap_or_default();
            told.push_str(&format!("against {name}: {difference}"));
        }
        bail!("the files are those of no legal commit\n{told}");
    };
    let mut driver = Driver::with_model(fs, legal[number].model.as_found(&walked))?;
    let taste = Taste { mistakes: 3, write_max: 30_000, ..Taste::default() };
    let mut generator = Generator::new(state.image.hash(), taste);
    for _ in 0..GOES_ON {
        let operation = generator.next(driver.model());
        driver.apply(&operation).context("working on after the power cut")?;
    }
    // Something that changes whatever those did: without a commit, a superblock that is torn stays so.
    driver.apply(&Operation::Chmod { inode: ROOT, mode: 0o700 }).context("working on after the power cut")?;
    driver.apply(&Operation::Sync).context("committing after the power cut")?;
    let driver = driver.restart(&device).context("opening again after the work that went on")?;
    let after = device.image();
    quotas::ensure_counted(driver.filesystem()).context("counting what the work that went on left")?;
    drop(driver);
    judge(&after).context("verifying what the work that went on left")?;
    each(&Survivor { state, snapshot: &walked.snapshot, after })?;
    Ok(number > 0 || legal.len() == 1 && legal[0].durable > state.position)
}
