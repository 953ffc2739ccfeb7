//! The four checksums of the format. On disk a sum fills [`ChecksumType::size`] bytes; in a block header the rest
//! of the 32 bytes is zero.

use std::fmt;
use std::str::FromStr;

use sha2::Digest;

use crate::crc::crc32c;

/// Length of a checksum field in headers, whatever the type.
const FIELD: usize = 32;

/// The checksum that a filesystem uses for data and metadata.
///
/// ```
/// use creamery_codec::ChecksumType;
/// assert_eq!("xxhash".parse(), Ok(ChecksumType::Xxhash64));
/// assert_eq!(ChecksumType::Blake2b.size(), 32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ChecksumType {
    /// CRC-32C, 4 bytes.
    #[default]
    Crc32c,
    /// XXH64 with seed 0, 8 bytes.
    Xxhash64,
    /// SHA-256, 32 bytes.
    Sha256,
    /// BLAKE2b with a 32-byte result.
    Blake2b,
}

impl ChecksumType {
    /// All types, in the order of their numbers on disk.
    pub const ALL: [Self; 4] = [Self::Crc32c, Self::Xxhash64, Self::Sha256, Self::Blake2b];

    /// Bytes that one sum takes on disk.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Xxhash64 => 8,
            Self::Sha256 | Self::Blake2b => 32,
        }
    }

    /// Returns the type with this number in the superblock.
    #[must_use]
    pub const fn from_disk(number: u16) -> Option<Self> {
        match number {
            0 => Some(Self::Crc32c),
            1 => Some(Self::Xxhash64),
            2 => Some(Self::Sha256),
            3 => Some(Self::Blake2b),
            _ => None,
        }
    }

    /// Returns the number in the superblock.
    #[must_use]
    pub const fn to_disk(self) -> u16 {
        match self {
            Self::Crc32c => 0,
            Self::Xxhash64 => 1,
            Self::Sha256 => 2,
            Self::Blake2b => 3,
        }
    }
}

impl fmt::Display for ChecksumType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Crc32c => "crc32c",
            Self::Xxhash64 => "xxhash64",
            Self::Sha256 => "sha256",
            Self::Blake2b => "blake2b",
        })
    }
}

/// The text names no checksum.
///
/// ```
/// use creamery_codec::ChecksumType;
/// let error = "md5".parse::<ChecksumType>().unwrap_err();
/// assert_eq!(error.to_string(), "unknown checksum, expected crc32c, xxhash64, sha256, blake2b");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown checksum, expected crc32c, xxhash64, sha256, blake2b")]
pub struct ParseChecksumTypeError;

impl FromStr for ChecksumType {
    type Err = ParseChecksumTypeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "crc32c" => Ok(Self::Crc32c),
            "xxhash64" | "xxhash" => Ok(Self::Xxhash64),
            "sha256" => Ok(Self::Sha256),
            "blake2b" | "blake2" => Ok(Self::Blake2b),
            _ => Err(ParseChecksumTypeError),
        }
    }
}

/// One checksum in its form in a block header: 32 bytes, those past the type's size zero.
///
/// ```
/// use creamery_codec::{checksum, ChecksumType};
/// let sum = checksum(ChecksumType::Crc32c, b"123456789");
/// assert_eq!(sum.as_bytes(ChecksumType::Crc32c), 0xe306_9283_u32.to_le_bytes());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Checksum([u8; FIELD]);

impl Checksum {
    /// Creates the checksum with `field` as its header field.
    #[must_use]
    pub const fn from_field(field: [u8; FIELD]) -> Self {
        Self(field)
    }

    /// The whole header field.
    #[must_use]
    pub const fn field(&self) -> &[u8; FIELD] {
        &self.0
    }

    /// The bytes that count for `kind`.
    #[must_use]
    pub fn as_bytes(&self, kind: ChecksumType) -> &[u8] {
        &self.0[..kind.size()]
    }

    fn padded(sum: &[u8]) -> Self {
        let mut field = [0; FIELD];
        field[..sum.len()].copy_from_slice(sum);
        Self(field)
    }
}

fn blake2b_params() -> blake2b_simd::Params {
    let mut params = blake2b_simd::Params::new();
    params.hash_length(FIELD);
    params
}

/// The checksum of `data`.
#[must_use]
pub fn checksum(kind: ChecksumType, data: &[u8]) -> Checksum {
    match kind {
        ChecksumType::Crc32c => Checksum::padded(&crc32c(data).to_le_bytes()),
        ChecksumType::Xxhash64 => Checksum::padded(&twox_hash::XxHash64::oneshot(0, data).to_le_bytes()),
        ChecksumType::Sha256 => Checksum::padded(&sha2::Sha256::digest(data)),
        ChecksumType::Blake2b => Checksum::padded(blake2b_params().hash(data).as_bytes()),
    }
}

/// Appends to `out` the packed checksums of every `block_size` bytes of `data`, in the form of a csum item.
///
/// # Panics
/// If `data` is not a whole number of blocks.
pub fn checksum_blocks(kind: ChecksumType, data: &[u8], block_size: usize, out: &mut Vec<u8>) {
    assert!(block_size > 0, "a block has bytes");
    assert!(data.len().is_multiple_of(block_size), "checksums are of whole blocks");
    out.reserve(data.len() / block_size * kind.size());
    if kind == ChecksumType::Blake2b {
        return blake2b_blocks(data, block_size, out);
    }
    for block in data.chunks_exact(block_size) {
        out.extend_from_slice(checksum(kind, block).as_bytes(kind));
    }
}

/// Several blocks at a time, one per vector lane.
fn blake2b_blocks(data: &[u8], block_size: usize, out: &mut Vec<u8>) {
    use blake2b_simd::many::{HashManyJob, MAX_DEGREE, hash_many};
    let params = blake2b_params();
    for group in data.chunks(block_size * MAX_DEGREE) {
        let mut jobs: [HashManyJob<'_>; MAX_DEGREE] = std::array::from_fn(|lane| {
            HashManyJob::new(
                &params,
                group.get(lane * block_size..(lane + 1) * block_size).unwrap_or_default(),
            )
        });
        let count = group.len() / block_size;
        hash_many(jobs[..count].iter_mut());
        for job in &jobs[..count] {
            out.extend_from_slice(job.to_hash().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn published_test_vectors_hold() {
        let of = |kind, data: &[u8]| hex(checksum(kind, data).as_bytes(kind));
        assert_eq!(of(ChecksumType::Crc32c, b"123456789"), "839206e3");
        assert_eq!(of(ChecksumType::Xxhash64, b""), "99e9d85137db46ef");
        assert_eq!(
            of(ChecksumType::Sha256, b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(
            of(ChecksumType::Blake2b, b"abc"),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"
        );
    }

    #[test]
    fn packed_sums_equal_single_sums() {
        let data: Vec<u8> = (0..9 * 512_u32).map(|i| (i * 7 + i / 512) as u8).collect();
        for kind in ChecksumType::ALL {
            let mut packed = vec![0xee];
            checksum_blocks(kind, &data, 512, &mut packed);
            let mut single = vec![0xee];
            for block in data.chunks(512) {
                single.extend_from_slice(checksum(kind, block).as_bytes(kind));
            }
            assert_eq!(packed, single, "{kind}");
        }
    }

    #[test]
    fn numbers_and_names_go_both_ways() {
        for kind in ChecksumType::ALL {
            assert_eq!(ChecksumType::from_disk(kind.to_disk()), Some(kind));
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(ChecksumType::from_disk(4), None);
        assert_eq!("BLAKE2".parse(), Ok(ChecksumType::Blake2b));
    }
}
