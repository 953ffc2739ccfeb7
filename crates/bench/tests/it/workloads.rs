//! Runs every workload on every side with small sizes, and checks that failures are reported, not measured.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::walk::{Compare, Walk, expect_same};
use creamery_testkit::{FuseMount, Judge, LoopMount, Run, btrfs_check, tree};

const FILES: u64 = 50;
/// Workloads in an order in which each finds its files, and the number of operations that each reports. HOST and OUT are directories of the
/// host.
const STEPS: [(&str, u64); 27] = [
    ("create --threads 2 --files 20 --rounds 2", 80),
    ("lookup --threads 2 --files 20 --rounds 2", 80),
    ("lookup-warm --threads 2 --files 20", 40),
    ("readdir --threads 2 --files 20 --rounds 2", 80),
    ("unlink --threads 2 --files 20 --rounds 2", 80),
    ("mixed --threads 2 --files 20", 160),
    ("write --threads 8 --bytes 262144 --piece 4096 --order random --sync-every 16", 512),
    ("read --threads 8 --bytes 262144 --piece 131072", 16),
    ("read-warm --threads 8 --bytes 262144 --piece 4096 --order random", 512),
    ("verify --threads 8 --bytes 262144", 16),
    ("overwrite --threads 8 --bytes 262144 --piece 4096 --generation 1", 512),
    ("verify --threads 8 --bytes 262144 --generation 1", 16),
    ("gate --bytes 262144 --piece 4096 --generation 2", 64),
    ("verify --bytes 262144 --generation 2", 2),
    ("overwrite --bytes 262144 --text on", 2),
    ("verify --bytes 262144 --text on", 2),
    ("copy-in --files 50 --host HOST", FILES),
    ("walk --files 50", FILES),
    ("copy-out --files 50 --host OUT", FILES),
    ("remove --files 50", FILES),
    ("fill --files 50 --bytes 65536", 50),
    ("copy-within --files 50 --bytes 65536", 50),
    ("seek-first --bytes 262144 --state dirty --count 10", 10),
    ("sparse --bytes 262144 --state dirty", 32),
    ("seek --bytes 1048576 --state flushed", 257),
    ("seek --bytes 1048576 --state cold --reading off", 257),
    ("write --below directory --bytes 1048576 --piece 1048576", 1),
];

/// Workloads of subvolumes and clones, the name of the reported number, and its value. A mount by FUSE makes these differently.
const SUBVOLUME_STEPS: [(&str, &str, u64); 3] = [
    ("snapshots --files 600 --count 5 --measured 2", "/deleted/operations", 2),
    ("clones --count 3 --bytes 1048576 --piece 131072", "/operations", 3),
    ("drop --files 4000", "/alone/operations", 1000),
];

/// The recorded requests of one client of a file server.
const LOAD: &str = r#"Deltree "\clients\client1" NT_STATUS_OK
NTCreateX "\clients\client1" 0x1 0x2 1 NT_STATUS_OK
Close 1 NT_STATUS_OK
NTCreateX "\clients\client1\a" 0x40 0x1 2 NT_STATUS_OBJECT_NAME_NOT_FOUND
NTCreateX "\clients\client1\a" 0x40 0x2 2 NT_STATUS_OK
WriteX 2 0 4096 4096 NT_STATUS_OK
Flush 2 NT_STATUS_OK
ReadX 2 3996 4096 100 NT_STATUS_OK
SET_FILE_INFORMATION 2 1004 NT_STATUS_OK
QUERY_FILE_INFORMATION 2 258 NT_STATUS_OK
LockX 2 2147483538 1 NT_STATUS_OK
Close 2 NT_STATUS_OK
QUERY_FS_INFORMATION 1 NT_STATUS_OK
Rename "\clients\client1\a" "\clients\client1\b" NT_STATUS_OK
QUERY_PATH_INFORMATION "\clients\client1\a" 1004 NT_STATUS_OBJECT_NAME_NOT_FOUND
FIND_FIRST "\clients\client1\*" 260 1366 2 NT_STATUS_OK
Unlink "\clients\client1\b" 0x6 NT_STATUS_OK
"#;

pub(crate) fn cases() -> Vec<Case> {
    let library = [Judge::Program, Judge::BtrfsProgs];
    let mount = [Judge::Program, Judge::BtrfsProgs, Judge::Fuse];
    let kernel = [Judge::Root, Judge::KernelBtrfs, Judge::LoopDevices, Judge::BtrfsProgs];
    vec![
        Case::new("workloads/library", &library, |bench| {
            let image = ours(bench)?;
            all_steps(bench, &["--image", text(&image)?])?;
            btrfs_check(&image)
        }),
        Case::new("workloads/mount", &mount, |bench| {
            let image = ours(bench)?;
            let mount = FuseMount::mount(bench.creamery(), &image, &bench.scratch.file("mount"), "")?;
            let sync_by = text(bench.creamery().path())?;
            all_steps(bench, &["--dir", text(mount.dir())?, "--sync-by", sync_by])?;
            mount.unmount()?;
            btrfs_check(&image)
        }),
        Case::new("workloads/kernel", &kernel, |bench| {
            let mount = kernels(bench)?;
            std::fs::create_dir(mount.dir().join("directory"))?;
            all_steps(bench, &["--dir", text(mount.dir())?])?;
            mount.unmount()
        }),
        Case::new("workloads/subvolumes-library", &library, |bench| {
            for step in SUBVOLUME_STEPS {
                let image = ours(bench)?;
                subvolume_step(step, &["--image", text(&image)?])?;
                btrfs_check(&image)?;
                std::fs::remove_file(image)?;
            }
            Ok(())
        }),
        Case::new("workloads/subvolumes-kernel", &kernel, |bench| {
            for step in SUBVOLUME_STEPS {
                let mount = kernels(bench)?;
                subvolume_step(step, &["--dir", text(mount.dir())?])?;
                mount.unmount()?;
                std::fs::remove_file(bench.scratch.file("kernel.img"))?;
            }
            Ok(())
        }),
        Case::new("workloads/direct", &library, direct),
        Case::new("workloads/what-fails-is-told", &library, what_fails_is_told),
    ]
}

/// A filesystem of ours with the directory `directory`.
fn ours(bench: &Bench) -> Result<PathBuf> {
    let image = bench.scratch.file("ours.img");
    bench.creamery().run(["mkfs", "-q", "-b", "256M"]).arg(&image).ok()?;
    bench.creamery().run(["mkdir"]).arg(format!("{}:/directory", text(&image)?)).ok()?;
    Ok(image)
}

/// A filesystem made by mkfs.btrfs and mounted by the kernel.
fn kernels(bench: &Bench) -> Result<LoopMount> {
    let image = bench.scratch.file("kernel.img");
    std::fs::File::create_new(&image)?.set_len(256 << 20)?;
    Run::new("mkfs.btrfs").arg("-q").arg(&image).ok()?;
    LoopMount::mount(&image, &bench.scratch.file("mount"), "")
}

fn subvolume_step((step, name, operations): (&str, &str, u64), side: &[&str]) -> Result<()> {
    let output = run(step, side)?;
    ensure!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    ensure!(said.pointer(name).is_some_and(|said| *said == operations), "{step}: {said}");
    Ok(())
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is no text")
}

fn run(step: &str, side: &[&str]) -> Result<Output> {
    let mut words = step.split(' ');
    let mut command = Command::new(env!("CARGO_BIN_EXE_creamery-bench"));
    command.args(words.next()).args(side).args(words);
    command.output().context("starting creamery-bench")
}

fn all_steps(bench: &Bench, side: &[&str]) -> Result<()> {
    let (host, out) = (bench.scratch.dir("host")?, bench.scratch.file("out"));
    tree::generate(&host, FILES, 200_000, 1)?;
    for (step, operations) in STEPS {
        let step = step.replace("HOST", text(&host)?).replace("OUT", text(&out)?);
        let output = run(&step, side)?;
        ensure!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        ensure!(said["operations"] == operations, "{step}: {said}");
    }
    let (want, have) = (Walk::take(&host)?, Walk::take(&out)?);
    expect_same("what was copied in and out", &want, &have, &Compare { holes: false, ..Compare::default() })?;
    replay(bench, side)
}

/// Replays a load file with two clients. A request that should fail and succeeds, or the other way round, is reported.
fn replay(bench: &Bench, side: &[&str]) -> Result<()> {
    let load = bench.scratch.file("load");
    std::fs::write(&load, LOAD)?;
    let step = format!("replay --threads 2 --seconds 1 --load {}", text(&load)?);
    let output = run(&step, side)?;
    ensure!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
    let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let count = |name: &str| said["latencies"][name]["count"].as_u64().unwrap_or(0);
    ensure!(count("Flush") > 0 && count("LockX") == 0, "{step}: {said}");
    // For each 4 KiB written, 100 bytes are read.
    ensure!(said["bytes"].as_u64() > Some(4096 * (count("WriteX") - 1)), "{step}: {said}");
    Ok(())
}

/// Direct requests transfer data on every side, and non-blocking ones are counted.
fn direct(bench: &Bench) -> Result<()> {
    const SHAPE: &str = "direct --threads 2 --depth 4 --seconds 1 --bytes 16777216";
    let file = bench.scratch.file("file");
    let moved = |step: &str, side: &[&str]| -> Result<serde_json::Value> {
        let output = run(step, side)?;
        ensure!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        let said: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        let counts = ["requests", "read_bytes", "written_bytes"].map(|name| said[name].as_u64().unwrap_or(0));
        ensure!(counts.iter().all(|count| *count > 0), "{step}: {said}");
        Ok(said)
    };
    for prepared in ["allocated", "written"] {
        moved(&format!("{SHAPE} --prepared {prepared}"), &["--file", text(&file)?])?;
        moved(&format!("{SHAPE} --prepared there"), &["--file", text(&file)?])?;
        std::fs::remove_file(&file)?;
        for queue in ["submit", "try --overlap off"] {
            let image = ours(bench)?;
            let step = format!("{SHAPE} --prepared {prepared} --queue {queue}");
            let said = moved(&step, &["--image", text(&image)?, "--nodatacow", "on"])?;
            let count = |part: &str, name: &str| said["statistics"][part][name].as_u64().unwrap_or(0);
            let requests = count("direct", "reads") + count("direct", "writes");
            ensure!(said["requests"].as_u64() <= Some(requests), "{step}: {said}");
            let is_tried = count("nowait", "attempts") > 0;
            ensure!(is_tried == (queue != "submit") && count("nowait", "range_busy") == 0, "{step}: {said}");
            btrfs_check(&image)?;
            std::fs::remove_file(&image)?;
        }
    }
    Ok(())
}

fn what_fails_is_told(bench: &Bench) -> Result<()> {
    let image = ours(bench)?;
    let side = ["--image", text(&image)?];
    let fails = |step: &str, with: &str| -> Result<()> {
        let output = run(step, &side)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && output.stdout.is_empty(), "{step} counts");
        ensure!(said.contains(with), "{step} fails with {said}");
        Ok(())
    };
    ensure!(run("write --bytes 1048576", &side)?.status.success());
    fails("write --bytes 1048576", "exists")?;
    fails("write --bytes 1073741824 --piece 1048576 --below directory", "space")?;
    fails("verify --bytes 1048576 --generation 1", "does not have at 0 what was written there")?;
    fails("read --bytes 1048576 --generation 1", "does not have at 0 what was written there")?;
    fails("read --bytes 2147483648", "the file ends at")?;
    fails("walk --files 1", "tree")?;
    fails("overwrite --bytes 100 --piece 0", "a piece has")
}
