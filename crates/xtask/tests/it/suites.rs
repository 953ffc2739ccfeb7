//! What runs other people's suites, without the suites.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Context, Result, ensure};
use creamery_testkit::harness::{Bench, Case};
use creamery_testkit::{Judge, Run, Signal, unmount_below, until};

/// Stands in for `check` of fstests: does what tests do and never ends. NAME becomes a word that nobody else uses.
const CHECK: &str = r#"#!/bin/bash
set -e
. "$HOST_OPTIONS"
mount -t $FSTYP $TEST_FS_MOUNT_OPTS $TEST_DEV $TEST_DIR
mkdir $TEST_DIR/inner
mount -t tmpfs tmpfs $TEST_DIR/inner
truncate -s 1M $TEST_DIR/NAME.img
losetup --find $TEST_DIR/NAME.img
sleep 3600 &
touch $RESULT_BASE/ready
wait
"#;
const LINKS: [&str; 2] = ["/sbin/mount.fuse.creamery", "/sbin/umount.fuse.creamery"];

pub(crate) fn cases() -> Vec<Case> {
    let needs = [Judge::Program, Judge::Root, Judge::LoopDevices, Judge::Fuse];
    vec![Case::new("fstests/a-signal-leaves-nothing-behind", &needs, |bench| {
        // One after the other: both take the same links.
        [Signal::INT, Signal::TERM].into_iter().try_for_each(|signal| leaves_nothing_behind(bench, signal))
    })]
}

fn leaves_nothing_behind(bench: &Bench, signal: Signal) -> Result<()> {
    let place = bench.scratch.path().canonicalize()?;
    let target = place.join("target");
    let links = LINKS.map(|link| std::fs::read_link(link).ok());
    let said = place.join("said");
    let mut runner = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["fstests", "--checkout"])
        .arg(checkout(&place)?)
        .arg("generic/001")
        .env("CREAMERY_BIN", bench.creamery().path())
        .env("CARGO_TARGET_DIR", &target)
        .stdout(File::create(&said)?)
        .stderr(File::options().append(true).open(&said)?)
        .process_group(0)
        .spawn()?;
    let ready = target.join("fstests/results/ready");
    let result = end(&mut runner, signal, &ready, &place).and_then(|()| {
        ensure!(
            LINKS.map(|link| std::fs::read_link(link).ok()) == links,
            "the links in /sbin are not what they were"
        );
        Ok(std::fs::remove_dir_all(&target)?)
    });
    if result.is_err() {
        let _ = runner.kill();
        unmount_below(&place);
        for device in devices_of(&place) {
            let _ = Run::new("losetup").arg("--detach").arg(device).output();
        }
    }
    result.with_context(|| std::fs::read_to_string(&said).unwrap_or_default())
}

/// Sends `signal` to `runner` when the file `ready` tells that all is mounted, and waits for its end.
fn end(runner: &mut Child, signal: Signal, ready: &Path, place: &Path) -> Result<()> {
    until("the stage to be set", || Ok(ready.exists() || runner.try_wait()?.is_some()))?;
    let (devices, mounts) = (devices_of(place), mounts_below(place)?);
    ensure!(
        devices.len() == 3 && mounts.len() == 2,
        "this is not the stage to be left: {devices:?} {mounts:?}"
    );
    // As a process does that no signal ends.
    let held = File::open(place.join("target/fstests/test"))?;
    creamery_testkit::signal(signal, runner.id())?;
    until("the runner to end", || Ok(runner.try_wait()?.is_some()))?;
    ensure!(!runner.wait()?.success(), "a run that a signal ended counts as a success");
    left_behind(place)?;
    drop(held);
    Ok(())
}

/// Errors: what is still mounted, attached or running.
fn left_behind(place: &Path) -> Result<()> {
    let (mounts, devices) = (mounts_below(place)?, devices_of(place));
    ensure!(mounts.is_empty() && devices.is_empty(), "left behind: {mounts:?} {devices:?}");
    // A server that was cut off has yet to notice.
    until("all processes to end", || Ok(processes_below(place)?.is_empty()))
}

/// Loop devices whose image names `place`. An image on a mount that is gone has no more than its own name.
fn devices_of(place: &Path) -> Vec<PathBuf> {
    let image = |device: &str| std::fs::read_to_string(format!("/sys/block/{device}/loop/backing_file"));
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = devices.map(|device| device.file_name().to_string_lossy().into_owned());
    let ours = names.filter(|device| image(device).is_ok_and(|image| image.contains(name(place))));
    ours.map(|device| Path::new("/dev").join(device)).collect()
}

fn name(place: &Path) -> &str {
    place.file_name().and_then(|name| name.to_str()).expect("a scratch folder has a name")
}

fn mounts_below(place: &Path) -> Result<Vec<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    Ok(points.filter(|point| Path::new(point).starts_with(place)).map(str::to_owned).collect())
}

/// Processes that work in `place` or were told of it.
fn processes_below(place: &Path) -> Result<Vec<PathBuf>> {
    let name = place.to_string_lossy().into_owned();
    let of_place = |process: &PathBuf| {
        let told = std::fs::read(process.join("cmdline")).unwrap_or_default();
        let works = std::fs::read_link(process.join("cwd")).is_ok_and(|dir| dir.starts_with(place));
        works || String::from_utf8_lossy(&told).contains(&name)
    };
    Ok(std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path()).filter(of_place).collect())
}

/// A folder that looks like fstests to the runner.
fn checkout(place: &Path) -> Result<PathBuf> {
    let checkout = place.join("checkout");
    std::fs::create_dir_all(checkout.join("ltp"))?;
    std::fs::write(checkout.join("ltp/fsstress"), "")?;
    std::fs::write(checkout.join("check"), CHECK.replace("NAME", name(place)))?;
    std::fs::set_permissions(checkout.join("check"), std::fs::Permissions::from_mode(0o755))?;
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/coverage/suite-fstests.toml");
    let expected: toml::Table = std::fs::read_to_string(expected)?.parse()?;
    for (file, functions) in expected["granted"].as_table().context("nothing is granted")? {
        let path = checkout.join(file);
        std::fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        let names =
            functions.as_array().context("a list of functions")?.iter().filter_map(toml::Value::as_str);
        let text: String =
            names.map(|name| format!("{name}()\n{{\n\tcase $1 in\n\tbtrfs)\n\t\t;;\n\tesac\n}}\n")).collect();
        std::fs::write(path, text)?;
    }
    Ok(checkout)
}
