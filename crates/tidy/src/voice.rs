//! The language of the project: the subject of a sentence is a noun of the code or of the reader's world, and the verb is active (CONTRIBUTING,
//! "Style").
//!
//! A machine detects four ways to miss that: a clause with "who" in place of a subject, "is told" in place of an active verb, a doc comment that begins with a
//! reference to the one before, and "he" for a thread. The check covers all lines of sources and pages: comments, messages, help texts.

use anyhow::Result;

use super::ratchet::{self, Debts};
use creamery_workspace::{files, read};

/// Whether a line misses the rule in one way.
type Habit = fn(&str) -> bool;

/// Ways to miss the rule, by the name that the ratchet has for them.
const HABITS: [(&str, Habit); 4] =
    [("who", has_who), ("told", has_told), ("same", begins_with_same), ("he", has_he)];

/// Files with other people's words.
const FOREIGN: [&str; 2] = ["LICENSE", "NOTICE"];

/// Complains about rooms with more such lines than the ratchet allows.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let (allowed, found) = (ratchet::section("voice")?, debts()?);
    for (place, count) in &found {
        let most = allowed.get(place).copied().unwrap_or_default();
        if *count > most {
            complaints.push(format!(
                "{place}: {count} lines, at most {most}; `cargo xtask tidy --voice` lists them"
            ));
        }
    }
    complaints.extend(ratchet::paid_off(&allowed, |place| found.contains_key(place)));
    Ok(())
}

/// Counts such lines in each room.
pub(super) fn debts() -> Result<Debts> {
    let mut debts = Debts::new();
    for_each_line(|room, habit, _| *debts.entry(format!("{room}: {habit}")).or_default() += 1)?;
    Ok(debts)
}

/// Lists the lines: `cargo xtask tidy --voice`.
pub(super) fn list() -> Result<()> {
    for_each_line(|_, habit, line| println!("{habit}: {line}"))
}

/// Calls `each` with room, habit, and the line with its place.
fn for_each_line(mut each: impl FnMut(&str, &str, &str)) -> Result<()> {
    for path in files("", &[".rs", ".md", ".toml"])? {
        let shown = path.display().to_string();
        if FOREIGN.iter().any(|foreign| shown.contains(foreign)) {
            continue;
        }
        let text = read(&path)?;
        for (number, line) in (1..).zip(text.lines()) {
            for (habit, _) in HABITS.iter().filter(|(_, has)| has(line)) {
                each(room(&shown), habit, &format!("{shown}:{number}: {}", line.trim()));
            }
        }
    }
    Ok(())
}

/// The crate, the folder or the page that a path belongs to.
fn room(path: &str) -> &str {
    let mut parts = path.split('/');
    match (parts.next(), parts.next()) {
        (Some("crates"), Some(room)) => room,
        (Some(first), _) => first,
        (None, _) => path,
    }
}

/// The words of a line, each with the text directly behind it. A word of code with an underscore is one word.
fn words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    line.split(move |letter| !is_part(letter)).filter(|word| !word.is_empty()).map(move |word| {
        let end = word.as_ptr() as usize - line.as_ptr() as usize + word.len();
        (word, &line[end..])
    })
}

fn has_who(line: &str) -> bool {
    let stands_before_a_verb = |rest: &str| rest.is_empty() || rest.starts_with(' ');
    words(line).any(|(word, rest)| {
        matches!(word, "who" | "Who" | "whoever" | "Whoever") && stands_before_a_verb(rest)
    })
}

fn has_told(line: &str) -> bool {
    words(line).any(|(word, rest)| matches!(word, "is" | "are") && begins_with(rest.trim_start(), "told"))
}

fn has_he(line: &str) -> bool {
    words(line).any(|(word, rest)| matches!(word, "he" | "He") && rest.starts_with(' '))
}

fn begins_with_same(line: &str) -> bool {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    text.is_some_and(|text| begins_with(text.trim_start(), "The same"))
}

/// Whether `text` begins with exactly these words.
fn begins_with(text: &str, words: &str) -> bool {
    text.strip_prefix(words).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn habits(line: &str) -> Vec<&'static str> {
        HABITS.iter().filter(|(_, has)| has(line)).map(|(habit, _)| *habit).collect()
    }

    #[test]
    fn each_habit_is_found_where_it_stands() {
        let (who, told) = (concat!("/// Wh", "o waits goes on."), concat!("the caller is to", "ld so"));
        assert_eq!((habits(who), habits(told)), (vec!["who"], vec!["told"]));
        assert_eq!(habits(concat!("    /// The sa", "me, waiting.")), ["same"]);
        assert_eq!(habits(concat!("// until h", "e is done, who", "ever waits")), ["who", "he"]);
    }

    #[test]
    fn other_words_are_none_of_them() {
        for line in [
            "fn who_waits()",
            "the whole of it",
            "Who?",
            "it is toldest",
            "// The same",
            "she is there",
            "/// The sameness",
        ] {
            assert_eq!(habits(line), [""; 0], "{line}");
        }
    }

    #[test]
    fn a_room_is_a_crate_a_folder_or_a_page() {
        let rooms = ["crates/fs/src/lib.rs", "docs/use/paths.md", "README.md"].map(room);
        assert_eq!(rooms, ["fs", "docs", "README.md"]);
    }
}
