//! The choice of the loops, by the instructions of the processor.
//!
//! **KERNEL-1** A [`Kernels`] is reachable only through [`best`], which asks the processor for its features first (and in tests through
//! `all`, which asks `best`). So the calls here are sound.
#![allow(
    unsafe_code,
    reason = "to call a function that wants features of the processor is unsafe; KERNEL-1 says why it is sound"
)]

use std::fmt;

use super::plain;
#[cfg(target_arch = "x86_64")]
use super::{avx2, gfni};

/// Data, and the output P.
type P = unsafe fn(&[&[u8]], &mut [u8]);
/// Data, and the outputs P and Q.
type PAndQ = unsafe fn(&[&[u8]], &mut [u8], &mut [u8]);
/// Sources, the factor of each, and the output for the sum.
type Sum = unsafe fn(&[&[u8]], &[u8], &mut [u8]);
/// [`Sum`] with the same sources, twice.
type TwoSums = unsafe fn(&[&[u8]], [&[u8]; 2], [&mut [u8]; 2]);

/// Loops that need the same features. All columns of a call have equal lengths: callers check.
pub(super) struct Kernels {
    name: &'static str,
    p: P,
    pq: PAndQ,
    sum: Sum,
    two_sums: TwoSums,
}

static PLAIN: Kernels =
    Kernels { name: "plain", p: plain::p, pq: plain::pq, sum: plain::sum, two_sums: plain::two_sums };

#[cfg(target_arch = "x86_64")]
static AVX2: Kernels =
    Kernels { name: "avx2", p: avx2::p, pq: avx2::pq, sum: avx2::sum, two_sums: avx2::two_sums };

#[cfg(target_arch = "x86_64")]
static GFNI: Kernels =
    Kernels { name: "gfni", p: avx2::p, pq: gfni::pq, sum: gfni::sum, two_sums: gfni::two_sums };

/// Returns the fastest loops.
pub(super) fn best() -> &'static Kernels {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return if is_x86_feature_detected!("gfni") { &GFNI } else { &AVX2 };
    }
    &PLAIN
}

/// Returns all loops that this processor can run: the best, and those that need fewer features.
#[cfg(test)]
pub(super) fn all() -> Vec<&'static Kernels> {
    let by_features = [
        &PLAIN,
        #[cfg(target_arch = "x86_64")]
        &AVX2,
        #[cfg(target_arch = "x86_64")]
        &GFNI,
    ];
    let best = by_features.iter().position(|kernels| std::ptr::eq(*kernels, best())).expect("one of them");
    by_features[..=best].to_vec()
}

impl fmt::Debug for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Kernels {
    /// P of `data`.
    pub(super) fn p(&self, data: &[&[u8]], p: &mut [u8]) {
        // SAFETY: the processor has the features that the function needs (KERNEL-1), and there is no other requirement.
        unsafe { (self.p)(data, p) }
    }

    /// P and Q of `data`.
    pub(super) fn pq(&self, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        // SAFETY: the processor has the features that the function needs (KERNEL-1), and there is no other requirement.
        unsafe { (self.pq)(data, p, q) }
    }

    /// The sum of `sources`, each times its factor.
    pub(super) fn sum(&self, sources: &[&[u8]], factors: &[u8], out: &mut [u8]) {
        // SAFETY: the processor has the features that the function needs (KERNEL-1), and there is no other requirement.
        unsafe { (self.sum)(sources, factors, out) }
    }

    /// Two sums of the same `sources`, with factors of their own.
    pub(super) fn two_sums(&self, sources: &[&[u8]], factors: [&[u8]; 2], out: [&mut [u8]; 2]) {
        // SAFETY: the processor has the features that the function needs (KERNEL-1), and there is no other requirement.
        unsafe { (self.two_sums)(sources, factors, out) }
    }
}
