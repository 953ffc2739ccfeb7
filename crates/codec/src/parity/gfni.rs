//! The loops for x86 processors that multiply a vector of bytes by a matrix of bits (GFNI).
//!
//! Multiplying by a constant is linear in the bits of the other factor, so it is a matrix of 8 by 8 bits, and one instruction does it
//! for 32 bytes. (The instruction of the same set that multiplies two vectors has another polynomial.) Bytes become vectors by
//! [`zerocopy::transmute!`], which is safe and becomes a load or a store.

use std::arch::x86_64::{
    __m256i, _mm256_gf2p8affine_epi64_epi8, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_xor_si256,
};

use zerocopy::{transmute, transmute_ref};

use super::field::double;
use super::{avx2, plain};

/// Vectors of each column in one step: their chains of instructions do not wait for each other.
const VECTORS: usize = 4;
const STEP: usize = VECTORS * size_of::<__m256i>();

/// So many sources leave a register to each matrix, if two sums are computed of two vectors at a time. That is half as fast again
/// where the columns come out of the second cache.
const FEW: usize = 4;
const FEW_VECTORS: usize = 2;
const FEW_STEP: usize = FEW_VECTORS * size_of::<__m256i>();

/// The matrix of each factor.
static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut factor = 0;
    while factor < 256 {
        matrices[factor] = matrix(factor as u8);
        factor += 1;
    }
    matrices
};

/// Returns the matrix of `factor`. Bit `bit` of the product is the parity of the bits that its row and the other factor have in common. Row
/// 0 is the highest byte, and belongs to bit 0.
const fn matrix(factor: u8) -> u64 {
    let (mut rows, mut column, mut product) = (0, 0, factor);
    while column < 8 {
        let mut bit = 0;
        while bit < 8 {
            rows |= ((product >> bit & 1) as u64) << (8 * (7 - bit) + column);
            bit += 1;
        }
        product = double(product);
        column += 1;
    }
    rows
}

/// The matrix of `factor`, for each eight bytes of a vector.
#[target_feature(enable = "avx2")]
fn matrices_of(factor: u8) -> __m256i {
    _mm256_set1_epi64x(MATRICES[usize::from(factor)] as i64)
}

/// Bytes of `column` from `at` on.
#[inline(always)]
fn vectors(column: &[u8], at: usize) -> [__m256i; VECTORS] {
    transmute!(*plain::bytes::<STEP>(column, at))
}

#[inline(always)]
fn put(vectors: [__m256i; VECTORS], out: &mut [u8]) {
    let bytes: &[u8; STEP] = transmute_ref!(&vectors);
    out.copy_from_slice(bytes);
}

/// P and Q of `data`.
#[target_feature(enable = "avx2,gfni")]
pub(super) fn pq(data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
    let two = matrices_of(2);
    let mut at = 0;
    let (last, before) = data.split_last().expect("a row has a data column");
    for (p, q) in p.chunks_exact_mut(STEP).zip(q.chunks_exact_mut(STEP)) {
        let mut sum = vectors(last, at);
        let mut weighted = sum;
        for column in before.iter().rev() {
            let column = vectors(column, at);
            for lane in 0..VECTORS {
                let doubled = _mm256_gf2p8affine_epi64_epi8::<0>(weighted[lane], two);
                sum[lane] = _mm256_xor_si256(sum[lane], column[lane]);
                weighted[lane] = _mm256_xor_si256(doubled, column[lane]);
            }
        }
        put(sum, p);
        put(weighted, q);
        at += STEP;
    }
    plain::rest_of_pq(data, p, q, at);
}

/// The sum of `sources`, each times its factor, for each of `R` columns.
#[target_feature(enable = "avx2,gfni")]
fn sums<const R: usize>(sources: &[&[u8]], factors: [&[u8]; R], mut out: [&mut [u8]; R]) {
    let outs = out.each_mut().map(|out| &mut **out);
    let done = match sources.len() {
        2 => sums_of_few::<2, R>(sources, factors, outs),
        3 => sums_of_few::<3, R>(sources, factors, outs),
        FEW => sums_of_few::<FEW, R>(sources, factors, outs),
        _ => sums_of_many(sources, factors, outs),
    };
    for (factors, out) in factors.into_iter().zip(out) {
        plain::rest_of_sum(sources, factors, out, done);
    }
}

/// Computes [`sums`] in whole steps, if there is a register for each matrix. Returns the first byte that was not reached, like the
/// function below.
#[target_feature(enable = "avx2,gfni")]
fn sums_of_few<const K: usize, const R: usize>(
    sources: &[&[u8]],
    factors: [&[u8]; R],
    out: [&mut [u8]; R],
) -> usize {
    let steps = out[0].len() / FEW_STEP;
    // Loops, because functions of the standard library that take closures are compiled without the features.
    let mut columns: [&[[u8; FEW_STEP]]; K] = [&[]; K];
    for (column, source) in columns.iter_mut().zip(sources) {
        *column = &source.as_chunks().0[..steps];
    }
    let out: [&mut [[u8; FEW_STEP]]; R] = out.map(|out| &mut out.as_chunks_mut().0[..steps]);
    let mut matrices = [[_mm256_setzero_si256(); K]; R];
    for (matrices, factors) in matrices.iter_mut().zip(factors) {
        for (matrix, factor) in matrices.iter_mut().zip(factors) {
            *matrix = matrices_of(*factor);
        }
    }
    for step in 0..steps {
        let mut sums = [[_mm256_setzero_si256(); FEW_VECTORS]; R];
        for source in 0..K {
            let column: [__m256i; FEW_VECTORS] = transmute!(columns[source][step]);
            for row in 0..R {
                for lane in 0..FEW_VECTORS {
                    let product = _mm256_gf2p8affine_epi64_epi8::<0>(column[lane], matrices[row][source]);
                    sums[row][lane] = _mm256_xor_si256(sums[row][lane], product);
                }
            }
        }
        for row in 0..R {
            out[row][step] = transmute!(sums[row]);
        }
    }
    steps * FEW_STEP
}

/// Computes [`sums`] in whole steps, of any number of sources.
#[target_feature(enable = "avx2,gfni")]
fn sums_of_many<const R: usize>(sources: &[&[u8]], factors: [&[u8]; R], out: [&mut [u8]; R]) -> usize {
    let steps = out[0].len() / STEP;
    for at in (0..steps).map(|step| step * STEP) {
        let mut sums = [[_mm256_setzero_si256(); VECTORS]; R];
        for (source, column) in sources.iter().enumerate() {
            let column = vectors(column, at);
            for row in 0..R {
                let matrices = matrices_of(factors[row][source]);
                for lane in 0..VECTORS {
                    let product = _mm256_gf2p8affine_epi64_epi8::<0>(column[lane], matrices);
                    sums[row][lane] = _mm256_xor_si256(sums[row][lane], product);
                }
            }
        }
        for row in 0..R {
            put(sums[row], &mut out[row][at..at + STEP]);
        }
    }
    steps * STEP
}

/// The sum of `sources`, each times its factor.
#[target_feature(enable = "avx2,gfni")]
pub(super) fn sum(sources: &[&[u8]], factors: &[u8], out: &mut [u8]) {
    match sources.len() > FEW && factors.iter().all(|factor| *factor == 1) {
        true => avx2::p(sources, out),
        false => sums(sources, [factors], [out]),
    }
}

/// Two sums of the same `sources`.
#[target_feature(enable = "avx2,gfni")]
pub(super) fn two_sums(sources: &[&[u8]], factors: [&[u8]; 2], out: [&mut [u8]; 2]) {
    sums(sources, factors, out);
}
