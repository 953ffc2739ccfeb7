//! The tables of `bench direct`: rates, and what they cost.

use super::backing::Kind;
use super::stage::{DataKind, DirectSide, SIDES};
use super::taken::DirectTaken;
use crate::measure::median;

/// What each side took in each run, in the order of `SIDES`.
pub(super) struct DirectRow {
    kind: Kind,
    data: DataKind,
    pub(super) taken: [Vec<DirectTaken>; SIDES.len()],
}

impl DirectRow {
    pub(super) fn new(kind: Kind, data: DataKind) -> Self {
        Self { kind, data, taken: Default::default() }
    }

    fn middle(&self, side: DirectSide, of: fn(&DirectTaken) -> f64) -> Option<f64> {
        let taken = SIDES.iter().position(|one| *one == side).map(|index| &self.taken[index])?;
        let figures: Vec<f64> = taken.iter().map(of).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    fn rate(&self, side: DirectSide) -> Option<f64> {
        self.middle(side, DirectTaken::rate)
    }

    fn over(&self, side: DirectSide, other: DirectSide) -> Option<f64> {
        Some(self.rate(side)? / self.rate(other)?)
    }

    fn name(&self, kernel: &str) -> String {
        format!("{}, {}, {kernel}", self.kind.name(), self.data.name())
    }
}

pub(super) fn tables(rows: &[DirectRow], kernel: &str) -> String {
    let mut text = String::from(
        "MiB a second, reads and writes together:\n\n| backing, files | library | kernel | library over kernel | bare | library over bare | kernel, fio | library over kernel's fio | mount, fio | mount over kernel, both fio | bare, fio |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let rate = |side| shown(row.rate(side), 0);
        let over = |side, other| shown(row.over(side, other), 2);
        let cells = [
            rate(DirectSide::Library),
            rate(DirectSide::Kernel),
            over(DirectSide::Library, DirectSide::Kernel),
            rate(DirectSide::Bare),
            over(DirectSide::Library, DirectSide::Bare),
            rate(DirectSide::KernelFio),
            over(DirectSide::Library, DirectSide::KernelFio),
            rate(DirectSide::MountFio),
            over(DirectSide::MountFio, DirectSide::KernelFio),
            rate(DirectSide::BareFio),
        ];
        text += &format!("| {} | {} |\n", row.name(kernel), cells.join(" | "));
    }
    let names = SIDES.map(DirectSide::name).join(" | ");
    text +=
        &format!("\nCPU seconds for a GiB:\n\n| backing, files | {names} |\n|---|---|---|---|---|---|---|\n");
    for row in rows {
        let cells = SIDES.map(|side| shown(row.middle(side, DirectTaken::cpu), 3));
        text += &format!("| {} | {} |\n", row.name(kernel), cells.join(" | "));
    }
    text
}

fn shown(figure: Option<f64>, places: usize) -> String {
    figure.map_or(String::new(), |figure| format!("{figure:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::super::backing::Kind;
    use super::super::stage::DataKind;
    use super::super::taken::DirectTaken;
    use super::{DirectRow, tables};

    #[test]
    fn a_row_has_the_medians_of_those_that_play_it() {
        let taken =
            |seconds: f64| DirectTaken { bytes: f64::from(1 << 30), seconds, cpu_seconds: seconds / 2.0 };
        let mut row = DirectRow::new(Kind::Memory, DataKind::Summed);
        row.taken = [vec![1.0, 9.0, 2.0], vec![4.0], vec![], vec![8.0], vec![16.0], vec![]]
            .map(|seconds| seconds.into_iter().map(taken).collect());
        let text = tables(&[row], "Linux 7.0");
        for line in [
            "| tmpfs, checksums, Linux 7.0 | 512 | 256 | 2.00 |  |  | 128 | 4.00 | 64 | 0.50 |  |\n",
            "| tmpfs, checksums, Linux 7.0 | 1.000 | 2.000 |  | 4.000 | 8.000 |  |\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
