//! The crash test at length: `cargo xtask crash`.

use anyhow::{Context, Result, ensure};
use creamery_testkit::{Judge, Judges, Scratch};

use crate::crash::{CrashReport, Survivor, crash};
use crate::device::Canary;
use crate::due::record_due;
use crate::fresh::{MadeBy, fresh_image};
use crate::image::Image;
use crate::judge::{check_survivor, kernel_image, mount_survivor};
use crate::seeds::stored_seeds;
use crate::workload::{History, record};

/// States tried for each campaign that once found something.
const STATES_AGAIN: usize = 300;

/// How long a campaign is.
///
/// ```
/// let quick = creamery_sim::Campaign { seed: 1, states: 100, judged: 10 };
/// # assert!(quick.judged <= quick.states);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Campaign {
    /// What everything follows from.
    pub seed: u64,
    /// Distinct states to try, over all images.
    pub states: usize,
    /// How many of them are given to the kernel and `btrfs check`.
    pub judged: usize,
}

type Workload = fn(&Image, u64) -> Result<History>;

/// One image and what is done with it.
struct Leg {
    name: &'static str,
    image: Image,
    workload: Workload,
    campaign: Campaign,
}

/// Tries the states of one workload on each kind of image this host can make, at once; says what it saw, a line each.
///
/// # Errors
/// The first state that did not pass; a canary that nobody noticed.
pub fn campaign(campaign: &Campaign) -> Result<Vec<String>> {
    let mut told = Vec::new();
    for seed in stored_seeds("crash") {
        let again = Campaign { seed, states: STATES_AGAIN, judged: 0 };
        told.extend(one_campaign(&again)?);
    }
    told.extend(one_campaign(campaign)?);
    for canary in [Canary::NoFlushBeforeSuperblock, Canary::NoFlushAfterSuperblock] {
        told.push(format!("{canary:?} was noticed: {}", first_line(&notice(canary, campaign.seed)?)));
    }
    Ok(told)
}

fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or_default().to_owned()
}

/// What is found on a device that breaks a promise.
fn notice(canary: Canary, seed: u64) -> Result<anyhow::Error> {
    const ENOUGH: usize = 2000;
    let history = record(&fresh_image(&MadeBy::default())?, seed, Some(canary))?;
    match crash(&history, seed, ENOUGH, &mut |_| Ok(())) {
        Err(error) => Ok(error),
        Ok(report) => anyhow::bail!("{canary:?} was not noticed in {report}"),
    }
}

fn one_campaign(campaign: &Campaign) -> Result<Vec<String>> {
    let scratch = Scratch::new("crash")?;
    let deep = MadeBy { node_size: 4096, ..MadeBy::default() };
    let asked_for: Workload = |base, seed| record(base, seed, None);
    let mut images = vec![
        ("16 KiB nodes", fresh_image(&MadeBy::default())?, asked_for),
        ("4 KiB nodes", fresh_image(&deep)?, asked_for),
        ("commits that fall due", fresh_image(&MadeBy::default())?, record_due as Workload),
    ];
    let mut told = Vec::new();
    let wanted = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    match wanted.iter().find_map(|judge| Judges::here().missing(*judge)) {
        None => images.push(("snapshots of the kernel's", kernel_image(&scratch)?, asked_for)),
        Some(reason) => told.push(format!("snapshots of the kernel's: skipped ({reason})")),
    }
    let count = images.len();
    let share = |all: usize, number: usize| all / count + usize::from(number < all % count);
    let legs = images.into_iter().enumerate().map(|(number, (name, image, workload))| {
        let Campaign { seed, states, judged } = *campaign;
        Leg {
            name,
            image,
            workload,
            campaign: Campaign { seed, states: share(states, number), judged: share(judged, number) },
        }
    });
    let results: Vec<Result<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = legs.map(|leg| scope.spawn(move || run(&leg))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a panic is a failure of its own")).collect()
    });
    for result in results {
        told.push(result?);
    }
    Ok(told)
}

fn run(leg: &Leg) -> Result<String> {
    let Campaign { seed, states, judged } = leg.campaign;
    let scratch = Scratch::new("crash-leg")?;
    let history = (leg.workload)(&leg.image, seed).with_context(|| leg.name)?;
    let step = states.checked_div(judged).unwrap_or(usize::MAX).max(1);
    let (mut number, mut seen) = (0, 0);
    let mut each = |survivor: &Survivor<'_>| {
        number += 1;
        if number % step != 0 {
            return Ok(());
        }
        seen += 1;
        let by_kernel =
            seen % 2 == 0 && Judges::here().have(&[Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices]);
        match (Judges::here().have(&[Judge::BtrfsProgs]), by_kernel) {
            (false, _) => anyhow::bail!("judging needs btrfs-progs"),
            (true, true) => mount_survivor(survivor, &scratch),
            (true, false) => check_survivor(survivor, &scratch),
        }
    };
    let report: CrashReport = crash(&history, seed, states, &mut each).with_context(|| leg.name)?;
    ensure!(report.states() == states, "{}: only {} distinct states", leg.name, report.states());
    Ok(format!("{}: {report}; {seen} judged; {:?}", leg.name, history.features))
}
