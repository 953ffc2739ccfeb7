//! File extent items: the content of a range of a file, read from and written to item bytes.
//!
//! # On disk
//! `(inode, EXTENT_DATA, file offset)` -> generation, ram_bytes, compression, encryption, other encoding, type; then
//! for an inline extent the bytes themselves, else disk_bytenr, disk_num_bytes, offset, num_bytes. A regular item
//! with disk_bytenr 0 is an explicit hole.
//!
//! # Invariants
//! - EXTENT-1: a [`FileExtentItem`] exists only after [`FileExtentItem::check`]: its file range and its disk range do not
//!   wrap, are whole sectors (an inline extent's file range is counted as whole sectors), and the part of an extent
//!   that is not compressed lies inside it. Shown by `every_broken_rule_is_found`.
//! - EXTENT-2: fields behind the type byte are read only after the type.
//!   Shown by `random_item_bytes_never_panic_nor_are_taken_for_more_than_they_are`.

use creamery_base::{Error, ErrorKind, Generation, Logical, Result};
use zerocopy::{FromBytes, IntoBytes};

use crate::items::file_extent::{
    Compression, FILE_EXTENT_INLINE, FILE_EXTENT_PREALLOC, FILE_EXTENT_REGULAR, RawFileExtent,
    RawFileExtentHead,
};
use crate::key::Key;

/// Bytes of an item before an inline extent's data.
pub const INLINE_HEADER: usize = RawFileExtentHead::LEN;
/// Bytes of every other item.
pub const REGULAR_LEN: usize = RawFileExtent::LEN;
/// The longest extent of written data.
pub const EXTENT_LEN_MAX: u64 = 128 << 20;
/// The longest preallocated extent.
pub const PREALLOC_LEN_MAX: u64 = 256 << 20;
/// The longest compressed extent, on disk and in memory.
pub const COMPRESSED_LEN_MAX: u64 = 128 << 10;

/// A part of an extent on disk, as a range of a file.
///
/// ```
/// use creamery_base::{Generation, Logical};
/// use creamery_format::file_extent::Extent;
///
/// let whole = Extent::whole(Generation::new(7), Logical::new(1 << 20), 8192);
/// let rest = whole.without_front(4096);
/// assert_eq!((rest.disk_bytenr, rest.offset, rest.num_bytes), (whole.disk_bytenr, 4096, 4096));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The transaction that made the extent.
    pub generation: Generation,
    /// The address of the extent.
    pub disk_bytenr: Logical,
    /// Its length on disk.
    pub disk_num_bytes: u64,
    /// Its unpacked length, according to the item.
    pub ram_bytes: u64,
    /// The offset of the shown part in the unpacked extent.
    pub offset: u64,
    /// The length of the shown part.
    pub num_bytes: u64,
    /// The compression of its bytes on disk.
    pub compression: Compression,
}

/// The content of an EXTENT_DATA item, checked.
///
/// ```
/// use creamery_base::{Generation, ObjectId};
/// use creamery_format::file_extent::{FileExtentItem, encode_hole};
/// use creamery_format::{Key, KeyType};
///
/// let key = Key::new(ObjectId::new(257), KeyType::EXTENT_DATA, 4096);
/// let item = encode_hole(Generation::new(7), 8192);
/// let hole = FileExtentItem::check(&key, &item, 4096)?;
/// assert_eq!(hole, FileExtentItem::Hole { generation: Generation::new(7), num_bytes: 8192 });
/// assert_eq!(hole.len(4096), 8192);
/// assert!(FileExtentItem::check(&key, &item[1..], 4096).is_err());
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)] // a one-byte tag would make the compiler copy neighbouring fields in pieces
pub enum FileExtentItem<'a> {
    /// The bytes are in the item.
    Inline {
        /// Their unpacked length.
        ram_bytes: u64,
        /// Their compression.
        compression: Compression,
        /// The bytes of the item, perhaps compressed.
        data: &'a [u8],
    },
    /// The bytes are in an extent.
    Regular(Extent),
    /// Reserved space; it reads as zeros.
    Prealloc(Extent),
    /// Zeros that take no space.
    Hole {
        /// The transaction that made the item.
        generation: Generation,
        /// Its length.
        num_bytes: u64,
    },
}

fn corrupt(key: &Key, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("file extent {key}: {what}"))
}

/// Whether a number is a multiple of the sector size, or each of several numbers that are combined by OR. Sector sizes are powers of two,
/// and every item needs this check several times: no divisions.
const fn is_whole(bytes: u64, sector: u64) -> bool {
    debug_assert!(sector.is_power_of_two());
    bytes & (sector - 1) == 0
}

impl FileExtentItem<'_> {
    /// Reads the item `key` of a filesystem with sectors of `sector` bytes.
    /// Errors: damage; unsupported for encrypted data and unknown compression.
    #[inline(always)] // a caller that needs only a length or a kind pays for no more
    pub fn check<'a>(key: &Key, data: &'a [u8], sector: u64) -> Result<FileExtentItem<'a>> {
        let Ok((head, inline)) = RawFileExtentHead::ref_from_prefix(data) else {
            return Err(corrupt(key, "item is too short"));
        };
        if !is_whole(key.offset, sector) {
            return Err(corrupt(key, "file offset is not a multiple of the sector size"));
        }
        if head.encryption != 0 {
            return Err(Error::unsupported(format!("file extent {key}: encrypted data")));
        }
        let Some(compression) = Compression::from_disk(head.compression) else {
            let message = format!("file extent {key}: compression number {}", head.compression);
            return Err(Error::unsupported(message));
        };
        match head.kind {
            FILE_EXTENT_INLINE => check_inline(key, head, inline, compression),
            FILE_EXTENT_REGULAR | FILE_EXTENT_PREALLOC => check_on_disk(key, data, compression, sector),
            _ => Err(corrupt(key, "unknown type")),
        }
    }

    /// Returns the bytes of the file that the item covers, in whole sectors.
    #[inline]
    pub const fn len(&self, sector: u64) -> u64 {
        match self {
            Self::Inline { ram_bytes, .. } => ram_bytes.next_multiple_of(sector),
            Self::Regular(extent) | Self::Prealloc(extent) => extent.num_bytes,
            Self::Hole { num_bytes, .. } => *num_bytes,
        }
    }
}

fn check_inline<'a>(
    key: &Key,
    head: &RawFileExtentHead,
    data: &'a [u8],
    compression: Compression,
) -> Result<FileExtentItem<'a>> {
    let ram_bytes = head.ram_bytes.get();
    if key.offset != 0 {
        return Err(corrupt(key, "inline extent is not at offset 0"));
    }
    if compression == Compression::None && ram_bytes != data.len() as u64 {
        return Err(corrupt(key, "inline extent's length differs from its item's"));
    }
    if ram_bytes > COMPRESSED_LEN_MAX {
        return Err(corrupt(key, "inline extent is too long"));
    }
    Ok(FileExtentItem::Inline { ram_bytes, compression, data })
}

#[inline(always)]
fn check_on_disk<'a>(
    key: &Key,
    data: &'a [u8],
    compression: Compression,
    sector: u64,
) -> Result<FileExtentItem<'a>> {
    let Ok(raw) = RawFileExtent::ref_from_bytes(data) else {
        return Err(corrupt(key, "item has a wrong size"));
    };
    let prealloc = raw.kind == FILE_EXTENT_PREALLOC;
    let extent = Extent {
        generation: Generation::new(raw.generation.get()),
        disk_bytenr: Logical::new(raw.disk_bytenr.get()),
        disk_num_bytes: raw.disk_num_bytes.get(),
        ram_bytes: raw.ram_bytes.get(),
        offset: raw.offset.get(),
        num_bytes: raw.num_bytes.get(),
        compression,
    };
    if extent.num_bytes == 0 || !is_whole(extent.num_bytes, sector) {
        return Err(corrupt(key, "num_bytes is not a number of whole sectors"));
    }
    if key.offset.checked_add(extent.num_bytes).is_none() {
        return Err(corrupt(key, "file range wraps"));
    }
    if extent.disk_bytenr.get() == 0 {
        return Ok(FileExtentItem::Hole { generation: extent.generation, num_bytes: extent.num_bytes });
    }
    let all = extent.disk_bytenr.get() | extent.disk_num_bytes | extent.offset;
    if extent.disk_num_bytes == 0 || !is_whole(all, sector) {
        return Err(corrupt(key, "disk range is not a number of whole sectors"));
    }
    if extent.disk_bytenr.checked_add(extent.disk_num_bytes).is_none() {
        return Err(corrupt(key, "disk range wraps"));
    }
    // Only unpacking shows the real length of packed data.
    let unpacked = match compression {
        Compression::None => extent.disk_num_bytes,
        _ if prealloc => return Err(corrupt(key, "preallocated extent is compressed")),
        _ if extent.disk_num_bytes > COMPRESSED_LEN_MAX => {
            return Err(corrupt(key, "compressed extent is too long"));
        }
        _ => u64::MAX,
    };
    if extent.offset.checked_add(extent.num_bytes).is_none_or(|end| end > unpacked) {
        return Err(corrupt(key, "shows more than its extent has"));
    }
    Ok(if prealloc { FileExtentItem::Prealloc(extent) } else { FileExtentItem::Regular(extent) })
}

impl Extent {
    /// A whole new extent without compression.
    #[inline]
    pub const fn whole(generation: Generation, start: Logical, len: u64) -> Self {
        Self {
            generation,
            disk_bytenr: start,
            disk_num_bytes: len,
            ram_bytes: len,
            offset: 0,
            num_bytes: len,
            compression: Compression::None,
        }
    }

    /// Returns the largest length that may be requested of a compressed extent's unpacked data: the item's length, unless the item shows
    /// more than that, which is impossible. Then the data decides, like on Linux, which ignores the item's length.
    #[inline]
    pub fn unpacked_len(&self) -> u64 {
        let shown = self.offset.saturating_add(self.num_bytes);
        if shown <= self.ram_bytes { self.ram_bytes.min(COMPRESSED_LEN_MAX) } else { COMPRESSED_LEN_MAX }
    }

    /// Returns the shown part without its first `len` bytes.
    ///
    /// # Panics
    /// If it is no longer than that.
    #[inline]
    pub fn without_front(mut self, len: u64) -> Self {
        assert!(len < self.num_bytes);
        self.offset += len;
        self.num_bytes -= len;
        self
    }

    /// The item bytes of a regular extent.
    #[inline]
    pub fn encode(&self) -> [u8; REGULAR_LEN] {
        self.encode_as(FILE_EXTENT_REGULAR)
    }

    /// The item bytes of a preallocated extent.
    ///
    /// # Panics
    /// If the extent is compressed.
    #[inline]
    pub fn encode_prealloc(&self) -> [u8; REGULAR_LEN] {
        assert_eq!(self.compression, Compression::None);
        self.encode_as(FILE_EXTENT_PREALLOC)
    }

    #[inline]
    fn encode_as(&self, kind: u8) -> [u8; REGULAR_LEN] {
        let raw = RawFileExtent {
            generation: self.generation.get().into(),
            ram_bytes: self.ram_bytes.into(),
            compression: self.compression.to_disk(),
            kind,
            disk_bytenr: self.disk_bytenr.get().into(),
            disk_num_bytes: self.disk_num_bytes.into(),
            offset: self.offset.into(),
            num_bytes: self.num_bytes.into(),
            ..RawFileExtent::default()
        };
        zerocopy::transmute!(raw)
    }
}

/// The item bytes of an explicit hole.
#[inline]
pub fn encode_hole(generation: Generation, num_bytes: u64) -> [u8; REGULAR_LEN] {
    Extent { num_bytes, ram_bytes: num_bytes, ..Extent::whole(generation, Logical::new(0), 0) }.encode()
}

/// The item bytes of an inline extent.
pub fn encode_inline(generation: Generation, content: &[u8]) -> Vec<u8> {
    encode_packed_inline(generation, content.len() as u64, Compression::None, content)
}

/// Returns the item bytes of an inline extent whose `len` bytes are packed.
pub fn encode_packed_inline(
    generation: Generation,
    len: u64,
    compression: Compression,
    packed: &[u8],
) -> Vec<u8> {
    let head = RawFileExtentHead {
        generation: generation.get().into(),
        ram_bytes: len.into(),
        compression: compression.to_disk(),
        kind: FILE_EXTENT_INLINE,
        ..RawFileExtentHead::default()
    };
    [head.as_bytes(), packed].concat()
}

/// Returns an item that was checked before, for changing in place.
fn raw_mut(data: &mut [u8]) -> &mut RawFileExtent {
    RawFileExtent::mut_from_bytes(data).expect("the item was checked, and is as it was then")
}

/// Changes in place how much of its extent (or hole) an item shows, keeping the front.
///
/// # Panics
/// If the item has a wrong size: it was not checked.
#[inline]
pub fn set_num_bytes(data: &mut [u8], num_bytes: u64) {
    let raw = raw_mut(data);
    if raw.is_hole() {
        // Linux trims holes as it trims extents and leaves an offset behind; with the shorter length it would reach
        // past the extent.
        raw.offset.set(0);
        raw.ram_bytes.set(num_bytes);
    }
    raw.num_bytes.set(num_bytes);
}

/// Takes the first `len` shown bytes away in place; the key has to move by as much.
///
/// # Panics
/// If the item has a wrong size, or shows no more than that.
#[inline]
pub fn cut_front(data: &mut [u8], len: u64) {
    let raw = raw_mut(data);
    let shown = raw.num_bytes.get();
    assert!(len < shown);
    if !raw.is_hole() {
        raw.offset.set(raw.offset.get() + len);
    }
    set_num_bytes(data, shown - len);
}
