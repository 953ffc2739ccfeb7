//! Unpacking compressed extents.
//!
//! A compressed extent is read whole for any part of it, and unpacks to 128 KiB at most, which is checked before anything is
//! allocated. It is never changed: rewriting any part of it makes a new extent (`packing`), and the old one stays until no item
//! shows any of it any more.

use creamery_base::{Error, ErrorKind, Result};
use creamery_codec::{UnpackError, unpack_lzo, unpack_lzo_from, unpack_zlib, unpack_zstd};
use creamery_format::Compression;
use creamery_format::file_extent::COMPRESSED_LEN_MAX;

/// Unpacks `packed` to `ram_bytes` bytes; bytes that it does not cover are zero.
/// Errors: damage.
pub(crate) fn unpack(
    compression: Compression,
    packed: &[u8],
    ram_bytes: u64,
    sector: u64,
) -> Result<Vec<u8>> {
    let mut out = vec![0; bounded(ram_bytes)];
    unpack_into(compression, packed, &mut out, sector)?;
    Ok(out)
}

/// Unpacks an inline extent, which lies in a tree: lengths that contradict each other are damage to that tree, as for Linux.
/// Errors: damage.
pub(super) fn unpack_inline(
    compression: Compression,
    packed: &[u8],
    ram_bytes: u64,
    sector: u64,
) -> Result<Vec<u8>> {
    let mut out = vec![0; bounded(ram_bytes)];
    let unpacked = unpack_as(compression, packed, &mut out, sector);
    let kind = match unpacked {
        Err(UnpackError::Lengths) => ErrorKind::Corrupt,
        _ => ErrorKind::Unreadable,
    };
    finish(compression, unpacked, &mut out, kind)?;
    Ok(out)
}

/// Unpacks into `out`, whose length is the unpacked length.
/// Errors: damage; the content of `out` is arbitrary then.
pub(super) fn unpack_into(
    compression: Compression,
    packed: &[u8],
    out: &mut [u8],
    sector: u64,
) -> Result<()> {
    let unpacked = unpack_as(compression, packed, out, sector);
    finish(compression, unpacked, out, ErrorKind::Unreadable)
}

fn unpack_as(
    compression: Compression,
    packed: &[u8],
    out: &mut [u8],
    sector: u64,
) -> Result<usize, UnpackError> {
    match compression {
        Compression::None => {
            let len = packed.len().min(out.len());
            out[..len].copy_from_slice(&packed[..len]);
            Ok(len)
        }
        Compression::Zlib => unpack_zlib(packed, out),
        Compression::Lzo => unpack_lzo(packed, bounded(sector), out),
        Compression::Zstd => unpack_zstd(packed, out),
    }
}

/// Whether a part of an extent can be unpacked for less than the whole. The frames of zstd are one block.
pub(super) const fn has_parts(compression: Compression) -> bool {
    matches!(compression, Compression::Zlib | Compression::Lzo)
}

/// Unpacks the range `[from, to)` of `packed`, and not more than that takes, where it [has parts](has_parts).
/// Errors: damage, as far as the data was read.
pub(super) fn unpack_part(
    compression: Compression,
    packed: &[u8],
    (from, to): (u64, u64),
    sector: u64,
) -> Result<Vec<u8>> {
    // LZO begins anew in each sector.
    let (begin, end) = match compression {
        Compression::Lzo => (from - from % sector, to.next_multiple_of(sector)),
        _ => (0, to),
    };
    let mut out = vec![0; bounded(end - begin)];
    let unpacked = match compression {
        Compression::None | Compression::Zstd => unreachable!("these are unpacked whole"),
        Compression::Zlib => unpack_zlib(packed, &mut out),
        Compression::Lzo => unpack_lzo_from(packed, bounded(sector), bounded(begin / sector), &mut out),
    };
    finish(compression, unpacked, &mut out, ErrorKind::Unreadable)?;
    out.truncate(bounded(to - begin));
    out.drain(..bounded(from - begin));
    Ok(out)
}

/// Zeroes the bytes that the packed data does not cover: fast unpackers write past their output, and rely on the caller not to read
/// there.
fn finish(
    compression: Compression,
    unpacked: Result<usize, UnpackError>,
    out: &mut [u8],
    kind: ErrorKind,
) -> Result<()> {
    let len = unpacked
        .map_err(|error| Error::with_source(kind, format!("unpacking {compression:?} data"), error))?;
    out[len..].fill(0);
    Ok(())
}

/// A length of compressed data, which was checked with its item.
fn bounded(len: u64) -> usize {
    assert!(len <= COMPRESSED_LEN_MAX, "what is compressed together has 128 KiB at most");
    usize::try_from(len).expect("at most 128 KiB")
}

#[cfg(test)]
mod tests {
    use creamery_codec::{CompressionMethod, CompressionType, Packer};

    use super::*;

    /// Linux packs up to the end of the file. This may lie within a sector, or have moved past it before the data was written.
    #[test]
    fn what_packed_data_does_not_say_is_zero() {
        let mut packer = Packer::new();
        let kinds = [
            (CompressionType::Zlib, Compression::Zlib),
            (CompressionType::Lzo, Compression::Lzo),
            (CompressionType::Zstd, Compression::Zstd),
        ];
        for (kind, compression) in kinds {
            for len in (1..200).map(|number| number * 61).chain([8193, 4097, 12_287]) {
                let content: Vec<u8> = (0..len).map(|at: usize| b'a' + (at / 97 % 23) as u8).collect();
                let mut packed = vec![0; 20_000];
                let method = CompressionMethod::new(kind);
                let packed_len = packer.pack(method, &content, 4096, &mut packed).expect("it fits");
                let whole = unpack(compression, &packed[..packed_len.next_multiple_of(4096)], 16_384, 4096);
                let whole = whole.expect("whole");
                assert!(whole[..len] == content, "{kind} {len}");
                assert!(whole[len..].iter().all(|byte| *byte == 0), "{kind}: something behind {len} bytes");
            }
        }
    }

    #[test]
    fn a_part_is_what_the_whole_has_there() {
        const LEN: usize = 131_072 - 700;
        let mut packer = Packer::new();
        let content: Vec<u8> = (0..LEN).map(|at| b'a' + (at * at / 977 % 23) as u8).collect();
        let kinds = [(CompressionType::Zlib, Compression::Zlib), (CompressionType::Lzo, Compression::Lzo)];
        for ((kind, compression), sector) in
            kinds.into_iter().flat_map(|kind| [4096, 16_384].map(|sector| (kind, sector)))
        {
            let mut packed = vec![0; 131_072];
            let len =
                packer.pack(CompressionMethod::new(kind), &content, sector, &mut packed).expect("it fits");
            packed.truncate(len.next_multiple_of(sector));
            let whole = unpack(compression, &packed, 131_072, sector as u64).expect("whole");
            for from in [0, 1, 4095, 4096, 50_000, 65_536, 126_976, 130_372, 131_071] {
                for len in [1, 2, 4096, 5000, 40_000] {
                    let to = (from + len).min(131_072);
                    let part = unpack_part(compression, &packed, (from as u64, to as u64), sector as u64);
                    assert!(part.expect("whole") == whole[from..to], "{kind} {sector}: {from} to {to}");
                }
            }
        }
    }
}
