//! The parity of RAID5 and RAID6, as Linux writes it: P alone, or P and Q.
//!
//! A full stripe ("row") of a chunk has `n` data columns D_0 to D_n-1 of equal length, and a parity column or two. Byte by byte:
//!
//! ```text
//! P = D_0 + D_1 + D_2 + ...            + is XOR
//! Q = D_0 + 2 D_1 + 4 D_2 + ...        sum of 2^i D_i, in GF(2^8) with the polynomial 0x11d
//! ```
//!
//! [`p`] and [`pq`] compute them for a row that is written.
//!
//! Read as equations, both say that a sum is 0 (adding is subtracting), in which each column has a factor:
//!
//! | | D_i | P | Q |
//! |---|---|---|---|
//! | in the equation of P | 1 | 1 | 0 |
//! | in the equation of Q | 2^i | 0 | 1 |
//!
//! A lost column follows from any equation in which it has the factor 1. If a second one is lost, the two equations are mixed
//! so that it has the factor 0: with D_x and D_y lost, 2^y times the first and once the second leave D_y out, and give D_x the factor
//! 2^y + 2^x, to divide by. If nothing else is lost, Q is left out, which leaves the equation of P alone; Q itself is computed with P
//! left out. So there is one rule for all losses, and a [`Recovery`] is the resulting equation: the columns to read
//! ([`Recovery::sources`]), and the sum over them ([`Recovery::run`]).
//!
//! **PARITY-1** The factors of two columns are never in proportion, because 2^i and 2^j differ if i and j differ and are below 255. So the
//! wanted column keeps a factor when another one is left out, and each source has one: a row with `n` data columns is read
//! from `n` columns, and fewer are not enough.
//!
//! | file | content |
//! |---|---|
//! | `field` | GF(2^8): sums, products, inverses of single bytes |
//! | `recovery` | rows, and the equation for a lost column |
//! | `plain` | the loops over columns, for all processors |
//! | `avx2`, `gfni` | the loops for x86 with AVX2, and with GFNI as well |
//! | `kernels` | the choice between them |
//!
//! The example `parity` of this package shows the speed of all on the machine where it runs, beside `rusty_erasure`.

#[cfg(target_arch = "x86_64")]
mod avx2;
mod field;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod kernels;
mod plain;
mod recovery;
#[cfg(test)]
mod tests;

pub use recovery::{Parity, Recovery, Row, TooManyLost};

/// Writes the sum (XOR) of the columns of `data` to `p`: the parity of RAID5, and the first of RAID6.
///
/// ```
/// let mut p = [0; 2];
/// creamery_codec::parity::p(&[&[1, 2], &[3, 4], &[5, 6]], &mut p);
/// assert_eq!(p, [1 ^ 3 ^ 5, 2 ^ 4 ^ 6]);
/// ```
///
/// # Panics
/// If `data` has no column, or columns differ in length.
pub fn p(data: &[&[u8]], p: &mut [u8]) {
    assert!(!data.is_empty(), "a row has a data column");
    assert_equal_lengths(data, p.len());
    kernels::best().p(data, p);
}

/// Writes both parities of RAID6: the sum of the columns of `data` to `p`, and the sum of `2^i` times column `i` to `q`.
///
/// ```
/// let (mut p, mut q) = ([0; 2], [0; 2]);
/// creamery_codec::parity::pq(&[&[1, 2], &[3, 0x80]], &mut p, &mut q);
/// assert_eq!(p, [1 ^ 3, 2 ^ 0x80]);
/// assert_eq!(q, [1 ^ 6, 2 ^ 0x1d], "what falls out of the top bit comes back as 0x1d");
/// ```
///
/// # Panics
/// If `data` has no column or more than [`Row::DATA_COLUMNS_MAX`], or columns differ in length.
pub fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    assert!(!data.is_empty(), "a row has a data column");
    assert!(data.len() <= Row::DATA_COLUMNS_MAX, "Q tells no more columns apart");
    assert_eq!(p.len(), q.len(), "P and Q are equally long");
    assert_equal_lengths(data, p.len());
    kernels::best().pq(data, p, q);
}

fn assert_equal_lengths(columns: &[&[u8]], len: usize) {
    for (index, column) in columns.iter().enumerate() {
        assert_eq!(column.len(), len, "column {index} is as long as the parity");
    }
}
