//! Pure functions over bytes of the Btrfs format: block checksums, key hashes, compression, parity.
//!
//! Nothing here does I/O or waits, so every other room may call it from anywhere. [`checksum()`] is for whole tree blocks and superblocks,
//! [`checksum_blocks`] for the sectors of file data: it may use instructions that work on several at once. A [`Packer`] packs
//! the data of compressed extents, and [`unpack_zlib`], [`unpack_lzo`] and [`unpack_zstd`] unpack it. [`parity`] makes P and Q of
//! RAID5 and RAID6, and recovers lost columns. Only three things allocate: the vector that [`checksum_blocks`] appends to, a plan of
//! recovery, and the working memory of compression. A packer keeps its own, and a thread that unpacks keeps it for the next
//! extent.

mod checksum;
mod crc;
mod hash;
mod lzo;
mod pack;
pub mod parity;
mod short_copy;
mod unpack;
mod verity;

pub use checksum::{Checksum, ChecksumType, ParseChecksumTypeError, checksum, checksum_blocks};
pub use hash::{data_ref_hash, extref_hash, name_hash};
pub use lzo::{unpack_lzo, unpack_lzo_from};
pub use pack::{CompressionMethod, CompressionType, Packer, ParseCompressionMethodError, looks_compressible};
pub use unpack::{UnpackError, unpack_zlib, unpack_zstd};
pub use verity::{SaltedHash, VerityDigest, VerityHash};
