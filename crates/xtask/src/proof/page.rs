//! The last result of each step of the proof, as docs/internals/proof.md shows it.

use anyhow::{Context, Result};
use creamery_testkit::Run;

use crate::steps::Done;
use creamery_tidy::between;
use creamery_workspace::{read, root};

const PAGE: &str = "docs/internals/proof.md";
const MARKS: (&str, &str) = ("<!-- last proof: begin (cargo xtask proof) -->", "<!-- last proof: end -->");
const HEAD: &str = "\n| step | result | seconds | date | commit | seed |\n|---|---|---|---|---|---|\n";

/// The commit that is proved, marked where files differ from it. The page itself does, once a step has noted its result.
pub(super) fn commit() -> Result<String> {
    let git = |words: &[&str]| Run::new("git").args(words).within(root()).ok();
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?.stdout_text().trim().to_owned();
    let other = format!(":(exclude){PAGE}");
    let status = git(&["status", "--porcelain", "--untracked-files=no", "--", ":/", &other])?;
    let changed = !status.stdout_text().is_empty();
    Ok(if changed { format!("{commit} and changes") } else { commit })
}

/// Writes the rows of the steps that ran; those of the others stay.
pub(super) fn note(done: &[Done], commit: &str, seed: u64) -> Result<()> {
    let date = Run::new("date").args(["-u", "+%F"]).ok()?.stdout_text().trim().to_owned();
    let old = read(PAGE)?;
    let new = between(&old, MARKS, &table(&old, done, &format!("{date} | {commit} | {seed}")))?;
    std::fs::write(root().join(PAGE), new).with_context(|| format!("writing {PAGE}"))
}

/// The rows of `page` with those of `done` in their place, or at the end.
fn table(page: &str, done: &[Done], proved: &str) -> String {
    let rows =
        page.split_once(MARKS.0).and_then(|(_, rest)| rest.split_once(MARKS.1)).map_or("", |(rows, _)| rows);
    let mut rows: Vec<String> =
        rows.lines().filter(|line| line.starts_with("| ")).skip(1).map(str::to_owned).collect();
    for Done { name, seconds, failure } in done {
        let result = if failure.is_none() { "ok" } else { "FAILED" };
        let row = format!("| {name} | {result} | {seconds} | {proved} |");
        match rows.iter_mut().find(|old| old.starts_with(&format!("| {name} |"))) {
            Some(old) => *old = row,
            None => rows.push(row),
        }
    }
    format!("{HEAD}{}\n", rows.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::{HEAD, MARKS, table};
    use crate::steps::Done;

    #[test]
    fn a_step_that_ran_again_replaces_its_row_and_no_other() {
        let page = format!(
            "before\n{}\n{HEAD}| a | ok | 3 | then | c1 | 1 |\n| b | ok | 4 | then | c1 | 1 |\n\n{}\nbehind",
            MARKS.0, MARKS.1
        );
        let done = |name: &str, failure: Option<&str>| Done {
            name: name.to_owned(),
            seconds: 9,
            failure: failure.map(str::to_owned),
        };
        let new = table(&page, &[done("b", Some("why")), done("c", None)], "now | c2 | 2");
        let wanted = format!(
            "{HEAD}| a | ok | 3 | then | c1 | 1 |\n| b | FAILED | 9 | now | c2 | 2 |\n| c | ok | 9 | now | c2 | 2 |\n"
        );
        assert_eq!(new, wanted);
    }
}
