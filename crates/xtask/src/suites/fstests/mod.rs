//! `cargo xtask fstests --checkout DIR [--kernel] [TEST..]`: fstests on the mount, in a checkout that the user has built.
//!
//! Without tests named it runs those of generic's `quick` group that Linux' own Btrfs passes, as listed in
//! `docs/coverage/suite-fstests.toml`. There also stands, test by test, why ours do not pass that do not. A test that fails
//! without a line there is a failure of the run, and so is a line whose test passes. `--kernel` runs the whole group on
//! Linux' Btrfs and prints the list.

mod granted;
mod outcome;
mod run;
mod stage;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use self::outcome::Outcome;
use self::stage::{FstestsStage, Subject};
use creamery_tidy::{Expected, Verdict};
use creamery_workspace::{build_program, target};

/// Where the stage is built; removed and made anew each time.
const STAGE: &str = "fstests";

/// What the command line asks for.
struct FstestsOptions {
    checkout: PathBuf,
    subject: Subject,
    tests: Vec<String>,
}

/// `cargo xtask fstests`.
pub(crate) fn fstests(words: &[&str]) -> Result<()> {
    let wanted = parse(words)?;
    ensure!(wanted.checkout.join("check").is_file(), "no fstests in {}", wanted.checkout.display());
    ensure!(wanted.checkout.join("ltp/fsstress").is_file(), "build fstests first: make");
    let expected = Expected::read("suite-fstests.toml")?;
    let tests = match (wanted.tests.is_empty(), wanted.subject) {
        (false, _) => wanted.tests,
        (true, Subject::Creamery) => expected.kernel.iter().cloned().collect(),
        (true, Subject::Kernel) => quick(&wanted.checkout)?,
    };
    build_program()?;
    let stage =
        FstestsStage::new(&target().join(STAGE), &wanted.checkout, wanted.subject, &expected.granted)?;
    let outcomes = run::run_tests(&stage, &tests)?.outcomes;
    println!("details of each test: {}", stage.results.display());
    tell(&outcomes);
    match wanted.subject {
        Subject::Creamery => {
            expected.hold_against(outcomes.iter().map(|(test, outcome)| (&test[..], verdict(outcome))))
        }
        Subject::Kernel => {
            for (test, _) in outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Passed) {
                println!("passed {test}");
            }
            Ok(())
        }
    }
}

fn parse(words: &[&str]) -> Result<FstestsOptions> {
    let (mut checkout, mut subject, mut tests) = (None, Subject::Creamery, Vec::new());
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--checkout" => {
                checkout = Some(Path::new(words.next().context("--checkout wants a folder")?).canonicalize()?)
            }
            "--kernel" => subject = Subject::Kernel,
            test if !test.starts_with('-') => tests.push(test.to_owned()),
            other => bail!("unknown option {other}"),
        }
    }
    let checkout = checkout.context("--checkout DIR names a folder with fstests, built (git clone, make)")?;
    Ok(FstestsOptions { checkout, subject, tests })
}

/// The tests of generic's group `quick`.
fn quick(checkout: &Path) -> Result<Vec<String>> {
    let list = std::fs::read_to_string(checkout.join("tests/generic/group.list"))?;
    let in_group = |line: &&str| line.split_whitespace().skip(1).any(|group| group == "quick");
    let number = |line: &str| line.split_whitespace().next().map(|number| format!("generic/{number}"));
    Ok(list.lines().filter(|line| !line.starts_with('#')).filter(in_group).filter_map(number).collect())
}

fn verdict(outcome: &Outcome) -> Verdict {
    match outcome {
        Outcome::Passed => Verdict::Passed,
        Outcome::Failed(how) => Verdict::Not(how.clone()),
        Outcome::NotRun(why) => Verdict::Not(format!("not run: {why}")),
        Outcome::Hung => Verdict::Not("hangs".to_owned()),
    }
}

fn tell(outcomes: &BTreeMap<String, Outcome>) {
    let count = |is: fn(&Outcome) -> bool| outcomes.values().filter(|outcome| is(outcome)).count();
    println!(
        "fstests: {} passed, {} failed, {} not run, {} hung",
        count(|outcome| *outcome == Outcome::Passed),
        count(|outcome| matches!(outcome, Outcome::Failed(_))),
        count(|outcome| matches!(outcome, Outcome::NotRun(_))),
        count(|outcome| *outcome == Outcome::Hung),
    );
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_checkout_is_wanted() {
        assert!(parse(&["generic/001"]).is_err());
        let wanted = parse(&["--checkout", "/", "generic/001"]).unwrap();
        assert_eq!(wanted.tests, ["generic/001"]);
        assert!(parse(&["--checkout", "/", "--what"]).is_err());
    }
}
