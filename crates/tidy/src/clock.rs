//! No test decides by the clock: a test neither sleeps nor ends a wait at a time, for a busy machine reaches any time.
//!
//! A test waits for an event or asks until a state is reached, with `until` of testkit, which is the one place that pauses and has a
//! limit.

use anyhow::Result;

use creamery_workspace::{files, read};

/// What waits for a time, and what compares with one.
const CLOCK: [&str; 7] = [
    concat!("sleep", "("),
    concat!("Instant::now()", " +"),
    concat!("recv_", "timeout("),
    concat!("wait_", "timeout"),
    concat!("park_", "timeout"),
    concat!(".elapsed()", " <"),
    concat!(".elapsed()", " >"),
];

/// Rooms that are tests, also in their sources.
const TESTS: [&str; 4] =
    ["crates/conformance/src/", "crates/testkit/src/", "crates/sim/src/", "crates/fuzzing/src/"];

/// Files that may, and why.
const ALLOWED: [(&str, &str); 2] = [
    ("crates/testkit/src/until.rs", "has the one pause of all tests, and the one limit, which finds hangs"),
    ("crates/testkit/src/harness.rs", "cuts off the mounts of a case that hangs"),
];

/// Complains about tests that look at the clock, and about files that may and do not.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let mut unused = ALLOWED.map(|(path, _)| path).to_vec();
    for path in files("crates", &[".rs"])? {
        let shown = path.display().to_string();
        let found = looks_at_the_clock(&shown, &read(&path)?);
        if !ALLOWED.iter().any(|(allowed, _)| *allowed == shown) {
            complaints.extend(found);
        } else if !found.is_empty() {
            unused.retain(|allowed| *allowed != shown);
        }
    }
    complaints.extend(unused.iter().map(|path| format!("{path}: it may look at the clock, and does not")));
    Ok(())
}

fn is_test(path: &str) -> bool {
    let is_file_of_tests =
        path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    is_file_of_tests || TESTS.iter().any(|room| path.starts_with(room))
}

fn looks_at_the_clock(path: &str, text: &str) -> Vec<String> {
    let (whole, mut told) = (is_test(path), Vec::new());
    // What follows the attribute: the next item, and whether we are in one.
    let (mut is_next, mut within) = (false, false);
    for (number, line) in (1..).zip(text.lines()) {
        if line == "#[cfg(test)]" {
            is_next = true;
        } else if is_next && !line.starts_with("#[") {
            (is_next, within) = (false, line.ends_with('{'));
        }
        let code = line.trim_start();
        let is_code = (whole || within) && !code.starts_with("//");
        for word in CLOCK.iter().filter(|word| is_code && code.contains(**word)) {
            told.push(format!(
                "{path}:{number}: {word} in a test, which a busy machine fails: wait for an event, or with until() of testkit"
            ));
        }
        within &= line != "}";
    }
    told
}

#[cfg(test)]
mod tests {
    use super::{ALLOWED, looks_at_the_clock};

    const PAUSE: &str = concat!("    std::thread::sleep", "(PAUSE);\n");

    #[test]
    fn a_test_that_sleeps_is_found_wherever_tests_are() {
        for path in [
            "crates/tree/tests/it/main.rs",
            "crates/fs/src/file/tests/line.rs",
            "crates/fs/src/tests.rs",
            "crates/fs/src/line_tests.rs",
            "crates/sim/src/watch.rs",
        ] {
            assert_eq!(looks_at_the_clock(path, PAUSE).len(), 1, "{path}");
        }
        assert_eq!(looks_at_the_clock("crates/device/src/in_use.rs", PAUSE), [""; 0]);
        assert_eq!(looks_at_the_clock("crates/tree/tests/it/main.rs", &format!("// {PAUSE}")), [""; 0]);
    }

    #[test]
    fn in_a_source_file_only_what_is_compiled_for_tests_counts() {
        let source = format!("#[cfg(test)]\nmod tests;\nfn nap() {{\n{PAUSE}}}\n");
        assert_eq!(looks_at_the_clock("crates/mount/src/open.rs", &source), [""; 0]);
        let source =
            format!("#[cfg(test)]\n#[rustfmt::skip]\nmod tests {{\n{PAUSE}}}\nfn nap() {{\n{PAUSE}}}\n");
        let told = looks_at_the_clock("crates/mount/src/open.rs", &source);
        assert!(matches!(&told[..], [one] if one.starts_with("crates/mount/src/open.rs:4: ")), "{told:?}");
    }

    #[test]
    fn each_way_to_end_a_wait_at_a_time_is_found() {
        for line in [
            concat!("let deadline = Instant::now()", " + LIMIT;"),
            concat!("match told.recv_", "timeout(LIMIT) {"),
            concat!("let (inside, _) = changed.wait_", "timeout_while(inside, LIMIT, is)?;"),
            concat!("std::thread::park_", "timeout(LIMIT);"),
            concat!("ensure!(begun.elapsed()", " < LIMIT);"),
            concat!("if begun.elapsed()", " > LIMIT {"),
        ] {
            assert_eq!(looks_at_the_clock("crates/tree/tests/it/main.rs", line).len(), 1, "{line}");
        }
        assert!(ALLOWED.iter().all(|(_, reason)| !reason.is_empty()));
    }
}
