//! CRC-32C of data: the checksum of most filesystems, and the first cost of reading and checking one and of making one.
//!
//! A processor takes eight bytes in one instruction, and three cycles for that. Two ways hide the cycles:
//! - three chains at a time, whose results are joined (`crc32c`): as fast as the instruction can begin, about 28 GB/s at 4 GHz;
//! - multiplication without carries, in vectors of 64 bytes (VPCLMULQDQ), beside the instruction (`crc-fast`): twice that.
//!
//! `crc-fast` also has a way for processors without such vectors, but it is slower than the three chains. So the processor decides
//! which crate is used. The example `checksums` of this package shows both on the machine where it runs.

/// The checksum of `data`.
pub(crate) fn crc32c(data: &[u8]) -> u32 {
    match has_wide_multiplication() {
        true => crc_fast::crc32_iscsi(data),
        false => crc32c::crc32c(data),
    }
}

/// Whether the processor has the vector instructions. Detected once; then it is a load.
#[cfg(target_arch = "x86_64")]
fn has_wide_multiplication() -> bool {
    is_x86_feature_detected!("vpclmulqdq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("sse4.2")
}

/// False: the vector instructions exist on x86 alone.
#[cfg(not(target_arch = "x86_64"))]
fn has_wide_multiplication() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bit at a time.
    fn by_bits(data: &[u8]) -> u32 {
        let step = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
        !data.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
    }

    #[test]
    fn all_ways_agree_at_each_length_and_place() {
        let bytes: Vec<u8> = (0..4200_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let lengths = (0..600).chain(4090..4100);
        for (at, len) in lengths.enumerate() {
            let data = &bytes[at % 67..][..len];
            let wanted = by_bits(data);
            assert_eq!(crc32c(data), wanted, "{len} bytes at {}", at % 67);
            assert_eq!(crc32c::crc32c(data), wanted, "{len} bytes by three chains");
            assert_eq!(crc_fast::crc32_iscsi(data), wanted, "{len} bytes by vectors");
        }
    }
}
