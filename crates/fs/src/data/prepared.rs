//! A write of whole sectors, in steps between which nobody waits: for requests that outlive their call.
//!
//! ```text
//!   new --------------> batch ---- device, all pieces at once ---> landed --------------------> complete
//!   in place or to new             no thread has anything          the flush that the commit    handle by handle,
//!   space, summed                                                  owes it                      from the front on
//! ```
//! What completing takes is known when all has its place, however many pieces that are, and is kept before anything is written. So what
//! is on a device does not find then that there is no room for it.
//!
//! `write_direct` writes piece by piece, and its caller waits for each: it asks for space on the way, so it needs no room that was kept.
//!
//! Whoever has it keeps the file locked, as for any write, from before it is made until it is complete or dropped. Dropped, its new
//! space goes back (ORDERED-1), and what would have been written over is as the device left it.

use std::sync::Arc;

use creamery_base::{Error, Result, Wait};
use creamery_device::{Parts, SharedBytes};
use creamery_txn::{DelallocReservation, Engine};
use creamery_volume::{WriteBatch, Written};
use smallvec::SmallVec;

use super::completion::Completion;
use super::grow::fill_gap;
use super::in_place::InPlace;
use super::nocow::{self, NocowWalk};
use super::one_extent::OneExtent;
use super::ordered_extent::{NewSize, OrderedExtent};
use super::tail::settle_tail;
use super::write::gap;
use super::{Behalf, DirectlyWritten, reserve};
use crate::counters::Direct;
use crate::fault::Fault;
use crate::inode::lock::HeldExtents;
use crate::inode::{FileInode, Inode, InodeItem};
use crate::subvolume::InPlaceWriter;

/// One extent of what is written.
enum Piece {
    InPlace(InPlace),
    New(OrderedExtent),
}

impl Piece {
    /// Up to where in the file it goes.
    fn end(&self) -> u64 {
        match self {
            Self::InPlace(space) => space.range().1,
            Self::New(ordered) => ordered.end(),
        }
    }

    /// Metadata that completing it takes, once its data is prepared.
    fn units(&self, inode: &FileInode<'_>) -> Result<u32> {
        match self {
            Self::InPlace(space) => Ok(space.units(inode.engine())),
            Self::New(ordered) => ordered.units_of_all_steps(inode),
        }
    }

    /// Adds `data`, which is all of it, to what is to be written.
    fn add_to(&mut self, batch: &mut WriteBatch, engine: &Engine, data: SharedBytes) {
        let data = Parts::from(data);
        let at = match self {
            Self::InPlace(space) => space.prepare(engine.sector_size(), data.iter()),
            Self::New(ordered) => ordered.prepare(data.iter()),
        };
        batch.add_data(at, data);
    }

    fn landed(&mut self, proof: Written) {
        match self {
            Self::InPlace(space) => space.landed(proof),
            Self::New(ordered) => ordered.landed(proof),
        }
    }
}

/// A write that has its places, and that nobody sees yet.
#[must_use = "dropping it gives the space back"]
pub(crate) struct Prepared {
    start: u64,
    end: u64,
    /// From the front on, without gaps.
    pieces: SmallVec<[Piece; 1]>,
    /// Behind the pieces: a snapshot may begin when this goes.
    _in_place: Option<InPlaceWriter>,
}

impl Prepared {
    /// Finds places for `data` at `offset`, both whole sectors, in `room`, which is that of [`reserve::keep`], and computes its checksums:
    /// in place where that is allowed, else in new space, and never packed. The file is not stored inline. None where there is no room for
    /// all of that unless others free some, and nothing is written then.
    /// Errors: no space; device errors; damage; aborted.
    pub(crate) fn new(
        room: &mut DelallocReservation,
        inode: &FileInode<'_>,
        item: &mut InodeItem,
        offset: u64,
        data: &SharedBytes,
    ) -> Result<Option<(Self, WriteBatch)>> {
        let (prepared, batch, units) = match Self::place(room, inode, item, offset, data) {
            // The room that was kept may be what lacks.
            Err(error) if error.kind().is_no_room() => return Ok(None),
            placed => placed?,
        };
        let owner = inode.id.subvolume;
        let is_kept = reserve::keep_for_units(inode.engine(), owner, room, data.len() as u64, units)?;
        Ok(is_kept.then_some((prepared, batch)))
    }

    /// All of it with its place, what is to be written, and the units that completing it takes.
    /// Errors: as [`new`](Self::new).
    fn place(
        room: &mut DelallocReservation,
        inode: &FileInode<'_>,
        item: &mut InodeItem,
        offset: u64,
        data: &SharedBytes,
    ) -> Result<(Self, WriteBatch, u32)> {
        let end = offset + data.len() as u64;
        if offset >= item.size && offset > 0 {
            settle_tail(inode, item)?;
        }
        let mut holes = gap(inode, item, offset)?;
        if holes.stop < offset {
            // More gaps than one handle fills.
            fill_gap(&mut Behalf::Operation, inode, item, offset)?;
            holes = gap(inode, item, offset)?;
        }
        let mut walk = NocowWalk::new(inode, item, (offset, end));
        let (mut pieces, mut batch, mut at) = (SmallVec::<[Piece; 1]>::new(), WriteBatch::default(), offset);
        let mut units = holes.len();
        while at < end {
            let mut piece = next_piece(&mut walk, room, inode, item, (at, end))?;
            let part = as_len(at - offset)..as_len(piece.end() - offset);
            piece.add_to(&mut batch, inode.engine(), data.slice(part));
            units = units.saturating_add(piece.units(inode)?);
            at = piece.end();
            pieces.push(piece);
        }
        let is_in_place = pieces.iter().any(|piece| matches!(piece, Piece::InPlace(_)))
            && !inode.context().has(Fault::InPlaceGivenBackEarly);
        let _in_place = walk.into_writer().filter(|_| is_in_place);
        Ok((Self { start: offset, end, pieces, _in_place }, batch, units))
    }

    /// `data` at `offset` of a file with this item, all in one extent of it, what is to be written, and the units that completing it takes.
    pub(crate) fn in_place(
        inode: &FileInode<'_>,
        item: &InodeItem,
        (offset, data): (u64, &SharedBytes),
        OneExtent { extent, writer }: OneExtent,
    ) -> (Self, WriteBatch, u32) {
        let engine = inode.engine();
        let end = offset + data.len() as u64;
        let (piece, mut batch) = (InPlace::new(engine, item.flags, extent), WriteBatch::default());
        assert_eq!(piece.range(), (offset, end), "it is in one extent");
        let units = piece.units(engine);
        let mut piece = Piece::InPlace(piece);
        piece.add_to(&mut batch, engine, data.clone());
        let pieces = SmallVec::from_iter([piece]);
        (Self { start: offset, end, pieces, _in_place: Some(writer) }, batch, units)
    }

    /// Where in the file it begins.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// All of it is on its devices.
    pub(crate) fn landed(&mut self, engine: &Engine, proof: Written) {
        // Each commit flushes all devices; the proof says besides which copies were missed, and that once.
        let mut proof = Some(proof);
        for piece in &mut self.pieces {
            piece.landed(proof.take().unwrap_or_else(|| engine.volume().nothing_written()));
        }
    }

    /// Whether all of it goes over what a file of `size` bytes has in place, so that completing it needs no handle if its times may follow later.
    pub(crate) fn overwrites(&self, size: u64) -> bool {
        self.pieces.iter().all(|piece| matches!(piece, Piece::InPlace(space) if space.is_overwrite(size)))
    }

    /// Makes it what the file shows there, from the front on: less than all only when space ran out all the same. The times of what goes over
    /// what the file has may follow later (`overwrite_times`). A caller that holds the item, which stays as it `is`, has seen before that all of
    /// it does, and that the times may.
    /// Errors: no space; damage; aborted.
    pub(crate) fn complete(
        self,
        room: &mut DelallocReservation,
        (owner, inode): (&Arc<Inode>, &FileInode<'_>),
        item: &mut InodeItem,
        is: Option<HeldExtents<'_>>,
    ) -> Result<DirectlyWritten> {
        let Self { start, end, pieces, _in_place } = self;
        let (size, puts_off) = (item.size, is.is_some() || owner.may_put_times_off(item));
        let holes = gap(inode, item, start)?;
        let (mut reached, mut in_place, mut overwrites) = (start, 0, false);
        let mut behalf = Behalf::Flight(room);
        let mut completion = Completion::new(&mut behalf, inode, item, &mut reached).filling(holes);
        let mut done = Ok(());
        for piece in pieces {
            let before = completion.reached();
            done = match piece {
                Piece::InPlace(space) if puts_off && space.is_overwrite(size) => {
                    completion.skip_to(space.range().1);
                    space.end_overwrite(inode.engine());
                    overwrites = true;
                    in_place += completion.reached() - before;
                    Ok(())
                }
                Piece::InPlace(space) => {
                    let done = space.complete(&mut completion, end);
                    in_place += completion.reached() - before;
                    done
                }
                Piece::New(ordered) => ordered.complete(&mut completion, NewSize::AtLeast(end)),
            };
            if done.is_err() {
                break;
            }
        }
        if overwrites {
            // Before a snapshot may begin, which has the times of what it shows.
            owner.overwritten(inode.engine().split_off(room, 1), is);
            Direct::count(&inode.context().counters().direct.times_later);
        }
        DirectlyWritten::up_to((start, reached), in_place, done)
    }
}

/// The place of the front of what is left.
fn next_piece(
    walk: &mut NocowWalk<'_>,
    room: &mut DelallocReservation,
    inode: &FileInode<'_>,
    item: &InodeItem,
    (at, end): (u64, u64),
) -> Result<Piece, Error> {
    match walk.piece(at, Wait::Yes)? {
        nocow::Piece::InPlace(extent) => Ok(Piece::InPlace(InPlace::new(inode.engine(), item.flags, extent))),
        nocow::Piece::New(stop) => {
            let len = stop.min(end) - at;
            OrderedExtent::allocate(&mut Behalf::Flight(room), inode, item, at, len).map(Piece::New)
        }
    }
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
