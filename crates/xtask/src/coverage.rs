//! What works, as data: `docs/coverage/*.toml` in, the tables in README.md and in docs/coverage.md out.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::workspace::{files, read, root};

const BEGIN: &str = "<!-- coverage: begin (cargo xtask readme) -->";
const END: &str = "<!-- coverage: end -->";
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

/// A page as it is, and with fresh tables.
fn renewed(page: &str, sheets: &[Sheet]) -> Result<(String, String)> {
    let old = read(page)?;
    let (head, rest) =
        old.split_once(BEGIN).with_context(|| format!("{page} has no mark for the tables' begin"))?;
    let (_, tail) =
        rest.split_once(END).with_context(|| format!("{page} has no mark for the tables' end"))?;
    let tables = table(sheets.iter().filter(|sheet| sheet.page == page));
    let new = format!("{head}{BEGIN}\n{tables}\n{END}{tail}");
    Ok((old, new))
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
    use super::{sheet, table};

    #[test]
    fn rows_become_a_table() {
        let text = "title = \"Commands\"\n[[row]]\nname = \"`ls`\"\nstate = \"works\"\ntest = \"commands/ls\"\n[[row]]\nname = \"`rm`\"\nstate = \"no\"\n";
        let wanted = "\n**Commands** (1 of 2)\n\n| | state | shown by |\n|---|---|---|\n| `ls` | works | `commands/ls` |\n| `rm` | not yet |  |\n";
        assert_eq!(table(&[sheet(text).unwrap()]), wanted);
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
