//! The logs of servers: which of them stay.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, Run, Signal, daemon, signal, until};
use rustix::fs::FlockOperation;

use crate::support::{MOUNTED, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("mount/logs-of-killed-servers", &MOUNTED, killed)]
}

/// A mount whose server has its log in the folder `logs` of the scratch folder, and that log.
fn mounted(bench: &Bench, image: &Path) -> Result<(FuseMount, PathBuf)> {
    let before = logs(bench)?;
    let dir = bench.scratch.dir(&format!("on-{}", image.as_os_str().len()))?;
    let run = bench.creamery().run(["mount"]).arg(image).arg(&dir);
    run.env("XDG_STATE_HOME", bench.scratch.file("logs")).ok()?;
    let mount = FuseMount::adopt(bench.creamery(), &dir)?;
    let new = logs(bench)?.into_iter().find(|log| !before.contains(log)).context("a log")?;
    Ok((mount, new))
}

fn logs(bench: &Bench) -> Result<Vec<PathBuf>> {
    let Ok(dir) = std::fs::read_dir(bench.scratch.file("logs").join("creamery")) else {
        return Ok(Vec::new());
    };
    dir.map(|entry| Ok(entry?.path())).collect()
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
    let images = ["one.img", "another.img"].map(|name| bench.scratch.file(name));
    for image in &images {
        mkfs_empty(bench.creamery(), &[], "256M", image)?;
    }
    let (mount, silent) = mounted(bench, &images[0])?;
    kill_server(&images[0], &silent)?;
    ensure!(std::fs::read(&silent)?.is_empty(), "a server that is killed says nothing");
    Run::new("umount").arg(mount.dir()).ok()?;

    let (mount, speaking) = mounted(bench, &images[0])?;
    ensure!(logs(bench)? == [speaking.clone()], "{silent:?}, {:?}", logs(bench)?);
    kill_server(&images[0], &speaking)?;
    std::fs::write(&speaking, "why it ended\n")?;
    Run::new("umount").arg(mount.dir()).ok()?;

    let ((one, _), (two, _)) = (mounted(bench, &images[0])?, mounted(bench, &images[1])?);
    ensure!(logs(bench)?.len() == 3, "those of two servers, and the one with lines: {:?}", logs(bench)?);
    two.unmount()?;
    one.unmount()?;
    ensure!(logs(bench)? == [speaking], "{:?}", logs(bench)?);
    Ok(())
}
