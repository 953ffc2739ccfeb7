//! Packing new data: a row of sectors becomes chunks of at most 128 KiB. Each of them is packed, where that makes it shorter, into
//! an extent of its own.
//!
//! Packing takes more time than all the rest of a write. So several chunks are packed at once, on all processors, before the first
//! of them is given space; after that each becomes part of the file by itself, in order, as other data does (`ordered_extent`).
//! While data is packed only its range is locked, and no handle is held.
//!
//! A chunk is stored packed only when that saves a sector: an extent takes whole ones. Consecutive chunks that do not get shorter
//! become one extent, as without packing. Where a packed extent finds no room in one piece, its data is stored as it is, perhaps in
//! several pieces.
//!
//! A small file whose packed data fits into the tree is stored there, as a whole, though it may be a whole sector long.
//!
//! # Invariants
//! - PACKING-1: a packed extent shows all of its data when it is made, has checksums of the bytes on the device, and is zero past
//!   the packed data in its last sector. Shown by `what_is_packed_is_read_back_and_its_padding_is_zero`.
//! - PACKING-2: data is stored packed only where it takes fewer sectors than unpacked. Shown by
//!   `what_does_not_get_shorter_is_stored_as_it_is`.

use std::collections::VecDeque;

use creamery_base::{Result, Wait};
use creamery_codec::{
    Checksum, ChecksumType, CompressionMethod, CompressionType, Packer, checksum, looks_compressible,
};
use creamery_device::Parts;
use creamery_format::Compression;

use super::data_source::{DataSink, DataSource};
use super::inline;
use super::packed::Packed;
use super::processors::on_all_processors;
use crate::compression::{self, Compress, CompressionState, Plain, Wanted};
use crate::context::Context;
use crate::inode::{Inode, InodeFlags, InodeItem, xattr};

/// Upper bound of the bytes of a chunk.
const CHUNK: u64 = Packer::DATA_MAX as u64;
/// Chunks that are packed before the first of them is stored: several for each processor, for the last of them leave some idle. The
/// number is the same on any machine: adjacent unpacked chunks become one extent, and images have to be reproducible.
const CHUNKS_AHEAD: usize = 64;

/// The next part of the data to write.
pub(super) enum Chunk {
    /// The data up to `end` is packed.
    Packed { end: u64, packed: Packed },
    /// The data up to `end` is stored as it is. `gives_up`: no later data of the file is packed.
    Plain { end: u64, gives_up: bool },
}

/// The packing of the new data of one file.
pub(crate) struct Packing<'i> {
    state: &'i CompressionState,
    wanted: Wanted,
    sector: u64,
    /// Chunks that were packed ahead, and whether each got shorter.
    ready: VecDeque<Ready>,
    /// The whole file packed ahead, for the tree, and whether it got shorter.
    inline_ahead: Option<Option<Packed>>,
}

/// A small file's data, packed before there is a file ([`Filesystem::pack_ahead`](crate::Filesystem::pack_ahead)).
///
/// ```
/// use creamery_fs::{FileContent, PackedAhead};
/// fn content<'a>(bytes: &'a [(u64, &'a [u8])], len: u64, packed: &'a PackedAhead) -> FileContent<'a> {
///     FileContent { size: len, stretches: bytes, packed: Some(packed) }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct PackedAhead {
    wanted: Wanted,
    size: u64,
    /// A checksum of the bytes, so that no other file's packed data is taken.
    checksum: Checksum,
    inline: Option<Packed>,
    /// `None` where it is in the tree.
    chunk: Option<Ready>,
}

#[derive(Clone, Debug)]
struct Ready {
    start: u64,
    end: u64,
    made: Result<Vec<u8>, Plain>,
}

/// The compression property of an inode.
fn property(inode: &Inode, item: &InodeItem) -> Result<Option<Vec<u8>>> {
    if item.flags.contains(InodeFlags::COMPRESS) {
        xattr::get_known(inode, xattr::COMPRESSION, Wait::Yes)
    } else {
        Ok(None)
    }
}

/// The packing of the data of a file with this `item`; `None` when its data is not packed.
pub(super) fn packing_of<'i>(inode: &'i Inode, item: &InodeItem) -> Result<Option<Packing<'i>>> {
    let context = inode.context();
    if !compression::may_be(context.compression().option(), item.flags) {
        return Ok(None);
    }
    // Where the attribute cannot be read, the data is written all the same.
    let property = property(inode, item).unwrap_or_default();
    Ok(Packing::new(context, item, property.as_deref()))
}

impl<'i> Packing<'i> {
    /// The packing of a file that is only just being made, with this property.
    pub(crate) fn new(context: &'i Context, item: &InodeItem, property: Option<&[u8]>) -> Option<Self> {
        let state = context.compression();
        let wanted = compression::wanted(state.option(), item.flags, property)?;
        let sector = u64::from(context.engine().sector_size());
        Some(Self { state, wanted, sector, ready: VecDeque::new(), inline_ahead: None })
    }

    /// Packs the whole of a small file, which is `payload` and has the `content`, of which up to `most` bytes may be in the tree.
    pub(super) fn ahead(&self, payload: &dyn DataSource, content: &[u8], most: u64) -> Result<PackedAhead> {
        let size = content.len() as u64;
        let inline = self.state.with_packer(|packer| self.pack_whole(packer, content, most));
        let is_inline = inline.is_some() || size <= most;
        let pack = |packer: &mut Packer| self.pack(packer, payload, payload.range());
        let chunk = (!is_inline).then(|| self.state.with_packer(pack)).transpose()?;
        let checksum = checksum(ChecksumType::Crc32c, content);
        Ok(PackedAhead { wanted: self.wanted, size, checksum, inline, chunk })
    }

    /// Takes the result of packing ahead for a file that is nothing but `bytes`, if it was packed in this way.
    pub(crate) fn take_ahead(&mut self, ahead: &PackedAhead, bytes: &[u8]) {
        if (ahead.wanted, ahead.size) == (self.wanted, bytes.len() as u64)
            && ahead.checksum == checksum(ChecksumType::Crc32c, bytes)
        {
            self.inline_ahead = Some(ahead.inline.clone());
            self.ready.extend(ahead.chunk.clone());
        }
    }

    /// Packs with this method, whatever mount and file say. `None` for a file that cannot have compressed data.
    pub(super) fn forced(context: &'i Context, item: &InodeItem, method: CompressionMethod) -> Option<Self> {
        let option = Some(Compress { method, force: true });
        let wanted = compression::wanted(option, item.flags - InodeFlags::COMPRESS, None)?;
        let sector = u64::from(context.engine().sector_size());
        let state = context.compression();
        Some(Self { state, wanted, sector, ready: VecDeque::new(), inline_ahead: None })
    }

    fn compression(&self) -> Compression {
        match self.wanted.method.kind() {
            CompressionType::Zlib => Compression::Zlib,
            CompressionType::Lzo => Compression::Lzo,
            CompressionType::Zstd => Compression::Zstd,
        }
    }

    /// The next part of `payload`, from `start` on and up to `stop` at most.
    /// Errors: those of the payload.
    pub(super) fn next(&mut self, payload: &dyn DataSource, (start, stop): (u64, u64)) -> Result<Chunk> {
        if self.ready.front().is_none_or(|ready| ready.start != start || ready.end > stop) {
            self.pack_ahead(payload, (start, stop))?;
        }
        let first = self.ready.pop_front().expect("a part that is not empty is a chunk at least");
        let mut end = first.end;
        let why = match first.made {
            Ok(bytes) => {
                let packed = Packed { bytes, compression: self.compression() };
                return Ok(Chunk::Packed { end, packed });
            }
            Err(why) => why,
        };
        self.state.count_plain(why);
        if start == 0 && why == Plain::Refused && self.wanted.may_give_up {
            return Ok(Chunk::Plain { end, gives_up: true });
        }
        while let Some(more) = self.ready.pop_front_if(|more| more.made.is_err() && more.end <= stop) {
            more.made.err().into_iter().for_each(|why| self.state.count_plain(why));
            end = more.end;
        }
        Ok(Chunk::Plain { end, gives_up: false })
    }

    /// Notes that `len` bytes of the file got space for being stored packed.
    pub(super) fn stored(&self, len: u64, packed: &Packed) {
        self.state.count_packed(len, packed.bytes.len() as u64);
    }

    fn pack_ahead(&mut self, payload: &dyn DataSource, (start, stop): (u64, u64)) -> Result<()> {
        let chunks = usize::try_from((stop - start).div_ceil(CHUNK)).expect("an extent's chunks");
        let places: Vec<(u64, u64)> = (0..chunks.min(CHUNKS_AHEAD) as u64)
            .map(|number| (start + number * CHUNK, stop.min(start + (number + 1) * CHUNK)))
            .collect();
        let pack = |at: usize| self.state.with_packer(|packer| self.pack(packer, payload, places[at]));
        let packed = on_all_processors(places.len(), 1, pack);
        self.ready = packed.into_iter().collect::<Result<_>>()?;
        Ok(())
    }

    fn pack(&self, packer: &mut Packer, payload: &dyn DataSource, (start, end): (u64, u64)) -> Result<Ready> {
        let plain = |why| Ok(Ready { start, end, made: Err(why) });
        let len = end - start;
        if len <= self.sector {
            return plain(Plain::Unlikely); // it takes a sector in any case
        }
        let mut data = Vec::with_capacity(as_len(len));
        payload.write((start, end), &mut Gathered(&mut data))?;
        assert_eq!(data.len() as u64, len, "a payload has all of its sectors");
        if !self.wanted.is_forced && !looks_compressible(&data) {
            return plain(Plain::Unlikely);
        }
        let mut bytes = vec![0; as_len(len - self.sector)];
        let Some(packed) = packer.pack(self.wanted.method, &data, as_len(self.sector), &mut bytes) else {
            return plain(Plain::Refused);
        };
        bytes.truncate(packed);
        bytes.resize((packed as u64).next_multiple_of(self.sector).try_into().expect("at most 128 KiB"), 0);
        bytes.shrink_to_fit();
        Ok(Ready { start, end, made: Ok(bytes) })
    }

    /// Packs the whole content of a small file, to be stored inline in `most` bytes at most. `None` when that does not make it
    /// shorter.
    pub(super) fn pack_inline(&self, content: &[u8], most: u64) -> Option<Packed> {
        let packed = match &self.inline_ahead {
            Some(ahead) => ahead.clone(),
            None => self.state.with_packer(|packer| self.pack_whole(packer, content, most)),
        }?;
        self.state.count_packed(content.len() as u64, packed.bytes.len() as u64);
        Some(packed)
    }

    fn pack_whole(&self, packer: &mut Packer, content: &[u8], most: u64) -> Option<Packed> {
        if content.len() as u64 > self.sector || !self.wanted.is_forced && !looks_compressible(content) {
            return None;
        }
        let mut bytes = vec![0; as_len(most.min(content.len() as u64 - 1))];
        let len = packer.pack(self.wanted.method, content, as_len(self.sector), &mut bytes)?;
        bytes.truncate(len);
        Some(Packed { bytes, compression: self.compression() })
    }
}

/// The longest file that may be stored inline: packed ones may have a whole sector.
pub(crate) fn inline_max(inode: &Inode, item: &InodeItem) -> u64 {
    if compression::may_be(inode.context().compression().option(), item.flags) {
        u64::from(inode.engine().sector_size())
    } else {
        inline::len_max(inode.context(), inode.tree())
    }
}

/// Sectors in one piece.
struct Gathered<'a>(&'a mut Vec<u8>);

impl DataSink for Gathered<'_> {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn write_parts(&mut self, data: Parts) -> Result<()> {
        data.iter().for_each(|part| self.0.extend_from_slice(part));
        Ok(())
    }
}

/// A length that is bounded by a chunk's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a chunk")
}
