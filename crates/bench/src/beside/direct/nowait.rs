//! Requests that must not wait: how many begin, and why the others do not.

use anyhow::Result;

use crate::library::Said;

/// Which requests.
#[derive(Clone, Copy)]
pub(super) struct NowaitRow {
    pub(super) name: &'static str,
    /// What `creamery-bench` is to do.
    pub(super) prepared: &'static str,
    pub(super) overlap: &'static str,
    /// In flight, of each thread.
    pub(super) depth: u64,
}

pub(super) const ROWS: [NowaitRow; 3] = [
    NowaitRow {
        name: "written before, no two overlap, 64 in flight",
        prepared: "written",
        overlap: "off",
        depth: 16,
    },
    NowaitRow {
        name: "space set aside, at random, 64 in flight",
        prepared: "allocated",
        overlap: "on",
        depth: 16,
    },
    NowaitRow {
        name: "space set aside, at random, 256 in flight",
        prepared: "allocated",
        overlap: "on",
        depth: 64,
    },
];

/// Counts that are no reasons.
const COUNTS: [&str; 3] = ["attempts", "begun", "blocked"];

/// What became of requests, of each backing and row.
#[derive(Default)]
pub(super) struct Table(Vec<Line>);

struct Line {
    backing: &'static str,
    row: &'static str,
    attempts: f64,
    begun: f64,
    /// Those that others are not refused for, by name.
    reasons: Vec<(String, f64)>,
}

impl Table {
    pub(super) fn add(&mut self, backing: &'static str, row: NowaitRow, said: &Said) -> Result<()> {
        let of = |name: &str| said.at(&["statistics", "nowait", name]);
        let mut reasons = Vec::new();
        for name in said.names(&["statistics", "nowait"]) {
            let count = of(&name)?;
            if count > 0.0 && !COUNTS.contains(&name.as_str()) {
                reasons.push((name, count));
            }
        }
        let (attempts, begun) = (of("attempts")?, of("begun")?);
        self.0.push(Line { backing, row: row.name, attempts, begun, reasons });
        Ok(())
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::from(
            "| backing | file and requests | asked for | began | refused |\n|---|---|---|---|---|\n",
        );
        for Line { backing, row, attempts, begun, reasons } in &self.0 {
            let share = |count: f64| format!("{:.2}", 100.0 * count / attempts);
            let reasons: Vec<_> = reasons
                .iter()
                .map(|(name, count)| format!("{} {}", name.replace('_', " "), share(*count)))
                .collect();
            text += &format!(
                "| {backing} | {row} | {attempts:.0} | {} | {} |\n",
                share(*begun),
                reasons.join(", ")
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, Table};

    #[test]
    fn a_reason_is_a_share_of_all_that_was_asked_for() {
        let reasons = vec![("range_busy".to_owned(), 5.0), ("several_extents".to_owned(), 15.0)];
        let line = Line { backing: "tmpfs", row: "all", attempts: 1000.0, begun: 980.0, reasons };
        let text = Table(vec![line]).text();
        assert!(
            text.ends_with("| tmpfs | all | 1000 | 98.00 | range busy 0.50, several extents 1.50 |\n"),
            "{text}"
        );
    }
}
