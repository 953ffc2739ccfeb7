//! Words that must not stand in the source: what was left for later, and what the lower rooms may not do.

use anyhow::Result;

use creamery_workspace::{files, read};

/// Nowhere, not even in tests.
const UNFINISHED: [&str; 5] = [
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("dbg", "!("),
    concat!("#[", "ignore"),
    concat!("static mut", " "),
];

/// Rooms in which nothing prints and nothing is taken from the surroundings: it comes in through `Env`.
const QUIET_ROOMS: [&str; 10] =
    ["base", "format", "codec", "device", "volume", "tree", "txn", "fs", "mkfs", "creamery"];
const LOUD: [&str; 7] = [
    concat!("print", "ln!("),
    concat!("eprint", "ln!("),
    concat!("eprint", "!("),
    concat!("std::env", "::"),
    concat!("SystemTime", "::now"),
    concat!("getrandom", "("),
    concat!("process", "::exit"),
];
/// Where the surroundings are let in.
const DOORS: [&str; 1] = ["crates/base/src/env.rs"];

/// Complains about unfinished work, loud rooms, and letters outside ASCII.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    for path in files("crates", &[".rs", ".toml"])? {
        let (text, shown) = (read(&path)?, path.display().to_string());
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(letter) = line.chars().find(|letter| !letter.is_ascii()) {
                complaints.push(format!("{shown}:{number}: {letter:?} is not ASCII, write it as an escape"));
            }
        }
        if shown.ends_with(".rs") {
            complaints.extend(bad_words(&shown, &text));
        }
    }
    Ok(())
}

fn bad_words(path: &str, text: &str) -> Vec<String> {
    let room = path.split('/').nth(1).unwrap_or_default();
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    let in_source = path.split('/').nth(2) == Some("src") && !is_test;
    let quiet = QUIET_ROOMS.contains(&room) && in_source && !DOORS.contains(&path);
    let mut told = Vec::new();
    let mut in_tests = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_tests |= line == "#[cfg(test)]";
        let code = line.trim_start();
        if code.starts_with("//") {
            continue;
        }
        for word in UNFINISHED.iter().filter(|word| code.contains(**word)) {
            told.push(format!("{path}:{number}: {word} does not stay"));
        }
        for word in LOUD.iter().filter(|word| quiet && !in_tests && code.contains(**word)) {
            told.push(format!("{path}:{number}: {word} in a room that gets its surroundings through Env"));
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::bad_words;

    #[test]
    fn unfinished_work_is_found_everywhere_and_loud_words_below_the_top() {
        let left = concat!("    todo", "!()\n");
        let loud = concat!("    print", "ln!(\"x\");\n");
        assert_eq!(bad_words("crates/cli/src/main.rs", left).len(), 1);
        assert_eq!(bad_words("crates/cli/src/main.rs", loud).len(), 0);
        assert_eq!(bad_words("crates/tree/src/lib.rs", loud).len(), 1);
        assert_eq!(bad_words("crates/tree/src/lib.rs", &format!("// {loud}")).len(), 0);
        assert_eq!(bad_words("crates/tree/src/lib.rs", &format!("#[cfg(test)]\n{loud}")).len(), 0);
    }
}
