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
        Ok(len) => {
            // What unpacks fast writes more than it says, and takes it that nobody looks there.
            out[len..].fill(0);
            Ok(out)
        }
        Err(error) => {
            Err(Error::with_source(ErrorKind::Unreadable, format!("unpacking {compression:?} data"), error))
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_codec::{CompressionMethod, CompressionType, Packer};

    use super::*;

    /// Linux packs up to the end of the file, which may lie within a sector, or was moved behind it before the data was written.
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
}
