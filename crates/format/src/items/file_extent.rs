//! Ranges of files: `EXTENT_DATA`.
//!
//! The lengths of a regular extent: on disk it has `disk_num_bytes` at `disk_bytenr`; decompressed it has
//! `ram_bytes`; the file shows `num_bytes` of those from `offset` on, at the file offset in the key.

use zerocopy::little_endian::{U16, U64};

use super::split;
use crate::corrupt::CorruptKind;
use crate::raw::raw_struct;

raw_struct! {
    /// The head of every file extent; inline data follows it.
    ///
    /// ```
    /// assert_eq!(creamery_format::RawFileExtentHead::LEN, 21);
    /// ```
    pub struct RawFileExtentHead[21] {
        /// Transaction that wrote the extent.
        0 => pub generation: U64,
        /// Length of the whole extent once decompressed.
        8 => pub ram_bytes: U64,
        /// See [`Compression`].
        16 => pub compression: u8,
        /// Zero.
        17 => pub encryption: u8,
        /// Zero.
        18 => pub other_encoding: U16,
        /// 0 inline, 1 regular, 2 preallocated.
        20 => pub kind: u8,
    }
}

raw_struct! {
    /// A regular or preallocated file extent, head included.
    ///
    /// ```
    /// use creamery_format::RawFileExtent;
    /// assert_eq!(RawFileExtent::LEN, 53);
    /// assert!(RawFileExtent::default().is_hole());
    /// ```
    pub struct RawFileExtent[53] {
        /// Transaction that wrote the extent.
        0 => pub generation: U64,
        /// Length of the whole extent once decompressed.
        8 => pub ram_bytes: U64,
        /// See [`Compression`].
        16 => pub compression: u8,
        /// Zero.
        17 => pub encryption: u8,
        /// Zero.
        18 => pub other_encoding: U16,
        /// 0 inline, 1 regular, 2 preallocated.
        20 => pub kind: u8,
        /// Address of the extent; 0 for a hole.
        21 => pub disk_bytenr: U64,
        /// Its length on disk.
        29 => pub disk_num_bytes: U64,
        /// Offset of the file's bytes in the decompressed extent.
        37 => pub offset: U64,
        /// Number of bytes that the file shows.
        45 => pub num_bytes: U64,
    }
}

/// [`RawFileExtent::kind`]: data in the item itself.
pub const FILE_EXTENT_INLINE: u8 = 0;
/// [`RawFileExtent::kind`]: data in an extent, or a hole.
pub const FILE_EXTENT_REGULAR: u8 = 1;
/// [`RawFileExtent::kind`]: an extent that reads as zeros until written.
pub const FILE_EXTENT_PREALLOC: u8 = 2;

impl RawFileExtent {
    /// Whether the item is a hole.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        self.disk_bytenr.get() == 0
    }
}

/// The compression of an extent.
///
/// ```
/// use creamery_format::Compression;
/// assert_eq!(Compression::from_disk(3), Some(Compression::Zstd));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None,
    /// zlib.
    Zlib,
    /// LZO in segments.
    Lzo,
    /// zstd.
    Zstd,
}

impl Compression {
    /// The method with this number on disk.
    #[must_use]
    pub const fn from_disk(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::None,
            1 => Self::Zlib,
            2 => Self::Lzo,
            3 => Self::Zstd,
            _ => return None,
        })
    }

    /// The number on disk.
    #[must_use]
    pub const fn to_disk(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Zlib => 1,
            Self::Lzo => 2,
            Self::Zstd => 3,
        }
    }
}

/// A file extent, by its type.
///
/// ```
/// use creamery_format::{FileExtent, RawFileExtent, FILE_EXTENT_REGULAR};
/// use zerocopy::IntoBytes;
/// let raw = RawFileExtent { kind: FILE_EXTENT_REGULAR, ..Default::default() };
/// assert!(matches!(FileExtent::parse(raw.as_bytes()), Ok(FileExtent::Regular(extent)) if extent.is_hole()));
/// ```
#[derive(Clone, Copy, Debug)]
pub enum FileExtent<'a> {
    /// Data in the item: as stored, compressed or not.
    Inline(&'a RawFileExtentHead, &'a [u8]),
    /// An extent, or a hole.
    Regular(&'a RawFileExtent),
    /// An extent that reads as zeros.
    Prealloc(&'a RawFileExtent),
}

impl<'a> FileExtent<'a> {
    /// Parses an item's data by its type.
    ///
    /// # Errors
    /// The data is too short or its type unknown.
    pub fn parse(data: &'a [u8]) -> Result<Self, CorruptKind> {
        let (head, inline) = split::<RawFileExtentHead>(data, "file extent")?;
        match head.kind {
            FILE_EXTENT_INLINE => Ok(Self::Inline(head, inline)),
            FILE_EXTENT_REGULAR => Ok(Self::Regular(split(data, "file extent")?.0)),
            FILE_EXTENT_PREALLOC => Ok(Self::Prealloc(split(data, "file extent")?.0)),
            found => Err(CorruptKind::Unknown { what: "file extent type", found: found.into() }),
        }
    }
}
