//! How fast this machine makes and uses parity, beside `rusty_erasure`: `cargo run --release -p creamery-codec --example parity`.
//!
//! Each figure is the median of rounds in which all methods take turns. The columns are in the processor's cache, and bytes are those of
//! all columns that are read.

use std::hint::black_box;
use std::time::Instant;

use creamery_codec::parity::{Parity, Recovery, Row, p, pq};
use rusty_erasure::{Coder, DecodePlan, Matrix, coder, raid};

const ROUNDS: usize = 21;
/// Bytes of a round.
const ROUND: usize = 8 << 20;
/// Data columns, and bytes of each.
const SHAPES: [(usize, usize); 4] = [(4, 65536), (8, 65536), (4, 4096), (8, 4096)];
const CASES: [&str; 5] = ["P", "P and Q", "1 from P", "1 from Q", "2 from P and Q"];

/// The computation of one case.
type Work<'a> = Box<dyn FnMut() + 'a>;

/// A row with its parity.
struct Full {
    columns: Vec<Vec<u8>>,
    row: Row,
    coder: Coder,
}

impl Full {
    fn new(data_columns: usize, len: usize) -> Self {
        let byte = |column: usize, at: usize| ((column * len + at) as u32).wrapping_mul(2_654_435_761) >> 24;
        let mut columns: Vec<Vec<u8>> =
            (0..data_columns).map(|column| (0..len).map(|at| byte(column, at) as u8).collect()).collect();
        let (mut first, mut second) = (vec![0; len], vec![0; len]);
        pq(&slices(&columns), &mut first, &mut second);
        columns.extend([first, second]);
        let row = Row::new(data_columns, Parity::PAndQ).expect("few columns");
        let matrix = Matrix::reed_solomon(data_columns, 2).expect("few columns");
        Self { columns, row, coder: coder(matrix).expect("a matrix with parity") }
    }

    fn data(&self) -> Vec<&[u8]> {
        slices(&self.columns[..self.row.data_columns()])
    }

    fn room(&self) -> Vec<u8> {
        vec![0; self.columns[0].len()]
    }

    /// Columns that are lost in each case of recovery.
    fn lost(&self, case: usize) -> Vec<usize> {
        match CASES[case] {
            "1 from P" => vec![0],
            "1 from Q" => vec![0, self.row.p()],
            _ => vec![0, 1],
        }
    }

    fn ours(&self, case: usize) -> Work<'_> {
        let (data, mut first, mut second) = (self.data(), self.room(), self.room());
        match CASES[case] {
            "P" => Box::new(move || p(black_box(&data), black_box(&mut first))),
            "P and Q" => {
                Box::new(move || pq(black_box(&data), black_box(&mut first), black_box(&mut second)))
            }
            _ => {
                let lost = self.lost(case);
                let wanted = lost.iter().filter(|column| **column < self.row.p());
                let plans: Vec<Recovery> =
                    wanted.map(|wanted| self.row.recover(*wanted, &lost).expect("two")).collect();
                let sources: Vec<&[u8]> =
                    plans[0].sources().map(|column| &self.columns[column][..]).collect();
                Box::new(move || match &plans[..] {
                    [plan, other] => {
                        plan.run_both(other, black_box(&sources), &mut first, black_box(&mut second))
                    }
                    _ => plans[0].run(black_box(&sources), black_box(&mut first)),
                })
            }
        }
    }

    fn theirs(&self, case: usize) -> Work<'_> {
        let (data, mut first, mut second) = (self.data(), self.room(), self.room());
        match CASES[case] {
            "P" => Box::new(move || raid::xor_gen(black_box(&data), black_box(&mut first)).expect("equal")),
            "P and Q" => Box::new(move || {
                raid::pq_gen(black_box(&data), black_box(&mut first), black_box(&mut second)).expect("equal");
            }),
            _ => {
                let lost = self.lost(case);
                let present: Vec<bool> =
                    (0..self.columns.len()).map(|column| !lost.contains(&column)).collect();
                let wanted: Vec<usize> =
                    lost.iter().copied().filter(|column| *column < self.row.p()).collect();
                let plan: DecodePlan = self.coder.decode_plan(&present, &wanted).expect("two");
                let given: Vec<Option<&[u8]>> = self
                    .columns
                    .iter()
                    .zip(present)
                    .map(|(column, there)| there.then_some(&column[..]))
                    .collect();
                Box::new(move || {
                    let mut out = [&mut first[..], &mut second[..]];
                    let out = &mut out[..wanted.len()];
                    self.coder.recover_with(&plan, black_box(&given), black_box(out)).expect("equal");
                })
            }
        }
    }
}

fn slices(columns: &[Vec<u8>]) -> Vec<&[u8]> {
    columns.iter().map(Vec::as_slice).collect()
}

/// Returns the rate in 10^9 bytes per second.
fn rate(bytes: usize, work: &mut Work<'_>) -> f64 {
    let times = (ROUND / bytes).max(1);
    let begun = Instant::now();
    (0..times).for_each(|_| work());
    (times * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e9
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

fn main() {
    println!("GB/s: ours, rusty_erasure, and how many times as fast ours is");
    print!("{:<16}", "");
    SHAPES.iter().for_each(|(columns, len)| print!(" {:>21}", format!("{columns} x {len}")));
    println!();
    let rows: Vec<Full> = SHAPES.iter().map(|(columns, len)| Full::new(*columns, *len)).collect();
    for (case, name) in CASES.iter().enumerate() {
        print!("{name:<16}");
        for row in &rows {
            let (mut ours, mut theirs) = (row.ours(case), row.theirs(case));
            let bytes = row.row.data_columns() * row.columns[0].len();
            let rates = (0..ROUNDS).map(|_| (rate(bytes, &mut ours), rate(bytes, &mut theirs)));
            let (ours, theirs): (Vec<f64>, Vec<f64>) = rates.unzip();
            let (ours, theirs) = (median(ours), median(theirs));
            print!(" {ours:>8.1} {theirs:>7.1} {:>4.2}", ours / theirs);
        }
        println!();
    }
}
