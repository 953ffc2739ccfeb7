//! Unpacking compressed extents into memory of known size.
//!
//! An extent may unpack to fewer bytes than its `ram_bytes`: the last extent of a file is packed up to the end
//! of the file, not of the sector. Bytes beyond that belong to no file, like on Linux: unpacking ends there, however much is left.
//!
//! zlib and zstd need working memory, and allocating and clearing it costs more than a small extent. So each thread
//! keeps its memory, and every extent starts from an empty state in it.

use std::cell::RefCell;

use flate2::{Decompress, FlushDecompress};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// The error of unpacking data.
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
    /// It contains an impossible value.
    #[error("packed data is damaged")]
    Damaged,
    /// The lengths in the frame of LZO data are impossible.
    #[error("packed data has inconsistent lengths")]
    Lengths,
    /// It unpacks to more than allowed.
    #[error("packed data unpacks to too many bytes")]
    TooLong,
}

thread_local! {
    static ZLIB: RefCell<Option<Decompress>> = const { RefCell::new(None) };
    static ZSTD: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Unpacks a zlib stream as far as `out` has room. Returns the number of bytes written to `out`; the rest of `out` is arbitrary. Bytes
/// behind the stream are padding.
///
/// # Errors
/// The stream is damaged (its checksum shows that only if the end is reached), or ends before `out` is full and is incomplete.
pub fn unpack_zlib(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    ZLIB.with_borrow_mut(|stream| {
        let stream = stream.get_or_insert_with(|| Decompress::new(true));
        stream.reset(true);
        let status =
            stream.decompress(packed, out, FlushDecompress::Finish).map_err(|_| UnpackError::Damaged)?;
        let made = usize::try_from(stream.total_out()).map_err(|_| UnpackError::TooLong)?;
        match status {
            flate2::Status::StreamEnd => Ok(made),
            _ if made == out.len() => Ok(made),
            _ => Err(UnpackError::Truncated),
        }
    })
}

/// The largest window (2 MiB) of a frame that is unpacked in part. Linux reads no frame with a larger one.
const WINDOW_LOG_MAX: u32 = 21;

/// Unpacks a zstd frame as far as `out` has room. Returns the number of bytes written to `out`; the rest of `out` is arbitrary. Bytes
/// behind the frame are padding.
///
/// # Errors
/// The frame is incomplete, or its unpacked part is damaged.
pub fn unpack_zstd(packed: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    let len = zstd_safe::find_frame_compressed_size(packed).map_err(|_| UnpackError::Damaged)?;
    let frame = packed.get(..len).ok_or(UnpackError::Truncated)?;
    let whole = ZSTD.with_borrow_mut(|context| {
        let context = context.get_or_insert_with(DCtx::create);
        context.decompress(out, frame)
    });
    whole.or_else(|_| unpack_zstd_beginning(frame, out))
}

/// Unpacks as much of a frame as `out` holds. Used if that is less than all, or the frame is damaged.
fn unpack_zstd_beginning(frame: &[u8], out: &mut [u8]) -> Result<usize, UnpackError> {
    // This is rare, and needs a window in addition, so it is not kept.
    let mut context = DCtx::create();
    let window = DParameter::WindowLogMax(WINDOW_LOG_MAX);
    context.set_parameter(window).map_err(|_| UnpackError::Damaged)?;
    let (mut input, mut output) = (InBuffer::around(frame), OutBuffer::around(out));
    loop {
        let before = (input.pos, output.pos());
        let left = context.decompress_stream(&mut output, &mut input).map_err(|_| UnpackError::Damaged)?;
        if left == 0 || output.pos() == output.capacity() {
            return Ok(output.pos());
        }
        if before == (input.pos, output.pos()) {
            return Err(UnpackError::Truncated);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;
    use crate::unpack_lzo;

    type Unpack = fn(&[u8], &mut [u8]) -> Result<usize, UnpackError>;

    fn text(len: usize) -> Vec<u8> {
        (0_u64..).flat_map(|number| format!("line {number}\n").into_bytes()).take(len).collect()
    }

    fn zlib(plain: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(plain).expect("memory");
        encoder.finish().expect("memory")
    }

    /// Packs like from a pipe: without the length, and with a window of `window_log` bits.
    fn zstd(plain: &[u8], window_log: u32) -> Vec<u8> {
        use zstd_safe::{CCtx, CParameter};
        let mut context = CCtx::create();
        for parameter in [CParameter::WindowLog(window_log), CParameter::ContentSizeFlag(false)] {
            context.set_parameter(parameter).expect("there is such");
        }
        let mut packed = vec![0; zstd_safe::compress_bound(plain.len())];
        let mut output = OutBuffer::around(&mut packed[..]);
        let mut input = InBuffer::around(plain);
        while input.pos < plain.len() {
            context.compress_stream(&mut output, &mut input).expect("room");
        }
        assert_eq!(context.end_stream(&mut output).expect("room"), 0);
        let len = output.pos();
        packed.truncate(len);
        packed
    }

    fn lzo(plain: &[u8]) -> Vec<u8> {
        let mut packed = vec![0; plain.len() + 1000];
        let method = crate::CompressionMethod::new(crate::CompressionType::Lzo);
        let len = crate::Packer::new().pack(method, plain, 4096, &mut packed).expect("room");
        packed.truncate(len);
        packed
    }

    #[test]
    fn what_is_beyond_the_end_is_not_wanted() {
        let plain = text(128 << 10);
        let longer = text((128 << 10) + 1);
        let packed: [(&str, Vec<u8>, Unpack); 6] = [
            ("zlib", zlib(&plain), unpack_zlib),
            ("zlib, longer", zlib(&longer), unpack_zlib),
            ("zstd", zstd(&plain, 17), unpack_zstd),
            ("zstd, longer", zstd(&longer, 17), unpack_zstd),
            ("zstd with a large window", zstd(&longer, 21), unpack_zstd),
            ("lzo", lzo(&plain), |packed, out| unpack_lzo(packed, 4096, out)),
        ];
        for (name, packed, unpack) in packed {
            for len in [1, 100, 4095, 4096, 4097, 65_536, 131_071, 131_072] {
                let mut out = vec![0; len];
                assert_eq!(unpack(&packed, &mut out), Ok(len), "{name}, {len}");
                assert!(out == longer[..len], "{name}, {len}");
            }
        }
    }

    #[test]
    fn a_bomb_is_unpacked_as_far_as_it_is_wanted() {
        let zeros = vec![0; 64 << 20];
        let mut out = vec![1; 131_072];
        assert_eq!(unpack_zlib(&zlib(&zeros), &mut out), Ok(out.len()));
        assert!(out.iter().all(|byte| *byte == 0));
        out.fill(1);
        assert_eq!(unpack_zstd(&zstd(&zeros, 17), &mut out), Ok(out.len()));
        assert!(out.iter().all(|byte| *byte == 0));
        // The memory that a frame claims to need is not allocated.
        assert_eq!(unpack_zstd(&zstd(&zeros, 27), &mut out), Err(UnpackError::Damaged));
    }

    #[test]
    fn damage_before_the_end_is_told() {
        let plain = text(100_000);
        let mut out = vec![0; 131_072];
        let mut packed = zlib(&plain);
        assert_eq!(unpack_zlib(&packed, &mut out), Ok(plain.len()));
        *packed.last_mut().expect("a checksum") ^= 1;
        assert_eq!(unpack_zlib(&packed, &mut out), Err(UnpackError::Damaged), "its Adler-32");
        packed.truncate(packed.len() / 2);
        assert_eq!(unpack_zlib(&packed, &mut out), Err(UnpackError::Truncated));
        let mut packed = zstd(&plain, 17);
        packed.truncate(packed.len() - 1);
        assert!(unpack_zstd(&packed, &mut out[..50_000]).is_err(), "a frame is there as a whole");
        assert!(unpack_lzo(&lzo(&plain)[..4096], 4096, &mut out).is_err());
    }
}
