//! Subvolumes that are deleted while somebody walks through them: the kernel must not remember what was asked in that moment, or
//! they would never be dropped.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{FuseMount, until};

use crate::support::{MOUNTED, judge_mount, mkfs_empty};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new("subvolumes/walked-while-deleted", &MOUNTED, walked)]
}

const SUBVOLUMES: usize = 25;
const FILES: usize = 300;
/// Waits of a walker for the mount, from which on its subvolume is deleted: so many more for each one.
const STEP: u64 = 3;

fn walked(bench: &Bench) -> Result<()> {
    let image = bench.scratch.file("ours.img");
    mkfs_empty(bench.creamery(), &[], "256M", &image)?;
    let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
    for number in 0..SUBVOLUMES {
        let path = mount.dir().join(format!("subvolume-{number}"));
        bench.creamery().run(["subvolume", "create"]).arg(&path).ok()?;
        std::fs::create_dir(path.join("directory"))?;
        for file in 0..FILES {
            let dir = if file % 10 == 0 { path.join("directory") } else { path.clone() };
            std::fs::write(dir.join(format!("file-{file}")), "content")?;
        }
        let mut walker = match number % 3 {
            0 => command("ls -laR", [path.clone()]),
            1 => command("stat", (0..FILES).map(|file| path.join(format!("file-{file}")))),
            _ => command("grep -r content", [path.clone()]),
        };
        // What it finds is its own affair: the names go away beneath it.
        let nothing = std::process::Stdio::null;
        let mut walker = walker.stdout(nothing()).stderr(nothing()).spawn()?;
        let moment = STEP * number as u64;
        until("the walker to be on its way", || {
            Ok(walker.try_wait()?.is_some() || waits_of(walker.id())? >= moment)
        })?;
        bench.creamery().run(["subvolume", "delete"]).arg(&path).ok()?;
        walker.wait()?;
    }
    ensure!(std::fs::read_dir(mount.dir())?.next().is_none(), "all were deleted");
    bench.creamery().run(["subvolume", "sync"]).arg(mount.dir()).ok()?;
    let left = bench.creamery().run(["subvolume", "list", "-d"]).arg(mount.dir()).ok()?.stdout_text();
    ensure!(left.is_empty(), "{left}");
    judge_mount(bench, &image, mount)
}

/// How often a process has waited for somebody. One that has ended is not forgotten before it is asked for.
fn waits_of(process: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    Ok(count.context("it is not counted")?.trim().parse()?)
}

fn command(words: &str, paths: impl IntoIterator<Item = PathBuf>) -> Command {
    let mut words = words.split(' ');
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words).args(paths);
    command
}
