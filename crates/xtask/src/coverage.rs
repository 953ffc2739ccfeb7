//! What works, as data: `docs/coverage/*.toml` in, the tables in README.md and in docs/coverage.md out.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::workspace::{files, read, root};

const BEGIN: &str = "<!-- coverage: begin (cargo xtask readme) -->";
const END: &str = "<!-- coverage: end -->";
/// The same for what does not work yet, of all sheets, on the first page.
const MISSING_BEGIN: &str = "<!-- missing: begin (cargo xtask readme) -->";
const MISSING_END: &str = "<!-- missing: end -->";
/// Where the tables stand, each between its marks: the first unless a sheet names another one.
const PAGES: [&str; 2] = ["README.md", "docs/coverage.md"];

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
    /// One of [`PAGES`].
    page: &'static str,
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
    let page = table
        .get("page")
        .map_or(Some(PAGES[0]), |page| PAGES.into_iter().find(|&known| page.as_str() == Some(known)));
    let page = page.with_context(|| format!("{title}: the page is none of {}", PAGES.join(", ")))?;
    let rows = table.get("row").and_then(Value::as_array).context("rows")?;
    let rows = rows.iter().map(row).collect::<Result<_>>()?;
    Ok(Sheet { title, page, rows })
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
fn table<'a>(sheets: impl IntoIterator<Item = &'a Sheet>) -> String {
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

/// A page as it is, and with fresh tables.
fn renewed(page: &str, sheets: &[Sheet]) -> Result<(String, String)> {
    let old = read(page)?;
    let tables = table(sheets.iter().filter(|sheet| sheet.page == page));
    let mut new = between(&old, (BEGIN, END), &tables).with_context(|| format!("in {page}"))?;
    if page == PAGES[0] {
        new = between(&new, (MISSING_BEGIN, MISSING_END), &missing(sheets))
            .with_context(|| format!("in {page}"))?;
    }
    Ok((old, new))
}

/// A text with something else between two marks.
pub(crate) fn between(text: &str, (begin, end): (&str, &str), what: &str) -> Result<String> {
    let (head, rest) = text.split_once(begin).with_context(|| format!("no mark {begin}"))?;
    let (_, tail) = rest.split_once(end).with_context(|| format!("no mark {end}"))?;
    Ok(format!("{head}{begin}\n{what}\n{end}{tail}"))
}

/// `cargo xtask readme`.
pub(crate) fn write_pages() -> Result<()> {
    let sheets = sheets()?;
    for page in PAGES {
        let (old, new) = renewed(page, &sheets)?;
        if old == new {
            println!("{page} is up to date");
        } else {
            std::fs::write(root().join(page), new).with_context(|| format!("writing {page}"))?;
        }
    }
    Ok(())
}

/// The pages whose tables do not say what the files say.
pub(crate) fn stale_pages() -> Result<Vec<&'static str>> {
    let sheets = sheets()?;
    let mut stale = Vec::new();
    for page in PAGES {
        let (old, new) = renewed(page, &sheets)?;
        if old != new {
            stale.push(page);
        }
    }
    Ok(stale)
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

    #[test]
    fn a_sheet_is_on_a_page_that_there_is() {
        let on = |page: &str| {
            sheet(&format!("title = \"x\"\npage = {page}\n[[row]]\nname = \"a\"\nstate = \"no\"\n"))
        };
        assert_eq!(on("\"docs/coverage.md\"").unwrap().page, "docs/coverage.md");
        assert!(on("\"docs/none.md\"").is_err() && on("3").is_err());
    }
}
