//! Unpacking compressed extents into memory whose size is known before.
//!
//! What an extent unpacks to may be shorter than its `ram_bytes`: the last extent of a file is packed up to the end
//! of the file, not of the sector. It must not be longer.

use flate2::{Decompress, FlushDecompress};

/// Why packed data could not be unpacked.
///
/// ```
/// use creamery_codec::{UnpackError, unpack_zlib};
/// assert_eq!(unpack_zlib(b"not zlib", &mut [0; 16]), Err(UnpackError::Damaged));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UnpackError {
    /// The packed data ends too early.
    #[error("packed data ends too early")]
    Truncated,
    /// It says something impossible.
    #[error("packed data is damaged")]
    Damaged,
    /// It unpacks to more than it may.
    #[error("packed data unpacks to more than it may")]
    TooLong,
}

/// Unpacks a zlib stream; returns how many bytes it made of `out`. What follows the stream is padding.
///
/// # Errors
/// When the stream is not whole, damaged, or makes more than fits.
pub fn unpack_zlib(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    let mut stream = Decompress::new(true);
    let status = stream.decompress(packed, out, FlushDecompress::Finish).map_err(|_| UnpackError::Damaged)?;
    let made = usize::try_from(stream.total_out()).map_err(|_| UnpackError::TooLong)?;
    match status {
        flate2::Status::StreamEnd => Ok(made),
        _ if made == out.len() => Err(UnpackError::TooLong),
        _ => Err(UnpackError::Truncated),
    }
}

/// Unpacks a zstd frame; returns how many bytes it made of `out`. What follows the frame is padding.
///
/// # Errors
/// When the frame is not whole, damaged, or makes more than fits.
pub fn unpack_zstd(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    let len = zstd_safe::find_frame_compressed_size(packed).map_err(|_| UnpackError::Damaged)?;
    let frame = packed.get(..len).ok_or(UnpackError::Truncated)?;
    zstd_safe::decompress(out, frame).map_err(|_| UnpackError::Damaged)
}
