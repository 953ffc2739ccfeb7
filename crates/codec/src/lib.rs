//! Pure functions over bytes that the Btrfs format is made of: block checksums, key hashes, compression.
//!
//! Nothing here reads, waits or allocates (but for the vector that [`checksum_blocks`] appends to), so every
//! other room may call it from anywhere. [`checksum()`] serves whole tree blocks and superblocks,
//! [`checksum_blocks`] the sectors of file data, which may use instructions that work on several at once. [`unpack_zlib`],
//! [`unpack_lzo`] and [`unpack_zstd`] unpack compressed extents.

mod checksum;
mod hash;
mod lzo;
mod unpack;

pub use checksum::{Checksum, ChecksumType, ParseChecksumTypeError, checksum, checksum_blocks};
pub use hash::{data_ref_hash, extref_hash, name_hash};
pub use lzo::unpack_lzo;
pub use unpack::{UnpackError, unpack_zlib, unpack_zstd};
