//! The loops, in safe code without instructions of any processor.
//!
//! They take `N` bytes of all columns at a time and keep the sums in arrays, which the compiler keeps in vector registers.

use super::field::double;

/// Bytes of each column in one step.
const STEP: usize = 64;

/// P of `data`.
pub(super) fn p(data: &[&[u8]], p: &mut [u8]) {
    let done = p_from::<STEP>(data, p, 0);
    rest_of_p(data, p, done);
}

/// P and Q of `data`.
pub(super) fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let done = pq_from::<STEP>(data, p, q, 0);
    rest_of_pq(data, p, q, done);
}

/// The sum of `sources`, each times its factor.
pub(super) fn sum(sources: &[&[u8]], factors: &[u8], out: &mut [u8]) {
    let done = sum_from::<STEP>(sources, factors, out, 0);
    rest_of_sum(sources, factors, out, done);
}

/// Two sums of the same `sources`, computed one after the other: in the cache, reading does not dominate.
pub(super) fn two_sums(sources: &[&[u8]], factors: [&[u8]; 2], out: [&mut [u8]; 2]) {
    factors.into_iter().zip(out).for_each(|(factors, out)| sum(sources, factors, out));
}

/// P of `data` from the byte `from` on, for few bytes.
pub(super) fn rest_of_p(data: &[&[u8]], p: &mut [u8], from: usize) {
    p_from::<1>(data, p, from);
}

/// P and Q of `data` from the byte `from` on, for few bytes.
pub(super) fn rest_of_pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8], from: usize) {
    pq_from::<1>(data, p, q, from);
}

/// [`sum`] from the byte `from` on, for few bytes.
pub(super) fn rest_of_sum(sources: &[&[u8]], factors: &[u8], out: &mut [u8], from: usize) {
    sum_from::<1>(sources, factors, out, from);
}

/// `N` bytes of `column` from `at` on.
#[inline(always)]
pub(super) fn bytes<const N: usize>(column: &[u8], at: usize) -> &[u8; N] {
    column[at..at + N].first_chunk().expect("the slice has N bytes")
}

#[inline(always)]
fn add<const N: usize>(sum: &mut [u8; N], column: &[u8], at: usize) {
    sum.iter_mut().zip(bytes::<N>(column, at)).for_each(|(sum, byte)| *sum ^= byte);
}

/// P in steps of `N` bytes. Returns the first byte that was not reached, like the functions below.
#[inline(always)]
fn p_from<const N: usize>(data: &[&[u8]], p: &mut [u8], from: usize) -> usize {
    let mut at = from;
    for out in p[from..].chunks_exact_mut(N) {
        let mut sum = [0; N];
        data.iter().for_each(|column| add(&mut sum, column, at));
        out.copy_from_slice(&sum);
        at += N;
    }
    at
}

/// Q by Horner's rule: from the last column to the first, the sum is doubled before a column is added.
#[inline(always)]
fn pq_from<const N: usize>(data: &[&[u8]], p: &mut [u8], q: &mut [u8], from: usize) -> usize {
    let mut at = from;
    let (last, before) = data.split_last().expect("a row has a data column");
    for (p, q) in p[from..].chunks_exact_mut(N).zip(q[from..].chunks_exact_mut(N)) {
        let mut sum = *bytes::<N>(last, at);
        let mut weighted = sum;
        for column in before.iter().rev() {
            for ((sum, weighted), byte) in sum.iter_mut().zip(&mut weighted).zip(bytes::<N>(column, at)) {
                *sum ^= byte;
                *weighted = double(*weighted) ^ byte;
            }
        }
        p.copy_from_slice(&sum);
        q.copy_from_slice(&weighted);
        at += N;
    }
    at
}

/// Horner's rule over the bits of the factors, from the highest down: the sum is doubled, then the columns are added whose factor
/// has the bit. So there are at most seven doublings, however many columns there are, and none if all factors are 1.
#[inline(always)]
fn sum_from<const N: usize>(sources: &[&[u8]], factors: &[u8], out: &mut [u8], from: usize) -> usize {
    let mut at = from;
    let bits = 8 - factors.iter().fold(0, |all, factor| all | factor).leading_zeros();
    for out in out[from..].chunks_exact_mut(N) {
        let mut sum = [0; N];
        for bit in (0..bits).rev() {
            sum.iter_mut().for_each(|sum| *sum = double(*sum));
            for (column, factor) in sources.iter().zip(factors) {
                if factor >> bit & 1 == 1 {
                    add(&mut sum, column, at);
                }
            }
        }
        out.copy_from_slice(&sum);
        at += N;
    }
    at
}
