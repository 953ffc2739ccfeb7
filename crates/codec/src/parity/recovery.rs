//! Rows, and the equation for a lost column.

use super::field::{ORDER, inverse, power, product};
use super::{assert_equal_lengths, kernels};

/// The parity columns of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Parity {
    /// P: RAID5.
    P,
    /// P and Q: RAID6.
    PAndQ,
}

impl Parity {
    /// Returns the number of parity columns, which is the number of columns of a row that may be lost.
    ///
    /// ```
    /// assert_eq!(creamery_codec::parity::Parity::PAndQ.columns(), 2);
    /// ```
    #[must_use]
    pub const fn columns(self) -> usize {
        match self {
            Self::P => 1,
            Self::PAndQ => 2,
        }
    }

    const fn raid(self) -> &'static str {
        match self {
            Self::P => "RAID5",
            Self::PAndQ => "RAID6",
        }
    }
}

/// The columns of a full stripe, numbered: the data columns from 0, then P, then Q.
///
/// ```
/// use creamery_codec::parity::{Parity, Row};
/// let row = Row::new(4, Parity::PAndQ).expect("RAID6 on six devices");
/// assert_eq!((row.data_columns(), row.p(), row.q()), (4, 4, Some(5)));
/// assert_eq!(Row::new(256, Parity::PAndQ), None, "Q tells 255 columns apart");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Row {
    data_columns: usize,
    parity: Parity,
}

impl Row {
    /// The largest number of data columns that Q tells apart.
    pub const DATA_COLUMNS_MAX: usize = ORDER;

    /// Creates a row with 1 to [`Row::DATA_COLUMNS_MAX`] data columns; `None` for other numbers.
    #[must_use]
    pub fn new(data_columns: usize, parity: Parity) -> Option<Self> {
        (1..=Self::DATA_COLUMNS_MAX).contains(&data_columns).then_some(Self { data_columns, parity })
    }

    /// Columns of data.
    #[must_use]
    pub const fn data_columns(self) -> usize {
        self.data_columns
    }

    /// Columns of data and parity.
    #[must_use]
    pub const fn columns(self) -> usize {
        self.data_columns + self.parity.columns()
    }

    /// The number of column P.
    #[must_use]
    pub const fn p(self) -> usize {
        self.data_columns
    }

    /// The number of column Q.
    #[must_use]
    pub const fn q(self) -> Option<usize> {
        match self.parity {
            Parity::P => None,
            Parity::PAndQ => Some(self.data_columns + 1),
        }
    }

    /// Plans how to compute column `wanted` from the others while those in `lost` cannot be read.
    ///
    /// `wanted` counts as lost, whether `lost` names it or not. P is preferred to Q if both are enough; a caller that distrusts P
    /// names it as lost.
    ///
    /// # Errors
    /// [`TooManyLost`] if more columns are lost than the row has columns of parity.
    ///
    /// # Panics
    /// If the row has no column with one of these numbers.
    pub fn recover(self, wanted: usize, lost: &[usize]) -> Result<Recovery, TooManyLost> {
        for column in lost.iter().chain([&wanted]) {
            assert!(*column < self.columns(), "column {column} of a row of {}", self.columns());
        }
        let named_before = |at: usize| lost[..at].contains(&lost[at]);
        let mut others = (0..lost.len()).filter(|at| lost[*at] != wanted && !named_before(*at));
        let other = others.next().map(|at| lost[at]);
        let lost = 1 + usize::from(other.is_some()) + others.count();
        if lost > self.parity.columns() {
            return Err(TooManyLost { lost, parity: self.parity });
        }
        let (p, q) = (self.p(), self.p() + 1);
        let without = other.unwrap_or(if wanted == q { p } else { q });
        Ok(self.solve(wanted, without))
    }

    /// Returns the equation in which column `wanted` has the factor 1, and column `without` the factor 0: of the equations of P and Q, each
    /// times the other's factor of `without`, and scaled. Q may be `without` if a row has none.
    fn solve(self, wanted: usize, without: usize) -> Recovery {
        assert_ne!(wanted, without);
        let (of_q, of_p) = self.factors_of(without);
        let mixed = |column| {
            let (in_p, in_q) = self.factors_of(column);
            product(of_p, in_p) ^ product(of_q, in_q)
        };
        // The factor of `without` is of_p * of_q twice, which is 0. No other is (PARITY-1).
        let scale = inverse(mixed(wanted));
        let sources = sources(self.data_columns, wanted, without);
        let factors = sources.map(|column| product(scale, mixed(column))).collect();
        Recovery { data_columns: self.data_columns, wanted, without, factors }
    }

    /// Returns the factor of a column in the equation of P, and in that of Q.
    fn factors_of(self, column: usize) -> (u8, u8) {
        match column {
            data if data < self.p() => (1, power(data)),
            p if p == self.p() => (1, 0),
            _ => (0, 1),
        }
    }
}

/// All columns but two, in the order of their numbers.
fn sources(data_columns: usize, wanted: usize, without: usize) -> impl Iterator<Item = usize> {
    (0..data_columns + 2).filter(move |column| *column != wanted && *column != without)
}

/// The plan to compute one column of a row from others: [`Row::recover`] creates it.
///
/// The plan is valid for all rows that lack the same columns, and for any part of them: plan once, read the same part of each source,
/// and run.
///
/// ```
/// use creamery_codec::parity::{Parity, Row, pq};
///
/// let data: [&[u8]; 3] = [b"one", b"two", b"six"];
/// let (mut p, mut q) = ([0; 3], [0; 3]);
/// pq(&data, &mut p, &mut q);
///
/// // Columns 0 and 2 are lost. Column 0 comes from column 1, P and Q.
/// let row = Row::new(3, Parity::PAndQ).expect("RAID6 on five devices");
/// let recovery = row.recover(0, &[0, 2])?;
/// assert!(recovery.sources().eq([1, row.p(), row.p() + 1]));
/// let mut lost = [0; 3];
/// recovery.run(&[data[1], &p, &q], &mut lost);
/// assert_eq!(&lost, b"one");
/// # Ok::<_, creamery_codec::parity::TooManyLost>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    data_columns: usize,
    wanted: usize,
    without: usize,
    /// One factor for each source, in their order.
    factors: Vec<u8>,
}

impl Recovery {
    /// Returns the column that the plan computes.
    #[must_use]
    pub const fn wanted(&self) -> usize {
        self.wanted
    }

    /// Returns the columns to read, in ascending order: as many as the row has data columns, because fewer are not enough.
    pub fn sources(&self) -> impl Iterator<Item = usize> + use<> {
        sources(self.data_columns, self.wanted, self.without)
    }

    /// Computes the wanted column from `sources`, the bytes of the columns that [`Recovery::sources`] names, in that order.
    ///
    /// # Panics
    /// If there are more or fewer sources than that, or columns differ in length.
    pub fn run(&self, sources: &[&[u8]], out: &mut [u8]) {
        assert_eq!(sources.len(), self.factors.len(), "one column for each source");
        assert_equal_lengths(sources, out.len());
        kernels::best().sum(sources, &self.factors, out);
    }

    /// Computes the columns of two plans at once: of this one to `out`, and of `other` to `other_out`. Both must read the same sources,
    /// like the two plans for two lost columns of a row.
    ///
    /// # Panics
    /// If the plans read different sources, there are more or fewer of them than that, or columns differ in length.
    pub fn run_both(&self, other: &Self, sources: &[&[u8]], out: &mut [u8], other_out: &mut [u8]) {
        let row_and_gone =
            |plan: &Self| (plan.data_columns, plan.wanted.min(plan.without), plan.wanted.max(plan.without));
        assert_eq!(row_and_gone(self), row_and_gone(other), "both plans read the same columns");
        assert_eq!(sources.len(), self.factors.len(), "one column for each source");
        assert_eq!(out.len(), other_out.len(), "both columns are equally long");
        assert_equal_lengths(sources, out.len());
        kernels::best().two_sums(sources, [&self.factors, &other.factors], [out, other_out]);
    }

    /// [`Recovery::run`] by other loops than the best.
    #[cfg(test)]
    pub(super) fn run_by(&self, kernels: &kernels::Kernels, sources: &[&[u8]], out: &mut [u8]) {
        kernels.sum(sources, &self.factors, out);
    }

    /// [`Recovery::run_both`] by other loops than the best.
    #[cfg(test)]
    pub(super) fn run_both_by(
        &self,
        kernels: &kernels::Kernels,
        other: &Self,
        sources: &[&[u8]],
        out: &mut [u8],
        other_out: &mut [u8],
    ) {
        kernels.two_sums(sources, [&self.factors, &other.factors], [out, other_out]);
    }
}

/// The error if more columns of a row are lost than its parity can replace.
///
/// ```
/// use creamery_codec::parity::{Parity, Row};
/// let row = Row::new(3, Parity::P).expect("RAID5 on four devices");
/// let error = row.recover(0, &[0, 2]).unwrap_err();
/// assert_eq!(error.to_string(), "2 columns of a RAID5 row are lost, parity recovers 1");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{lost} columns of a {} row are lost, parity recovers {}", .parity.raid(), .parity.columns())]
pub struct TooManyLost {
    /// Columns that are lost.
    pub lost: usize,
    /// The parity of the row.
    pub parity: Parity,
}
