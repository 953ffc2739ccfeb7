//! `cargo xtask pjdfstest`: the POSIX suite, whole, as root.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use creamery_testkit::{Run, btrfs_check};

use super::mount_helpers::MountHelpers;
use super::{Stage, stage};
use crate::tools::installed;
use creamery_tidy::{Expected, Verdict};

const SUITE: (&str, &str) = ("pjdfstest", "0.2.2");
/// Users that it acts as.
const USERS: [&str; 2] = ["fsgqa", "fsgqa2"];
/// How often a case is tried again that the suite itself makes fail at times.
const TRIES_ALONE: u64 = 4;
/// Cases that remount the filesystem read-only, which no other case beside them would survive.
const READ_ONLY_CASES: &str = "erofs";

/// Runs all cases, then those on a read-only mount in a process of their own.
pub(crate) fn pjdfstest() -> Result<()> {
    let program = installed(SUITE)?;
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
    let settings = scratch.file("pjdfstest.toml");
    let run = |read_only: bool, cases: &[&str]| -> Result<String> {
        std::fs::write(&settings, settings_text(read_only))?;
        let mut suite = Run::new(&program).arg("-c").arg(&settings).arg("-p").arg(mount.dir());
        suite = suite.arg("-s").arg(other.mount.dir()).args(cases);
        Ok(suite.within(mount.dir()).output()?.stdout_text())
    };
    let expected = Expected::read("suite-pjdfstest.toml")?;
    let mut said = run(false, &[])?;
    for case in &expected.tried_again {
        let failed =
            |said: &str| verdicts(said).get(&case[..]).is_some_and(|verdict| *verdict != Verdict::Passed);
        for _ in 0..TRIES_ALONE {
            if failed(&said) {
                println!("{case} once more, alone");
                said += &run(false, &[case])?;
            }
        }
    }
    said += &run(true, &[READ_ONLY_CASES])?;
    other.mount.unmount()?;
    mount.unmount()?;
    btrfs_check(&image)?;
    judge(&expected, &said)
}

fn settings_text(allow_remount: bool) -> String {
    format!(
        "[features]\nposix_fallocate = {{}}\nrename_ctime = {{}}\nutime_now = {{}}\nutimensat = {{}}\n\
         [settings]\nnaptime = 0.01\nallow_remount = {allow_remount}\n\
         [dummy_auth]\nentries = [[\"{0}\", \"{0}\"], [\"{1}\", \"{1}\"]]\n",
        USERS[0], USERS[1]
    )
}

/// What it printed about each case. Of a case that several runs tell about, the last counts.
fn verdicts(said: &str) -> BTreeMap<&str, Verdict> {
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
    verdicts
}

fn judge(expected: &Expected, said: &str) -> Result<()> {
    let verdicts = verdicts(said);
    let silent: Vec<_> = expected.kernel.iter().filter(|case| !verdicts.contains_key(&case[..])).collect();
    ensure!(silent.is_empty(), "these cases did not run: {silent:?}; the suite said: {said}");
    let passed = verdicts.values().filter(|verdict| **verdict == Verdict::Passed).count();
    println!("pjdfstest {}: {passed} of {} cases pass", SUITE.1, verdicts.len());
    expected.hold_against(verdicts.into_iter())
}

#[cfg(test)]
mod tests {
    use super::{Verdict, verdicts};

    #[test]
    fn the_last_word_about_a_case_counts() {
        let said = "open::a    FAILED\nopen::b  ok\nSummary: 1 failed\nopen::a  ok\n";
        let verdicts = verdicts(said);
        assert_eq!(verdicts.get("open::a"), Some(&Verdict::Passed));
        assert_eq!(verdicts.len(), 2);
    }
}
