//! Cloning: a file gets the extents that another one has, so that both share them until one of them is written to.
//!
//! The source's items are read in pieces. Each handle drops the target's items there and puts copies of the source's in their
//! place, cut to the range, each with a reference of its own. Prealloc is shared as prealloc, and a hole becomes a hole. Inline
//! data has no extent to share: it is written to the target as any data is.
//!
//! ```text
//!   source   |--- a ---|--- b ---|   (hole)   |--- c ---|        items of extents a, b, c
//!   range          |------------------------------|
//!   target         |-a-|-- b ----|   (hole)   |-c-|              the same extents, shown in part
//! ```
//!
//! The caller has both inodes alone, without delayed data; they may be one, if the ranges do not overlap.
//!
//! # Invariants
//! - CLONE-1: after it the target's range reads as the source's, and both files as before everywhere else; after an error on the
//!   way a first part of it does. Shown by `random_clones_read_back_as_vectors_of_bytes`.
//! - CLONE-2: an item that is put in has its reference from the same handle, made while the source's item holds the extent.
//!   Shown by `the_kernel_and_btrfs_check_agree_on_what_random_clones_left`.

use creamery_base::{ErrorKind, Result, Wait};
use creamery_format::file_extent::{Extent, FileExtentItem, REGULAR_LEN, encode_hole};
use creamery_format::{Incompat, Key};
use creamery_txn::{Handle, ReserveItems};
use smallvec::SmallVec;

use super::drop_extents::DropPlan;
use super::extent_map::ExtentItems;
use super::grow::fill_gap;
use super::tail::settle_tail;
use super::{ReserveSource, change_alone, read, recount, reserve, write};
use crate::inode::{FileInode, Inode, InodeFlags, InodeItem};
use crate::keys::extent_data;
use crate::operation::in_handle;

/// Upper bound of the pieces put into the target in one handle, and read together. A full filesystem gets no smaller steps: a clone
/// does not give its space back, and each step would wait for a commit.
pub(super) const PIECES_MAX: usize = 16;

/// The ranges of a clone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CloneRange {
    /// The beginning of the source's range, whole sectors.
    pub(crate) from: u64,
    /// The beginning of the target's range, whole sectors.
    pub(crate) to: u64,
    /// Bytes; whole sectors, unless it ends with the source.
    pub(crate) len: u64,
    /// Whether the target's times stay, because its data does.
    pub(crate) keep_times: bool,
}

/// The kind of a piece of the source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shared {
    Hole,
    /// Data in the tree itself.
    Inline,
    Extent {
        extent: Extent,
        prealloc: bool,
    },
}

/// A part of the source in one item, or between two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SourcePart {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) what: Shared,
}

pub(super) type Pieces = SmallVec<[SourcePart; PIECES_MAX]>;

/// Clones `range` of `source`, whose item is `source_item`, to `target`, whose item is `item`. The target has the source's range up
/// to `reached`, also after an error, and is no longer than that makes it.
/// Errors: no space; damage; those of writing, where data is stored inline; aborted.
pub(crate) fn clone_range(
    source: &Inode,
    source_item: &InodeItem,
    target: &FileInode<'_>,
    item: &mut InodeItem,
    range: CloneRange,
    reached: &mut u64,
) -> Result<()> {
    let sector = u64::from(target.engine().sector_size());
    let CloneRange { from, to, len, .. } = range;
    assert!(from.is_multiple_of(sector) && to.is_multiple_of(sector) && len > 0);
    if to >= item.size {
        settle_tail(target, item)?;
        fill_gap(&mut ReserveSource::Operation, target, item, to)?;
    }
    let end = (from + len).next_multiple_of(sector);
    let mut at = from;
    while at < end {
        *reached = at.min(from + len);
        let pieces = pieces(source, (at, end), PIECES_MAX)?;
        let first = pieces.first().expect("the range is not empty");
        if first.what == Shared::Inline {
            let stop = first.end.min(from + len);
            let mut bytes = vec![0; usize::try_from(stop - at).expect("an inline extent fits in memory")];
            read(source, source_item, at, &mut bytes, Wait::Yes)?;
            write_all(target, item, at - from + to, &bytes)?;
            at = first.end;
            *reached = stop;
            if at < end {
                settle_tail(target, item)?;
            }
            continue;
        }
        at = clone_step(target, item, &range, &pieces)?;
    }
    *reached = from + len;
    Ok(())
}

/// Writes all of `data`, which is to be stored inline, or takes a sector.
fn write_all(target: &FileInode<'_>, item: &mut InodeItem, at: u64, data: &[u8]) -> Result<()> {
    let written = write(target, item, at, data)?;
    if written == data.len() { Ok(()) } else { Err(ErrorKind::NoSpace.into()) }
}

/// The first pieces of a range of `source`, without gaps; `most` at most, and an inline one is alone.
pub(super) fn pieces(source: &Inode, (start, end): (u64, u64), most: usize) -> Result<Pieces> {
    let sector = u64::from(source.engine().sector_size());
    let mut found = Pieces::new();
    let mut at = start;
    let mut items = ExtentItems::new(source.tree(), source.id.ino, (start, end), sector, Wait::Yes)?;
    while at < end && found.len() < most {
        let Some(item) = items.next()? else {
            found.push(SourcePart { start: at, end, what: Shared::Hole });
            break;
        };
        if item.start > at {
            found.push(SourcePart { start: at, end: item.start, what: Shared::Hole });
            at = item.start;
            if found.len() == most {
                break;
            }
        }
        let (cut, stop) = (at - item.start, item.end.min(end));
        let shown = |extent: Extent| {
            let extent = if cut == 0 { extent } else { extent.without_front(cut) };
            Extent { num_bytes: stop - at, ..extent }
        };
        let what = match item.extent {
            FileExtentItem::Hole { .. } => Shared::Hole,
            FileExtentItem::Inline { .. } if !found.is_empty() => break,
            FileExtentItem::Inline { .. } => Shared::Inline,
            FileExtentItem::Regular(extent) => Shared::Extent { extent: shown(extent), prealloc: false },
            FileExtentItem::Prealloc(extent) => Shared::Extent { extent: shown(extent), prealloc: true },
        };
        found.push(SourcePart { start: at, end: stop, what });
        at = stop;
        if what == Shared::Inline {
            break;
        }
    }
    Ok(found)
}

/// Whether `range` of both files is in the same extents already, so that nothing is left to share.
pub(crate) fn is_shared(source: &Inode, target: &Inode, range: &CloneRange) -> Result<bool> {
    let sector = u64::from(source.engine().sector_size());
    let end = (range.from + range.len).next_multiple_of(sector);
    let mut at = range.from;
    while at < end {
        let moved = |at: u64| at - range.from + range.to;
        let (one, other) = (pieces(source, (at, end), 1)?, pieces(target, (moved(at), moved(end)), 1)?);
        let (one, other) = (one[0], other[0]);
        let len = (one.end - one.start).min(other.end - other.start);
        if one.until(one.start + len).what != other.until(other.start + len).what
            || one.what == Shared::Inline
        {
            return Ok(false);
        }
        at += len;
    }
    Ok(true)
}

/// Puts `pieces`, or the first ones of them, into the target in one handle. Returns the end of that in the source.
fn clone_step(
    target: &FileInode<'_>,
    item: &mut InodeItem,
    range: &CloneRange,
    pieces: &Pieces,
) -> Result<u64> {
    let engine = target.engine();
    let sector = u64::from(engine.sector_size());
    let place = |at: u64| at - range.from + range.to;
    let first = pieces.first().expect("there is at least one");
    let last = pieces.last().expect("there is at least one");
    let seen = target.extents_seen();
    let room = (place(first.start), place(last.end));
    let plan = DropPlan::from_front(target.tree(), target.id.ino, room, reserve::DROP_EDITS_MAX, sector)?;
    let explicit = !engine.incompat().contains(Incompat::NO_HOLES);
    let new: SmallVec<[SourcePart; PIECES_MAX]> = pieces
        .iter()
        .filter(|piece| place(piece.start) < plan.stop)
        .map(|piece| piece.until(plan.stop - range.to + range.from))
        .filter(|piece| explicit || piece.what != Shared::Hole)
        .collect();
    let count = u32::try_from(new.len()).expect("bounded by PIECES_MAX");
    let units = ReserveItems::items(reserve::drop_units(&plan) + 2 * count + 1).of(target.id.subvolume);
    in_handle(engine, units, |handle| {
        change_alone(target, handle, seen, |locked| {
            plan.apply(handle, target.tree(), target.id, None)?;
            let (bytes, flags) = put_in(handle, target, range, &new)?;
            let now = handle.now();
            *item = locked.update((plan.start, plan.stop), |item| {
                item.flags |= flags;
                item.nbytes = recount(item.nbytes, plan.bytes, bytes);
                item.size = item.size.max(plan.stop.min(range.to + range.len));
                if !range.keep_times {
                    item.mtime = now;
                    item.ctime = now;
                }
            })?;
            Ok(())
        })?;
        Ok(plan.stop - range.to + range.from)
    })
}

impl SourcePart {
    /// The part of it before `stop`.
    fn until(mut self, stop: u64) -> Self {
        self.end = self.end.min(stop);
        if let Shared::Extent { extent, .. } = &mut self.what {
            extent.num_bytes = self.end - self.start;
        }
        self
    }

    /// The item bytes for it.
    fn encode(&self, handle: &Handle<'_>) -> [u8; REGULAR_LEN] {
        match self.what {
            Shared::Hole => encode_hole(handle.generation(), self.end - self.start),
            Shared::Extent { extent, prealloc: true } => extent.encode_prealloc(),
            Shared::Extent { extent, prealloc: false } => extent.encode(),
            Shared::Inline => unreachable!("written as data"),
        }
    }
}

/// Puts the pieces into the gap made for them, with the references. Returns the number of bytes that the target gains, and the
/// flags that it gets.
fn put_in(
    handle: &Handle<'_>,
    target: &Inode,
    range: &CloneRange,
    pieces: &[SourcePart],
) -> Result<(u64, InodeFlags)> {
    let encoded: SmallVec<[(Key, [u8; REGULAR_LEN]); PIECES_MAX]> = pieces
        .iter()
        .map(|piece| {
            let at = piece.start - range.from + range.to;
            (extent_data(target.id.ino, at), piece.encode(handle))
        })
        .collect();
    let items: SmallVec<[(Key, &[u8]); PIECES_MAX]> =
        encoded.iter().map(|(key, bytes)| (*key, &bytes[..])).collect();
    target.tree().insert_batch(handle, &items)?;
    let (mut bytes, mut flags) = (0, InodeFlags::empty());
    for (piece, (key, _)) in pieces.iter().zip(&encoded) {
        if let Shared::Extent { extent, prealloc } = piece.what {
            let offset = key.offset.wrapping_sub(extent.offset);
            handle.add_data_ref(extent.disk_bytenr, extent.disk_num_bytes, target.id, offset)?;
            bytes += extent.num_bytes;
            flags |= if prealloc { InodeFlags::PREALLOC } else { InodeFlags::empty() };
        }
    }
    Ok((bytes, flags))
}
