//! Tables in the form of btrfs-progs: lines of heading, a rule, rows, and possibly a rule before the last of them.

use std::io::{self, Write};
use std::path::Path;

use crate::output::Output;

/// A column: its heading, one text for each line of it, its cells, and their alignment.
pub(crate) struct Column {
    pub(crate) heads: Vec<String>,
    pub(crate) cells: Vec<String>,
    pub(crate) is_text: bool,
}

impl Column {
    fn width(&self) -> usize {
        self.heads.iter().chain(&self.cells).map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn cell(&self, row: usize) -> String {
        let (cell, width) = (self.cells.get(row).map_or("", |cell| cell), self.width());
        if self.is_text { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
    }
}

/// Prints a table, with a second rule before the row `ruled` if there is one.
pub(crate) fn print(out: &mut Output, columns: &[Column], ruled: Option<usize>) -> io::Result<()> {
    let most = |len: fn(&Column) -> usize| columns.iter().map(len).max().unwrap_or(0);
    for line in 0..most(|column| column.heads.len()) {
        let head = |column: &Column| column.heads.get(line).cloned().unwrap_or_default();
        row(out, columns.iter().map(|column| format!("{:<1$}", head(column), column.width())))?;
    }
    let rule = |out: &mut Output| row(out, columns.iter().map(|column| "-".repeat(column.width())));
    rule(out)?;
    for line in 0..most(|column| column.cells.len()) {
        if Some(line) == ruled {
            rule(out)?;
        }
        row(out, columns.iter().map(|column| column.cell(line)))?;
    }
    Ok(())
}

fn row(out: &mut Output, cells: impl Iterator<Item = String>) -> io::Result<()> {
    for (number, cell) in cells.enumerate() {
        if number > 0 {
            out.write_all(b" ")?;
        }
        out.path(Path::new(&cell))?;
    }
    out.write_all(b"\n")
}
