//! `bench snapshot`, `bench clone` and `bench drop`: making snapshots and clones, and dropping a subvolume, through the library beside the
//! kernel's Btrfs on a loop device. Both are on one tmpfs and run in turn; figures are medians. One program (`creamery-bench`) does the
//! work on both sides; copies by `cp` go through our mount, too.
//!
//! Back of the envelope: making or dropping a snapshot costs one reference for each block below its root, spread over the leaves of the
//! extent tree with these items. 350 of them at 3 us are a millisecond, and writing a commit to memory is half of one.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};
use creamery_testkit::{Judge, Judges, LoopDevice, Program, Run, Scratch, btrfs_check};

use super::library::{Said, bench, build, empty_filesystem, kernel_filesystem};
use super::measure::median;
use super::options::{BesideOptions, options};
use super::report::publish;
use super::server::Server;

const IMAGE_BYTES: u64 = 8 << 30;
const LIMIT: Duration = Duration::from_secs(900);
/// The final number of snapshots, and how many of them are measured.
const SNAPSHOTS: [(u64, u64); 3] = [(1, 1), (16, 16), (1000, 100)];
const EXTENT: u64 = 128 << 10;
/// Bytes of each file that `cp` copies.
const COPIED: u64 = 64 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SubvolumesSide {
    Library,
    Mount,
    Kernel,
}

type SubvolumesOptions = Vec<(&'static str, String)>;

fn words(numbers: &[(&'static str, u64)]) -> SubvolumesOptions {
    numbers.iter().map(|(option, number)| (*option, number.to_string())).collect()
}

/// The images and programs of a bench.
struct SubvolumesStage {
    scratch: Scratch,
    creamery: Program,
}

impl SubvolumesStage {
    fn new(name: &str) -> Result<Self> {
        let needed = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs, Judge::Fuse];
        if let Some(missing) = needed.into_iter().find(|judge| Judges::here().missing(*judge).is_some()) {
            bail!("bench {name} stands beside the kernel: {missing} is missing");
        }
        build()?;
        Ok(Self { scratch: Scratch::new(&format!("bench-{name}"))?, creamery: Program::find()? })
    }

    fn image(&self) -> PathBuf {
        self.scratch.file("disk.img")
    }

    /// Runs the works one after the other in a new filesystem of a side, each opened or mounted anew. A figure counts only if the image is
    /// accepted.
    fn play(&self, side: SubvolumesSide, works: &[(&str, SubvolumesOptions)]) -> Result<Vec<Said>> {
        let image = self.image();
        if side == SubvolumesSide::Kernel {
            kernel_filesystem(&image, IMAGE_BYTES)?;
            let device = LoopDevice::attach(&image, false)?;
            let said = works.iter().map(|(work, words)| self.mounted(device.path(), work, words)).collect();
            device.detach()?;
            return said;
        }
        empty_filesystem(&self.creamery, &image, IMAGE_BYTES)?;
        let one = |(work, words): &(&str, SubvolumesOptions)| match side {
            SubvolumesSide::Mount => self.served(&image, work, words),
            _ => bench(work, "--image", &image, words),
        };
        let said = works.iter().map(one).collect::<Result<_>>()?;
        btrfs_check(&image)?;
        Ok(said)
    }

    fn mounted(&self, device: &Path, work: &str, words: &SubvolumesOptions) -> Result<Said> {
        let dir = self.scratch.dir("mount")?;
        Run::new("mount").args(["-t", "btrfs", "-o", "ssd"]).arg(device).arg(&dir).ok()?;
        let said = bench(work, "--dir", &dir, words);
        Run::new("umount").arg(&dir).limit(LIMIT).ok()?;
        said
    }

    fn served(&self, image: &Path, work: &str, words: &SubvolumesOptions) -> Result<Said> {
        let dir = self.scratch.dir("mount")?;
        let mut command = Command::new(self.creamery.path());
        let server = Server::start(command.args(["mount", "--foreground"]).arg(image).arg(&dir), &dir)?;
        let mut words = words.clone();
        words.push(("--server", server.id().to_string()));
        words.push(("--sync-by", self.creamery.path().display().to_string()));
        let said = bench(work, "--dir", &dir, &words);
        server.end()?;
        said
    }

    /// The output of the sides, run by run. Every second run reverses their order, as a later side finds memory that an earlier one warmed.
    fn runs(
        &self,
        runs: usize,
        sides: &[SubvolumesSide],
        works: &[(&str, SubvolumesOptions)],
    ) -> Result<Vec<Vec<Vec<Said>>>> {
        let mut said: Vec<Vec<Vec<Said>>> = sides.iter().map(|_| Vec::new()).collect();
        for run in 1..=runs {
            let mut order: Vec<usize> = (0..sides.len()).collect();
            if run % 2 == 0 {
                order.reverse();
            }
            for side in order {
                said[side].push(self.play(sides[side], works)?);
            }
            println!("  run {run} of {runs}");
        }
        Ok(said)
    }
}

/// The median of one figure of a side's runs.
fn middle(runs: &[Vec<Said>], figure: impl Fn(&Said) -> Result<f64>) -> Result<f64> {
    let all: Result<Vec<f64>> = runs.iter().map(|said| figure(said.last().expect("one was done"))).collect();
    Ok(median(&all?))
}

/// Milliseconds of an operation including durability, and of CPU time; `part` is the path of the figures in the output.
fn costs(said: &Said, part: &[&str]) -> Result<[f64; 2]> {
    let at = |name: &'static str| said.at(&[part, &[name]].concat());
    let operations = at("operations")?;
    let time = at("work_seconds")? + at("sync_seconds")?;
    Ok([time, at("cpu_seconds")?].map(|seconds| seconds * 1e3 / operations))
}

/// A row of the library or the mount, beside the kernel.
fn row(name: &str, ours: &[Vec<Said>], theirs: &[Vec<Said>], part: &[&str]) -> Result<String> {
    let of = |runs: &[Vec<Said>], which: usize| middle(runs, |said| Ok(costs(said, part)?[which]));
    let [time, cpu] = [of(ours, 0)?, of(ours, 1)?];
    let [kernel, kernel_cpu] = [of(theirs, 0)?, of(theirs, 1)?];
    Ok(format!("| {name} | {time:.2} | {cpu:.2} | {kernel:.2} | {kernel_cpu:.2} | {:.2} |\n", kernel / time))
}

const HEAD: &str = "| | ms each | CPU ms | kernel, ms each | CPU ms | ratio |\n|---|---|---|---|---|---|\n";

/// `cargo xtask bench snapshot`.
pub(super) fn snapshot(words_given: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 10_000, bytes: 0, runs: 3, dry: false }, words_given)?;
    let stage = SubvolumesStage::new("snapshot")?;
    let mut table = HEAD.to_owned();
    for (count, measured) in SNAPSHOTS {
        let scale = [("--files", options.files), ("--count", count), ("--measured", measured)];
        let said = stage.runs(
            options.runs,
            &[SubvolumesSide::Library, SubvolumesSide::Kernel],
            &[("snapshots", words(&scale))],
        )?;
        let which = if measured == count { format!("{count}") } else { format!("{measured} of {count}") };
        table += &row(&format!("taken, {which}"), &said[0], &said[1], &["created"])?;
        table += &row(&format!("deleted, {which}"), &said[0], &said[1], &["deleted"])?;
    }
    let text = format!(
        "{table}\n`cargo xtask bench snapshot --files {} --runs {}`: a subvolume of {} files, of which 16 are written anew and synced before each snapshot, which is not in the time but in the CPU time of those taken. The last ones are measured: each is durable when it is taken; as many, by chance, are deleted, until their space is free. `-m single`, the kernel's with `-o ssd` on a loop device and by its ioctls in one process, all on one tmpfs, sides in turn, medians of {}.",
        options.files, options.runs, options.files, options.runs
    );
    publish("bench snapshot", &text, options.dry)
}

/// `cargo xtask bench clone`.
pub(super) fn clone(words_given: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 200, bytes: 1 << 30, runs: 3, dry: false }, words_given)?;
    let stage = SubvolumesStage::new("clone")?;
    let scale = [("--count", options.files), ("--bytes", options.bytes), ("--piece", EXTENT)];
    let cloned = stage.runs(
        options.runs,
        &[SubvolumesSide::Library, SubvolumesSide::Kernel],
        &[("clones", words(&scale))],
    )?;
    let files = [("--files", 2000), ("--bytes", COPIED)];
    let copied = stage.runs(
        options.runs,
        &[SubvolumesSide::Library, SubvolumesSide::Mount, SubvolumesSide::Kernel],
        &[("fill", words(&files)), ("copy-within", words(&files))],
    )?;
    let text = format!(
        "{HEAD}{}{}{}\n`cargo xtask bench clone --files {} --bytes {} --runs {}`: {} clones of a file of {} bytes in {} extents, one after the other; and a tree of 2000 files of 64 KiB copied within the filesystem, by the library and by `cp -a --reflink=auto` on the mounts; all synced in the time. `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, sides in turn, medians of {}.",
        row("clone of the whole file", &cloned[0], &cloned[1], &[])?,
        row("file of a tree, library", &copied[0], &copied[2], &[])?,
        row("file of a tree, `cp` on the mount", &copied[1], &copied[2], &[])?,
        options.files,
        options.bytes,
        options.runs,
        options.files,
        options.bytes,
        options.bytes / EXTENT,
        options.runs
    );
    publish("bench clone", &text, options.dry)
}

/// `cargo xtask bench drop`.
pub(super) fn drop_beside(words_given: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 1_000_000, bytes: 0, runs: 3, dry: false }, words_given)?;
    let stage = SubvolumesStage::new("drop")?;
    let work = [("drop", words(&[("--files", options.files)]))];
    let said = stage.runs(options.runs, &[SubvolumesSide::Library, SubvolumesSide::Kernel], &work)?;
    let rate = |part: &'static str| {
        move |said: &Said| Ok(said.at(&[part, "operations"])? / said.at(&[part, "seconds"])?)
    };
    let mut table = String::from(
        "| side | creates a second alone | beside the drop | of that | the drop, s |\n|---|---|---|---|---|\n",
    );
    for (name, runs) in ["library", "kernel"].into_iter().zip(&said) {
        let (alone, beside) = (middle(runs, rate("alone"))?, middle(runs, rate("beside"))?);
        let seconds = middle(runs, |said| said.at(&["beside", "seconds"]))?;
        table += &format!("| {name} | {alone:.0} | {beside:.0} | {:.2} | {seconds:.2} |\n", beside / alone);
    }
    let text = format!(
        "{table}\n`cargo xtask bench drop --files {} --runs {}`: a subvolume of {} empty files is deleted and synced; as long as it is dropped in the background one thread creates files beside it, as it did with nothing else going on. `-m single`, the kernel's with `-o ssd` on a loop device, all on one tmpfs, sides in turn, medians of {}.",
        options.files, options.runs, options.files, options.runs
    );
    publish("bench drop", &text, options.dry)
}
