//! `cargo xtask pjdfstest`: the POSIX suite, whole, as root.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use creamery_testkit::{Run, btrfs_check};

use super::expected::{Expected, Verdict};
use super::mount_helpers::MountHelpers;
use super::{Stage, install, stage};

const SUITE: (&str, &str) = ("pjdfstest", "0.2.2");
/// Users that it acts as.
const USERS: [&str; 2] = ["fsgqa", "fsgqa2"];
/// Cases that remount the filesystem read-only, which no other case beside them would survive.
const READ_ONLY_CASES: &str = "erofs";

/// Runs all cases, then those on a read-only mount in a process of their own.
pub(crate) fn pjdfstest() -> Result<()> {
    let program = install(SUITE)?;
    for user in USERS {
        if Run::new("id").arg(user).output()?.code != Some(0) {
            Run::new("useradd").args(["--create-home", user]).ok()?;
        }
    }
    let Stage { scratch, image, mount } = stage("pjdfstest")?;
    // Remounting is mount(8)'s business.
    let _helpers = MountHelpers::link()?;
    // Links and renames across filesystems want another one.
    let other = stage("pjdfstest-other")?;
    let mut said = String::new();
    for read_only in [false, true] {
        let settings = scratch.file("pjdfstest.toml");
        std::fs::write(&settings, settings_text(read_only))?;
        let mut suite = Run::new(&program).arg("-c").arg(&settings).arg("-p").arg(mount.dir());
        suite = suite.arg("-s").arg(other.mount.dir());
        if read_only {
            suite = suite.arg(READ_ONLY_CASES);
        }
        said += &suite.within(mount.dir()).output()?.stdout_text();
    }
    other.mount.unmount()?;
    mount.unmount()?;
    btrfs_check(&image)?;
    judge(&said)
}

fn settings_text(allow_remount: bool) -> String {
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = {allow_remount}\n\
         [dummy_auth]\nentries = [[\"{0}\", \"{0}\"], [\"{1}\", \"{1}\"]]\n",
        USERS[0], USERS[1]
    )
}

/// Holds what it printed against what is expected. A case that both runs tell about counts as in the second.
fn judge(said: &str) -> Result<()> {
    let expected = Expected::read("suite-pjdfstest.toml")?;
    let mut verdicts = BTreeMap::new();
    for line in said.lines() {
        let mut words = line.split_whitespace();
        let (Some(case), Some(outcome), None) = (words.next(), words.next(), words.next()) else { continue };
        let verdict = match outcome {
            "ok" => Verdict::Passed,
            "FAILED" | "skipped" => Verdict::Not(outcome.to_owned()),
            _ => continue,
        };
        if case.contains("::") {
            verdicts.insert(case, verdict);
        }
    }
    let silent: Vec<_> = expected.kernel.iter().filter(|case| !verdicts.contains_key(&case[..])).collect();
    ensure!(silent.is_empty(), "these cases did not run: {silent:?}; the suite said: {said}");
    let passed = verdicts.values().filter(|verdict| **verdict == Verdict::Passed).count();
    println!("pjdfstest {}: {passed} of {} cases pass", SUITE.1, verdicts.len());
    expected.hold_against(verdicts.into_iter())
}
