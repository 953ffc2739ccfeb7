//! Unpacking compressed extents into memory whose size is known before.
//!
//! What an extent unpacks to may be shorter than its `ram_bytes`: the last extent of a file is packed up to the end
//! of the file, not of the sector. It must not be longer.
//!
//! zlib and zstd need memory to work in, and taking and clearing it costs more than a small extent. So each thread
//! keeps what it used, and every extent starts from nothing in it.

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress};
use zstd_safe::DCtx;

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

thread_local! {
    static ZLIB: RefCell<Option<Decompress>> = const { RefCell::new(None) };
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Unpacks a zlib stream; returns how many bytes it made of `out`; what `out` has behind them is arbitrary. What follows the stream is padding.
///
/// # Errors
/// When the stream is not whole, damaged, or makes more than fits.
pub fn unpack_zlib(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    ZLIB.with_borrow_mut(|stream| {
        let stream = stream.get_or_insert_with(|| Decompress::new(true));
        stream.reset(true);
        let status =
            stream.decompress(packed, out, FlushDecompress::Finish).map_err(|_| UnpackError::Damaged)?;
        let made = usize::try_from(stream.total_out()).map_err(|_| UnpackError::TooLong)?;
        match status {
            flate2::Status::StreamEnd => Ok(made),
            _ if made == out.len() => Err(UnpackError::TooLong),
            _ => Err(UnpackError::Truncated),
        }
    })
}

/// Unpacks what a zlib stream begins with, as much as `out` holds, or all of it; returns how many bytes these are. What follows is not
/// looked at.
///
/// # Errors
/// When the stream ends before that, or is damaged.
pub fn unpack_zlib_beginning(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    match unpack_zlib(packed, out) {
        Err(UnpackError::TooLong) => Ok(out.len()), // as much as was asked for
        other => other,
    }
}

/// Unpacks a zstd frame; returns how many bytes it made of `out`; what `out` has behind them is arbitrary. What follows the frame is padding.
///
/// # Errors
/// When the frame is not whole, damaged, or makes more than fits.
pub fn unpack_zstd(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    let len = zstd_safe::find_frame_compressed_size(packed).map_err(|_| UnpackError::Damaged)?;
    let frame = packed.get(..len).ok_or(UnpackError::Truncated)?;
    ZSTD.with_borrow_mut(|context| {
        let context = context.get_or_insert_with(DCtx::create);
        context.decompress(out, frame).map_err(|_| UnpackError::Damaged)
    })
}
