//! The tables of `bench seek`: what a call costs, and what it costs beside the others.

use super::cold::{Walk, Walked};
use super::stage::{SIDES, STATES, ScanTaken, ScannedState, SeekSide};
use crate::measure::median;
use crate::report::mebibytes;

/// A file of one size in one state: what each side took in each run, in the order of `SIDES`.
pub(super) struct SeekRow {
    pub(super) bytes: u64,
    pub(super) state: ScannedState,
    pub(super) taken: [Vec<ScanTaken>; SIDES.len()],
}

/// Nanoseconds of a call in each run, with cursors and without.
pub(super) struct Firsts {
    pub(super) extents: u64,
    pub(super) nanos: [Vec<f64>; 2],
}

impl SeekRow {
    pub(super) fn new(bytes: u64, state: ScannedState) -> Self {
        Self { bytes, state, taken: Default::default() }
    }

    /// The median of one figure of a side's runs; none when the side does not play this.
    fn middle(&self, side: SeekSide, of: impl Fn(&ScanTaken) -> Option<f64>) -> Option<f64> {
        let taken = SIDES.iter().position(|one| *one == side).map(|index| &self.taken[index])?;
        let figures: Vec<f64> = taken.iter().filter_map(of).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    fn nanos(&self, side: SeekSide) -> Option<f64> {
        self.middle(side, |taken| Some(taken.seconds * 1e9 / taken.calls))
    }

    fn cpu_nanos(&self, side: SeekSide) -> Option<f64> {
        self.middle(side, |taken| Some(taken.cpu_seconds * 1e9 / taken.calls))
    }

    fn extent_nanos(&self, side: SeekSide) -> Option<f64> {
        self.middle(side, |taken| Some(taken.seconds * 1e9 / taken.extents))
    }

    fn reading_nanos(&self, side: SeekSide) -> Option<f64> {
        self.middle(side, |taken| Some(taken.reading_seconds? * 1e9 / taken.extents))
    }

    /// What stands before the kernel's figures of what is dirty: it is more when some was written back before the end.
    fn more(&self) -> &'static str {
        let kernel = SIDES.iter().position(|side| *side == SeekSide::Kernel).map(|index| &self.taken[index]);
        let ended = |taken: &ScanTaken| taken.is_delayed == Some(false);
        if self.state == ScannedState::Dirty && kernel.is_some_and(|taken| taken.iter().any(ended)) {
            "> "
        } else {
            ""
        }
    }

    fn name(&self) -> String {
        format!("{}, {}", self.state.name(), mebibytes(self.bytes))
    }
}

/// How many times as fast `ours` is as `theirs`.
fn over(theirs: Option<f64>, ours: Option<f64>) -> String {
    shown(theirs.zip(ours).map(|(theirs, ours)| theirs / ours), 2)
}

fn shown(figure: Option<f64>, places: usize) -> String {
    figure.map_or(String::new(), |figure| format!("{figure:.places$}"))
}

pub(super) fn tables(
    rows: &[SeekRow],
    copies: &[Vec<[f64; 3]>; 2],
    firsts: &[Firsts],
    cold: &[Walk],
) -> String {
    [calls(rows), extents(rows), copied(rows, copies), first(firsts), walked(cold)].join("\n")
}

fn calls(rows: &[SeekRow]) -> String {
    let mut text = String::from(
        "| ns a call | kernel | library | kernel over library | without cursors | kernel over that | mount | kernel over mount | null server | null server over mount |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let more = row.more();
        let [kernel, library, without, mount, null] = SIDES.map(|side| row.nanos(side));
        text += &format!(
            "| {} | {more}{} | {} | {more}{} | {} | {more}{} | {} | {more}{} | {} | {} |\n",
            row.name(),
            shown(kernel, 0),
            shown(library, 0),
            over(kernel, library),
            shown(without, 0),
            over(kernel, without),
            shown(mount, 0),
            over(kernel, mount),
            shown(null, 0),
            over(null, mount),
        );
    }
    text += "\n| CPU ns a call | kernel | library | kernel over library | without cursors | mount | null server |\n|---|---|---|---|---|---|---|\n";
    for row in rows {
        let more = row.more();
        let [kernel, library, without, mount, null] = SIDES.map(|side| row.cpu_nanos(side));
        text += &format!(
            "| {} | {more}{} | {} | {more}{} | {} | {} | {} |\n",
            row.name(),
            shown(kernel, 0),
            shown(library, 0),
            over(kernel, library),
            shown(without, 0),
            shown(mount, 0),
            shown(null, 0),
        );
    }
    text
}

/// Time for each extent, at all sizes.
fn extents(rows: &[SeekRow]) -> String {
    let mut sizes: Vec<u64> = rows.iter().map(|row| row.bytes).collect();
    sizes.dedup_by_key(|bytes| *bytes);
    let mut text = String::from("| ns an extent |");
    sizes.iter().for_each(|bytes| text += &format!(" {} |", mebibytes(*bytes)));
    text += &format!("\n|---|{}\n", "---|".repeat(sizes.len()));
    let mut line = |name: String, figures: Vec<Option<f64>>| {
        let figures: Vec<String> = figures.into_iter().map(|figure| shown(figure, 0)).collect();
        text += &format!("| {name} | {} |\n", figures.join(" | "));
    };
    for state in STATES {
        let of = |of: fn(&SeekRow, SeekSide) -> Option<f64>, side| -> Vec<Option<f64>> {
            rows.iter().filter(|row| row.state == state).map(|row| of(row, side)).collect()
        };
        for (side, name) in
            [(SeekSide::Library, "library"), (SeekSide::Kernel, "kernel"), (SeekSide::Mount, "mount")]
        {
            line(format!("{name}, {}", state.name()), of(SeekRow::extent_nanos, side));
            if state != ScannedState::Dirty {
                line(format!("{name}, {}, and reading it", state.name()), of(SeekRow::reading_nanos, side));
            }
        }
    }
    text
}

/// Copies of the first file.
fn copied(rows: &[SeekRow], copies: &[Vec<[f64; 3]>; 2]) -> String {
    let size = rows.first().map_or(String::new(), |row| mebibytes(row.bytes));
    let mut text =
        format!("| `cp` of {size} | kernel, ms | mount, ms | kernel over mount |\n|---|---|---|---|\n");
    for (at, state) in STATES.into_iter().enumerate() {
        let [kernel, mount] =
            copies.each_ref().map(|runs| median(&runs.iter().map(|run| run[at] * 1e3).collect::<Vec<_>>()));
        text += &format!("| {} | {kernel:.0} | {mount:.0} | {:.2} |\n", state.name(), kernel / mount);
    }
    text
}

fn first(firsts: &[Firsts]) -> String {
    let mut text =
        String::from("| the first data or hole, library | ns a call | without cursors |\n|---|---|---|\n");
    for Firsts { extents, nanos: [with, without] } in firsts {
        text += &format!(
            "| {extents} dirty extents behind it | {:.0} | {:.0} |\n",
            median(with),
            median(without)
        );
    }
    text
}

fn walked(cold: &[Walk]) -> String {
    let mut text = String::from(
        "| cold, library | a read takes, us | read ahead, ms | not, ms | not over ahead | issued | hit | wasted | hit of issued |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for Walk { name, micros, on, off } in cold {
        let middle =
            |runs: &[Walked], of: fn(&Walked) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
        let [with, without] = [on, off].map(|runs| middle(runs, |run| run.seconds * 1e3));
        let [issued, hit] = [middle(on, |run| run.issued), middle(on, |run| run.hit)];
        text += &format!(
            "| {name} | {micros} | {with:.1} | {without:.1} | {:.2} | {issued:.0} | {hit:.0} | {:.0} | {} |\n",
            without / with,
            middle(on, |run| run.wasted),
            shown((issued > 0.0).then_some(hit / issued), 2),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::cold::Walked;
    use super::*;

    #[test]
    fn a_row_has_the_medians_of_those_that_play_it() {
        let taken = |seconds: f64| ScanTaken {
            calls: 5.0,
            extents: 2.0,
            seconds,
            cpu_seconds: seconds / 2.0,
            reading_seconds: None,
            is_delayed: Some(false),
        };
        let seconds = [vec![9e-6, 1e-6, 4e-6], vec![1e-6], vec![2e-6], vec![], vec![5e-6]];
        let taken = seconds.map(|runs| runs.into_iter().map(taken).collect());
        let row = SeekRow { taken, ..SeekRow::new(128 << 20, ScannedState::Dirty) };
        let walked = |seconds| Walked { seconds, issued: 10.0, hit: 9.0, wasted: 1.0 };
        let (on, off) = (vec![walked(0.5)], vec![walked(1.0)]);
        let walk = Walk { name: "listed".to_owned(), micros: 100, on, off };
        let first = Firsts { extents: 7, nanos: [vec![3.0], vec![4.0]] };
        let copies = [vec![[0.3, 0.2, 0.1]], vec![[0.1, 0.1, 0.1]]];
        let text = tables(&[row], &copies, &[first], &[walk]);
        for line in [
            "| dirty, 128 MiB | > 800 | 200 | > 4.00 | 400 | > 2.00 |  | >  | 1000 |  |\n",
            "| dirty, 128 MiB | > 400 | 100 | > 4.00 | 200 |  | 500 |\n",
            "| ns an extent | 128 MiB |\n|---|---|\n| library, dirty | 500 |\n",
            "| dirty | 300 | 100 | 3.00 |\n",
            "| 7 dirty extents behind it | 3 | 4 |\n",
            "| listed | 100 | 500.0 | 1000.0 | 2.00 | 10 | 9 | 1 | 0.90 |\n",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
