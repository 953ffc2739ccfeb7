//! Work on a mount during a scrub: makes names, and makes small writes durable.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use creamery_testkit::{FuseMount, Run};

use super::population::fill;
use super::stage::ScrubStage;
use crate::library::empty_filesystem;
use crate::measure::median;

const IMAGE_BYTES: u64 = 16 << 30;
const LIMIT: Duration = Duration::from_secs(600);
/// Limits of the scrub's read rate.
const SCRUBS: [(&str, Option<&str>); 3] =
    [("none", None), ("as fast as it can", Some("0")), ("50 MiB a second", Some("50M"))];
const FILES: u64 = 20_000;

pub(super) fn beside(stage: &ScrubStage) -> Result<String> {
    let image = stage.scratch.file("live.img");
    empty_filesystem(&stage.programs.creamery, &image, IMAGE_BYTES)?;
    let mount = FuseMount::mount(&stage.programs.creamery, &image, &stage.scratch.file("live"), "rw")?;
    fill(mount.dir(), stage.options.files)?;
    Run::new("sync").arg("-f").arg(mount.dir()).limit(LIMIT).ok()?;
    let mut taken: [Vec<(f64, f64)>; 3] = Default::default();
    for round in 1..=stage.options.runs {
        for number in 0..SCRUBS.len() {
            // A later run finds the leftovers of an earlier one, so the runs take turns in coming first.
            let number = (number + round) % SCRUBS.len();
            let work = || work(stage, mount.dir());
            let done = match SCRUBS[number].1 {
                None => work()?,
                Some(limit) => while_scrubbed(stage, mount.dir(), limit, work)?,
            };
            println!("  run {round}: scrub {}: {done:?}", SCRUBS[number].0);
            taken[number].push(done);
        }
    }
    mount.unmount()?;
    let middle = |number: usize| {
        let creates = median(&taken[number].iter().map(|one| one.0).collect::<Vec<_>>());
        (creates, median(&taken[number].iter().map(|one| one.1).collect::<Vec<_>>()))
    };
    let alone = middle(0);
    let mut text = String::from(
        "| scrub of the mount | creates a second | over none | 99 of 100 fsyncs in | over none |\n|---|---|---|---|---|\n",
    );
    for (number, (name, _)) in SCRUBS.into_iter().enumerate() {
        let (creates, p99) = middle(number);
        text += &format!(
            "| {name} | {creates:.0} | {:.2} | {:.0} us | {:.2} |\n",
            creates / alone.0,
            p99 * 1e6,
            p99 / alone.1
        );
    }
    Ok(text)
}

/// Files created a second by two threads, and the 99th percentile of the time of an fsync of 4 KiB.
fn work(stage: &ScrubStage, dir: &Path) -> Result<(f64, f64)> {
    let at = dir.join("work");
    std::fs::create_dir(&at)?;
    let at = || ("--dir", at.to_string_lossy().into_owned());
    let scale = [at(), ("--threads", "2".to_owned()), ("--files", FILES.to_string())];
    let created = stage.programs.bench("create", &scale)?;
    let synced = [
        at(),
        ("--threads", "1".to_owned()),
        ("--bytes", (8 << 20).to_string()),
        ("--piece", "4096".to_owned()),
        ("--sync-every", "1".to_owned()),
    ];
    let synced = stage.programs.bench("write", &synced)?;
    std::fs::remove_dir_all(dir.join("work"))?;
    let creates = created.number("operations")? / created.number("work_seconds")?;
    Ok((creates, synced.at(&["synced", "p99_seconds"])?))
}

/// Runs `work` while scrubs of the mount follow each other.
fn while_scrubbed<T>(
    stage: &ScrubStage,
    dir: &Path,
    limit: &str,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let creamery = &stage.programs.creamery;
    creamery.run(["scrub", "limit", "-a", "-l", limit]).arg(dir).ok()?;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let scrubs = scope.spawn(|| -> Result<()> {
            while !over.load(Ordering::Relaxed) {
                let run = creamery.run(["scrub", "start", "-B", "-r"]).arg(dir).limit(LIMIT).output()?;
                anyhow::ensure!(matches!(run.code, Some(0 | 1)), "{run}");
            }
            Ok(())
        });
        let done = work();
        over.store(true, Ordering::Relaxed);
        // The scrub may have ended a moment ago.
        creamery.run(["scrub", "cancel"]).arg(dir).output()?;
        scrubs.join().ok().context("a thread panicked")??;
        done
    })
}
