//! The tables of `bench direct`: rates, and what they cost.

use super::backing::Kind;
use super::stage::{Data, SIDES, Side};
use super::taken::Taken;
use crate::measure::median;

/// What each side took in each run, in the order of `SIDES`.
pub(super) struct Row {
    kind: Kind,
    data: Data,
    pub(super) taken: [Vec<Taken>; SIDES.len()],
}

impl Row {
    pub(super) fn new(kind: Kind, data: Data) -> Self {
        Self { kind, data, taken: Default::default() }
    }

    fn middle(&self, side: Side, of: fn(&Taken) -> f64) -> Option<f64> {
        let taken = SIDES.iter().position(|one| *one == side).map(|index| &self.taken[index])?;
        let figures: Vec<f64> = taken.iter().map(of).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    fn rate(&self, side: Side) -> Option<f64> {
        self.middle(side, Taken::rate)
    }

    fn over(&self, side: Side, other: Side) -> Option<f64> {
        Some(self.rate(side)? / self.rate(other)?)
    }

    fn name(&self, kernel: &str) -> String {
        format!("{}, {}, {kernel}", self.kind.name(), self.data.name())
    }
}

pub(super) fn tables(rows: &[Row], kernel: &str) -> String {
    let mut text = String::from(
        "MiB a second, reads and writes together:\n\n| backing, files | library | kernel | library over kernel | bare | library over bare | kernel, fio | library over kernel's fio | mount, fio | mount over kernel, both fio | bare, fio |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let rate = |side| shown(row.rate(side), 0);
        let over = |side, other| shown(row.over(side, other), 2);
        let cells = [
            rate(Side::Library),
            rate(Side::Kernel),
            over(Side::Library, Side::Kernel),
            rate(Side::Bare),
            over(Side::Library, Side::Bare),
            rate(Side::KernelFio),
            over(Side::Library, Side::KernelFio),
            rate(Side::MountFio),
            over(Side::MountFio, Side::KernelFio),
            rate(Side::BareFio),
        ];
        text += &format!("| {} | {} |\n", row.name(kernel), cells.join(" | "));
    }
    let names = SIDES.map(Side::name).join(" | ");
    text +=
        &format!("\nCPU seconds for a GiB:\n\n| backing, files | {names} |\n|---|---|---|---|---|---|---|\n");
    for row in rows {
        let cells = SIDES.map(|side| shown(row.middle(side, Taken::cpu), 3));
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
    use super::super::stage::Data;
    use super::super::taken::Taken;
    use super::{Row, tables};

    #[test]
    fn a_row_has_the_medians_of_those_that_play_it() {
        let taken = |seconds: f64| Taken { bytes: f64::from(1 << 30), seconds, cpu_seconds: seconds / 2.0 };
        let mut row = Row::new(Kind::Memory, Data::Summed);
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
