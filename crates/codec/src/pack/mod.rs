//! Packing file data in the form that Linux unpacks.
//!
//! # The packed data
//! Data is packed in chunks of at most 128 KiB, each by itself, into one extent. The last chunk of a file is packed up
//! to the end of the file, not of the sector. A regular extent has as many sectors as the packed data needs, and the
//! rest of the last one is zero; an inline extent ends with the packed data. Data that does not get shorter is stored uncompressed.
//!
//! # The three formats
//! - **zlib**: a zlib stream (RFC 1950) with a window of at most 32 KiB, no dictionary, and the Adler-32 at its end.
//! - **lzo**: LZO1X streams, one for each sector, in a frame of Btrfs' own; `lzo.rs` describes both. It is the
//!   only format that depends on the size of a sector. An inline extent holds the same frame with one segment, so
//!   it has a sector of data at most.
//! - **zstd**: one Zstandard frame (RFC 8878) with the length of the data in its header, a single segment of at most
//!   128 KiB as its window, no dictionary and no checksum.
//!
//! # Invariants
//! - **PACK-1** A call packs at most [`Packer::DATA_MAX`] bytes, and the sector size is one of Btrfs. Asserted.
//! - **PACK-2** Packed data unpacks to the original, here and with Linux, and a `Some` is the length of all of it: data that does not
//!   fit gives `None`, never a part. Shown by `all_methods_round_trip` and `what_just_fits_is_packed_and_one_byte_less_is_not`.
//! - **PACK-3** The packed bytes depend on the method, the data, the sector and the room for them, and not on data that the packer packed
//!   before. Shown by `a_used_packer_packs_as_a_new_one` and `what_did_not_fit_does_not_show_in_what_comes_next`.
//! - **PACK-4** Packed data needs no more memory for unpacking than Linux has: a window of 128 KiB for zstd; for LZO segments
//!   that are no longer than LZO's own bound for a sector. Shown by `zstd_frames_look_as_those_of_linux` and
//!   `lzo_segments_keep_to_their_sectors`.
//! - **PACK-5** No length in an LZO frame lies across a sector boundary. Shown by `lzo_segments_keep_to_their_sectors`.

mod lzo;
mod method;
#[cfg(test)]
pub(crate) mod samples;
#[cfg(test)]
mod tests;
mod worth;

use flate2::{Compress, Compression, FlushCompress, Status};
use zstd_safe::{CCtx, CParameter, ResetDirective};

use self::lzo::LzoPacker;
pub use self::method::{CompressionMethod, CompressionType, ParseCompressionMethodError};
pub use self::worth::looks_compressible;

/// The window of zstd frames: the logarithm of [`Packer::DATA_MAX`].
const ZSTD_WINDOW_LOG: u32 = 17;

/// Packs data. It keeps the working memory of LZO and zstd from call to call, and allocates each at its first use. A thread
/// that packs has one.
///
/// ```
/// use creamery_codec::{CompressionMethod, CompressionType, Packer, unpack_lzo};
/// let data = [7; 8192];
/// let mut packed = [0; 4096]; // it pays when it saves a sector
/// let method = CompressionMethod::new(CompressionType::Lzo);
/// let len = Packer::new().pack(method, &data, 4096, &mut packed).expect("it fits");
/// let mut unpacked = [0; 8192];
/// unpack_lzo(&packed[..len], 4096, &mut unpacked)?;
/// assert_eq!(unpacked, data);
/// # Ok::<(), creamery_codec::UnpackError>(())
/// ```
#[derive(Default)]
pub struct Packer {
    lzo: Option<LzoPacker>,
    zstd: Option<CCtx<'static>>,
}

impl Packer {
    /// The most data that one extent takes.
    pub const DATA_MAX: usize = 1 << ZSTD_WINDOW_LOG;

    /// Creates a packer without working memory.
    #[must_use]
    pub const fn new() -> Self {
        Self { lzo: None, zstd: None }
    }

    /// Packs `data` for a filesystem with sectors of `sector` bytes. Returns the length of the result, or `None` if that is
    /// longer than `out`. To save space, give an `out` that is shorter than the data, by a sector for a
    /// regular extent. The rest of `out` is arbitrary. While it works, zstd needs a few bytes more than its result has, so
    /// its result has to be shorter than `out` by up to 16.
    ///
    /// # Panics
    /// If there is more data than [`Packer::DATA_MAX`], or no Btrfs has such sectors.
    #[must_use]
    pub fn pack(
        &mut self,
        method: CompressionMethod,
        data: &[u8],
        sector: usize,
        out: &mut [u8],
    ) -> Option<usize> {
        assert!(data.len() <= Self::DATA_MAX, "PACK-1: {} bytes are more than an extent takes", data.len());
        assert!(
            sector.is_power_of_two() && (512..=65536).contains(&sector),
            "PACK-1: there are no sectors of {sector} bytes"
        );
        match method.kind() {
            CompressionType::Zlib => zlib(method, data, out),
            CompressionType::Lzo => self.lzo.get_or_insert_with(LzoPacker::new).pack(data, sector, out),
            CompressionType::Zstd => self.zstd(method, data, out),
        }
    }

    fn zstd(&mut self, method: CompressionMethod, data: &[u8], out: &mut [u8]) -> Option<usize> {
        let zstd = self.zstd.get_or_insert_with(CCtx::create);
        // A result that did not fit left an unfinished session.
        zstd.reset(ResetDirective::SessionOnly).expect("a session can be given up at any time");
        for parameter in
            [CParameter::CompressionLevel(method.level()?), CParameter::WindowLog(ZSTD_WINDOW_LOG)]
        {
            zstd.set_parameter(parameter).expect("zstd has this level and this window");
        }
        zstd.compress2(out, data).ok()
    }
}

/// Packs with zlib. After a stream that did not fit, a reset of zlib-rs 0.6 does not clear everything: a following stream at level 1 is
/// damaged. So each call allocates its memory anew, which costs next to nothing beside the packing.
fn zlib(method: CompressionMethod, data: &[u8], out: &mut [u8]) -> Option<usize> {
    let level = Compression::new(method.level()?.unsigned_abs());
    let mut stream = Compress::new(level, true);
    match stream.compress(data, out, FlushCompress::Finish) {
        Ok(Status::StreamEnd) => usize::try_from(stream.total_out()).ok(),
        _ => None,
    }
}
