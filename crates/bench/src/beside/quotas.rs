//! `bench quotas`: files made and overwritten without quotas, with full and with simple ones, through the library, and the same by the
//! kernel's Btrfs on a loop device. All on one tmpfs, in turn, medians. What counts is how much of its rate each side keeps.
//!
//! Back of the envelope: a change of an extent that is its subvolume's alone is a sum in memory, 0.1 us beside the 3 us that it takes to
//! queue and run the reference. Behind a snapshot each overwritten extent is walked from twice, some 5 us each.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use creamery_testkit::{Judge, Judges, LoopDevice, Run, Scratch, btrfs_check};

use super::library::{Said, empty_filesystem, kernel_filesystem};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::programs::Programs;
use super::report::publish;

const IMAGE_BYTES: u64 = 4 << 30;
const LIMIT: Duration = Duration::from_secs(300);
const ROUNDS: u64 = 4;

/// Work, and whether a snapshot is taken before it.
struct QuotasStep {
    name: &'static str,
    workload: &'static str,
    snapshot: bool,
}

const STEPS: [QuotasStep; 4] = [
    QuotasStep { name: "files made", workload: "create", snapshot: false },
    QuotasStep { name: "4 KiB written, at random", workload: "write", snapshot: false },
    QuotasStep { name: "overwritten", workload: "overwrite", snapshot: false },
    QuotasStep { name: "overwritten behind a snapshot", workload: "overwrite", snapshot: true },
];

/// How is counted, and the options that say so.
const MODES: [(&str, Option<&[&str]>); 3] =
    [("none", None), ("full", Some(&["enable"])), ("simple", Some(&["enable", "--simple"]))];

struct QuotasStage {
    scratch: Scratch,
    programs: Programs,
    files: u64,
    bytes: u64,
}

/// `cargo xtask bench quotas`. `--files` says how many a directory gets, `--bytes` how large the file is.
pub(crate) fn quotas(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 20_000, bytes: 128 << 20, runs: 3, dry: false }, words)?;
    let needed = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench quotas stands beside the kernel: {missing} is missing");
    }
    let bytes = options.bytes.next_multiple_of(1 << 20);
    let (scratch, programs) = (Scratch::new("bench-quotas")?, Programs::build(false)?);
    let stage = QuotasStage { scratch, programs, files: options.files, bytes };
    // By side, mode and step.
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); 2 * MODES.len() * STEPS.len()];
    for round in 0..options.runs {
        for turn in 0..2 * MODES.len() {
            let which = (turn + round) % (2 * MODES.len());
            let (is_ours, mode) = (which.is_multiple_of(2), which / 2);
            for (step, rate) in stage.play(is_ours, MODES[mode].1)?.into_iter().enumerate() {
                rates[which * STEPS.len() + step].push(rate);
            }
        }
        println!("  run {}", round + 1);
    }
    let rate = |is_ours: bool, mode: usize, step: usize| {
        median(&rates[(2 * mode + usize::from(!is_ours)) * STEPS.len() + step])
    };
    let mut text = String::from(
        "| a second | library | full | simple | kernel | full | simple | library over kernel, full |\n|---|---|---|---|---|---|---|---|\n",
    );
    for (index, step) in STEPS.iter().enumerate() {
        let kept = |is_ours, mode| rate(is_ours, mode, index) / rate(is_ours, 0, index);
        text += &format!(
            "| {} | {:.0} | {:.2} | {:.2} | {:.0} | {:.2} | {:.2} | {:.2} |\n",
            step.name,
            rate(true, 0, index),
            kept(true, 1),
            kept(true, 2),
            rate(false, 0, index),
            kept(false, 1),
            kept(false, 2),
            rate(true, 1, index) / rate(false, 1, index)
        );
    }
    let said = format!(
        "{text}\n`cargo xtask bench quotas --files {} --bytes {} --runs {}`: {ROUNDS} directories of {} files, and a file of {bytes} bytes in pieces of 4 KiB, the final sync in the time; all on one tmpfs, sides and ways of counting in turn, medians of {}. `full` and `simple` are what is left of the rate without quotas. `btrfs check` accepted each image of ours, numbers and all.",
        options.files, options.bytes, options.runs, options.files, options.runs
    );
    publish("bench quotas", &said, options.dry)
}

impl QuotasStage {
    /// What each step made by the second.
    fn play(&self, is_ours: bool, mode: Option<&[&str]>) -> Result<Vec<f64>> {
        let image = self.scratch.file("quotas.img");
        if is_ours {
            empty_filesystem(&self.programs.creamery, &image, IMAGE_BYTES)?;
            if let Some(words) = mode {
                self.programs.creamery.run(["quota"]).args(words).arg(&image).ok()?;
            }
        } else {
            kernel_filesystem(&image, IMAGE_BYTES)?;
        }
        let rates = STEPS.iter().map(|step| {
            let said = if is_ours { self.ours(&image, step)? } else { self.kernel(&image, step, mode)? };
            Ok(said.number("operations")? / said.durable_time()?.as_secs_f64())
        });
        let rates = rates.collect::<Result<_>>()?;
        if is_ours {
            btrfs_check(&image)?;
        }
        Ok(rates)
    }

    fn words(&self, step: &QuotasStep) -> Vec<(&'static str, String)> {
        if step.workload == "create" {
            return vec![
                ("--threads", "1".to_owned()),
                ("--files", self.files.to_string()),
                ("--rounds", ROUNDS.to_string()),
            ];
        }
        vec![
            ("--bytes", self.bytes.to_string()),
            ("--piece", "4096".to_owned()),
            ("--order", "random".to_owned()),
        ]
    }

    fn ours(&self, image: &Path, step: &QuotasStep) -> Result<Said> {
        if step.snapshot {
            let [from, to] = ["/", "/snapshot"].map(|path| {
                let mut place = image.as_os_str().to_owned();
                place.push(":");
                place.push(path);
                PathBuf::from(place)
            });
            self.programs.creamery.run(["subvolume", "snapshot"]).arg(from).arg(to).ok()?;
        }
        let mut words = self.words(step);
        words.push(("--image", image.display().to_string()));
        self.programs.bench(step.workload, &words)
    }

    fn kernel(&self, image: &Path, step: &QuotasStep, mode: Option<&[&str]>) -> Result<Said> {
        let dir = self.scratch.dir("mount")?;
        let device = LoopDevice::attach(image, false)?;
        Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device.path()).arg(&dir).ok()?;
        if let Some(words) = mode {
            // Where they are on already, nothing happens.
            Run::new("btrfs").arg("quota").args(words).arg(&dir).ok()?;
        }
        if step.snapshot {
            Run::new("btrfs").args(["subvolume", "snapshot"]).arg(&dir).arg(dir.join("snapshot")).ok()?;
        }
        let mut words = self.words(step);
        words.push(("--dir", dir.display().to_string()));
        let said = self.programs.bench(step.workload, &words);
        Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
        device.detach()?;
        said
    }
}
