//! `bench image`: one tree, four ways to put it somewhere, alternating.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{Judge, Judges, LoopDevice, LoopMount, Program, Run, Scratch, btrfs_check, tree};

use super::measure::{RunTaken, measure, median};
use super::options::{BesideOptions, options};
use super::report::{mebibytes, publish};
use creamery_workspace::build_program;

const SEED: u64 = 20_251_121;
const IMAGE_BYTES: u64 = 2 << 30;

/// One of the ways.
struct ImageMaker {
    name: &'static str,
    run: fn(&ImageStage) -> Result<RunTaken>,
    taken: Vec<RunTaken>,
}

struct ImageStage {
    scratch: Scratch,
    creamery: Program,
}

impl ImageStage {
    fn source(&self) -> std::path::PathBuf {
        self.scratch.file("source")
    }

    /// A path where nothing is: what an earlier run left is removed outside the measured time.
    fn fresh(&self, name: &str) -> Result<std::path::PathBuf> {
        let path = self.scratch.file(name);
        if path.is_dir() {
            std::fs::remove_dir_all(&path)?;
        } else if path.exists() {
            std::fs::remove_file(&path)?;
        }
        Ok(path)
    }
}

/// `cargo xtask bench image`.
pub(crate) fn image(words: &[&str]) -> Result<()> {
    let options = options(BesideOptions { files: 30_000, bytes: 400_000_000, runs: 5, dry: false }, words)?;
    build_program()?;
    let place = ImageStage { scratch: Scratch::new("bench-image")?, creamery: Program::find()? };
    let source = place.scratch.dir("source")?;
    let made = tree::generate(&source, options.files, options.bytes, SEED)?;
    println!(
        "tree: {} files, {} folders, {} bytes, on {}",
        made.files,
        made.dirs,
        made.bytes,
        place.scratch.path().display()
    );
    check_once(&place)?;
    let mut ways = ways();
    for round in 1..=options.runs {
        for way in &mut ways {
            let taken = (way.run)(&place).with_context(|| way.name)?;
            println!("  run {round}: {:<40} {:7.3} s", way.name, taken.time.as_secs_f64());
            way.taken.push(taken);
        }
    }
    let command = format!(
        "`cargo xtask bench image --files {} --bytes {} --runs {}`: {} files and {} folders, {} bytes, all on one tmpfs, ways alternating, medians of {}.",
        options.files, options.bytes, options.runs, made.files, made.dirs, made.bytes, options.runs
    );
    publish("bench image", &format!("{}\n{command}", table(&ways)), options.dry)
}

fn ways() -> Vec<ImageMaker> {
    let way = |name, run| ImageMaker { name, run, taken: Vec::new() };
    let mut ways = vec![way("`creamery mkfs --rootdir`", by_creamery as fn(&ImageStage) -> Result<RunTaken>)];
    let judges = Judges::here();
    if judges.missing(Judge::BtrfsProgs).is_none() {
        ways.push(way("`mkfs.btrfs --rootdir`", by_mkfs_btrfs));
    }
    if judges.have(&[Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs]) {
        ways.push(way("kernel: mkfs, mount, `cp -a`, unmount", by_the_kernel));
    }
    ways.push(way("`cp -a` to tmpfs", by_cp));
    ways
}

/// A number counts only if the image is right.
fn check_once(place: &ImageStage) -> Result<()> {
    by_creamery(place)?;
    let image = place.scratch.file("creamery.img");
    let judges = Judges::here();
    if judges.missing(Judge::BtrfsProgs).is_none() {
        btrfs_check(&image)?;
    }
    if judges.have(&[Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices]) {
        let mount = LoopMount::mount(&image, &place.scratch.file("judge"), "ro")?;
        let (want, have) = (Walk::take(&place.source())?, Walk::take(mount.dir())?);
        expect_same("the image that is measured", &want, &have, &Compare::default())?;
        mount.unmount()?;
        println!("the image is right: btrfs check and the kernel's walk agree with the source");
    }
    Ok(())
}

fn by_creamery(place: &ImageStage) -> Result<RunTaken> {
    let image = place.fresh("creamery.img")?;
    measure(Command::new(place.creamery.path()).args(["mkfs", "--rootdir"]).arg(place.source()).arg(&image))
}

fn by_mkfs_btrfs(place: &ImageStage) -> Result<RunTaken> {
    let image = place.fresh("mkfs-btrfs.img")?;
    sparse(&image)?;
    measure(Command::new("mkfs.btrfs").args(["-q", "--rootdir"]).arg(place.source()).arg(&image))
}

fn by_the_kernel(place: &ImageStage) -> Result<RunTaken> {
    let image = place.fresh("kernel.img")?;
    sparse(&image)?;
    let dir = place.scratch.dir("kernel")?;
    let start = Instant::now();
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    let device = LoopDevice::attach(&image, false)?;
    Run::new("mount").args(["-t", "btrfs"]).arg(device.path()).arg(&dir).ok()?;
    let limit = Duration::from_secs(600);
    let mut from = place.source().into_os_string();
    from.push("/.");
    let copied = Run::new("cp").args(["-a", "--"]).arg(from).arg(&dir).limit(limit).ok();
    Run::new("umount").arg(&dir).limit(limit).ok()?;
    let time = start.elapsed();
    copied?;
    device.detach()?;
    Ok(RunTaken { time, peak_bytes: 0 })
}

fn by_cp(place: &ImageStage) -> Result<RunTaken> {
    let copy = place.fresh("copy")?;
    measure(Command::new("cp").args(["-a", "--"]).arg(place.source()).arg(copy))
}

fn sparse(image: &Path) -> Result<()> {
    Ok(std::fs::File::create_new(image)?.set_len(IMAGE_BYTES)?)
}

fn table(ways: &[ImageMaker]) -> String {
    let times = |way: &ImageMaker| way.taken.iter().map(|taken| taken.time).collect::<Vec<_>>();
    let ours = median(&times(&ways[0])).as_secs_f64();
    let mut text = String::from(
        "| way | median | fastest and slowest | of Creamery's time | peak memory |\n|---|---|---|---|---|\n",
    );
    for way in ways {
        let times = times(way);
        let (low, high) = (times.iter().min(), times.iter().max());
        let seconds = |time: Option<&Duration>| time.map_or(0.0, Duration::as_secs_f64);
        let peak = way.taken.iter().map(|taken| taken.peak_bytes).max().unwrap_or(0);
        let peak = if peak == 0 { String::new() } else { mebibytes(peak) };
        let middle = median(&times).as_secs_f64();
        text += &format!(
            "| {} | {middle:.2} s | {:.2} to {:.2} s | {:.2} | {peak} |\n",
            way.name,
            seconds(low),
            seconds(high),
            middle / ours
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ImageMaker, ImageStage, RunTaken, by_cp, table};

    #[test]
    fn ratios_are_of_our_time() {
        let way = |name, seconds: &[u64]| ImageMaker {
            name,
            run: by_cp as fn(&ImageStage) -> anyhow::Result<RunTaken>,
            taken: seconds
                .iter()
                .map(|s| RunTaken { time: Duration::from_secs(*s), peak_bytes: s << 20 })
                .collect(),
        };
        let text = table(&[way("ours", &[2, 1, 3]), way("theirs", &[9, 6, 5])]);
        assert!(text.ends_with("| theirs | 6.00 s | 5.00 to 9.00 s | 3.00 | 9 MiB |\n"), "{text}");
    }
}
