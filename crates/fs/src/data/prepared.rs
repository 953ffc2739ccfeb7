//! A write of whole sectors, in steps between which no thread waits: for requests that outlive their call.
//!
//! ```text
//!   new --------------> batch ---- device, all pieces at once ---> landed --------------------> complete
//!   in place or to new             no thread has anything          the flush that the commit    handle by handle,
//!   space, summed                                                  owes it                      from the front on
//! ```
//! The room that completing takes is known when all data has its place, in however many pieces. It is kept before anything is written.
//! So data that is on a device never finds that there is no room for it.
//!
//! `write_direct` writes piece by piece, and its caller waits for each: it reserves space on the way, so it needs no kept room.
//!
//! The owner of a prepared write keeps the file locked, as for any write, from before it is made until it is complete or dropped.
//! When it is dropped, its new space goes back (ORDERED-1), and overwritten data is as the device left it.

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
use super::ordered_extent::{OrderedExtent, SizeAfter};
use super::tail::settle_tail;
use super::write::gap;
use super::{DirectlyWritten, ReserveSource, reserve};
use crate::counters::Direct;
use crate::fault::Fault;
use crate::inode::lock::HeldExtents;
use crate::inode::{FileInode, Inode, InodeItem};
use crate::subvolume::InPlaceWriter;

/// One extent of the write.
enum PreparedExtent {
    InPlace(InPlace),
    New(OrderedExtent),
}

impl PreparedExtent {
    /// The end of it in the file.
    fn end(&self) -> u64 {
        match self {
            Self::InPlace(space) => space.range().1,
            Self::New(ordered) => ordered.end(),
        }
    }

    /// Metadata units that completing it takes, once its data is prepared.
    fn units(&self, inode: &FileInode<'_>) -> Result<u32> {
        match self {
            Self::InPlace(space) => Ok(space.units(inode.engine())),
            Self::New(ordered) => ordered.units_of_all_steps(inode),
        }
    }

    /// Adds `data`, which is all of it, to the `batch`.
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

/// A write that has its places, and that no reader sees yet.
#[must_use = "dropping it gives the space back"]
pub(crate) struct PreparedWrite {
    start: u64,
    end: u64,
    /// The extents of the write, from the front on, without gaps.
    pieces: SmallVec<[PreparedExtent; 1]>,
    /// The right to write in place, dropped after the pieces: then a snapshot may begin.
    _in_place: Option<InPlaceWriter>,
}

impl PreparedWrite {
    /// Finds places for `data` at `offset`, both whole sectors, in `room`, which is that of [`reserve::keep`], and computes its checksums:
    /// in place where that is allowed, else in new space, and never packed. The file is not stored inline. `None` where there is no room
    /// for all of that without a reclaim; nothing is written then.
    /// Errors: no space; device errors; damage; aborted.
    pub(crate) fn new(
        room: &mut DelallocReservation,
        inode: &FileInode<'_>,
        item: &mut InodeItem,
        offset: u64,
        data: &SharedBytes,
    ) -> Result<Option<(Self, WriteBatch)>> {
        let (prepared, batch, units) = match Self::place(room, inode, item, offset, data) {
            // The missing room may be the room that was kept.
            Err(error) if error.kind().is_no_room() => return Ok(None),
            placed => placed?,
        };
        let owner = inode.id.subvolume;
        let is_kept = reserve::keep_for_units(inode.engine(), owner, room, data.len() as u64, units)?;
        Ok(is_kept.then_some((prepared, batch)))
    }

    /// Returns the write with all its places, the batch, and the units that completing it takes. Errors: those of
    /// [`new`](Self::new).
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
            fill_gap(&mut ReserveSource::Operation, inode, item, offset)?;
            holes = gap(inode, item, offset)?;
        }
        let mut walk = NocowWalk::new(inode, item, (offset, end));
        let (mut pieces, mut batch, mut at) =
            (SmallVec::<[PreparedExtent; 1]>::new(), WriteBatch::default(), offset);
        let mut units = holes.len();
        while at < end {
            let mut piece = next_piece(&mut walk, room, inode, item, (at, end))?;
            let part = as_len(at - offset)..as_len(piece.end() - offset);
            piece.add_to(&mut batch, inode.engine(), data.slice(part));
            units = units.saturating_add(piece.units(inode)?);
            at = piece.end();
            pieces.push(piece);
        }
        let is_in_place = pieces.iter().any(|piece| matches!(piece, PreparedExtent::InPlace(_)))
            && !inode.context().has(Fault::InPlaceGivenBackEarly);
        let _in_place = walk.into_writer().filter(|_| is_in_place);
        Ok((Self { start: offset, end, pieces, _in_place }, batch, units))
    }

    /// Returns a write of `data` at `offset` of a file with this item, all in one extent of it, with the batch and the units that
    /// completing it takes.
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
        let mut piece = PreparedExtent::InPlace(piece);
        piece.add_to(&mut batch, engine, data.clone());
        let pieces = SmallVec::from_iter([piece]);
        (Self { start: offset, end, pieces, _in_place: Some(writer) }, batch, units)
    }

    /// The position in the file where it begins.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Notes that all of it is on its devices.
    pub(crate) fn landed(&mut self, engine: &Engine, proof: Written) {
        // Each commit flushes all devices. The proof also names the copies that were missed; it is used once.
        let mut proof = Some(proof);
        for piece in &mut self.pieces {
            piece.landed(proof.take().unwrap_or_else(|| engine.volume().nothing_written()));
        }
    }

    /// Whether all of it goes over existing data of a file of `size` bytes, so that completing it needs no handle if its times may
    /// follow later.
    pub(crate) fn overwrites(&self, size: u64) -> bool {
        self.pieces
            .iter()
            .all(|piece| matches!(piece, PreparedExtent::InPlace(space) if space.is_overwrite(size)))
    }

    /// Shows the data in the file, from the front on: less than all only when space ran out all the same. The times of an overwrite
    /// may follow later (`overwrite_times`). A caller that passes the locked item as `is` has checked that all of the write is an
    /// overwrite, and that the times may follow later.
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
        let mut behalf = ReserveSource::Flight(room);
        let mut completion = Completion::new(&mut behalf, inode, item, &mut reached).filling(holes);
        let mut done = Ok(());
        for piece in pieces {
            let before = completion.reached();
            done = match piece {
                PreparedExtent::InPlace(space) if puts_off && space.is_overwrite(size) => {
                    completion.skip_to(space.range().1);
                    space.end_overwrite(inode.engine());
                    overwrites = true;
                    in_place += completion.reached() - before;
                    Ok(())
                }
                PreparedExtent::InPlace(space) => {
                    let done = space.complete(&mut completion, end);
                    in_place += completion.reached() - before;
                    done
                }
                PreparedExtent::New(ordered) => ordered.complete(&mut completion, SizeAfter::AtLeast(end)),
            };
            if done.is_err() {
                break;
            }
        }
        if overwrites {
            // Before a snapshot may begin: it has the times of the data that it shows.
            owner.overwritten(room.take_items(1), is);
            Direct::count(&inode.context().counters().direct.times_later);
        }
        DirectlyWritten::up_to((start, reached), in_place, done)
    }
}

/// The place of the front of the remaining data.
fn next_piece(
    walk: &mut NocowWalk<'_>,
    room: &mut DelallocReservation,
    inode: &FileInode<'_>,
    item: &InodeItem,
    (at, end): (u64, u64),
) -> Result<PreparedExtent, Error> {
    match walk.piece(at, Wait::Yes)? {
        nocow::FrontTarget::InPlace(extent) => {
            Ok(PreparedExtent::InPlace(InPlace::new(inode.engine(), item.flags, extent)))
        }
        nocow::FrontTarget::New(stop) => {
            let len = stop.min(end) - at;
            OrderedExtent::allocate(&mut ReserveSource::Flight(room), inode, item, at, len)
                .map(PreparedExtent::New)
        }
    }
}

/// A length that is bounded by a buffer's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of a buffer")
}
