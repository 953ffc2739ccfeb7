//! Estimating whether packing data pays.
//!
//! Packed or encrypted data uses every byte equally often, and to find that out by packing
//! takes far longer than looking at a sample: pieces from all over the data. It looks packable
//!
//! 1. if its halves are the same: zeros, patterns, copies;
//! 2. if it uses few different bytes: text, tables of small numbers;
//! 3. if its entropy is low: Shannon's, of single bytes, in integers. That is as far as Huffman's codes alone
//!    would come. Programs, and tables of numbers, are far below random data in a sample of this size.
//!
//! Linux uses the same criteria: the Btrfs documentation, page "Compression", has samples, long patterns, frequencies of
//! bytes, and Shannon's entropy. Repetition that the sample's halves do not show stays unseen, for example three copies of a
//! picture: such data is stored uncompressed.

/// The size of the sample, bytes. Shorter data is not sampled.
const SAMPLE: usize = 4096;
/// The length of each piece of the sample, bytes.
const PIECE: usize = 16;
/// Data with fewer different bytes is packed.
const FEW_BYTES: usize = 64;
/// The limit of a high entropy, in 1/65536 of a bit for each byte: 7.75 bits. Random data shows 7.95 in a sample.
const HIGH_ENTROPY: u64 = (31 << FRACTION) / 4;
/// The fractional bits of a logarithm.
const FRACTION: u32 = 16;

/// Whether packing `data` is worth the time. Costs some microseconds. Data shorter than a sample shows too
/// little, and the answer is yes.
///
/// ```
/// use creamery_codec::looks_compressible;
/// assert!(looks_compressible(&[0; 131072]));
/// assert!(looks_compressible(&b"It was the best of times, it was the worst of times. ".repeat(99)));
/// ```
#[must_use]
pub fn looks_compressible(data: &[u8]) -> bool {
    if data.len() < SAMPLE {
        return true;
    }
    let mut sample = [0; SAMPLE];
    // If both halves of the data are the same, so are those of the sample.
    let distance = data.len() / (SAMPLE / PIECE);
    for (piece, from) in sample.chunks_exact_mut(PIECE).zip(data.chunks(distance)) {
        piece.copy_from_slice(&from[..PIECE]);
    }
    let (first, second) = sample.split_at(SAMPLE / 2);
    if first == second {
        return true;
    }
    let counts = counts(&sample);
    counts.iter().filter(|count| **count > 0).count() < FEW_BYTES || entropy(&counts) < HIGH_ENTROPY
}

/// Returns how often each byte occurs.
fn counts(sample: &[u8; SAMPLE]) -> [u16; 256] {
    // Four tables: a repeated byte need not wait for the count of the one before.
    let mut parts = [[0_u16; 256]; 4];
    for bytes in sample.chunks_exact(4) {
        for (part, byte) in parts.iter_mut().zip(bytes) {
            part[usize::from(*byte)] += 1;
        }
    }
    std::array::from_fn(|byte| parts.iter().map(|part| part[byte]).sum())
}

/// The entropy of a byte of the sample, in 1/65536 of a bit.
fn entropy(counts: &[u16; 256]) -> u64 {
    let sum: u64 = counts.iter().map(|count| u64::from(*count) * log2(*count)).sum();
    log2(SAMPLE as u16) - sum / SAMPLE as u64
}

/// Returns the logarithm of `n` to the base 2, in 1/65536; for 0 it is 0. The error is at most 1/100.
fn log2(n: u16) -> u64 {
    let n = u64::from(n.max(1));
    let whole = n.ilog2();
    // Between two powers it is nearly straight, and the difference is nearly a parabola of this height.
    let straight = (n << FRACTION >> whole) - (1 << FRACTION);
    let bent = (straight * ((1 << FRACTION) - straight)) >> FRACTION;
    (u64::from(whole) << FRACTION) + straight + bent * 11 / 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::samples;
    use crate::{CompressionMethod, CompressionType, Packer};

    #[test]
    fn logarithms_are_close_to_the_truth() {
        for n in 1..=SAMPLE as u16 {
            let error = log2(n) as f64 / 65536.0 - f64::from(n).log2();
            assert!(error.abs() < 0.01, "{n}: {error}");
        }
    }

    #[test]
    fn text_programs_and_patterns_look_compressible() {
        for len in [1, SAMPLE - 1, SAMPLE, SAMPLE + 1, 40_000, Packer::DATA_MAX] {
            assert!(looks_compressible(&vec![0; len]), "{len} zeros");
            assert!(looks_compressible(&samples::text(len)), "{len} of text");
            assert!(looks_compressible(&samples::numbers(len)), "{len} of numbers");
        }
        let half = samples::random(Packer::DATA_MAX / 2, 5);
        assert!(looks_compressible(&half.repeat(2)), "a copy");
    }

    #[test]
    fn random_and_packed_data_does_not() {
        for (seed, len) in (1..).zip([SAMPLE, SAMPLE + 1, 8192, 40_000, Packer::DATA_MAX]) {
            assert!(!looks_compressible(&samples::random(len, seed)), "{len} random bytes");
        }
        for kind in [CompressionType::Zlib, CompressionType::Zstd] {
            let mut packed = Vec::new();
            let mut out = vec![0; Packer::DATA_MAX];
            for data in samples::mixed(16 * Packer::DATA_MAX).chunks(Packer::DATA_MAX) {
                let made = Packer::new().pack(CompressionMethod::new(kind), data, 4096, &mut out);
                packed.extend_from_slice(&out[..made.expect("it fits")]);
            }
            for data in packed.chunks_exact(Packer::DATA_MAX) {
                assert!(!looks_compressible(data), "{kind}");
            }
            assert!(packed.len() > Packer::DATA_MAX, "{kind}: {} bytes to look at", packed.len());
        }
    }
}
