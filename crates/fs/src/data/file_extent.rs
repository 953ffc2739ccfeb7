//! File extent items: what a stretch of a file is made of, read from and written to item bytes.
//!
//! # On disk
//! `(inode, EXTENT_DATA, file offset)` -> generation, ram_bytes, compression, encryption, other encoding, type; then
//! for an inline extent the bytes themselves, else disk_bytenr, disk_num_bytes, offset, num_bytes. A regular item
//! with disk_bytenr 0 is an explicit hole.
//!
//! # Invariants
//! - EXTENT-1: a [`FileExtent`] exists only after [`FileExtent::check`]: its file range and its disk range do not
//!   wrap, are whole sectors (an inline extent's file range is counted as whole sectors), and the part of the
//!   extent that it shows lies inside the extent.
//! - EXTENT-2: fields behind the type byte are looked at only after the type.

use creamery_base::{Error, ErrorKind, Generation, Logical, Result};
use creamery_format::Key;

/// Bytes of an item before an inline extent's data.
pub(crate) const INLINE_HEADER: usize = 21;
/// Bytes of every other item.
pub(crate) const REGULAR_LEN: usize = 53;
/// The longest extent that is ever made.
pub(crate) const EXTENT_LEN_MAX: u64 = 128 << 20;
/// The longest compressed extent, on disk and in memory.
pub(crate) const COMPRESSED_LEN_MAX: u64 = 128 << 10;
/// The largest file: what a signed file offset can name.
pub(crate) const FILE_SIZE_MAX: u64 = i64::MAX as u64;

const TYPE_INLINE: u8 = 0;
const TYPE_REGULAR: u8 = 1;
const TYPE_PREALLOC: u8 = 2;

const AT_RAM_BYTES: usize = 8;
const AT_COMPRESSION: usize = 16;
const AT_ENCRYPTION: usize = 17;
const AT_OTHER_ENCODING: usize = 18;
const AT_TYPE: usize = 20;
const AT_DISK_BYTENR: usize = 21;
const AT_DISK_NUM_BYTES: usize = 29;
const AT_OFFSET: usize = 37;
const AT_NUM_BYTES: usize = 45;

/// How an extent's bytes are packed on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    None,
    Zlib,
    Lzo,
    Zstd,
}

/// A part of an extent on disk, as a file shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Extent {
    /// The transaction that made the extent.
    pub(crate) generation: Generation,
    /// Where the extent begins.
    pub(crate) disk_bytenr: Logical,
    /// How long it is on disk.
    pub(crate) disk_num_bytes: u64,
    /// How long it is unpacked.
    pub(crate) ram_bytes: u64,
    /// Where in the unpacked extent the shown part begins.
    pub(crate) offset: u64,
    /// How long the shown part is.
    pub(crate) num_bytes: u64,
    pub(crate) compression: Compression,
}

/// The content of an EXTENT_DATA item, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileExtent<'a> {
    /// The bytes are in the item.
    Inline { ram_bytes: u64, compression: Compression, data: &'a [u8] },
    /// The bytes are in an extent.
    Regular(Extent),
    /// Space is set aside; it reads as zeros.
    Prealloc(Extent),
    /// Zeros that take no space.
    Hole { num_bytes: u64 },
}

fn word(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("eight bytes"))
}

fn corrupt(key: &Key, what: &str) -> Error {
    Error::new(ErrorKind::Corrupt, format!("file extent {key}: {what}"))
}

impl FileExtent<'_> {
    /// Reads the item `key` of a filesystem with sectors of `sector` bytes.
    /// Errors: damage; unsupported for encrypted data and unknown compression.
    pub(crate) fn check<'a>(key: &Key, data: &'a [u8], sector: u64) -> Result<FileExtent<'a>> {
        if data.len() < INLINE_HEADER {
            return Err(corrupt(key, "item is too short"));
        }
        if !key.offset.is_multiple_of(sector) {
            return Err(corrupt(key, "file offset is not a multiple of the sector size"));
        }
        let other = u16::from_le_bytes([data[AT_OTHER_ENCODING], data[AT_OTHER_ENCODING + 1]]);
        if data[AT_ENCRYPTION] != 0 || other != 0 {
            return Err(Error::unsupported(format!(
                "file extent {key}: encrypted or otherwise encoded data"
            )));
        }
        let compression = match data[AT_COMPRESSION] {
            0 => Compression::None,
            1 => Compression::Zlib,
            2 => Compression::Lzo,
            3 => Compression::Zstd,
            unknown => {
                return Err(Error::unsupported(format!("file extent {key}: compression number {unknown}")));
            }
        };
        match data[AT_TYPE] {
            TYPE_INLINE => check_inline(key, data, compression),
            kind @ (TYPE_REGULAR | TYPE_PREALLOC) => check_on_disk(key, data, compression, kind, sector),
            _ => Err(corrupt(key, "unknown type")),
        }
    }

    /// Bytes of the file that the item stands for, in whole sectors.
    pub(crate) const fn len(&self, sector: u64) -> u64 {
        match self {
            Self::Inline { ram_bytes, .. } => ram_bytes.next_multiple_of(sector),
            Self::Regular(extent) | Self::Prealloc(extent) => extent.num_bytes,
            Self::Hole { num_bytes } => *num_bytes,
        }
    }

    /// What the item adds to the inode's nbytes.
    pub(crate) const fn counted_bytes(&self) -> u64 {
        match self {
            Self::Inline { ram_bytes, .. } => *ram_bytes,
            Self::Regular(extent) | Self::Prealloc(extent) => extent.num_bytes,
            Self::Hole { .. } => 0,
        }
    }
}

fn check_inline<'a>(key: &Key, data: &'a [u8], compression: Compression) -> Result<FileExtent<'a>> {
    let ram_bytes = word(data, AT_RAM_BYTES);
    if key.offset != 0 {
        return Err(corrupt(key, "inline extent is not at offset 0"));
    }
    let data = &data[INLINE_HEADER..];
    if compression == Compression::None && ram_bytes != data.len() as u64 {
        return Err(corrupt(key, "inline extent's length differs from its item's"));
    }
    if ram_bytes > COMPRESSED_LEN_MAX {
        return Err(corrupt(key, "inline extent is too long"));
    }
    Ok(FileExtent::Inline { ram_bytes, compression, data })
}

fn check_on_disk<'a>(
    key: &Key,
    data: &'a [u8],
    compression: Compression,
    kind: u8,
    sector: u64,
) -> Result<FileExtent<'a>> {
    if data.len() != REGULAR_LEN {
        return Err(corrupt(key, "item has a wrong size"));
    }
    let extent = Extent {
        generation: Generation::new(word(data, 0)),
        disk_bytenr: Logical::new(word(data, AT_DISK_BYTENR)),
        disk_num_bytes: word(data, AT_DISK_NUM_BYTES),
        ram_bytes: word(data, AT_RAM_BYTES),
        offset: word(data, AT_OFFSET),
        num_bytes: word(data, AT_NUM_BYTES),
        compression,
    };
    if extent.num_bytes == 0 || !extent.num_bytes.is_multiple_of(sector) {
        return Err(corrupt(key, "num_bytes is not a number of whole sectors"));
    }
    if key.offset.checked_add(extent.num_bytes).is_none() {
        return Err(corrupt(key, "file range wraps"));
    }
    if extent.disk_bytenr.get() == 0 {
        return Ok(FileExtent::Hole { num_bytes: extent.num_bytes });
    }
    let sectors = [extent.disk_bytenr.get(), extent.disk_num_bytes, extent.offset];
    if extent.disk_num_bytes == 0 || sectors.iter().any(|number| !number.is_multiple_of(sector)) {
        return Err(corrupt(key, "disk range is not a number of whole sectors"));
    }
    if extent.disk_bytenr.checked_add(extent.disk_num_bytes).is_none() {
        return Err(corrupt(key, "disk range wraps"));
    }
    let unpacked = if compression == Compression::None {
        extent.disk_num_bytes
    } else if kind == TYPE_PREALLOC {
        return Err(corrupt(key, "preallocated extent is compressed"));
    } else if extent.disk_num_bytes > COMPRESSED_LEN_MAX || extent.ram_bytes > COMPRESSED_LEN_MAX {
        return Err(corrupt(key, "compressed extent is too long"));
    } else {
        extent.ram_bytes
    };
    if extent.offset.checked_add(extent.num_bytes).is_none_or(|end| end > unpacked) {
        return Err(corrupt(key, "shows more than its extent has"));
    }
    Ok(if kind == TYPE_PREALLOC { FileExtent::Prealloc(extent) } else { FileExtent::Regular(extent) })
}

impl Extent {
    /// A whole new extent without compression.
    pub(crate) const fn whole(generation: Generation, start: Logical, len: u64) -> Self {
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

    /// What is left of the shown part without its first `len` bytes.
    pub(crate) fn without_front(mut self, len: u64) -> Self {
        assert!(len < self.num_bytes);
        self.offset += len;
        self.num_bytes -= len;
        self
    }

    /// The item bytes of a preallocated extent.
    pub(crate) fn encode_prealloc(&self) -> [u8; REGULAR_LEN] {
        assert_eq!(self.compression, Compression::None);
        let mut data = self.encode();
        data[AT_TYPE] = TYPE_PREALLOC;
        data
    }

    /// The item bytes of a regular extent.
    pub(crate) fn encode(&self) -> [u8; REGULAR_LEN] {
        let compression = match self.compression {
            Compression::None => 0,
            Compression::Zlib => 1,
            Compression::Lzo => 2,
            Compression::Zstd => 3,
        };
        let mut data = header(self.generation, self.ram_bytes, TYPE_REGULAR);
        data[AT_COMPRESSION] = compression;
        put(&mut data, AT_DISK_BYTENR, self.disk_bytenr.get());
        put(&mut data, AT_DISK_NUM_BYTES, self.disk_num_bytes);
        put(&mut data, AT_OFFSET, self.offset);
        put(&mut data, AT_NUM_BYTES, self.num_bytes);
        data
    }
}

fn put(data: &mut [u8], at: usize, value: u64) {
    data[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

fn header(generation: Generation, ram_bytes: u64, kind: u8) -> [u8; REGULAR_LEN] {
    let mut data = [0; REGULAR_LEN];
    put(&mut data, 0, generation.get());
    put(&mut data, AT_RAM_BYTES, ram_bytes);
    data[AT_TYPE] = kind;
    data
}

/// The item bytes of an explicit hole.
pub(crate) fn encode_hole(generation: Generation, num_bytes: u64) -> [u8; REGULAR_LEN] {
    let mut data = header(generation, num_bytes, TYPE_REGULAR);
    put(&mut data, AT_NUM_BYTES, num_bytes);
    data
}

/// The item bytes of an inline extent.
pub(crate) fn encode_inline(generation: Generation, content: &[u8]) -> Vec<u8> {
    let mut data = Vec::with_capacity(INLINE_HEADER + content.len());
    data.extend_from_slice(&header(generation, content.len() as u64, TYPE_INLINE)[..INLINE_HEADER]);
    data.extend_from_slice(content);
    data
}

/// Changes in place how much of its extent (or hole) an item shows, keeping the front.
pub(crate) fn set_num_bytes(data: &mut [u8], num_bytes: u64) {
    assert_eq!(data.len(), REGULAR_LEN);
    if word(data, AT_DISK_BYTENR) == 0 {
        put(data, AT_RAM_BYTES, num_bytes);
    }
    put(data, AT_NUM_BYTES, num_bytes);
}

/// Takes the first `len` shown bytes away in place; the key has to move by as much.
pub(crate) fn cut_front(data: &mut [u8], len: u64) {
    let shown = word(data, AT_NUM_BYTES);
    assert!(len < shown);
    if word(data, AT_DISK_BYTENR) != 0 {
        let offset = word(data, AT_OFFSET);
        put(data, AT_OFFSET, offset + len);
    }
    set_num_bytes(data, shown - len);
}
