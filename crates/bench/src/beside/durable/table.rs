//! The table of these benches: rates, and times of each operation.

use super::stage::{DurableTaken, SideOptions, Who};
use crate::measure::median;

/// The runs of one way.
pub(super) struct DurableRow {
    pub(super) scene: &'static str,
    pub(super) way: &'static SideOptions,
    pub(super) taken: Vec<DurableTaken>,
}

impl DurableRow {
    fn middle(&self, of: fn(&DurableTaken) -> f64) -> f64 {
        median(&self.taken.iter().map(of).collect::<Vec<_>>())
    }
}

pub(super) fn table(rows: &[DurableRow]) -> String {
    let mut text = String::from(
        "| | way | writes a second | of the kernel's | median, us | 99 of 100 in, us | of the kernel's | CPU time of a write, us |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let kernel = rows.iter().find(|other| other.scene == row.scene && other.way.who == Who::Kernel);
        let over = |of: fn(&DurableTaken) -> f64| {
            kernel.map_or(f64::NAN, |kernel| row.middle(of) / kernel.middle(of))
        };
        text += &format!(
            "| {} | {} | {:.0} | {:.2} | {:.0} | {:.0} | {:.2} | {:.1} |\n",
            row.scene,
            row.way.name,
            row.middle(|taken| taken.rate),
            over(|taken| taken.rate),
            row.middle(|taken| taken.median),
            row.middle(|taken| taken.p99),
            over(|taken| taken.p99),
            row.middle(|taken| taken.cpu),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::stage::{SideOptions, Who};
    use super::{DurableRow, DurableTaken, table};

    #[test]
    fn each_way_stands_beside_the_kernel_of_its_scene() {
        const WAYS: [SideOptions; 2] =
            [SideOptions::new("library", Who::Library), SideOptions::new("kernel", Who::Kernel)];
        let row = |way: usize, rate: f64| {
            let taken = |rate: f64| DurableTaken { rate, median: 1e6 / rate, p99: 2e6 / rate, cpu: 5.0 };
            DurableRow { scene: "s", way: &WAYS[way], taken: [rate, 1e9, 1.0].map(taken).into() }
        };
        let text = table(&[row(0, 2e4), row(1, 1e4)]);
        let rows = "| s | library | 20000 | 2.00 | 50 | 100 | 0.50 | 5.0 |\n| s | kernel | 10000 | 1.00 | 100 | 200 | 1.00 | 5.0 |\n";
        assert!(text.ends_with(rows), "{text}");
    }
}
