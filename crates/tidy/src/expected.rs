//! What a suite is expected to say: `docs/coverage/suite-NAME.toml`.
//!
//! ```toml
//! suite = "pjdfstest 0.2.2"
//! kernel = ["chmod::changes_permission", ...]    # cases that Linux' own Btrfs passes on the same machine
//! [not_passed]
//! "rename::updates_link_parent" = "why"           # of those, or beside them, the ones that do not pass on ours
//! [tried_again]
//! "open::etxtbsy" = "why"                         # cases that the suite itself makes fail at times: once more, alone
//! [granted]
//! "common/rc" = ["_require_names_are_bytes"]      # functions of the suite that shall take our type for Btrfs
//! ```
//!
//! A case that Linux passes and ours does not is a failure unless its reason stands there; a reason whose case passes
//! is one, too: then the line goes.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use creamery_workspace::read;

/// How a case went on our mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It did not pass; why, in the suite's words.
    Not(String),
}

/// The file of one suite.
#[derive(Debug, Default)]
pub struct Expected {
    /// What Linux' own Btrfs passes.
    pub kernel: BTreeSet<String>,
    not_passed: BTreeMap<String, String>,
    /// Cases with a race of the suite's own.
    pub tried_again: BTreeSet<String>,
    /// Functions, by file, that decide by the type's name.
    pub granted: BTreeMap<String, Vec<String>>,
}

impl Expected {
    /// Reads `docs/coverage/FILE`.
    pub fn read(file: &str) -> Result<Self> {
        Self::parse(&read(format!("docs/coverage/{file}"))?).with_context(|| format!("docs/coverage/{file}"))
    }

    fn parse(text: &str) -> Result<Self> {
        let table: Table = text.parse()?;
        let text_of = |value: &Value| value.as_str().map(str::to_owned).context("not a text");
        let kernel = table.get("kernel").and_then(Value::as_array).context("no list \"kernel\"")?;
        let not_passed =
            table.get("not_passed").and_then(Value::as_table).context("no table \"not_passed\"")?;
        let tried_again = table.get("tried_again").and_then(Value::as_table).cloned().unwrap_or_default();
        let granted = table.get("granted").and_then(Value::as_table).cloned().unwrap_or_default();
        let list = |value: &Value| -> Result<Vec<String>> {
            value.as_array().context("not a list")?.iter().map(text_of).collect()
        };
        Ok(Self {
            kernel: kernel.iter().map(text_of).collect::<Result<_>>()?,
            not_passed: reasons(not_passed)?,
            tried_again: reasons(&tried_again)?.into_keys().collect(),
            granted: granted
                .iter()
                .map(|(file, names)| Ok((file.clone(), list(names)?)))
                .collect::<Result<_>>()?,
        })
    }

    /// How many of the cases that Linux passes are expected to pass on ours.
    pub fn passed(&self) -> usize {
        self.kernel.iter().filter(|case| !self.not_passed.contains_key(*case)).count()
    }

    /// Errors: all cases that went otherwise than expected.
    pub fn hold_against<'a>(&self, seen: impl Iterator<Item = (&'a str, Verdict)>) -> Result<()> {
        let mut surprises = Vec::new();
        let mut passed = 0;
        for (case, verdict) in seen {
            match (verdict, self.not_passed.get(case)) {
                (Verdict::Passed, None) => passed += 1,
                (Verdict::Passed, Some(reason)) => {
                    surprises.push(format!("{case} passes, although \"{reason}\""));
                }
                (Verdict::Not(how), None) if self.kernel.contains(case) => {
                    surprises.push(format!("{case}: {how}"))
                }
                (Verdict::Not(_), _) => {}
            }
        }
        println!("as expected: {passed} passed, of {} that Linux' Btrfs passes", self.kernel.len());
        ensure!(surprises.is_empty(), "not as expected:\n{}", surprises.join("\n"));
        Ok(())
    }
}

fn reasons(table: &Table) -> Result<BTreeMap<String, String>> {
    let reason = |(case, reason): (&String, &Value)| {
        let reason = reason.as_str().filter(|reason| !reason.is_empty());
        Ok((case.clone(), reason.with_context(|| format!("{case} has no reason"))?.to_owned()))
    };
    table.iter().map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::{Expected, Verdict};

    #[test]
    fn surprises_of_both_kinds_are_told() {
        let text = "kernel = [\"a\", \"b\", \"c\"]\n[not_passed]\nb = \"why\"\n";
        let expected = Expected::parse(text).unwrap();
        let not = || Verdict::Not("fails".to_owned());
        let hold = |seen: &[(&'static str, Verdict)]| expected.hold_against(seen.iter().cloned());
        assert!(hold(&[("a", Verdict::Passed), ("b", not()), ("z", not())]).is_ok());
        assert_eq!(expected.passed(), 2);
        assert!(hold(&[("a", not())]).unwrap_err().to_string().contains("a: fails"));
        assert!(hold(&[("b", Verdict::Passed)]).unwrap_err().to_string().contains("although"));
        assert!(Expected::parse("kernel = []\n[not_passed]\nb = \"\"\n").is_err());
    }

    #[test]
    fn what_is_granted_is_read() {
        let text = "kernel = []\n[not_passed]\n[granted]\n\"common/rc\" = [\"_a\", \"_b\"]\n";
        assert_eq!(Expected::parse(text).unwrap().granted["common/rc"], ["_a", "_b"]);
        assert!(Expected::parse("kernel = []\n[not_passed]\n[granted]\nx = [1]\n").is_err());
    }
}
