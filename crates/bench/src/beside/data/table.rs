//! The tables of `bench data`: rates, and what they cost.

use super::scenes::{Scene, Step, Work};
use super::stage::{SIDES, Side, Taken};
use crate::measure::median;

/// One step: what each side took in each run, in the order of `SIDES`.
pub(super) struct Row {
    pub(super) scene: &'static str,
    pub(super) step: &'static Step,
    pub(super) taken: [Vec<Taken>; SIDES.len()],
}

impl Row {
    pub(super) fn of(scene: &'static Scene) -> impl Iterator<Item = Self> {
        scene.steps.iter().map(|step| Self { scene: scene.name, step, taken: Default::default() })
    }

    /// What is counted by the second, and how much of it one operation is.
    fn unit(&self) -> (&'static str, f64) {
        match self.step.work {
            Work::Data(data) if data.sync_every == 1 => ("fsyncs", 1.0),
            Work::Data(data) => ("MiB", data.piece as f64 / f64::from(1 << 20)),
            Work::Tree(_) => ("files", 1.0),
        }
    }

    /// What the medium run of a side made by the second; none when the side does not play this.
    pub(super) fn rate(&self, side: Side) -> Option<f64> {
        let (_, each) = self.unit();
        self.middle(side, |taken| each * taken.operations / taken.seconds)
    }

    /// CPU time for an operation, in microseconds.
    fn cpu_micros(&self, side: Side) -> Option<f64> {
        self.middle(side, |taken| taken.cpu_seconds * 1e6 / taken.operations)
    }

    fn middle(&self, side: Side, of: impl Fn(&Taken) -> f64) -> Option<f64> {
        let taken = SIDES.iter().position(|one| *one == side).map(|index| &self.taken[index])?;
        let figures: Vec<f64> = taken.iter().map(of).collect();
        (!figures.is_empty()).then(|| median(&figures))
    }

    /// How many times what `other` makes `side` makes.
    pub(super) fn over(&self, side: Side, other: Side) -> Option<f64> {
        Some(self.rate(side)? / self.rate(other)?)
    }
}

pub(super) fn tables(rows: &[Row]) -> String {
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
            rate(Side::Library),
            rate(Side::Kernel),
            over(Side::Library, Side::Kernel),
            rate(Side::Mount),
            over(Side::Mount, Side::Kernel),
            rate(Side::Null),
            over(Side::Mount, Side::Null),
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
    use super::{Row, Taken, tables};

    #[test]
    fn a_row_has_the_medians_of_those_that_play_it() {
        let (first, tree) = (Row::of(&SCENES[0]).next(), Row::of(SCENES.last().unwrap()).next());
        let taken = |seconds: f64| Taken { operations: 25_600.0, seconds, cpu_seconds: seconds / 2.0 };
        let rows = [first, tree].map(|row| Row {
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
