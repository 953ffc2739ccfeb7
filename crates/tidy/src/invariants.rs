//! Invariants that nothing keeps an eye on.
//!
//! An essay numbers its invariants, `- NAME-1: ...`. Of each one of these is true:
//! - an assert names it, and a test that expects a panic with that name (`should_panic`, `assert_noticed`) makes it fire;
//! - the essay says which test shows it, where no assert can see it: "Shown by `test`.";
//! - the essay says which type leaves no other way: "Held by `Type`.".
//!
//! A name means one thing in the whole workspace. Rooms that came late have debts in the ratchet: invariants that nothing watches yet, or that share a name.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::ratchet::{self, Debts};
use creamery_workspace::{files, read};

/// How a line begins that says which panic a test expects.
const EXPECTING: [&str; 2] = ["#[should_panic", "assert_noticed("];

/// Complains about rooms with more invariants that nothing keeps an eye on than the ratchet allows.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let (allowed, found) = (ratchet::section("invariants")?, by_room()?);
    for (room, unwatched) in &found {
        let most = allowed.get(room).copied().unwrap_or_default();
        if unwatched.len() > most {
            complaints.extend(unwatched.iter().cloned());
            complaints
                .push(format!("{room}: {} invariants without a watch, at most {most}", unwatched.len()));
        }
    }
    complaints.extend(ratchet::paid_off(&allowed, |room| found.contains_key(room)));
    Ok(())
}

/// How many there are in each crate.
pub(super) fn debts() -> Result<Debts> {
    Ok(by_room()?.into_iter().map(|(room, unwatched)| (room, unwatched.len())).collect())
}

fn by_room() -> Result<BTreeMap<String, Vec<String>>> {
    let mut known = Known::default();
    let mut essays = Vec::new();
    for path in files("crates", &[".rs"])? {
        let (shown, text) = (path.display().to_string(), read(&path)?);
        known.add(&text);
        essays.push((shown, text));
    }
    let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for complaint in unwatched(&essays, &known) {
        let room = complaint.split('/').nth(1).unwrap_or_default().to_owned();
        rooms.entry(room).or_default().push(complaint);
    }
    Ok(rooms)
}

/// What invariants may be watched by.
#[derive(Default)]
struct Known {
    functions: BTreeSet<String>,
    types: BTreeSet<String>,
    /// What tests expect a panic to say.
    expected: Vec<String>,
    /// The strings of asserts, and of whatever else has any.
    strings: Vec<String>,
}

impl Known {
    fn add(&mut self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            let words: Vec<&str> =
                line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').collect();
            for pair in words.windows(2) {
                match pair[0] {
                    "fn" => drop(self.functions.insert(pair[1].to_owned())),
                    "struct" | "enum" | "type" => drop(self.types.insert(pair[1].to_owned())),
                    _ => {}
                }
            }
            let inside = line.split('"').skip(1).step_by(2);
            match EXPECTING.iter().any(|expecting| line.starts_with(expecting)) {
                true => self.expected.extend(inside.map(str::to_owned)),
                false => self.strings.extend(inside.map(str::to_owned)),
            }
        }
    }
}

fn unwatched(essays: &[(String, String)], known: &Known) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (path, text) in essays {
        for (name, said) in invariants(text) {
            if let Some(first) = seen.insert(name.clone(), path) {
                complaints.push(format!("{path}: {name} is the name of an invariant of {first}"));
            }
            complaints.extend(complaint(&name, &said, known).map(|what| format!("{path}: {name}{what}")));
        }
    }
    complaints
}

fn complaint(name: &str, said: &str, known: &Known) -> Option<String> {
    let quoted = |after: &str| -> Option<Vec<&str>> {
        let sentence = said.split_once(after)?.1.split('.').next()?;
        Some(sentence.split('`').skip(1).step_by(2).collect())
    };
    let unknown = |names: Vec<&str>, all: &BTreeSet<String>| {
        let missing = names.into_iter().find(|name| !all.contains(*name));
        missing.map(|missing| format!(": there is no `{missing}`"))
    };
    if let Some(tests) = quoted("Shown by ") {
        return unknown(tests, &known.functions);
    }
    if let Some(types) = quoted("Held by ") {
        return unknown(types, &known.types);
    }
    let names = |texts: &[String]| texts.iter().any(|text| has_name(text, name));
    match (names(&known.strings), names(&known.expected)) {
        (true, true) => None,
        (true, false) => Some(": no test makes its assert fire, and none shows it".to_owned()),
        (false, _) => Some(": no assert names it, no test shows it and no type holds it".to_owned()),
    }
}

/// Whether `name` stands in `text` as a word: AB-1 is not in AB-12, nor in CAB-1.
fn has_name(text: &str, name: &str) -> bool {
    let mut words =
        text.split(|letter: char| !letter.is_ascii_uppercase() && !letter.is_ascii_digit() && letter != '-');
    words.any(|word| word == name)
}

/// The numbered invariants of an essay, each with all that is said of it.
fn invariants(text: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for line in text.lines().map_while(|line| line.strip_prefix("//!")) {
        if let Some(item) = line.strip_prefix(" - ") {
            let name = item.split([':', ' ']).next().unwrap_or_default();
            open = is_name(name);
            if open {
                found.push((name.to_owned(), item.to_owned()));
            }
        } else if let (true, Some((_, said)), Some(more)) = (open, found.last_mut(), line.strip_prefix("   "))
        {
            said.push(' ');
            said.push_str(more);
        } else {
            open = false;
        }
    }
    found
}

fn is_name(word: &str) -> bool {
    let Some((letters, number)) = word.rsplit_once('-') else { return false };
    let is_letter = |letter: char| letter.is_ascii_uppercase() || letter == '-';
    letters.starts_with(|letter: char| letter.is_ascii_uppercase())
        && letters.chars().all(is_letter)
        && number.parse::<u32>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Known, unwatched};

    fn told(essay: &str, others: &[&str]) -> Vec<String> {
        let mut known = Known::default();
        others.iter().for_each(|text| known.add(text));
        unwatched(&[("a.rs".to_owned(), essay.to_owned())], &known)
    }

    #[test]
    fn an_invariant_needs_an_assert_that_fires_or_a_test_that_shows_it_or_a_type() {
        let asserted = "assert!(fits, \"ROOM-1: it does not fit\");\n";
        let fires = "#[should_panic(expected = \"ROOM-1\")]\n";
        let essay = "//! # Invariants\n//! - ROOM-1 (HOUSE-1): it\n//!   fits.\n";
        assert_eq!(told(essay, &[asserted, fires]), [""; 0]);
        assert_eq!(
            told(essay, &[asserted, "    assert_noticed(\"ROOM-1\", |house| burst(house));\n"]),
            [""; 0]
        );
        assert_eq!(told(essay, &[asserted]).len(), 1);
        assert_eq!(told(essay, &["// \"ROOM-1\"\n", fires]).len(), 1);
        assert_eq!(told(essay, &["assert!(a, \"ROOM-12, MUSHROOM-1\");\n", fires]).len(), 1);
        assert_eq!(told(&format!("{essay}{essay}"), &[asserted, fires]).len(), 1, "a name means one thing");
    }

    #[test]
    fn tests_and_types_that_an_essay_names_are_there() {
        let shown = "//! - ROOM-1: it fits. Shown by `it_fits`, `it_does\n//!   not` fit.\n//!   More\n";
        assert_eq!(told(shown, &["fn it_fits() {"]).len(), 1);
        let shown = "//! - ROOM-1: it fits.\n//!   Shown by `it_fits`.\n//!\n//! - Not one: `x`.\n";
        assert_eq!(told(shown, &["    fn it_fits() {"]), [""; 0]);
        let held = "//! - ROOM-1: it fits. Held by `Room`, a guard.\n";
        assert_eq!(told(held, &["pub(crate) struct Room<'a>(&'a u8);"]), [""; 0]);
        assert_eq!(told(held, &["fn room() {"]).len(), 1);
    }
}
