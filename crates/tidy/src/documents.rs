//! Documents that must be true: links lead somewhere, tables match their source, dependencies have a reason.

use std::path::Path;

use anyhow::{Context, Result};
use toml::{Table, Value};

use crate::coverage::sheets;
use crate::pages::stale_pages;
use creamery_workspace::{files, read, root};

/// The map fits into one's head.
const ARCHITECTURE_LINES_MAX: usize = 200;
/// The first page is read to its end.
const README_LINES_MAX: usize = 150;
const README_LINE_MAX: usize = 400;
const DEPENDENCIES: &str = "docs/adr/0004-dependencies.md";

/// Complains about dead links, stale tables, claims without a test, and dependencies without a reason.
pub(super) fn check(complaints: &mut Vec<String>) -> Result<()> {
    for path in files(".", &[".md"])? {
        let text = read(&path)?;
        let here = root().join(&path);
        let folder = here.parent().unwrap_or(&here);
        for target in dead_links(&text, folder) {
            complaints.push(format!("{}: {target} does not exist", path.display()));
        }
    }
    let readme = read("README.md")?;
    for (page, text, max) in [
        ("ARCHITECTURE.md", &read("ARCHITECTURE.md")?, ARCHITECTURE_LINES_MAX),
        ("README.md", &readme, README_LINES_MAX),
    ] {
        let lines = text.lines().count();
        if lines > max {
            complaints.push(format!("{page}: {lines} lines, at most {max}"));
        }
    }
    for (number, line) in
        readme.lines().enumerate().filter(|(_, line)| line.chars().count() > README_LINE_MAX)
    {
        let length = line.chars().count();
        complaints.push(format!("README.md:{}: {length} characters, at most {README_LINE_MAX}", number + 1));
    }
    for page in stale_pages()? {
        complaints.push(format!("{page}: what is made from data differs from it: cargo xtask readme"));
    }
    for path in files("docs/adr", &[".md"])? {
        if !has_status(&read(&path)?) {
            complaints
                .push(format!("{}: no status with a date, as in \"Accepted, 2026-11-21.\"", path.display()));
        }
    }
    claims(complaints)?;
    dependencies(complaints)
}

/// Whether a decision says below its title whether it holds, and since when.
fn has_status(text: &str) -> bool {
    let status = text.lines().nth(2).unwrap_or_default();
    let dated = ["Accepted, ", "Superseded, "].iter().find_map(|word| status.strip_prefix(word));
    dated.is_some_and(|date| {
        let date = date.as_bytes();
        date.len() > 10
            && date[..10].iter().enumerate().all(|(at, letter)| match at {
                4 | 7 => *letter == b'-',
                _ => letter.is_ascii_digit(),
            })
    })
}

/// Targets of links, and paths named in backticks, that lead nowhere.
fn dead_links(text: &str, folder: &Path) -> Vec<String> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let links = links
        .filter(|target| {
            !target.contains("://") && !target.starts_with('#') && !target.starts_with("mailto:")
        })
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !folder.join(target).exists());
    let named = text.split('`').skip(1).step_by(2);
    let named = named
        .filter(|word| word.starts_with("crates/") || word.starts_with("docs/"))
        .filter(|word| !word.contains(['*', '<', ' ', '{', '\n']) && !word.contains("NNNN"))
        .filter(|word| !root().join(word).exists());
    links.chain(named).map(str::to_owned).collect()
}

/// A row that claims something names a test that exists.
fn claims(complaints: &mut Vec<String>) -> Result<()> {
    let mut source = String::new();
    for path in files("crates", &[".rs"])? {
        source += &read(path)?;
    }
    for row in sheets()?.iter().flat_map(|sheet| &sheet.rows) {
        let Some(test) = row.test.as_ref() else { continue };
        let last = test.rsplit(['/', ':']).next().unwrap_or(test);
        let there = source.contains(&format!("\"{test}\""))
            || source.contains(&format!("\"{last}\""))
            || source.contains(&format!("fn {last}("));
        if !there {
            complaints
                .push(format!("docs/coverage: {} names the test {test}, which does not exist", row.name()));
        }
    }
    Ok(())
}

/// Every third-party crate has a line with its reason.
fn dependencies(complaints: &mut Vec<String>) -> Result<()> {
    let manifest: Table = read("Cargo.toml")?.parse().context("reading Cargo.toml")?;
    let reasons = read(DEPENDENCIES)?;
    let declared = manifest.get("workspace").and_then(|workspace| workspace.get("dependencies"));
    let declared = declared.and_then(Value::as_table).context("workspace.dependencies in Cargo.toml")?;
    for (name, value) in declared {
        let ours = value.get("path").is_some();
        if !ours && !reasons.contains(&format!("`{name}`")) {
            complaints.push(format!("Cargo.toml: {name} has no line in {DEPENDENCIES}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{dead_links, has_status};
    use creamery_workspace::root;

    #[test]
    fn dead_links_are_found() {
        let text = "[a](Cargo.toml) [b](none.md#part) [c](https://example.invalid) [d](#here) `crates/none` `crates/xtask` `docs/adr/NNNN-x.md`";
        assert_eq!(dead_links(text, &root()), ["none.md", "crates/none"]);
    }

    #[test]
    fn a_decision_has_a_status_and_a_date() {
        let decision = |status| has_status(&format!("# 1. Title\n\n{status}\n"));
        assert!(decision("Accepted, 2026-11-21.") && decision("Superseded, 2026-11-30, by 31."));
        assert!(
            !decision("Accepted.") && !decision("Accepted, today or tomorrow.") && !decision("2026-11-21.")
        );
    }
}
