//! The whole content of a file that is only just being made.
//!
//! Making a file and filling it through [`write`](super::write()) takes two handles and looks for items that
//! cannot be there. [`NewContent`] does the parts of a write that come before the handle - allocating space, writing
//! data, computing checksums - for a whole file at once, and then joins the handle that makes the inode: its items
//! are the inode's neighbours in the tree and go in with one search.
//!
//! ```text
//!   Content::write  --->  engine.start(units + content.units)  --->  insert inode items
//!   (no handle)                                                      and content.items, then
//!                                                                    content.hand_over
//! ```
//!
//! # Invariants
//! - CONTENT-1: a content covers `[0, size)` of the file without gaps; [`NewContent::count`] notes that size. It is less
//!   than asked for when the filesystem had room only in very many pieces, and
//!   [`write`](super::write()) takes the rest once the inode exists.
//!   Shown by `a_new_file_has_the_items_that_its_content_needs`.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result};
use creamery_format::file_extent::{self, COMPRESSED_LEN_MAX};
use creamery_format::{Compression, Incompat, Key};
use creamery_tree::Tree;
use creamery_txn::{Engine, Handle};
use smallvec::SmallVec;

use super::data_source::{DataSink, DataSource};
use super::inline;
use super::new_extent::new_extent;
use super::ordered_extent::OrderedExtent;
use super::packed::Packed;
use super::packing::{PackedAhead, Packing};
use super::reserve_source::{For, ReserveSource};
use crate::compression;
use crate::context::Context;
use crate::inode::FILE_SIZE_MAX;
use crate::inode::{InodeFlags, InodeItem};
use crate::keys::extent_data;

/// Extents in one content at most, so that one handle is enough.
const EXTENTS_MAX: usize = 32;
/// Upper bound of the bytes that are put together in one buffer to be one write.
const BOUNCE: u64 = 64 << 10;

/// The initial content of a file: its size, and the stretches of data in it, the rest being holes.
///
/// ```
/// use creamery_fs::FileContent;
/// let stretches: &[(u64, &[u8])] = &[(0, b"head"), (1 << 20, b"middle")];
/// let sparse = FileContent { size: 1 << 30, stretches, packed: None };
/// assert!(sparse.stretches.iter().all(|(at, bytes)| at + bytes.len() as u64 <= sparse.size));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FileContent<'a> {
    /// The size of the file, in bytes.
    pub size: u64,
    /// The position and the bytes of each stretch: in order, without overlap, within the size.
    pub stretches: &'a [Stretch<'a>],
    /// The packed bytes, if they were packed before.
    pub packed: Option<&'a PackedAhead>,
}

/// Packs the `bytes` of a small file that is still to come. `None` when they are not, or cannot be, compressed as one chunk.
pub(crate) fn pack_ahead(context: &Context, tree: &Tree, bytes: &[u8]) -> Option<PackedAhead> {
    let size = bytes.len() as u64;
    if size == 0 || size > COMPRESSED_LEN_MAX {
        return None;
    }
    let packing = Packing::new(context, &InodeItem::default(), None)?;
    let (stretches, sector) = ([(0, bytes)], u64::from(context.engine().sector_size()));
    let run = SectorRun { stretches: &stretches, sector, range: (0, size.next_multiple_of(sector)) };
    packing.ahead(&run, bytes, inline::len_max(context, tree)).ok()
}

/// A stretch of data of a file: where it begins, and its bytes.
pub type Stretch<'a> = (u64, &'a [u8]);

impl FileContent<'_> {
    /// Refuses an invalid content. Errors: invalid input; file too large.
    pub(crate) fn check(&self) -> Result<()> {
        if self.size > FILE_SIZE_MAX {
            return Err(ErrorKind::FileTooLarge.into());
        }
        let mut at = 0;
        for (start, bytes) in self.stretches {
            let end = start.checked_add(bytes.len() as u64).filter(|end| *end <= self.size);
            at = match end {
                Some(end) if *start >= at => end,
                _ => {
                    return Err(Error::invalid(format!(
                        "data at {start} overlaps, or exceeds the file size {}",
                        self.size
                    )));
                }
            };
        }
        Ok(())
    }
}

/// Data ready to become a new file's.
#[must_use = "dropping it gives the space back"]
pub(crate) struct NewContent {
    size: u64,
    parts: SmallVec<[Part; 2]>,
}

enum Part {
    /// The bytes of a small file, packed or not; `len` is their unpacked length.
    Inline {
        len: u64,
        bytes: Vec<u8>,
        compression: Compression,
    },
    Extent(OrderedExtent),
    Hole {
        start: u64,
        end: u64,
    },
}

impl NewContent {
    /// Writes the data of a new file of `size` bytes and `flags`. It is made of `stretches`, in order and without overlap, with
    /// holes between them, and packed by `packing`. `tree` is the subvolume it will be in.
    /// Errors: no space; device errors. Nothing remains of it then.
    pub(crate) fn write(
        context: &Context,
        tree: &Tree,
        flags: InodeFlags,
        mut packing: Option<Packing<'_>>,
        (size, stretches): (u64, &[Stretch<'_>]),
    ) -> Result<Self> {
        assert!(stretches.windows(2).all(|pair| end_of(&pair[0]) <= pair[1].0));
        assert!(stretches.last().is_none_or(|last| end_of(last) <= size));
        let has_data = stretches.iter().any(|(_, bytes)| !bytes.is_empty());
        let engine = context.engine();
        let sector = u64::from(engine.sector_size());
        if has_data && let Some(inline) = inline_content(context, tree, packing.as_ref(), size, stretches) {
            return Ok(Self { size, parts: SmallVec::from_iter([inline]) });
        }
        let explicit = !engine.incompat().contains(Incompat::NO_HOLES);
        let mut content = Self { size, parts: SmallVec::new() };
        let (mut at, mut behind) = (0, None);
        for (start, end) in runs(stretches, sector) {
            if explicit {
                content.hole(at, start);
            }
            at = start;
            while at < end {
                if content.parts.len() >= EXTENTS_MAX {
                    content.size = at;
                    return Ok(content);
                }
                let run = SectorRun { stretches, sector, range: (at, end) };
                let file = For { engine, owner: tree.id(), flags, hint: behind };
                let ordered =
                    new_extent(&mut ReserveSource::Operation, &file, &mut packing, &run, run.range)?;
                behind = Some(ordered.space_end());
                at = ordered.end();
                content.parts.push(Part::Extent(ordered));
            }
        }
        if explicit {
            content.hole(at, size.next_multiple_of(sector));
        }
        Ok(content)
    }

    fn hole(&mut self, start: u64, end: u64) {
        if start < end {
            self.parts.push(Part::Hole { start, end });
        }
    }

    /// Metadata that its items and the handing over take.
    pub(crate) fn units(&self, engine: &Engine) -> u32 {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Inline { .. } | Part::Hole { .. } => 1,
                Part::Extent(ordered) => ordered.units(engine),
            })
            .sum()
    }

    /// Notes size, bytes and flags in the inode item, which the caller stores after that.
    pub(crate) fn count(&self, item: &mut InodeItem) {
        item.size = self.size;
        for part in &self.parts {
            if let Part::Extent(ordered) = part {
                item.flags |= ordered.marks();
            }
        }
        item.nbytes = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Inline { len, .. } => *len,
                Part::Extent(ordered) => ordered.end() - ordered.start(),
                Part::Hole { .. } => 0,
            })
            .sum();
    }

    /// The items of the new inode `ino`, in order; they come right behind its other items.
    pub(crate) fn items(&self, handle: &Handle<'_>, ino: ObjectId) -> SmallVec<[(Key, Vec<u8>); 2]> {
        let running = handle.generation();
        let encode = |part: &Part| match part {
            Part::Inline { len, bytes, compression } => {
                handle.add_incompat(compression::incompat(*compression));
                (extent_data(ino, 0), file_extent::encode_packed_inline(running, *len, *compression, bytes))
            }
            Part::Extent(ordered) => {
                let shown = ordered.end() - ordered.start();
                (extent_data(ino, ordered.start()), ordered.item(handle, shown).to_vec())
            }
            Part::Hole { start, end } => {
                (extent_data(ino, *start), file_extent::encode_hole(running, end - start).to_vec())
            }
        };
        self.parts.iter().map(encode).collect()
    }

    /// Hands the space over to the transaction in which [`items`](Self::items) were inserted for `owner`.
    /// Any error is one after the first change: the caller aborts.
    pub(crate) fn hand_over(self, handle: &Handle<'_>, owner: InodeId) -> Result<()> {
        self.parts.into_iter().try_for_each(|part| match part {
            Part::Extent(ordered) => ordered.hand_over(handle, owner).map(|_| ()),
            Part::Inline { .. } | Part::Hole { .. } => Ok(()),
        })
    }
}

/// The content of a small file, to be stored inline; `None` when it is too long for that.
fn inline_content(
    context: &Context,
    tree: &Tree,
    packing: Option<&Packing<'_>>,
    size: u64,
    stretches: &[Stretch<'_>],
) -> Option<Part> {
    let most = inline::len_max(context, tree);
    if size > most && (packing.is_none() || size > u64::from(context.engine().sector_size())) {
        return None;
    }
    let mut bytes = vec![0; as_len(size)];
    fill(stretches, 0, &mut bytes);
    match packing.and_then(|packing| packing.pack_inline(&bytes, most)) {
        Some(Packed { bytes, compression }) => Some(Part::Inline { len: size, bytes, compression }),
        None => (size <= most).then_some(Part::Inline { len: size, bytes, compression: Compression::None }),
    }
}

/// A run of whole sectors with data.
struct SectorRun<'a> {
    stretches: &'a [Stretch<'a>],
    sector: u64,
    range: (u64, u64),
}

/// The whole sectors that have data, as ranges that do not touch.
fn runs(stretches: &[Stretch<'_>], sector: u64) -> SmallVec<[(u64, u64); 4]> {
    let mut runs: SmallVec<[(u64, u64); 4]> = SmallVec::new();
    for stretch in stretches.iter().filter(|(_, bytes)| !bytes.is_empty()) {
        let (start, end) = (stretch.0 - stretch.0 % sector, end_of(stretch).next_multiple_of(sector));
        match runs.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => runs.push((start, end)),
        }
    }
    runs
}

impl DataSource for SectorRun<'_> {
    fn range(&self) -> (u64, u64) {
        self.range
    }

    fn data_end(&self) -> u64 {
        self.range.1
    }

    /// Sectors that one stretch fills straight from it, the others through a buffer.
    fn write(&self, (mut at, end): (u64, u64), space: &mut dyn DataSink) -> Result<()> {
        let stretches = self.stretches;
        let index = stretches.partition_point(|stretch| end_of(stretch) <= at);
        let filled = stretches[index].0 <= at && end_of(&stretches[index]) >= end;
        if !filled && end - at <= BOUNCE {
            let mut buffer = vec![0; as_len(end - at)];
            fill(&stretches[index..], at, &mut buffer);
            return space.write(&buffer);
        }
        while at < end {
            let index = stretches.partition_point(|stretch| end_of(stretch) <= at);
            let (start, bytes) = stretches[index];
            let stretch_end = end_of(&stretches[index]);
            let whole_end = (stretch_end - stretch_end % self.sector).min(end);
            if start <= at && whole_end > at {
                space.write(&bytes[as_len(at - start)..as_len(whole_end - start)])?;
                at = whole_end;
            } else {
                let mut buffer = vec![0; as_len(self.sector)];
                fill(&stretches[index..], at, &mut buffer);
                space.write(&buffer)?;
                at += self.sector;
            }
        }
        Ok(())
    }
}

/// Copies the bytes of the file from `from` on into `out`, which is zero.
fn fill(stretches: &[Stretch<'_>], from: u64, out: &mut [u8]) {
    let to = from + out.len() as u64;
    for stretch in stretches.iter().take_while(|stretch| stretch.0 < to) {
        let (start, bytes) = *stretch;
        let (first, last) = (start.max(from), end_of(stretch).min(to));
        if first < last {
            out[as_len(first - from)..as_len(last - from)]
                .copy_from_slice(&bytes[as_len(first - start)..as_len(last - start)]);
        }
    }
}

fn end_of(stretch: &Stretch<'_>) -> u64 {
    stretch.0 + stretch.1.len() as u64
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
