//! Locks without a rank: only `base`, which makes locks, may have them.

use anyhow::Result;

use creamery_workspace::{files, read};

/// The files that make locks, and files that are not part of the program.
const EXEMPT: [&str; 9] = [
    "crates/base/src/sync/",
    "crates/base/src/lock/",
    "crates/bench/",
    "crates/conformance/",
    "crates/fuzzing/",
    "crates/sim/",
    "crates/testkit/",
    "crates/tidy/",
    "crates/xtask/",
];
const KINDS: [&str; 4] = ["Mutex", "RwLock", "Condvar", "ReentrantMutex"];
/// A lock of another kind: its guards check the order of locks themselves.
const OWNED: &str = "OwnedLock";
const ITS_ROOMS: [&str; 1] = ["crates/tree/src/buffer.rs"];

/// Complains about every lock that does not come from `base::lock`.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    for path in files("crates", &[".rs"])? {
        let shown = path.display().to_string();
        let is_test = shown.contains("/tests/") || shown.ends_with("_tests.rs");
        let is_source = shown.split('/').nth(2) == Some("src") && !is_test;
        if is_source && !EXEMPT.iter().any(|room| shown.starts_with(room)) {
            complaints.extend(without_rank(&shown, &read(&path)?));
        }
    }
    Ok(())
}

fn without_rank(path: &str, text: &str) -> Vec<String> {
    let code = text.lines().take_while(|line| *line != "#[cfg(test)]");
    let is_comment = |line: &str| line.trim_start().starts_with("//");
    (1..)
        .zip(code)
        .filter(|(_, line)| !is_comment(line))
        .flat_map(|(number, line)| words(line).map(move |word| (number, word)))
        .filter(|(_, word)| KINDS.contains(word) || *word == OWNED && !ITS_ROOMS.contains(&path))
        .map(|(number, word)| format!("{path}:{number}: a {word} has no rank, take it from base::lock"))
        .collect()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
}

#[cfg(test)]
mod tests {
    use super::without_rank;

    #[test]
    fn a_lock_without_a_rank_is_found_and_one_with_a_rank_is_not() {
        assert_eq!(without_rank("crates/fs/src/a.rs", "    shards: Vec<Mutex<u64>>,\n").len(), 1);
        assert_eq!(
            without_rank("crates/fs/src/a.rs", "    one: RankedMutex<u64, { rank::LEAF }>,\n").len(),
            0
        );
        assert_eq!(without_rank("crates/fs/src/a.rs", "// a Mutex\n#[cfg(test)]\nMutex").len(), 0);
        assert_eq!(without_rank("crates/tree/src/tree.rs", "bytes: OwnedLock<u8>,\n").len(), 1);
        assert_eq!(without_rank("crates/tree/src/buffer.rs", "bytes: OwnedLock<u8>,\n").len(), 0);
    }
}
