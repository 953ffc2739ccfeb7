//! Pure functions over bytes that the Btrfs format is made of: block checksums and key hashes.
//!
//! Nothing here reads, waits or allocates (but for the vector that [`checksum_blocks`] appends to), so every
//! other room may call it from anywhere. [`checksum`] serves whole tree blocks and superblocks,
//! [`checksum_blocks`] the sectors of file data, which may use instructions that work on several at once.

mod checksum;
mod hash;

pub use checksum::{Checksum, ChecksumType, ParseChecksumTypeError, checksum, checksum_blocks};
pub use hash::{data_ref_hash, extref_hash, name_hash};
