//! Unpacking compressed extents.
//!
//! A compressed extent is read whole for any part of it, and unpacks to 128 KiB at most, which is checked before
//! anything is allocated. It is never changed: who rewrites any part of it makes a new extent (`packing`), and the old one
//! stays until nothing shows any of it any more.

use creamery_base::{Error, ErrorKind, Result};
use creamery_codec::{unpack_lzo, unpack_zlib, unpack_zstd};
use creamery_format::Compression;

use super::file_extent::COMPRESSED_LEN_MAX;

/// The `ram_bytes` bytes that `packed` stands for; what it does not say is zero.
/// Errors: damage.
pub(crate) fn unpack(
    compression: Compression,
    packed: &[u8],
    ram_bytes: u64,
    sector: u64,
) -> Result<Vec<u8>> {
    assert!(ram_bytes <= COMPRESSED_LEN_MAX);
    let bounded = |len| usize::try_from(len).expect("at most 128 KiB");
    let mut out = vec![0; bounded(ram_bytes)];
    let unpacked = match compression {
        Compression::None => {
            let len = packed.len().min(out.len());
            out[..len].copy_from_slice(&packed[..len]);
            Ok(len)
        }
        Compression::Zlib => unpack_zlib(packed, &mut out),
        Compression::Lzo => unpack_lzo(packed, bounded(sector), &mut out),
        Compression::Zstd => unpack_zstd(packed, &mut out),
    };
    match unpacked {
        Ok(_) => Ok(out),
        Err(error) => {
            Err(Error::with_source(ErrorKind::Unreadable, format!("unpacking {compression:?} data"), error))
        }
    }
}
