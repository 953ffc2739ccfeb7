//! Six rows of speed beside Linux and btrfs-progs, taken from the tables of the benches.

use anyhow::{Context, Result};

use creamery_workspace::read;

const PAGE: &str = "docs/internals/benchmarks.md";

/// A row of the table on the first page.
struct SpeedRow {
    work: &'static str,
    beside: &'static str,
    library: Option<Cell>,
    mount: Option<Cell>,
}

/// A cell of a bench's table.
struct Cell {
    bench: &'static str,
    /// The first cells of its row.
    row: &'static [&'static str],
    column: &'static str,
}

const fn cell(bench: &'static str, row: &'static [&'static str], column: &'static str) -> Option<Cell> {
    Some(Cell { bench, row, column })
}

const LIBRARY: &str = "library over kernel";
const MOUNT: &str = "mount over kernel";

const ROWS: [SpeedRow; 6] = [
    SpeedRow {
        work: "an image from 30,000 files",
        beside: "`mkfs.btrfs --rootdir`",
        library: cell("image", &["`mkfs.btrfs --rootdir`"], "of Creamery's time"),
        mount: None,
    },
    SpeedRow {
        work: "checking it, data included",
        beside: "`btrfs check`",
        library: cell("check", &["a tree of files", "verified"], "of Creamery's time"),
        mount: None,
    },
    SpeedRow {
        work: "creating files, two threads",
        beside: "Linux",
        library: cell("create", &["2"], "ratio"),
        mount: None,
    },
    SpeedRow {
        work: "writing in pieces of 128 KiB",
        beside: "Linux",
        library: cell("data", &["128 KiB pieces: written"], LIBRARY),
        mount: cell("data", &["128 KiB pieces: written"], MOUNT),
    },
    SpeedRow {
        work: "writing in pieces of 4 KiB",
        beside: "Linux",
        library: cell("data", &["4 KiB pieces: written"], LIBRARY),
        mount: cell("data", &["4 KiB pieces: written"], MOUNT),
    },
    SpeedRow {
        work: "appending and syncing, eight threads",
        beside: "Linux",
        library: cell("data", &["appended by 8 threads: 4 KiB and fsync"], LIBRARY),
        mount: cell("data", &["appended by 8 threads: 4 KiB and fsync"], MOUNT),
    },
];

/// The table: how many times as fast we are.
pub(super) fn table() -> Result<String> {
    let page = read(PAGE)?;
    let mut text = "\n| work | beside | library, command | mount |\n|---|---|---|---|\n".to_owned();
    for row in &ROWS {
        let value = |cell: &Option<Cell>| match cell {
            Some(cell) => find(&page, cell).map(|value| format!("{value} \u{d7}")),
            None => Ok(String::new()),
        };
        let (library, mount) = (value(&row.library)?, value(&row.mount)?);
        text += &format!("| {} | {} | {library} | {mount} |\n", row.work, row.beside);
    }
    Ok(text)
}

/// The value of a cell on the page.
fn find<'p>(page: &'p str, cell: &Cell) -> Result<&'p str> {
    let missing = || format!("bench {}, row {:?}, column {:?}", cell.bench, cell.row, cell.column);
    let begin = format!("<!-- bench {}: begin -->", cell.bench);
    let table = page.split_once(&begin).with_context(missing)?.1;
    let mut rows = table.lines().filter(|line| line.starts_with("| ")).map(cells);
    let head = rows.next().with_context(missing)?;
    let column = head.iter().position(|name| *name == cell.column).with_context(missing)?;
    let row = rows.find(|cells| cells.starts_with(cell.row)).with_context(missing)?;
    row.get(column).copied().with_context(missing)
}

fn cells(line: &str) -> Vec<&str> {
    line.trim_matches('|').split('|').map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::{Cell, find};

    #[test]
    fn a_cell_is_found_by_its_bench_row_and_column() {
        let page = "| a | b |\n<!-- bench x: begin -->\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\n<!-- bench x: end -->\n";
        let cell = |bench, row, column| Cell { bench, row, column };
        assert_eq!(find(page, &cell("x", &["3"], "b")).unwrap(), "4");
        assert!(find(page, &cell("x", &["5"], "b")).is_err());
        assert!(find(page, &cell("x", &["3"], "c")).is_err());
        assert!(find(page, &cell("y", &["3"], "b")).is_err());
    }
}
