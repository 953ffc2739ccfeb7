//! `cargo xtask proof [STEP..]`: the second of two tiers, before a release.
//!
//! What takes too long for every change: the program that is handed out and its packages, the whole sanitizer, thousands of power cuts,
//! other people's suites, long schedules, and every matrix as a whole, from a fresh seed that is printed. Each step's last result
//! stands in docs/internals/proof.md with its date, its commit and its seconds, so that a proof may be made in several sittings.

mod page;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::crash::crash;
use crate::install::install_missing;
use crate::steps::{run_step, sum_up};
use crate::test::{Part, run_part, run_schedules};
use crate::{bare_root, licences, release, sanitize};
use creamery_tidy::POWER_CUTS;
use creamery_workspace::run;

/// What a step may need to know.
struct Proof<'w> {
    /// Of this run's matrices.
    seed: u64,
    /// A built checkout of fstests.
    fstests: Option<&'w str>,
    /// A checkout of btrfs-progs.
    btrfs_progs: Option<&'w str>,
}

struct ProofStep {
    name: &'static str,
    /// Why it is left out of this run.
    lacks: fn(&Proof<'_>) -> Option<&'static str>,
    body: fn(&Proof<'_>) -> Result<()>,
}

const fn step(name: &'static str, body: fn(&Proof<'_>) -> Result<()>) -> ProofStep {
    ProofStep { name, lacks: |_| None, body }
}

const STEPS: [ProofStep; 17] = [
    step("licences", |_| licences::check()),
    step("publishing", |_| release::try_publishing()),
    step("sanitizer", |_| sanitize::sanitize(&sanitize::ALL)),
    step("tests", |proof| whole_matrices("tests", proof.seed)),
    step("verifier", |proof| whole_matrices("verifier", proof.seed)),
    step("conformance", |proof| whole_matrices("conformance", proof.seed)),
    // The library reads them; no program is looked at.
    step("sets", |proof| run_whole(Part::Sets, &proof.seed.to_string())),
    step("schedules", |proof| {
        run_schedules(&[("CREAMERY_MATRIX", "whole"), ("CREAMERY_SEED", &proof.seed.to_string())])
    }),
    step("crash", |proof| {
        let (states, judged) = (POWER_CUTS.0.to_string(), POWER_CUTS.1.to_string());
        crash(&["--seed", &proof.seed.to_string(), "--states", &states, "--judged", &judged])
    }),
    step("pjdfstest", |_| with_the_program(&["pjdfstest"])),
    step("fsx", |proof| {
        with_the_program(&["fsx"])?;
        // Only that of fstests goes around the kernel's cache.
        proof.fstests.map_or(Ok(()), |checkout| with_the_program(&["fsx", "--checkout", checkout]))
    }),
    step("databases", |proof| with_the_program(&["databases", "--seed", &proof.seed.to_string()])),
    step("packages", |_| release::release_and_try()),
    ProofStep {
        name: "fstests",
        lacks: |proof| proof.fstests.is_none().then_some("--fstests DIR names no checkout"),
        body: |proof| with_the_program(&["fstests", "--checkout", proof.fstests.unwrap_or_default()]),
    },
    ProofStep {
        name: "fsstress",
        lacks: |proof| proof.fstests.is_none().then_some("--fstests DIR names no checkout"),
        body: |proof| with_the_program(&["fsstress", "--checkout", proof.fstests.unwrap_or_default()]),
    },
    ProofStep {
        name: "collection",
        lacks: |proof| proof.btrfs_progs.is_none().then_some("--btrfs-progs DIR names no checkout"),
        body: |proof| with_the_program(&["collection", "--checkout", proof.btrfs_progs.unwrap_or_default()]),
    },
    step("bare root", |_| bare_root::bare_root(&["demo", "ci"])),
];

/// Runs the steps that are named, or all, and writes what became of them into the page.
pub(crate) fn proof(words: &[&str]) -> Result<()> {
    if let ["--inner", step, "--seed", seed] = words {
        return run_whole(part_of(step)?, seed);
    }
    let (proof, wanted) = parse(words)?;
    install_missing().context("installing what the tests need")?;
    let commit = page::commit()?;
    println!("xtask: commit {commit}, seed {} (CREAMERY_SEED)", proof.seed);
    let mut done = Vec::new();
    for step in STEPS.iter().filter(|step| wanted.is_empty() || wanted.contains(&step.name)) {
        if let Some(reason) = (step.lacks)(&proof) {
            println!("\n=== {}: left out, {reason}", step.name);
            continue;
        }
        done.push(run_step(step.name, || (step.body)(&proof)));
    }
    page::note(&done, &commit, proof.seed)?;
    sum_up(&done)
}

fn parse<'w>(words: &[&'w str]) -> Result<(Proof<'w>, Vec<&'w str>)> {
    let mut proof =
        Proof { seed: RandomState::new().hash_one("proof") >> 32, fstests: None, btrfs_progs: None };
    let mut wanted = Vec::new();
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        let mut value = || words.next().copied().with_context(|| format!("{word} needs a value"));
        match word {
            "--fstests" => proof.fstests = Some(value()?),
            "--btrfs-progs" => proof.btrfs_progs = Some(value()?),
            "--seed" => proof.seed = value()?.parse().with_context(|| format!("{word} needs a number"))?,
            name if STEPS.iter().any(|step| step.name == name) => wanted.push(name),
            other => {
                let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
                bail!("unknown step {other}; the steps are {}", names.join(", "));
            }
        }
    }
    ensure!(wanted.len() <= STEPS.len(), "a step is named twice");
    Ok((proof, wanted))
}

/// Runs this program again with the static program as the one to look at.
fn with_the_program(words: &[&str]) -> Result<()> {
    let program = release::program()?;
    // What runs, also where a step has built it anew meanwhile.
    run(Command::new("/proc/self/exe").args(words).env("CREAMERY_BIN", program))
}

/// Runs the step again in a process that has the static program as the one to look at.
fn whole_matrices(step: &str, seed: u64) -> Result<()> {
    with_the_program(&["proof", "--inner", step, "--seed", &seed.to_string()])
}

fn part_of(step: &str) -> Result<Part> {
    match step {
        "tests" => Ok(Part::Rooms),
        "verifier" => Ok(Part::Verifier),
        "conformance" => Ok(Part::Conformance),
        other => bail!("{other} is no step of tests"),
    }
}

/// A part of the tests, each matrix as a whole.
fn run_whole(part: Part, seed: &str) -> Result<()> {
    // A whole matrix takes longer than a share of it.
    let variables = [
        ("CREAMERY_REQUIRE_JUDGES", "1"),
        ("CREAMERY_MATRIX", "whole"),
        ("CREAMERY_SEED", seed),
        ("CREAMERY_CASE_SECONDS", "3000"),
    ];
    run_part(part, &variables)
}
