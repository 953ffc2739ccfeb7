//! All loops that this processor can run, beside an oracle that computes byte by byte with tables of logarithms.

use super::kernels::{self, Kernels};
use super::*;

const COUNTS: [usize; 4] = [17, 64, 200, 255];
const LENGTHS: [usize; 10] = [0, 1, 31, 32, 33, 63, 64, 65, 4096, 65536];

/// GF(2^8) by logarithms, without any code under test.
struct Oracle {
    log: [usize; 256],
    power: [u8; 255],
}

impl Oracle {
    fn new() -> Self {
        let (mut log, mut power, mut value) = ([0; 256], [0; 255], 1_usize);
        for (exponent, power) in power.iter_mut().enumerate() {
            *power = value as u8;
            log[value] = exponent;
            value *= 2;
            value = if value >= 256 { value ^ 0x11d } else { value };
        }
        Self { log, power }
    }

    fn product(&self, a: u8, b: u8) -> u8 {
        match (a, b) {
            (0, _) | (_, 0) => 0,
            _ => self.power[(self.log[usize::from(a)] + self.log[usize::from(b)]) % 255],
        }
    }

    /// The columns of a row of RAID6 with these data columns.
    fn row(&self, mut columns: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let (mut p, mut q) = (vec![0; columns[0].len()], vec![0; columns[0].len()]);
        for (column, factor) in columns.iter().zip(self.power) {
            for ((p, q), byte) in p.iter_mut().zip(&mut q).zip(column) {
                *p ^= byte;
                *q ^= self.product(factor, *byte);
            }
        }
        columns.extend([p, q]);
        columns
    }
}

fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mixed = |at: usize| ((seed << 20) as u64 + at as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len)
        .map(|at| ((mixed(at) ^ mixed(at) >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 56) as u8)
        .collect()
}

/// A row with its parity, by the oracle.
fn row_of(data_columns: usize, len: usize) -> Vec<Vec<u8>> {
    Oracle::new().row((0..data_columns).map(|column| noise(column, len)).collect())
}

fn slices(columns: &[Vec<u8>]) -> Vec<&[u8]> {
    columns.iter().map(Vec::as_slice).collect()
}

fn row6(data_columns: usize) -> Row {
    Row::new(data_columns, Parity::PAndQ).expect("1 to 255")
}

/// Runs `recovery` by `kernels` on the columns of `full`, and checks the wanted column.
fn comes_out(kernels: &Kernels, full: &[Vec<u8>], recovery: &Recovery) {
    let sources: Vec<&[u8]> = recovery.sources().map(|column| &full[column][..]).collect();
    let wanted = &full[recovery.wanted()];
    let mut out = vec![0xee; wanted.len()];
    recovery.run_by(kernels, &sources, &mut out);
    assert!(out == *wanted, "{recovery:?} of {} bytes by {kernels:?}", out.len());
}

/// All pairs of columns of a row of RAID6: one wanted, and one that is lost with it.
fn pairs(data_columns: usize) -> impl Iterator<Item = (usize, usize)> {
    let columns = data_columns + 2;
    (0..columns).flat_map(move |wanted| (0..columns).map(move |lost| (wanted, lost)))
}

#[test]
fn p_and_q_are_the_sums_that_the_oracle_makes() {
    for data_columns in (1..=16).chain(COUNTS) {
        for len in LENGTHS.into_iter().filter(|len| data_columns < 9 || *len <= 4096) {
            let full = row_of(data_columns, len);
            let data = slices(&full[..data_columns]);
            let (want_p, want_q) = (&full[data_columns], &full[data_columns + 1]);
            for kernels in kernels::all() {
                let (mut only_p, mut p, mut q) = (vec![1; len], vec![2; len], vec![3; len]);
                kernels.p(&data, &mut only_p);
                kernels.pq(&data, &mut p, &mut q);
                assert!(only_p == *want_p, "P of {data_columns} columns, {len} bytes by {kernels:?}");
                assert!(p == *want_p && q == *want_q, "{data_columns} columns, {len} bytes by {kernels:?}");
            }
        }
    }
}

#[test]
fn any_two_lost_columns_of_few_come_out() {
    for data_columns in 1..=16 {
        let rows: Vec<_> = LENGTHS[..9].iter().map(|len| row_of(data_columns, *len)).collect();
        for (wanted, lost) in pairs(data_columns) {
            let recovery = row6(data_columns).recover(wanted, &[lost]).expect("two are lost");
            assert_eq!(recovery.sources().count(), data_columns);
            assert!(recovery.sources().all(|source| source != wanted && source != lost));
            for (row, kernels) in
                rows.iter().flat_map(|row| kernels::all().into_iter().map(move |k| (row, k)))
            {
                comes_out(kernels, row, &recovery);
            }
        }
    }
}

#[test]
fn any_two_lost_columns_of_many_come_out() {
    for data_columns in COUNTS {
        let full = row_of(data_columns, 129);
        let some = |column: usize| {
            column < 3
                || column + 4 > data_columns
                || column.is_multiple_of(if data_columns < 65 { 7 } else { 41 })
        };
        for (wanted, lost) in pairs(data_columns).filter(|(wanted, lost)| some(*wanted) && some(*lost)) {
            let recovery = row6(data_columns).recover(wanted, &[lost]).expect("two are lost");
            kernels::all().into_iter().for_each(|kernels| comes_out(kernels, &full, &recovery));
        }
    }
}

#[test]
fn lost_columns_of_each_length_come_out() {
    for (data_columns, len) in [1, 2, 3, 4, 5, 9].into_iter().flat_map(|n| LENGTHS.map(|len| (n, len))) {
        let full = row_of(data_columns, len);
        let (p, q) = (data_columns, data_columns + 1);
        for (wanted, lost) in [(0, p), (0, q), (p, 0), (q, 0), (p, q), (q, p), (data_columns - 1, 0)] {
            let recovery = row6(data_columns).recover(wanted, &[lost]).expect("two are lost");
            kernels::all().into_iter().for_each(|kernels| comes_out(kernels, &full, &recovery));
        }
    }
}

#[test]
fn two_columns_come_out_at_once() {
    for data_columns in 1..=9 {
        let full = row_of(data_columns, 321);
        for (first, second) in pairs(data_columns).filter(|(first, second)| first != second) {
            let row = row6(data_columns);
            let plans = [row.recover(first, &[second]), row.recover(second, &[first])];
            let [first_plan, second_plan] = plans.map(|plan| plan.expect("two are lost"));
            let sources: Vec<&[u8]> = first_plan.sources().map(|column| &full[column][..]).collect();
            for kernels in kernels::all() {
                let mut out = [vec![1; 321], vec![2; 321]];
                let [first_out, second_out] = &mut out;
                first_plan.run_both_by(kernels, &second_plan, &sources, first_out, second_out);
                assert!(out == [full[first].clone(), full[second].clone()], "{first_plan:?} by {kernels:?}");
            }
        }
    }
}

#[test]
fn columns_need_no_alignment() {
    for shift in 0..33 {
        let wide = row_of(5, 300);
        let full: Vec<&[u8]> =
            wide.iter().enumerate().map(|(at, column)| &column[shift + at..][..250]).collect();
        // Each column begins elsewhere, so parity is computed again.
        let anew = Oracle::new().row(full[..5].iter().map(|column| column.to_vec()).collect());
        for kernels in kernels::all() {
            let (mut p, mut q) = (vec![0; 300], vec![0; 300]);
            let (p, q) = (&mut p[shift..][..250], &mut q[33 - shift..][..250]);
            kernels.pq(&full[..5], p, q);
            assert!(*p == *anew[5] && *q == *anew[6], "shifted by {shift}, by {kernels:?}");
            let recovery = row6(5).recover(1, &[3]).expect("two are lost");
            let sources: [&[u8]; 5] = [full[0], full[2], full[4], p, q];
            let mut out = vec![0; 300];
            recovery.run_by(kernels, &sources, &mut out[shift..][..250]);
            assert!(out[shift..][..250] == *full[1], "shifted by {shift}, by {kernels:?}");
        }
    }
}

#[test]
fn a_single_lost_data_column_comes_out_of_p_and_raid5_has_nothing_else() {
    for parity in [Parity::P, Parity::PAndQ] {
        for data_columns in [1, 2, 255] {
            let row = Row::new(data_columns, parity).expect("1 to 255");
            let recovery = row.recover(0, &[]).expect("one is lost");
            assert!(recovery.sources().eq(1..=row.p()));
            let written = row.recover(row.p(), &[row.p()]).expect("one is lost");
            assert!(written.sources().eq(0..row.p()));
        }
    }
    let row = Row::new(2, Parity::P).expect("1 to 255");
    assert_eq!(row.recover(0, &[1]), Err(TooManyLost { lost: 2, parity: Parity::P }));
    let full = row_of(2, 70);
    let recovery = row.recover(1, &[1, 1]).expect("one is lost");
    kernels::all().into_iter().for_each(|kernels| comes_out(kernels, &full, &recovery));
}

#[test]
fn of_three_lost_columns_none_comes_out() {
    for wanted in 0..5 {
        let lost = [(wanted + 1) % 5, (wanted + 3) % 5];
        let error = row6(3).recover(wanted, &lost).expect_err("three are lost");
        assert_eq!(error.to_string(), "3 columns of a RAID6 row are lost, parity recovers 2");
    }
}

#[test]
fn parity_of_one_data_column_equals_it() {
    let full = row_of(1, 40);
    assert!(full[1] == full[0] && full[2] == full[0]);
    assert_eq!(Row::new(0, Parity::P), None);
}

#[test]
fn another_implementation_makes_the_same_bytes() {
    for data_columns in 2..=20 {
        let columns: Vec<Vec<u8>> = (0..data_columns).map(|column| noise(column, 1000)).collect();
        let data = slices(&columns);
        let (mut ours, mut theirs) = ([vec![0; 1000], vec![0; 1000]], [vec![1; 1000], vec![1; 1000]]);
        let ([our_p, our_q], [their_p, their_q]) = (&mut ours, &mut theirs);
        pq(&data, our_p, our_q);
        rusty_erasure::raid::pq_gen(&data, their_p, their_q).expect("equal lengths");
        assert!(ours == theirs, "{data_columns} columns");
    }
}

/// 64 bytes of each column of a row of a filesystem that Linux 6.18 wrote on six devices (RAID6), data that `random` made: four data
/// columns, P, Q.
const OF_LINUX: [&str; 6] = [
    "ddf01344f2e104b7028a294f2e52865861fb6a63ac9c4b67ce8edc974c762db4\
     bcba4adaed1c34d5e68ca2b7d765f013c49aa2bdb04c661d363f6e483b0e3fcd",
    "7b4b16cb6cdf3c35015b22812d7f4bd9fed378f3acb33db1353555b8613bade0\
     a8948d6ea7a632defabf98e90a7c86cc83796862403436b6548d423b8a74fdc3",
    "e9ed3366d42c29c95569a2b5fc4f1520a28617604cab60c8504b57f2960f1be2\
     8ef9c7d98fa5f35440502072046784509eb813d10fd5c84a522a749b89bad2f9",
    "011f08bfa56b06b192cec0a7bb5f04fca486aead8408e1274c802ff32012ab18\
     9d904fdda1e9b4c555a51f836ae15d1f8b66e6453dbc28781fbc9b44714b5222",
    "4e493e56ef7917fac47669dc443ddc5d9928ab5dc88cf739e770f12e9b5030ae\
     07474fb064f6419a09c605afb39faf90523d3f4bc211b0992f24c3ac498b42d5",
    "a00db3db1c8de83fadbb91ef124f64c47b26df049031f73aa3a152def1ac3706\
     6fb834e3d9f8725f80f3f7c1a4471933b1a55d08f9de50be33198b7283561d98",
];

#[test]
fn parity_is_what_linux_wrote() {
    let byte = |hex: &[u8]| u8::from_str_radix(str::from_utf8(hex).expect("digits"), 16).expect("digits");
    let full: Vec<Vec<u8>> = OF_LINUX.map(|hex| hex.as_bytes().chunks(2).map(byte).collect()).to_vec();
    assert!(full.iter().all(|column| column.len() == 64));
    let (mut only_p, mut p, mut q) = ([0; 64], [0; 64], [0; 64]);
    let data = slices(&full[..4]);
    super::p(&data, &mut only_p);
    pq(&data, &mut p, &mut q);
    assert_eq!(only_p, *full[4]);
    assert_eq!(p, *full[4]);
    assert_eq!(q, *full[5]);
    for (wanted, lost) in pairs(4) {
        let recovery = row6(4).recover(wanted, &[lost]).expect("two are lost");
        comes_out(kernels::best(), &full, &recovery);
    }
}
