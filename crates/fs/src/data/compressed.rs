//! Unpacking compressed extents.

use creamery_base::{Error, Result};
use creamery_format::Compression;

/// Whether extents packed this way can be read.
pub(crate) fn supported(compression: Compression) -> Result<()> {
    match compression {
        Compression::None => Ok(()),
        other => Err(Error::unsupported(format!("reading {other:?} compressed data"))),
    }
}

/// The bytes of an extent of `ram_bytes`.
pub(crate) fn unpack(
    compression: Compression,
    packed: &[u8],
    ram_bytes: u64,
    sector: u64,
) -> Result<Vec<u8>> {
    supported(compression)?;
    let _ = (ram_bytes, sector);
    Ok(packed.to_vec())
}
