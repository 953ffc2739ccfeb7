//! `bench gate`: how long a commit keeps strangers waiting, and how many commits serve threads that write and sync; the library beside the
//! kernel's Btrfs on a loop device. Both are on one tmpfs and run in turn; figures are medians. One program (`creamery-bench`) does the
//! work on both sides, and afterwards reads back the expected content.
//!
//! Back of the envelope: 262,144 overwrites make twice as many changes of references. Running one takes 3 to 5 us, so all of them with the
//! gate closed would block all threads for a second or two. In steps of 64 a stranger waits for one step and for a processor, half a
//! millisecond, and at the end for the rest: 512 changes and some passes over the roots, 2 to 5 ms. 16 threads with 100 fsyncs each need
//! 100 commits if each commit serves all of them, and twice that if they come in two halves.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use creamery_testkit::{Judge, Judges, LoopDevice, Run, Scratch, btrfs_check};

use super::library::{Said, empty_filesystem, kernel_filesystem};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::programs::Programs;
use super::report::publish;

/// The path of the library's counter in the output of `creamery-bench`.
const GATE_CLOSED: [&str; 4] = ["statistics", "commits", "gate_closed_micros", "max"];
const COMMITS: [&str; 3] = ["statistics", "commits", "count"];
const DELAYED_REFS: [&str; 2] = ["gate", "delayed_refs_max"];

const PIECE: u64 = 4096;
const EXTENTS: u64 = 262_144;
const QUICK_EXTENTS: u64 = 1024;
const THREADS: u64 = 16;
const APPENDS: u64 = 100;
const IMAGE_BYTES: u64 = 6 << 30;
const LIMIT: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GateSide {
    Library,
    Kernel,
}

/// The output of one run.
struct Played {
    overwritten: Said,
    appended: Said,
}

/// `cargo xtask bench gate`. With `--quick` everything runs once at a size that takes seconds, and nothing is published.
pub(crate) fn gate(words: &[&str]) -> Result<()> {
    let mut words = words.to_vec();
    let quick = words.iter().position(|word| *word == "--quick").map(|at| words.remove(at)).is_some();
    let (extents, runs) = if quick { (QUICK_EXTENTS, 1) } else { (EXTENTS, 5) };
    let mut options = options(BesideOptions { files: 0, bytes: extents * PIECE, runs, dry: false }, &words)?;
    options.dry |= quick;
    let needed = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
        bail!("bench gate stands beside the kernel: {missing} is missing");
    }
    let stage = GateStage::new(options.bytes, quick)?;
    let (mut library, mut kernel) = (Vec::new(), Vec::new());
    for round in 1..=options.runs {
        // A later side finds memory that an earlier one warmed, so the sides take turns in coming first.
        let sides = if round % 2 == 1 {
            [GateSide::Library, GateSide::Kernel]
        } else {
            [GateSide::Kernel, GateSide::Library]
        };
        for side in sides {
            let played = stage.play(side)?;
            if side == GateSide::Library { library.push(played) } else { kernel.push(played) }
        }
        println!("  run {round} of {}", options.runs);
    }
    let text = format!(
        "{}\n`cargo xtask bench gate --bytes {} --runs {}`: a file of {} extents, each overwritten once at random by one thread, then synced; beside it another thread changes a stranger's mode every 100 us, and does so alone for as long afterwards. Then {THREADS} threads with {APPENDS} appends of 4 KiB each to files of their own, each with its fsync. `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, sides in turn, medians of {}; the worst is that of all runs. Everything was read back, and `btrfs check` accepted each image of ours.",
        table(&library, &kernel)?,
        options.bytes,
        options.runs,
        options.bytes / PIECE,
        options.runs
    );
    publish("bench gate", &text, options.dry)
}

/// The images and programs of the bench.
struct GateStage {
    scratch: Scratch,
    programs: Programs,
    bytes: u64,
}

/// A new filesystem of one side.
struct GateFilesystem<'s> {
    stage: &'s GateStage,
    image: PathBuf,
    /// The kernel's device; `None` for the library.
    device: Option<LoopDevice>,
}

type GateOptions = Vec<(&'static str, String)>;

/// Options with numbers.
fn words(numbers: &[(&'static str, u64)]) -> GateOptions {
    numbers.iter().map(|(option, number)| (*option, number.to_string())).collect()
}

impl GateStage {
    /// Builds the measured programs; a quick run measures nothing, so it builds without optimisation.
    fn new(bytes: u64, quick: bool) -> Result<Self> {
        let programs = Programs::build(quick)?;
        Ok(Self { scratch: Scratch::new("bench-gate")?, programs, bytes })
    }

    /// Runs both parts, each on its own filesystem.
    fn play(&self, side: GateSide) -> Result<Played> {
        let file =
            |generation| words(&[("--bytes", self.bytes), ("--piece", PIECE), ("--generation", generation)]);
        let set = self.set(side)?;
        // In random order each piece becomes an extent of its own.
        set.step("write", file(0).into_iter().chain([("--order", "random".to_owned())]).collect())?;
        let overwritten = set.step("gate", file(1))?;
        set.step("verify", file(1))?;
        set.end()?;
        let set = self.set(side)?;
        let files = [("--threads", THREADS), ("--bytes", APPENDS * PIECE), ("--piece", PIECE)];
        let appended = set.step("write", words(&[files[0], files[1], files[2], ("--sync-every", 1)]))?;
        set.step("verify", words(&files))?;
        set.end()?;
        Ok(Played { overwritten, appended })
    }

    fn set(&self, side: GateSide) -> Result<GateFilesystem<'_>> {
        let image = self.scratch.file("gate.img");
        let device = match side {
            GateSide::Library => {
                empty_filesystem(&self.programs.creamery, &image, IMAGE_BYTES)?;
                None
            }
            GateSide::Kernel => {
                kernel_filesystem(&image, IMAGE_BYTES)?;
                Some(LoopDevice::attach(&image, false)?)
            }
        };
        Ok(GateFilesystem { stage: self, image, device })
    }
}

impl GateFilesystem<'_> {
    /// Runs one workload; the filesystem is opened or mounted anew.
    fn step(&self, workload: &str, mut words: GateOptions) -> Result<Said> {
        let run =
            |words: &GateOptions| self.stage.programs.bench(workload, words).context(workload.to_owned());
        let Some(device) = &self.device else {
            words.push(("--image", self.image.display().to_string()));
            return run(&words);
        };
        let dir = self.stage.scratch.dir("mount")?;
        Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device.path()).arg(&dir).ok()?;
        words.push(("--dir", dir.display().to_string()));
        let said = run(&words);
        Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
        said
    }

    /// Checks the image: a figure counts only if it is accepted.
    fn end(self) -> Result<()> {
        match self.device {
            None => btrfs_check(&self.image),
            Some(device) => device.detach(),
        }
    }
}

/// One figure of each run of a side.
fn figures(played: &[Played], of: impl Fn(&Played) -> Result<f64>) -> Result<Vec<f64>> {
    played.iter().map(of).collect()
}

/// Operations a second, with the final sync in the time.
fn rate(said: &Said) -> Result<f64> {
    Ok(said.number("operations")? / said.durable_time()?.as_secs_f64())
}

/// CPU time of an operation, microseconds.
fn cpu(said: &Said) -> Result<f64> {
    Ok(said.number("cpu_seconds")? * 1e6 / said.number("operations")?)
}

/// A time of the stranger, milliseconds.
fn stranger(played: &Played, when: &str, what: &str) -> Result<f64> {
    Ok(played.overwritten.at(&["gate", when, what])? * 1e3)
}

fn most(all: Vec<f64>) -> f64 {
    all.into_iter().fold(0.0, f64::max)
}

fn table(library: &[Played], kernel: &[Played]) -> Result<String> {
    let both = |of: &dyn Fn(&Played) -> Result<f64>, one: fn(Vec<f64>) -> f64| -> Result<[f64; 2]> {
        Ok([one(figures(library, of)?), one(figures(kernel, of)?)])
    };
    let middle: fn(Vec<f64>) -> f64 = |all| median(&all);
    let mut text = String::from("| | library | kernel |\n|---|---|---|\n");
    let mut row = |name: &str, places: usize, [library, kernel]: [f64; 2]| {
        text += &format!("| {name} | {library:.places$} | {kernel:.places$} |\n");
    };
    row(
        "overwrites a second, the final sync in the time",
        0,
        both(&|played| rate(&played.overwritten), middle)?,
    );
    row("CPU time of an overwrite, us", 1, both(&|played| cpu(&played.overwritten), middle)?);
    for (when, name) in [("meanwhile", "meanwhile"), ("alone", "with nothing going on")] {
        let of = |what: &'static str| move |played: &Played| stranger(played, when, what);
        row(&format!("chmod {name}, median, ms"), 3, both(&of("median_seconds"), middle)?);
        row(&format!("chmod {name}, 999 of 1000 in, ms"), 2, both(&of("p999_seconds"), middle)?);
        row(&format!("chmod {name}, worst of all runs, ms"), 2, both(&of("worst_seconds"), most)?);
    }
    row("fsyncs a second by 16 threads", 0, both(&|played| rate(&played.appended), middle)?);
    row("CPU time of an append with its fsync, us", 1, both(&|played| cpu(&played.appended), middle)?);
    // Only the library reports this.
    let closed = most(figures(library, |played| played.overwritten.at(&GATE_CLOSED))?) / 1e3;
    let commits = most(figures(library, |played| played.overwritten.at(&COMMITS))?);
    let waiting = most(figures(library, |played| played.overwritten.at(&DELAYED_REFS))?);
    let together = figures(library, |played| played.appended.at(&COMMITS))?;
    text += &format!(
        "| gate closed at the longest, ms | {closed:.2} | |\n| commits for all overwrites, at most | {commits:.0} | |\n"
    );
    text += &format!("| extents with references that wait, at most that were seen | {waiting:.0} | |\n");
    let (usual, fsyncs) = (median(&together), THREADS * APPENDS);
    text += &format!("| commits for {fsyncs} fsyncs | {usual:.0}, {:.0} at most | |\n", most(together));
    Ok(text)
}
