//! The loops for x86 processors with vectors of 32 bytes (AVX2).
//!
//! A vector is doubled by an addition, and each top bit that falls out comes back as the rest of the polynomial. To multiply by a constant,
//! each half of a byte is looked up in a table of 16 products, by the instruction that shuffles the bytes of a vector; the product of the
//! byte is the sum of both.
//!
//! A compiler that optimises for size does not vectorise a loop over bytes. So all of this names its instructions.

use std::arch::x86_64::{
    __m128i, __m256i, _mm256_add_epi8, _mm256_and_si256, _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8,
    _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi16, _mm256_xor_si256,
};

use zerocopy::{transmute, transmute_ref};

use super::field::{REST, double};
use super::plain;

/// Vectors of each column in one step: their chains of instructions do not wait for each other.
const VECTORS: usize = 2;
const STEP: usize = VECTORS * size_of::<__m256i>();
/// Vectors in a step for P, and for P and Q: as many as keep the vectors of both in registers.
const PARITY_VECTORS: usize = 4;
const PARITY_STEP: usize = PARITY_VECTORS * size_of::<__m256i>();

/// The products of a factor with 0 to 15, and with 16 times these.
type Products = [[u8; 16]; 2];

fn products(factor: u8) -> Products {
    let mut products = [[0; 16]; 2];
    let mut first = factor;
    for half in &mut products {
        for value in 1..16 {
            half[value] = double(half[value / 2]) ^ if value % 2 == 1 { first } else { 0 };
        }
        first = double(half[8]);
    }
    products
}

/// `PARITY_STEP` bytes of `column` from `at` on.
#[inline]
#[target_feature(enable = "avx2")]
fn vectors(column: &[u8], at: usize) -> [__m256i; PARITY_VECTORS] {
    transmute!(*plain::bytes::<PARITY_STEP>(column, at))
}

/// Writes a step of parity.
#[inline]
#[target_feature(enable = "avx2")]
fn write(sum: &[__m256i; PARITY_VECTORS], out: &mut [u8], at: usize) {
    let bytes: &[u8; PARITY_STEP] = transmute_ref!(sum);
    out[at..at + PARITY_STEP].copy_from_slice(bytes);
}

/// P of `data`.
#[target_feature(enable = "avx2")]
pub(super) fn p(data: &[&[u8]], p: &mut [u8]) {
    let mut at = 0;
    while at + PARITY_STEP <= p.len() {
        let mut sum = [_mm256_setzero_si256(); PARITY_VECTORS];
        for column in data {
            let column = vectors(column, at);
            for (sum, bytes) in sum.iter_mut().zip(column) {
                *sum = _mm256_xor_si256(*sum, bytes);
            }
        }
        write(&sum, p, at);
        at += PARITY_STEP;
    }
    plain::rest_of_p(data, p, at);
}

/// P and Q of `data`: Q by Horner's rule, from the last column to the first.
#[target_feature(enable = "avx2")]
pub(super) fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let (zero, rest) = (_mm256_setzero_si256(), _mm256_set1_epi8(REST.cast_signed()));
    let (last, before) = data.split_last().expect("a row has a data column");
    let mut at = 0;
    while at + PARITY_STEP <= p.len() {
        let mut sum = vectors(last, at);
        let mut weighted = sum;
        for column in before.iter().rev() {
            let column = vectors(column, at);
            for ((sum, weighted), bytes) in sum.iter_mut().zip(&mut weighted).zip(column) {
                *sum = _mm256_xor_si256(*sum, bytes);
                // A byte whose top bit falls out is less than zero.
                let fallen = _mm256_and_si256(_mm256_cmpgt_epi8(zero, *weighted), rest);
                let doubled = _mm256_xor_si256(_mm256_add_epi8(*weighted, *weighted), fallen);
                *weighted = _mm256_xor_si256(doubled, bytes);
            }
        }
        write(&sum, p, at);
        write(&weighted, q, at);
        at += PARITY_STEP;
    }
    plain::rest_of_pq(data, p, q, at);
}

/// The sum of `sources`, each times its factor.
#[target_feature(enable = "avx2")]
pub(super) fn sum(sources: &[&[u8]], factors: &[u8], out: &mut [u8]) {
    match factors.iter().all(|factor| *factor == 1) {
        true => p(sources, out),
        false => sums(sources, [factors], [out]),
    }
}

/// Two sums of the same `sources`.
#[target_feature(enable = "avx2")]
pub(super) fn two_sums(sources: &[&[u8]], factors: [&[u8]; 2], out: [&mut [u8]; 2]) {
    sums(sources, factors, out);
}

#[target_feature(enable = "avx2")]
fn sums<const R: usize>(sources: &[&[u8]], factors: [&[u8]; R], out: [&mut [u8]; R]) {
    let tables: Vec<[Products; R]> =
        (0..sources.len()).map(|index| factors.map(|factors| products(factors[index]))).collect();
    let low = _mm256_set1_epi8(15);
    let mut at = 0;
    while at + STEP <= out[0].len() {
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; R];
        for (column, tables) in sources.iter().zip(&tables) {
            let column: [__m256i; VECTORS] = transmute!(*plain::bytes::<STEP>(column, at));
            let halves = column
                .map(|byte| [byte, _mm256_srli_epi16::<4>(byte)].map(|half| _mm256_and_si256(half, low)));
            for (sums, products) in sums.iter_mut().zip(tables) {
                let products: [__m128i; 2] = transmute!(*products);
                let products = products.map(|half| _mm256_broadcastsi128_si256(half));
                for (sum, halves) in sums.iter_mut().zip(halves) {
                    let [first, second] =
                        [0, 1].map(|half| _mm256_shuffle_epi8(products[half], halves[half]));
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(first, second));
                }
            }
        }
        for row in 0..R {
            let bytes: &[u8; STEP] = transmute_ref!(&sums[row]);
            out[row][at..at + STEP].copy_from_slice(bytes);
        }
        at += STEP;
    }
    for (factors, out) in factors.into_iter().zip(out) {
        plain::rest_of_sum(sources, factors, out, at);
    }
}
