//! The state of each feature as data: `docs/coverage/*.toml` in, the tables of docs/coverage.md and docs/limitations.md out.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use creamery_workspace::{files, read};

/// The page of all rows, and the marks around its tables.
const COVERAGE: &str = "docs/coverage.md";
const COVERAGE_MARKS: (&str, &str) =
    ("<!-- coverage: begin (cargo xtask readme) -->", "<!-- coverage: end -->");
/// The page of the rows that do not work, or work in part.
const LIMITATIONS: &str = "docs/limitations.md";
const LIMITATIONS_MARKS: (&str, &str) =
    ("<!-- limitations: begin (cargo xtask readme) -->", "<!-- limitations: end -->");

/// One thing that works, in part, or not.
#[derive(Debug)]
pub(crate) struct Row {
    name: String,
    state: State,
    /// The test that shows it.
    pub(crate) test: Option<String>,
    note: String,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    Works,
    Partial,
    No,
}

impl Row {
    /// Whether the row claims anything.
    pub(crate) fn claims(&self) -> bool {
        self.state != State::No
    }

    /// What the row is about.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The rows of one file under their title.
#[derive(Debug)]
pub(crate) struct Sheet {
    title: String,
    pub(crate) rows: Vec<Row>,
}

/// Reads all sheets, in the order of their files' names.
pub(crate) fn sheets() -> Result<Vec<Sheet>> {
    // What other people's suites are expected to say stands beside the sheets.
    let is_suite = |path: &Path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("suite-"))
    };
    files("docs/coverage", &[".toml"])?
        .iter()
        .filter(|path| !is_suite(path))
        .map(|path| sheet(&read(path)?).with_context(|| format!("reading {}", path.display())))
        .collect()
}

fn sheet(text: &str) -> Result<Sheet> {
    let table: Table = text.parse()?;
    let title = table.get("title").and_then(Value::as_str).context("a title")?.to_owned();
    let rows = table.get("row").and_then(Value::as_array).context("rows")?;
    let rows = rows.iter().map(row).collect::<Result<_>>()?;
    Ok(Sheet { title, rows })
}

fn row(value: &Value) -> Result<Row> {
    let table = value.as_table().context("a row is not a table")?;
    let text = |name: &str| table.get(name).and_then(Value::as_str).map(str::to_owned);
    let name = text("name").context("a row without a name")?;
    for key in table.keys() {
        ensure!(["name", "state", "test", "note"].contains(&key.as_str()), "{name}: unknown field {key}");
    }
    let state = match text("state").as_deref() {
        Some("works") => State::Works,
        Some("partial") => State::Partial,
        Some("no") => State::No,
        other => bail!("{name}: the state is {other:?}, not works, partial or no"),
    };
    let row = Row { name, state, test: text("test"), note: text("note").unwrap_or_default() };
    ensure!(!row.claims() || row.test.is_some(), "{}: claimed, and no test is named", row.name);
    ensure!(
        row.state != State::Partial || !row.note.is_empty(),
        "{}: partial, and no note says how",
        row.name
    );
    Ok(row)
}

/// The tables as they stand on a page.
fn table(sheets: &[Sheet]) -> String {
    let mut text = String::new();
    for sheet in sheets {
        let works = sheet.rows.iter().filter(|row| row.state == State::Works).count();
        text += &format!(
            "\n**{}** ({works} of {})\n\n| | state | shown by |\n|---|---|---|\n",
            sheet.title,
            sheet.rows.len()
        );
        for row in &sheet.rows {
            let state = match row.state {
                State::Works => "works",
                State::Partial => "in part",
                State::No => "not yet",
            };
            let note = if row.note.is_empty() { String::new() } else { format!(": {}", row.note) };
            let test = if row.claims() {
                row.test.as_deref().map_or(String::new(), |test| format!("`{test}`"))
            } else {
                String::new()
            };
            text += &format!("| {} | {state}{note} | {test} |\n", row.name);
        }
    }
    text
}

/// What does not work, or not all of it: of each sheet the names of what is not there in one line, what is there in part below.
fn missing(sheets: &[Sheet]) -> String {
    let mut text = "\n| | |\n|---|---|\n".to_owned();
    for sheet in sheets {
        let of = |state| sheet.rows.iter().filter(move |row| row.state == state);
        let names: Vec<&str> = of(State::No).map(|row| &*row.name).collect();
        if !names.is_empty() {
            text += &format!("| **{}**: not yet | {} |\n", sheet.title, names.join(", "));
        }
        for row in of(State::Partial) {
            text += &format!("| {} | in part: {} |\n", row.name, row.note);
        }
    }
    text
}

/// How many rows work, and how many rows there are.
pub(crate) fn counts(sheets: &[Sheet]) -> (usize, usize) {
    let rows = || sheets.iter().flat_map(|sheet| &sheet.rows);
    (rows().filter(|row| row.state == State::Works).count(), rows().count())
}

/// A text with something else between two marks.
pub fn between(text: &str, (begin, end): (&str, &str), what: &str) -> Result<String> {
    let (head, rest) = text.split_once(begin).with_context(|| format!("no mark {begin}"))?;
    let (_, tail) = rest.split_once(end).with_context(|| format!("no mark {end}"))?;
    Ok(format!("{head}{begin}\n{what}\n{end}{tail}"))
}

/// The pages that are made from the sheets, with fresh tables.
pub(crate) fn pages(sheets: &[Sheet]) -> Result<[(&'static str, String); 2]> {
    let fresh = |page, marks, tables: String| {
        between(&read(page)?, marks, &tables).with_context(|| format!("in {page}")).map(|new| (page, new))
    };
    Ok([
        fresh(COVERAGE, COVERAGE_MARKS, table(sheets))?,
        fresh(LIMITATIONS, LIMITATIONS_MARKS, missing(sheets))?,
    ])
}

#[cfg(test)]
mod tests {
    use super::{between, missing, sheet, table};

    #[test]
    fn rows_become_a_table() {
        let text = "title = \"Commands\"\n[[row]]\nname = \"`ls`\"\nstate = \"works\"\ntest = \"commands/ls\"\n[[row]]\nname = \"`rm`\"\nstate = \"no\"\n";
        let wanted = "\n**Commands** (1 of 2)\n\n| | state | shown by |\n|---|---|---|\n| `ls` | works | `commands/ls` |\n| `rm` | not yet |  |\n";
        assert_eq!(table(&[sheet(text).unwrap()]), wanted);
    }

    #[test]
    fn what_is_missing_has_a_table_of_its_own() {
        let text = "title = \"Commands\"\n[[row]]\nname = \"`ls`\"\nstate = \"works\"\ntest = \"t\"\n[[row]]\nname = \"`rm`\"\nstate = \"no\"\n[[row]]\nname = \"`mv`\"\nstate = \"no\"\n[[row]]\nname = \"`cp`\"\nstate = \"partial\"\ntest = \"t\"\nnote = \"no links\"\n";
        let wanted =
            "\n| | |\n|---|---|\n| **Commands**: not yet | `rm`, `mv` |\n| `cp` | in part: no links |\n";
        assert_eq!(missing(&[sheet(text).unwrap()]), wanted);
        assert_eq!(between("a[b]c", ("[", "]"), "x").unwrap(), "a[\nx\n]c");
        assert!(between("a[b", ("[", "]"), "x").is_err());
    }

    #[test]
    fn a_claim_needs_a_test() {
        assert!(sheet("title = \"x\"\n[[row]]\nname = \"a\"\nstate = \"works\"\n").is_err());
        assert!(sheet("title = \"x\"\n[[row]]\nname = \"a\"\nstate = \"partial\"\ntest = \"t\"\n").is_err());
        assert!(sheet("title = \"x\"\n[[row]]\nname = \"a\"\nstate = \"maybe\"\n").is_err());
        assert!(sheet("title = \"x\"\n[[row]]\nname = \"a\"\nstate = \"no\"\nwhy = \"\"\n").is_err());
    }
}
