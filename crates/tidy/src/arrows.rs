//! The arrows between crates, as ARCHITECTURE.md draws them and as the manifests have them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde_json::Value;

use creamery_workspace::{metadata, read};

/// Rooms that the tests of each room may use.
const OF_TESTS: [&str; 2] = ["testkit", "edges"];

const HEADING: &str = "## Arrows";

type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Complains about every arrow that is not drawn, and about rooms that are drawn and do not exist, or the reverse.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    let drawn = drawn(&read("ARCHITECTURE.md")?)?;
    let (built, dev) = built(&metadata()?)?;
    complaints.extend(compare(&drawn, &built, &dev));
    Ok(())
}

fn compare(drawn: &Arrows, built: &Arrows, dev: &Arrows) -> Vec<String> {
    let mut told = Vec::new();
    for (room, arrows) in built {
        let Some(allowed) = drawn.get(room) else {
            told.push(format!("crates/{room}: not in the table of arrows in ARCHITECTURE.md"));
            continue;
        };
        for arrow in arrows.difference(allowed) {
            told.push(format!("crates/{room}: uses {arrow}, and ARCHITECTURE.md draws no such arrow"));
        }
        // Tests may use these rooms from everywhere: they are no part of the program.
        let in_tests = dev.get(room).into_iter().flatten();
        for arrow in in_tests.filter(|arrow| {
            !allowed.contains(*arrow) && !OF_TESTS.contains(&arrow.as_str()) && *arrow != room
        }) {
            told.push(format!(
                "crates/{room}: its tests use {arrow}, and ARCHITECTURE.md draws no such arrow"
            ));
        }
    }
    for (room, arrows) in drawn {
        if !built.contains_key(room) {
            told.push(format!("ARCHITECTURE.md draws arrows of {room}, and there is no crates/{room}"));
        }
        for arrow in arrows.iter().filter(|arrow| !drawn.contains_key(*arrow)) {
            told.push(format!("ARCHITECTURE.md: {room} points to {arrow}, which has no row"));
        }
    }
    told.extend(circle(drawn));
    told
}

/// The table must be drawn in layers: each room after all that it uses.
fn circle(drawn: &Arrows) -> Option<String> {
    let mut left = drawn.clone();
    while !left.is_empty() {
        let free: Vec<String> = left
            .iter()
            .filter(|(_, arrows)| arrows.iter().all(|arrow| !left.contains_key(arrow)))
            .map(|(room, _)| room.clone())
            .collect();
        if free.is_empty() {
            return Some(format!("ARCHITECTURE.md: arrows in a circle among {:?}", left.keys()));
        }
        left.retain(|room, _| !free.contains(room));
    }
    None
}

/// Rows of the form "| `room` | `room`, `room` |" below the heading.
fn drawn(text: &str) -> Result<Arrows> {
    let section = text.split(HEADING).nth(1).with_context(|| format!("ARCHITECTURE.md has no {HEADING}"))?;
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut arrows = Arrows::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split('|');
        let names = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
        let rooms = names(cells.next().unwrap_or_default());
        let uses: BTreeSet<String> = names(cells.next().unwrap_or_default()).into_iter().collect();
        for room in rooms {
            arrows.insert(room, uses.clone());
        }
    }
    Ok(arrows)
}

/// Arrows between members of the workspace: those of the program, and those of tests only. Rooms are folders' names.
fn built(metadata: &Value) -> Result<(Arrows, Arrows)> {
    let members: BTreeSet<&str> = metadata["workspace_members"]
        .as_array()
        .context("members")?
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let packages = metadata["packages"].as_array().context("packages")?;
    let ours: Vec<&Value> = packages
        .iter()
        .filter(|package| package["id"].as_str().is_some_and(|id| members.contains(id)))
        .collect();
    let room = |package: &Value| -> Option<String> {
        let folder = std::path::Path::new(package["manifest_path"].as_str()?).parent()?;
        Some(folder.file_name()?.to_string_lossy().into_owned())
    };
    let rooms: BTreeMap<&str, String> =
        ours.iter().filter_map(|package| Some((package["name"].as_str()?, room(package)?))).collect();
    let (mut built, mut dev) = (Arrows::new(), Arrows::new());
    for package in ours {
        let here = room(package).context("a package without a folder")?;
        built.entry(here.clone()).or_default();
        for dependency in package["dependencies"].as_array().context("dependencies")? {
            let Some(there) = dependency["name"].as_str().and_then(|name| rooms.get(name)) else { continue };
            let home = if dependency["kind"].as_str() == Some("dev") { &mut dev } else { &mut built };
            home.entry(here.clone()).or_default().insert(there.clone());
        }
    }
    Ok((built, dev))
}

#[cfg(test)]
mod tests {
    use super::{Arrows, compare, drawn};

    const TABLE: &str = "# x\n\n## Arrows\n\n| crate | may use |\n|---|---|\n| `base` | |\n| `format`, `codec` | `base` |\n| `volume` | `base`, `format` |\n\n## Next\n| `not` | `this` |\n";

    fn arrows(rows: &[(&str, &[&str])]) -> Arrows {
        let set = |uses: &[&str]| uses.iter().map(|name| (*name).to_owned()).collect();
        rows.iter().map(|(room, uses)| ((*room).to_owned(), set(uses))).collect()
    }

    #[test]
    fn the_table_is_read() {
        let wanted = arrows(&[
            ("base", &[]),
            ("codec", &["base"]),
            ("format", &["base"]),
            ("volume", &["base", "format"]),
        ]);
        assert_eq!(drawn(TABLE).unwrap(), wanted);
    }

    #[test]
    fn a_new_arrow_is_told() {
        let built = arrows(&[
            ("base", &[]),
            ("codec", &["format"]),
            ("format", &["base"]),
            ("volume", &[]),
            ("new", &[]),
        ]);
        let dev = arrows(&[("format", &["codec", "testkit"])]);
        let told = compare(&drawn(TABLE).unwrap(), &built, &dev);
        let wanted = [
            "crates/codec: uses format, and ARCHITECTURE.md draws no such arrow",
            "crates/format: its tests use codec, and ARCHITECTURE.md draws no such arrow",
            "crates/new: not in the table of arrows in ARCHITECTURE.md",
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn a_circle_is_told() {
        let round = arrows(&[("a", &["b"]), ("b", &["a"])]);
        assert_eq!(compare(&round, &round, &Arrows::new()).len(), 1);
    }
}
