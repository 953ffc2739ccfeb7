//! Parses the output of fstests' `check` about each test.

use std::collections::BTreeMap;

/// The outcome of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Passed,
    /// Its output differs, or the filesystem was damaged after it; with the words of `check`.
    Failed(String),
    /// A requirement of the test is missing; with its name.
    NotRun(String),
    /// It did not end in time, or `check` ended with it.
    Hung,
}

/// Parses lines as they come. The outcome of a test is known when the next test begins.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) outcomes: BTreeMap<String, Outcome>,
    /// The running test.
    pub(crate) current: Option<String>,
}

impl Reader {
    /// Parses one line.
    pub(crate) fn line(&mut self, line: &str) {
        if let Some((name, rest)) = test_line(line) {
            self.current = Some(name.to_owned());
            self.outcomes.insert(name.to_owned(), outcome(rest));
            return;
        }
        // Damage is reported below the line of the test that caused it.
        let damage = line.starts_with("_check_") && line.contains("inconsistent");
        if let (Some(current), true) = (&self.current, damage) {
            self.outcomes.insert(current.clone(), Outcome::Failed(line.to_owned()));
        }
        if line.starts_with("Ran: ") {
            self.current = None;
        }
    }
}

/// The name and the rest of a test's line, `generic/001  3s ...  2s`. A test's differing output is indented.
fn test_line(line: &str) -> Option<(&str, &str)> {
    let (name, rest) = line.split_once(' ')?;
    let (group, number) = name.split_once('/')?;
    let is_test = group.chars().all(|c| c.is_ascii_lowercase())
        && number.len() >= 3
        && number.chars().all(|c| c.is_ascii_digit());
    is_test.then_some((name, rest.trim()))
}

fn outcome(rest: &str) -> Outcome {
    if let Some((_, reason)) = rest.split_once("[not run]") {
        return Outcome::NotRun(reason.trim().to_owned());
    }
    let passed = rest.split_whitespace().next_back().is_some_and(|last| {
        last.strip_suffix('s').is_some_and(|seconds| seconds.chars().all(|c| c.is_ascii_digit()))
    });
    match (passed, rest) {
        (true, _) => Outcome::Passed,
        // The line has no end: `check` was stopped in the middle.
        (false, "") => Outcome::Hung,
        (false, rest) => Outcome::Failed(rest.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_check_are_understood() {
        let mut reader = Reader::default();
        for line in [
            "FSTYP         -- btrfs",
            "generic/001 4s ...  3s",
            "generic/002        1s",
            "generic/003        [not run] atime related mount options have no effect",
            "generic/004        [failed, exit status 1]- output mismatch (see x.bad)",
            "    --- tests/generic/004.out",
            "generic/005 1s ... - output mismatch (see y.bad)",
            "generic/006        2s",
            "_check_generic_filesystem: filesystem on /dev/loop1 is inconsistent",
            "generic/007       ",
        ] {
            reader.line(line);
        }
        let of = |name: &str| reader.outcomes.get(name).unwrap();
        assert_eq!((of("generic/001"), of("generic/002")), (&Outcome::Passed, &Outcome::Passed));
        assert_eq!(
            of("generic/003"),
            &Outcome::NotRun("atime related mount options have no effect".to_owned())
        );
        assert!(
            matches!(of("generic/004"), Outcome::Failed(_))
                && matches!(of("generic/005"), Outcome::Failed(_))
        );
        assert!(matches!(of("generic/006"), Outcome::Failed(_)));
        assert_eq!(of("generic/007"), &Outcome::Hung);
        assert_eq!(reader.current.as_deref(), Some("generic/007"));
    }
}
