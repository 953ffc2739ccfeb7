//! The tables of `bench data`: rates, and what they cost.

use super::scenes::{DataScene, DataStep, DataWorkload};
use super::stage::{DataSide, SIDES, StepTaken};
use crate::measure::median;

/// One step: what each side took in each run, in the order of `SIDES`.
pub(super) struct StepRow {
    pub(super) scene: &'static str,
    pub(super) step: &'static DataStep,
    pub(super) taken: [Vec<StepTaken>; SIDES.len()],
}

impl StepRow {
    pub(super) fn of(scene: &'static DataScene) -> impl Iterator<Item = Self> {
        scene.steps.iter().map(|step| Self { scene: scene.name, step, taken: Default::default() })
    }

    /// What is counted by the second, and how much of it one operation is.
    fn unit(&self) -> (&'static str, f64) {
        match self.step.work {
            DataWorkload::Data(data) if data.sync_every == 1 => ("fsyncs", 1.0),
            DataWorkload::Data(data) => ("MiB", data.piece as f64 / f64::from(1 << 20)),
            DataWorkload::Tree(_) => ("files", 1.0),
        }
    }

    /// What the medium run of a side made by the second; none when the side does not play this.
    pub(super) fn rate(&self, side: DataSide) -> Option<f64> {
        let (_, each) = self.unit();
        self.middle(side, |taken| each * taken.operations / taken.seconds)
    }

    /// CPU time for an operation, in microseconds.
    fn cpu_micros(&self, side: DataSide) -> Option<f64> {
        self.middle(side, |taken| taken.cpu_seconds * 1e6 / taken.operations)
    }

    fn middle(&self, side: DataSide, of: impl Fn(&StepTaken) -> f64) -> Option<f64> {
        let taken = SIDES.iter().position(|one| *one == side).map(|index| &self.taken[index])?;
        let figures: Vec<f64> = taken.iter().map(of).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    /// How many times what `other` makes `side` makes.
    pub(super) fn over(&self, side: DataSide, other: DataSide) -> Option<f64> {
        Some(self.rate(side)? / self.rate(other)?)
    }
}

pub(super) fn tables(rows: &[StepRow]) -> String {
    let mut text = String::from(
        "| work | a second | library | kernel | library over kernel | mount | mount over kernel | null server | mount over null server |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let rate = |side| shown(row.rate(side), 0);
        let over = |side, other| shown(row.over(side, other), 2);
        text += &format!(
            "| {}: {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
            row.scene,
            row.step.name,
            row.unit().0,
            rate(DataSide::Library),
            rate(DataSide::Kernel),
            over(DataSide::Library, DataSide::Kernel),
            rate(DataSide::Mount),
            over(DataSide::Mount, DataSide::Kernel),
            rate(DataSide::Null),
            over(DataSide::Mount, DataSide::Null),
        );
    }
    text += "\nCPU time for each piece or file, in microseconds:\n\n| work | library | kernel | mount | null server |\n|---|---|---|---|---|\n";
    for row in rows {
        let [library, kernel, mount, null] = SIDES.map(|side| shown(row.cpu_micros(side), 1));
        text += &format!("| {}: {} | {library} | {kernel} | {mount} | {null} |\n", row.scene, row.step.name);
    }
    text
}

fn shown(figure: Option<f64>, places: usize) -> String {
    figure.map_or(String::new(), |figure| format!("{figure:.places$}"))
}

#[cfg(test)]
mod tests {
    use super::super::scenes::SCENES;
    use super::{StepRow, StepTaken, tables};

    #[test]
    fn a_row_has_the_medians_of_those_that_play_it() {
        let (first, tree) = (StepRow::of(&SCENES[0]).next(), StepRow::of(SCENES.last().unwrap()).next());
        let taken = |seconds: f64| StepTaken { operations: 25_600.0, seconds, cpu_seconds: seconds / 2.0 };
        let rows = [first, tree].map(|row| StepRow {
            taken: [vec![1.0, 9.0, 2.0], vec![4.0], vec![8.0], vec![]]
                .map(|seconds| seconds.into_iter().map(taken).collect()),
            ..row.unwrap()
        });
        let text = tables(&rows);
        for line in [
            "| 4 KiB pieces: written | MiB | 50 | 25 | 2.00 | 12 | 0.50 |  |  |\n",
            "| tree of files: copied in | files | 12800 | 6400 | 2.00 | 3200 | 0.50 |  |  |\n",
            "| 4 KiB pieces: written | 39.1 | 78.1 | 156.2 |  |\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
