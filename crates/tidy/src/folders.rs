//! Cycles of folders: the parts of a crate must form layers.
//!
//! A part of a crate is a folder below `src`, or a file there, together with the folder of its name. A part uses another when one of its
//! files uses one of the other's, by the rules of `circles`. Parts that use each other cannot be read one after the other.
//! `docs/tidy-ratchet.toml` has, for each crate, the number of parts in cycles of any length, and the number of pairs that use each other
//! directly: both may only fall.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::circles::{Room, arrows, reaches_itself, rooms};
use super::ratchet::{self, Debts};

const FOLDERS: &str = "folders";
const PAIRS: &str = "pairs";

/// Complains about every crate with more parts in cycles, or more pairs, than the ratchet allows.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let found = Found::of(&rooms()?);
    let kinds = [
        (FOLDERS, "folders in circles", &found.folders),
        (PAIRS, "pairs of folders that use each other", &found.pairs),
    ];
    for (section, what, found) in kinds {
        let allowed = ratchet::section(section)?;
        for (room, names) in found {
            let limit = allowed.get(room).copied().unwrap_or(0);
            if names.len() > limit {
                let shown = names.join("; ");
                complaints.push(format!("crates/{room}: {} {what}, at most {limit}: {shown}", names.len()));
            }
        }
        complaints.extend(ratchet::paid_off(&allowed, |room| found.contains_key(room)));
    }
    Ok(())
}

/// The number of parts in cycles, and of pairs that use each other, by crate.
pub(super) fn debts() -> Result<[(&'static str, Debts); 2]> {
    let found = Found::of(&rooms()?);
    let count = |found: ByRoom| found.into_iter().map(|(room, names)| (room, names.len())).collect();
    Ok([(FOLDERS, count(found.folders)), (PAIRS, count(found.pairs))])
}

/// Names by crate.
type ByRoom = BTreeMap<String, Vec<String>>;

struct Found {
    folders: ByRoom,
    pairs: ByRoom,
}

impl Found {
    fn of(rooms: &BTreeMap<String, Room>) -> Self {
        let told = |find: fn(&PartArrows) -> Vec<String>| {
            let rooms = rooms.iter().map(|(room, files)| (room.clone(), find(&folder_arrows(files))));
            rooms.filter(|(_, found)| !found.is_empty()).collect()
        };
        Self { folders: told(folders_in_circles), pairs: told(pairs) }
    }
}

/// The arrows from part to part, each with the files that cause it.
type PartArrows = BTreeMap<(String, String), BTreeSet<String>>;

fn folder_arrows(room: &Room) -> PartArrows {
    let mut found = PartArrows::new();
    for (module, used) in arrows(room) {
        for used in used {
            if let (Some(from), Some(to)) = (module.first(), used.first())
                && from != to
            {
                let files = found.entry((from.clone(), to.clone())).or_default();
                files.insert(module.join("/"));
            }
        }
    }
    found
}

fn folders_in_circles(arrows: &PartArrows) -> Vec<String> {
    let used = |folder: &String| {
        let arrows = arrows.keys().filter(|(from, _)| from == folder);
        arrows.map(|(_, to)| to.clone()).collect()
    };
    let folders: BTreeSet<&String> = arrows.keys().map(|(from, _)| from).collect();
    folders.into_iter().filter(|folder| reaches_itself(*folder, used)).cloned().collect()
}

/// The pairs that use each other, with the files of the direction that has fewer, or of both directions.
fn pairs(arrows: &PartArrows) -> Vec<String> {
    let mut found = Vec::new();
    for ((from, to), files) in arrows {
        if let Some(back) = arrows.get(&(to.clone(), from.clone()))
            && from < to
        {
            let used = |name: &String, files: &BTreeSet<String>| {
                let files: Vec<&str> = files.iter().map(String::as_str).collect();
                format!("{name} is used by {}", files.join(", "))
            };
            let told = match files.len().cmp(&back.len()) {
                Ordering::Less => used(to, files),
                Ordering::Greater => used(from, back),
                Ordering::Equal => format!("{}, {}", used(to, files), used(from, back)),
            };
            found.push(format!("{from} <-> {to}: {told}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::circles::{File, Room, module};
    use super::{folder_arrows, folders_in_circles, pairs};

    fn room(files: &[(&str, &str)]) -> Room {
        let file = |(path, text): &(&str, &str)| {
            let parts: Vec<&str> = path.split('/').collect();
            Some((module(&parts)?, File::new(text)))
        };
        files.iter().filter_map(file).collect()
    }

    fn told(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
        let arrows = folder_arrows(&room(files));
        (folders_in_circles(&arrows), pairs(&arrows))
    }

    #[test]
    fn three_folders_in_a_ring_are_found_and_are_no_pair() {
        let rows = [
            ("a/mod.rs", "mod one;\n"),
            ("a/one.rs", "use crate::b::two::Two;\n"),
            ("b/mod.rs", "pub mod two;\n"),
            ("b/two.rs", "struct Two;\n"),
            ("b/other.rs", "use crate::c::C;\n"),
            ("c.rs", "fn f() {\n    crate::a::g()\n}\n"),
        ];
        assert_eq!(told(&rows), (["a", "b", "c"].map(str::to_owned).into(), vec![]));
        assert_eq!(told(&rows[..5]), (vec![], vec![]));
    }

    #[test]
    fn a_pair_is_told_with_the_files_of_the_weaker_direction() {
        let rows = [
            ("a/mod.rs", "use crate::b::B;\nuse crate::b::c::C;\n"),
            ("a/one.rs", "use crate::b::B;\n"),
            ("b.rs", "pub struct B;\n"),
            ("b/c.rs", "use crate::a::A;\n"),
        ];
        let pair = "a <-> b: a is used by b/c".to_owned();
        assert_eq!(told(&rows), (["a", "b"].map(str::to_owned).into(), vec![pair]));
    }

    #[test]
    fn a_reexport_and_the_root_draw_no_arrow() {
        let rows = [
            ("lib.rs", "mod a;\nmod b;\npub use a::A;\nuse b::B;\nstruct Root;\n"),
            ("a.rs", "pub(crate) use crate::c::C;\npub struct A;\nuse crate::Root;\n"),
            ("b.rs", "use crate::a::A;\n"),
            ("c.rs", "pub struct C;\nfn f(b: crate::b::B) {}\n"),
            ("d.rs", "use crate::a::C;\n"),
        ];
        assert_eq!(told(&rows), (vec![], vec![]));
    }
}
