//! Towers: the folders of a crate in a written order.
//!
//! The root of a crate (`lib.rs`) may draw how its folders stand above each other, below the heading `# How it is divided`: a line is a
//! step, the highest one first. It lists folders; two spaces separate them from a remark. A file that lies beside folders is a folder of
//! its own, as for `folders`. A folder uses folders of lower steps only. A path counts as it is written, and as re-exports lead on from
//! it. So a complaint names the file of a wrong arrow before the arrow closes a circle. (Methods are called without a path; those are not
//! seen.)

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use super::circles::{Room, named, rooms};
use creamery_workspace::read;

/// The crates that draw a tower.
const ROOMS: [&str; 1] = ["fs"];
const HEADING: &str = "//! # How it is divided";
const OPENING: &str = "//! ```text";
const CLOSING: &str = "//! ```";

/// Complains about every file that uses a folder on its own step or above it, and about folders without a step.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let rooms = rooms()?;
    for room in ROOMS {
        let path = format!("crates/{room}/src/lib.rs");
        let tower = tower(&read(&path)?).with_context(|| format!("{path} draws no tower below {HEADING}"))?;
        let files = rooms.get(room).with_context(|| format!("crates/{room} has no files"))?;
        complaints.extend(wrong(&tower, files).into_iter().map(|told| format!("crates/{room}: {told}")));
    }
    Ok(())
}

/// The steps of folders, counted from the top.
type Tower = BTreeMap<String, usize>;

/// The tower that the text of a crate's root draws.
fn tower(text: &str) -> Option<Tower> {
    let lines = text.lines().skip_while(|line| *line != HEADING).skip_while(|line| *line != OPENING).skip(1);
    let mut tower = Tower::new();
    for (step, line) in lines.take_while(|line| *line != CLOSING).enumerate() {
        let line = line.trim_start_matches("//!").trim();
        let names = line.split("  ").next().unwrap_or(line);
        tower.extend(names.split_whitespace().map(|name| (name.to_owned(), step)));
    }
    (!tower.is_empty()).then_some(tower)
}

/// What is wrong about the files of a crate by its tower.
fn wrong(tower: &Tower, room: &Room) -> Vec<String> {
    let folders: Vec<&String> = room.keys().filter_map(|module| module.first()).collect();
    let mut told: Vec<String> = Vec::new();
    for folder in tower.keys().filter(|folder| !folders.contains(folder)) {
        told.push(format!("{folder} is on a step of the tower, and there is no such folder"));
    }
    for (module, names) in named(room) {
        let Some(folder) = module.first() else { continue };
        let Some(step) = tower.get(folder) else {
            told.push(format!("{}: {folder} is on no step of the tower", module.join("/")));
            continue;
        };
        for name in names {
            let other = name.first().filter(|other| *other != folder);
            if let Some((other, at)) = other.and_then(|other| Some((other, tower.get(other)?)))
                && at <= step
            {
                let place = if at == step { "beside" } else { "above" };
                told.push(format!(
                    "{} uses {}: {other} is {place} {folder}",
                    module.join("/"),
                    name.join("/")
                ));
            }
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::circles::{File, Room, module};
    use super::{tower, wrong};

    const ROOT: &str = "//! # How it is divided\n//! A tower.\n//! ```text\n//!   face other   what is seen\n//!   middle\n//!   base   what carries it\n//! ```\n//!   none\nmod face;\n";

    fn told(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| {
            let parts: Vec<&str> = path.split('/').collect();
            Some((module(&parts)?, File::new(text)))
        };
        let room: Room = files.iter().filter_map(file).collect();
        wrong(&tower(ROOT).expect("a tower"), &room)
    }

    #[test]
    fn a_line_of_the_drawing_is_a_step() {
        let steps: Vec<(String, usize)> = tower(ROOT).expect("a tower").into_iter().collect();
        let rows = [("base", 2), ("face", 0), ("middle", 1), ("other", 0)];
        assert_eq!(steps, rows.map(|(name, step)| (name.to_owned(), step)));
        assert_eq!(tower("//! # How it is divided\n//! In no way.\n"), None);
    }

    #[test]
    fn an_arrow_to_a_folder_beside_or_above_is_found_by_file() {
        let rows = [
            ("lib.rs", ROOT),
            ("face.rs", "use crate::middle::Middle;\n"),
            ("other/mod.rs", "use crate::face::Face;\nuse crate::base::Base;\n"),
            ("middle/mod.rs", "pub use crate::base::Base;\npub struct Middle;\n"),
            ("middle/inner.rs", "fn f() {\n    crate::face::g()\n}\n"),
            ("base.rs", "pub struct Base;\n"),
        ];
        let above = "middle/inner uses face: face is above middle";
        assert_eq!(told(&rows), [above, "other uses face: face is beside other"]);
    }

    #[test]
    fn a_reexport_of_a_higher_folder_counts_as_written() {
        let rows = [
            ("face.rs", ""),
            ("other.rs", ""),
            ("middle.rs", "pub use crate::base::Base;\n"),
            ("base.rs", "use crate::middle::Base as Mine;\npub use crate::face::Face;\npub struct Base;\n"),
        ];
        let told_of = ["base uses face: face is above base", "base uses middle: middle is above base"];
        assert_eq!(told(&rows), told_of);
    }

    #[test]
    fn a_folder_is_on_a_step_and_a_step_has_folders() {
        let rows = [("face.rs", ""), ("middle.rs", ""), ("base.rs", ""), ("more/mod.rs", "")];
        let missing = "other is on a step of the tower, and there is no such folder";
        assert_eq!(told(&rows), [missing, "more: more is on no step of the tower"]);
    }
}
