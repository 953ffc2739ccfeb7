//! Compressed data: tests whether it can be decompressed, which checksums do not show.

use creamery_base::Logical;
use creamery_codec::{UnpackError, unpack_lzo, unpack_zlib, unpack_zstd};
use creamery_format::{Compression, RawFileExtent};

use crate::reader::Reader;

/// Maximum bytes that Linux compresses at once, and that it decompresses.
const PACKED_MAX: u64 = 128 << 10;

/// Decompresses `data` into `out`, which has room for the maximum; returns the number of bytes.
pub(crate) fn unpack(
    compression: u8,
    data: &[u8],
    sector: u64,
    out: &mut [u8],
) -> Result<usize, UnpackError> {
    match Compression::from_disk(compression) {
        Some(Compression::Zlib) => unpack_zlib(data, out),
        Some(Compression::Lzo) => unpack_lzo(data, bounded(sector), out),
        Some(Compression::Zstd) => unpack_zstd(data, out),
        Some(Compression::None) | None => Ok(data.len()),
    }
}

/// The reason if an extent's lengths are impossible: compressed data must not be longer than its source, nor either longer than Linux makes
/// it.
pub(crate) fn misfit(extent: &RawFileExtent) -> Option<String> {
    let (packed, whole) = (extent.disk_num_bytes.get(), extent.ram_bytes.get());
    let fits = packed <= whole && whole <= PACKED_MAX;
    (!fits).then(|| {
        format!("{packed} bytes that unpack to {whole}, expected no more than that and at most {PACKED_MAX}")
    })
}

/// Reads an extent with valid lengths and decompresses it; returns the error if no copy can be decompressed.
pub(crate) fn unpack_extent(reader: &Reader<'_>, extent: &RawFileExtent) -> Option<UnpackError> {
    let (packed, whole) = (extent.disk_num_bytes.get(), extent.ram_bytes.get());
    let mut data = vec![0; bounded(packed)];
    let mut out = vec![0; bounded(whole)];
    let at = Logical::new(extent.disk_bytenr.get());
    let Ok(ways) = reader.volume.ways(at, packed) else {
        return None; // its place is judged with the extents
    };
    let mut wrong = None;
    for way in ways {
        if reader.volume.read_way(&way, at, &mut data).is_err() {
            continue; // a read error is judged with the checksums
        }
        match unpack(extent.compression, &data, reader.sector_size, &mut out) {
            Ok(_) => return None,
            Err(error) => wrong = wrong.or(Some(error)),
        }
    }
    wrong
}

/// A length that was checked to be small.
fn bounded(len: u64) -> usize {
    usize::try_from(len.min(PACKED_MAX)).expect("at most 128 KiB")
}
