//! The logs of servers: what is in them, and which of them stay.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, Signal, signal, until};
use rustix::fs::FlockOperation;

use crate::posix::daemon;
use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new("mount/names-forge-no-lines", &MOUNTED, forged),
        Case::new("mount/logs-of-killed-servers", &MOUNTED, killed),
    ]
}

/// A mount of a new image, whose log is in the folder `logs` of the scratch folder.
fn mounted(bench: &Bench, image: &str) -> Result<(PathBuf, FuseMount)> {
    let (image, dir) = (bench.scratch.file(image), bench.scratch.dir(&format!("on-{}", image.len()))?);
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let logs = bench.scratch.file("logs");
    let run = bench.creamery().run(["mount"]).arg(&image).arg(&dir).env("XDG_STATE_HOME", logs);
    run.ok()?;
    Ok((image, FuseMount::adopt(bench.creamery(), &dir)?))
}

fn logs(bench: &Bench) -> Result<Vec<PathBuf>> {
    let dir = std::fs::read_dir(bench.scratch.file("logs").join("creamery"))?;
    let mut logs = dir.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    logs.sort();
    Ok(logs)
}

/// An image with a line end and a terminal's escape in its name.
fn forged(bench: &Bench) -> Result<()> {
    let (image, mount) = mounted(bench, "a\n2026-01-01 forged\u{1b}[2J.img")?;
    let keeps_busy = File::create(mount.dir().join("file"))?;
    signal(Signal::TERM, daemon(&image)?)?;
    let log = logs(bench)?.pop().context("a log")?;
    until("a line in the log", || Ok(std::fs::read(&log)?.ends_with(b"\n")))?;
    let text = std::fs::read_to_string(&log)?;
    ensure!(text.lines().count() == 1 && text.contains("another signal may try again"), "{text:?}");
    ensure!(text.contains("a\\n2026-01-01 forged\\u{1b}[2J.img"), "{text:?}");
    let shown = bench.creamery().run(["stats"]).arg(&image).ok()?.stdout_text();
    let is_forged = |line: &str| line.starts_with("2026-01-01") || line.contains('\u{1b}');
    ensure!(!shown.lines().any(is_forged) && shown.contains("log: "), "{shown:?}");
    drop(keeps_busy);
    mount.unmount()?;
    ensure!(logs(bench)?.is_empty(), "a mount that ends well leaves no log");
    Ok(())
}

fn kill_server(image: &Path, log: &Path) -> Result<()> {
    let file = File::open(log)?;
    signal(Signal::KILL, daemon(image)?)?;
    until("the end of the server", || {
        let lock = FlockOperation::NonBlockingLockShared;
        Ok(rustix::fs::flock(&file, lock).is_ok())
    })
}

/// An empty log goes when the next server begins. One with lines stays, and so does one of a server that lives.
fn killed(bench: &Bench) -> Result<()> {
    let (image, first) = mounted(bench, "one.img")?;
    let silent = logs(bench)?.pop().context("a log")?;
    kill_server(&image, &silent)?;
    ensure!(std::fs::read(&silent)?.is_empty() && silent.exists(), "a server that is killed says nothing");
    Run::new("umount").arg(first.dir()).ok()?;

    let (image, second) = mounted(bench, "second.img")?;
    let speaking = logs(bench)?.pop().context("a log")?;
    ensure!(logs(bench)? == [speaking.clone()], "{:?}", logs(bench)?);
    let keeps_busy = File::create(second.dir().join("file"))?;
    signal(Signal::TERM, daemon(&image)?)?;
    until("a line in the log", || Ok(std::fs::read(&speaking)?.ends_with(b"\n")))?;
    kill_server(&image, &speaking)?;
    drop(keeps_busy);
    Run::new("umount").arg(second.dir()).ok()?;

    let (_, third) = mounted(bench, "the-third.img")?;
    let (_, fourth) = mounted(bench, "the-fourth.img")?;
    let left = logs(bench)?;
    ensure!(left.len() == 3 && left.contains(&speaking), "{left:?}");
    fourth.unmount()?;
    third.unmount()?;
    ensure!(logs(bench)? == [speaking], "{:?}", logs(bench)?);
    Ok(())
}
