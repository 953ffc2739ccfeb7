//! The hashes of fs-verity: of blocks, each behind the same salt.
//!
//! The salt is padded with zeros to whole blocks of the hash's own compression function, so its state is computed once.
//! A block that is shorter than others is padded with zeros, too.

use std::fmt;

use sha2::{Digest, Sha256, Sha512};

/// Bytes of the longest digest.
const DIGEST_MAX: usize = 64;
const ZEROS: [u8; 1024] = [0; 1024];

/// A hash that fs-verity can use.
///
/// ```
/// use creamery_codec::VerityHash;
/// assert_eq!(VerityHash::from_disk(2), Some(VerityHash::Sha512));
/// assert_eq!(VerityHash::Sha512.digest_len(), 64);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum VerityHash {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

impl VerityHash {
    /// All of them, in the order of their numbers on disk.
    pub const ALL: [Self; 2] = [Self::Sha256, Self::Sha512];

    /// Returns the hash with this number in a descriptor.
    #[must_use]
    pub const fn from_disk(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Sha256),
            2 => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Returns the number in a descriptor.
    #[must_use]
    pub const fn to_disk(self) -> u8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// Bytes of a digest.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// Returns the bytes that its compression function takes at once.
    const fn input_len(self) -> usize {
        2 * self.digest_len()
    }
}

impl fmt::Display for VerityHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        })
    }
}

/// The result of a hash. Shown in hex.
///
/// ```
/// use creamery_codec::{SaltedHash, VerityHash};
/// let digest = SaltedHash::new(VerityHash::Sha256, b"").digest(b"abc", 3);
/// assert!(digest.to_string().starts_with("ba7816bf8f01cfea"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VerityDigest {
    bytes: [u8; DIGEST_MAX],
    len: usize,
}

impl VerityDigest {
    fn new(digest: &[u8]) -> Self {
        let mut bytes = [0; DIGEST_MAX];
        bytes[..digest.len()].copy_from_slice(digest);
        Self { bytes, len: digest.len() }
    }

    /// Reads a digest of `hash` from the front of `bytes`; `None` if they are fewer.
    #[must_use]
    pub fn read(hash: VerityHash, bytes: &[u8]) -> Option<Self> {
        bytes.get(..hash.digest_len()).map(Self::new)
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl fmt::Display for VerityDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[derive(Clone)]
enum State {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl State {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(state) => state.update(bytes),
            Self::Sha512(state) => state.update(bytes),
        }
    }

    fn zeros(&mut self, mut count: usize) {
        while count > 0 {
            let some = count.min(ZEROS.len());
            self.update(&ZEROS[..some]);
            count -= some;
        }
    }
}

/// A hash whose salt is already included.
///
/// ```
/// use creamery_codec::{SaltedHash, VerityHash};
/// let salted = SaltedHash::new(VerityHash::Sha512, &[7; 32]);
/// assert_eq!(salted.digest(b"end", 4096), salted.digest(b"end\0", 4096));
/// ```
#[derive(Clone)]
pub struct SaltedHash(State);

impl SaltedHash {
    /// Starts `hash` with `salt`, which may be empty.
    #[must_use]
    pub fn new(hash: VerityHash, salt: &[u8]) -> Self {
        let mut state = match hash {
            VerityHash::Sha256 => State::Sha256(Sha256::new()),
            VerityHash::Sha512 => State::Sha512(Sha512::new()),
        };
        state.update(salt);
        state.zeros(salt.len().next_multiple_of(hash.input_len()) - salt.len());
        Self(state)
    }

    /// Returns the digest of `data`, padded with zeros to `len` bytes.
    #[must_use]
    pub fn digest(&self, data: &[u8], len: usize) -> VerityDigest {
        assert!(data.len() <= len, "what is hashed is no longer than a block");
        let mut state = self.0.clone();
        state.update(data);
        state.zeros(len - data.len());
        match state {
            State::Sha256(state) => VerityDigest::new(&state.finalize()),
            State::Sha512(state) => VerityDigest::new(&state.finalize()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_disk_lead_back() {
        for number in 0..=u8::MAX {
            let hash = VerityHash::from_disk(number);
            assert!(hash.is_none_or(|hash| hash.to_disk() == number && VerityHash::ALL.contains(&hash)));
        }
    }

    #[test]
    fn a_salt_fills_blocks_of_the_hash() {
        for (hash, input) in [(VerityHash::Sha256, 64), (VerityHash::Sha512, 128)] {
            let plain = SaltedHash::new(hash, b"");
            for salt_len in [1, 31, 32] {
                let salt = vec![b's'; salt_len];
                let mut bytes = salt.clone();
                bytes.resize(input, 0);
                bytes.extend_from_slice(b"data\0\0");
                let want = plain.digest(&bytes, bytes.len());
                assert_eq!(SaltedHash::new(hash, &salt).digest(b"data", 6), want, "{hash}, {salt_len} bytes");
            }
            assert_eq!(SaltedHash::new(hash, b"").digest(b"data", 4), plain.digest(b"data", 4));
        }
    }

    #[test]
    fn a_digest_is_read_only_where_there_is_one() {
        assert_eq!(VerityDigest::read(VerityHash::Sha256, &[1; 31]), None);
        let digest = VerityDigest::read(VerityHash::Sha256, &[1; 40]).expect("32 bytes");
        assert_eq!(digest.as_bytes(), [1; 32]);
        assert_eq!(digest.to_string(), "01".repeat(32));
    }
}
