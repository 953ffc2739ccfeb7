//! Writing file data: to new space, and where that is allowed over existing extents (`nocow`, `in_place`).
//!
//! A write is widened to whole sectors: where it begins or ends inside one, the old bytes around it are read and
//! written again with it. Data goes to the device first; a handle then exchanges the items (see `completion`). One
//! allocation is one extent is one handle, so a write in an empty range costs one device write and three or four
//! leaf changes.
//!
//! # Invariants
//! - WRITE-1: a short count, or an error, leaves the file with only the first part written. Of an overwrite in place
//!   (`nocow`) later parts may show, too. Shown by `a_full_filesystem_takes_what_fits_and_can_be_emptied`.
//! - WRITE-2: the sector that held the old end of the file is zero behind it before the file grows past it.
//!   Shown by `random_changes_read_back_as_a_vector_of_bytes`.

use creamery_base::{Error, ErrorKind, Result, Wait};

use super::completion::Completion;
use super::data_source::{DataSink, DataSource};
use super::grow::fill_gap;
use super::holes::HolePlan;
use super::in_place::InPlace;
use super::new_extent::new_extent;
use super::nocow::{FrontTarget, NocowWalk};
use super::ordered_extent::SizeAfter;
use super::packing::{Packing, packing_of};
use super::tail::settle_tail;
use super::{ReserveSource, inline, read};
use crate::inode::FILE_SIZE_MAX;
use crate::inode::{FileInode, InodeItem};

/// A write with ragged ends up to this long is put together in one buffer, a longer one is written in parts.
const BOUNCE: u64 = 64 << 10;

/// Whether a write that ends at `end` changes neither the size of the file nor that it is stored inline: then it may share the
/// inode with other threads.
pub(crate) fn is_overwrite(inode: &FileInode<'_>, size: u64, end: u64) -> bool {
    end <= size && size > u64::from(inode.engine().sector_size())
}

/// Writes `data` at `offset`. Returns the number of bytes written: less than all only when space ran out on the way.
/// Errors: no space; file too large; those of reading, where a sector is written in part; aborted.
pub(crate) fn write(inode: &FileInode<'_>, item: &mut InodeItem, offset: u64, data: &[u8]) -> Result<usize> {
    if data.is_empty() {
        return Ok(0);
    }
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_SIZE_MAX);
    let Some(end) = end else { return Err(ErrorKind::FileTooLarge.into()) };
    let size = item.size.max(end);
    let sector = u64::from(inode.engine().sector_size());
    if size <= inline::len_max(inode.context(), inode.tree())
        && inline::possible(inode.tree(), inode.id.ino, sector)?
    {
        let mut content = vec![0; as_len(size)];
        read(inode, item, 0, &mut content, Wait::Yes)?;
        content[as_len(offset)..as_len(end)].copy_from_slice(data);
        inline::rewrite(inode, item, &content)?;
        return Ok(data.len());
    }
    let payload = Widened::new(inode, item, offset, data)?;
    if payload.start >= item.size && payload.start > 0 {
        settle_tail(inode, item)?;
    }
    let mut reached = payload.start;
    match write_payload(&mut ReserveSource::Operation, inode, item, &payload, &mut reached) {
        Ok(()) => Ok(data.len()),
        Err(error) if error.kind().is_no_room() && reached > offset => Ok(as_len(reached.min(end) - offset)),
        Err(error) => Err(error),
    }
}

/// The progress of a write.
pub(super) struct Front {
    /// The file has the new data up to here.
    pub(super) reached: u64,
    /// The number of bytes that were written in place.
    pub(super) in_place: u64,
}

impl Front {
    /// The progress of a write that begins at `start`, before its first byte.
    pub(super) const fn at(start: u64) -> Self {
        Self { reached: start, in_place: 0 }
    }
}

/// Writes all of it, from the front on, packed if the file is to be. The file has the data up to `reached`, also after an error.
pub(crate) fn write_payload(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    payload: &dyn DataSource,
    reached: &mut u64,
) -> Result<()> {
    let packing = packing_of(inode, item)?;
    let mut front = Front::at(*reached);
    let written = write_pieces(behalf, inode, item, payload, packing, &mut front);
    *reached = front.reached;
    written
}

/// Writes all of it, from the front on, and keeps its progress in `front`, also after an error.
pub(super) fn write_pieces(
    behalf: &mut ReserveSource<'_>,
    inode: &FileInode<'_>,
    item: &mut InodeItem,
    payload: &dyn DataSource,
    packing: Option<Packing<'_>>,
    front: &mut Front,
) -> Result<()> {
    let (start, end) = payload.range();
    let mut holes = gap(inode, item, start)?;
    if holes.stop < start {
        // More gaps than one handle fills.
        fill_gap(behalf, inode, item, start)?;
        holes = gap(inode, item, start)?;
    }
    let Front { reached, in_place } = front;
    let mut way = WriteRoute { walk: NocowWalk::new(inode, item, (*reached, end)), packing };
    let mut completion = Completion::new(behalf, inode, item, reached).filling(holes);
    while completion.reached() < end {
        let written = way.step(&mut completion, payload, in_place);
        let is_part = (start..=end).contains(&completion.reached());
        assert!(is_part, "WRITE-1: what was reached is a first part");
        written?;
    }
    Ok(())
}

/// The way in which data gets to its place.
struct WriteRoute<'i> {
    walk: NocowWalk<'i>,
    packing: Option<Packing<'i>>,
}

impl WriteRoute<'_> {
    /// Writes the front of the remaining data: the part that may be written in place, which `in_place` counts, or the part for which
    /// there is new space in one piece.
    fn step(
        &mut self,
        completion: &mut Completion<'_, '_>,
        payload: &dyn DataSource,
        in_place: &mut u64,
    ) -> Result<()> {
        let file = completion.file();
        let start = completion.reached();
        match self.walk.piece(start, Wait::Yes)? {
            FrontTarget::InPlace(extent) => {
                let mut space = InPlace::new(file.engine, file.flags, extent);
                payload.write(space.range(), &mut space.writer(file.engine))?;
                let done = space.complete(completion, payload.data_end());
                *in_place += completion.reached() - start;
                done
            }
            FrontTarget::New(stop) => {
                let part = (start, stop);
                let ordered = new_extent(completion.behalf(), &file, &mut self.packing, payload, part)?;
                completion.inode().set_data_behind(ordered.space_end());
                ordered.complete(completion, SizeAfter::AtLeast(payload.data_end()))
            }
        }
    }
}

/// The holes between the end of the file and `start`.
pub(super) fn gap(inode: &FileInode<'_>, item: &InodeItem, start: u64) -> Result<HolePlan> {
    let sector = u64::from(inode.engine().sector_size());
    HolePlan::new(inode, item.size.next_multiple_of(sector), start)
}

/// The caller's data and the old bytes around it.
struct Widened<'a> {
    sector: u64,
    /// The beginning of the first sector.
    start: u64,
    head: Vec<u8>,
    data: &'a [u8],
    tail: Vec<u8>,
}

impl<'a> Widened<'a> {
    fn new(inode: &FileInode<'_>, item: &InodeItem, offset: u64, data: &'a [u8]) -> Result<Self> {
        let sector = u64::from(inode.engine().sector_size());
        let end = offset + data.len() as u64;
        let start = offset - offset % sector;
        let whole_end = end.next_multiple_of(sector);
        let old = |from: u64, to: u64| {
            let mut bytes = vec![0; as_len(to - from)];
            read(inode, item, from, &mut bytes, Wait::Yes)?;
            Ok::<_, Error>(bytes)
        };
        if whole_end - start == sector && start < offset && end < whole_end {
            // Both ends are in one sector: it is read once.
            let mut head = old(start, whole_end)?;
            let tail = head.split_off(as_len(end - start));
            head.truncate(as_len(offset - start));
            return Ok(Self { sector, start, head, data, tail });
        }
        Ok(Self { sector, start, head: old(start, offset)?, data, tail: old(end, whole_end)? })
    }

    fn data_start(&self) -> u64 {
        self.start + self.head.len() as u64
    }

    /// Copies the bytes of the file from `from` on into `out`.
    fn fill(&self, from: u64, out: &mut [u8]) {
        let to = from + out.len() as u64;
        let mut at = self.start;
        for part in [&self.head[..], self.data, &self.tail[..]] {
            let end = at + part.len() as u64;
            let (first, last) = (at.max(from), end.min(to));
            if first < last {
                out[as_len(first - from)..as_len(last - from)]
                    .copy_from_slice(&part[as_len(first - at)..as_len(last - at)]);
            }
            at = end;
        }
    }
}

impl DataSource for Widened<'_> {
    fn range(&self) -> (u64, u64) {
        (self.start, self.data_end().next_multiple_of(self.sector))
    }

    fn data_end(&self) -> u64 {
        self.data_start() + self.data.len() as u64
    }

    fn write(&self, (mut at, end): (u64, u64), space: &mut dyn DataSink) -> Result<()> {
        // The caller's own bytes that fill whole sectors.
        let whole_start = self.data_start().next_multiple_of(self.sector).clamp(at, end);
        let whole_end = (self.data_end() - self.data_end() % self.sector).clamp(whole_start, end);
        let ragged = whole_start > at || whole_end < end;
        let cuts = if ragged && end - at <= BOUNCE { [end, end, end] } else { [whole_start, whole_end, end] };
        for (index, to) in cuts.into_iter().enumerate() {
            if to == at {
                continue;
            }
            if index == 1 {
                let from = as_len(at - self.data_start());
                space.write(&self.data[from..from + as_len(to - at)])?;
            } else {
                let mut buffer = vec![0; as_len(to - at)];
                self.fill(at, &mut buffer);
                space.write(&buffer)?;
            }
            at = to;
        }
        Ok(())
    }
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
