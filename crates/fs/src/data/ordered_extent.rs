//! Ordered extents: new data between the allocation of its space and the handle that makes it part of a file.
//!
//! File data changes metadata only through here. An [`OrderedExtent`] owns freshly allocated space, knows which
//! part of which file it is for, takes the data in order, and computes the checksums while the data passes by.
//! Until [`OrderedExtent::complete`] nothing in any tree knows of it, so old data stays readable and a crash
//! leaves no trace. Completion swaps the file extent items, queues the reference, puts the checksums into their tree, and
//! updates the inode, all in one handle.
//!
//! ```text
//!   allocate ---> write, write, ... ---> complete
//!       |                |                  |  (first handle: from here on the file owns the space)
//!       +--- dropped ----+                  +--> more handles, only when the range held very many items
//!            the space goes back
//! ```
//!
//! A range that holds more items than one handle should drop is taken over in steps. The first step makes the file
//! show only the front of the extent, as far as its old items are gone; each further step drops more of them and
//! lets the one new item show more. Every step is consistent by itself (DATA-2), and the last one gives the result of a single
//! step.
//!
//! # Invariants
//! - ORDERED-1: space that was allocated is given back on every way out before the first handle changed something,
//!   and belongs to the transaction after that: an error from then on aborts it.
//!   Shown by `a_full_filesystem_takes_what_fits_and_can_be_emptied`.
//! - ORDERED-2: a file never shows sectors that were not written: completion asserts that all of them were, or that none was
//!   and the item says so (prealloc).
//! - ORDERED-3: an extent has checksums for all of its sectors, or, in a NODATASUM file, for none. They are of the bytes on the
//!   device, packed or not.

use creamery_base::{InodeId, Logical, Result, Wait};
use creamery_codec::{ChecksumType, checksum_blocks};
use creamery_device::Parts;
use creamery_format::Compression;
use creamery_format::file_extent::{self, COMPRESSED_LEN_MAX, EXTENT_LEN_MAX, Extent, PREALLOC_LEN_MAX};
use creamery_txn::{DataExtent, Engine, Handle};
use creamery_volume::Written;

use super::completion::{Completion, CompletionStep};
use super::data_source::DataSink;
use super::drop_extents::DropPlan;
use super::packed::Packed;
use super::reserve_source::{For, ReserveSource};
use super::{recount, reserve};
use crate::compression;
use crate::inode::{FileInode, InodeFlags, InodeItem};
use crate::keys::extent_data;

/// The units of the item, which shows more, and of the inode.
const SHOW_MORE_UNITS: u32 = 2;

/// New data on its way into a file.
#[must_use = "dropping it gives the space back"]
pub(crate) struct OrderedExtent {
    /// The position in the file where it begins.
    start: u64,
    space: DataExtent,
    /// Data up to here was handed to the writer, with its checksums.
    prepared: u64,
    /// Data up to here is on its device.
    written: u64,
    /// The proof of the writes, which the commit flushes before a reader sees the data.
    proof: Written,
    /// `None` in a NODATASUM file, and for prealloc.
    csums: Option<Vec<u8>>,
    /// Set for space set aside for later data: nothing is written.
    prealloc: bool,
    /// The compression, and the number of the file's bytes that the data stands for.
    packed: Option<(Compression, u64)>,
    /// The flags that the file gets with this extent.
    marks: InodeFlags,
    checksum: ChecksumType,
    sector: u64,
}

/// The effect of completion on the file's size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SizeAfter {
    /// The file grows to this size where it is smaller; data from there to the end of the extent is padding.
    AtLeast(u64),
    /// The file gets this size, with a single step.
    Exactly(u64),
}

impl OrderedExtent {
    /// Allocates space for `[start, start + len)` of a file, or for the front of it when there is no room for all in one piece.
    /// `item` is the file's. Errors: no space; read-only.
    pub(crate) fn allocate(
        behalf: &mut ReserveSource<'_>,
        inode: &FileInode<'_>,
        item: &InodeItem,
        start: u64,
        len: u64,
    ) -> Result<Self> {
        let ordered = Self::allocate_new(behalf, &For::of(inode, item.flags), start, len)?;
        inode.set_data_behind(ordered.space_end());
        Ok(ordered)
    }

    /// Allocates space for a file that may not exist in a tree yet.
    pub(crate) fn allocate_new(
        behalf: &mut ReserveSource<'_>,
        file: &For<'_>,
        start: u64,
        len: u64,
    ) -> Result<Self> {
        let csums = (!file.flags.contains(InodeFlags::NODATASUM)).then(Vec::new);
        let space = set_aside(behalf, file, len.min(EXTENT_LEN_MAX))?;
        Ok(Self { csums, ..Self::nothing_written(file.engine, start, space) })
    }

    /// Allocates space, in one piece, for the packed data of `[start, end)` of a file: the caller writes the packed data into it.
    /// Errors: those of `allocate`; no space for it in one piece.
    pub(crate) fn allocate_packed(
        behalf: &mut ReserveSource<'_>,
        file: &For<'_>,
        (start, end): (u64, u64),
        packed: &Packed,
    ) -> Result<Self> {
        let len = packed.bytes.len() as u64;
        assert!(len < end - start && end - start <= COMPRESSED_LEN_MAX, "PACKING-2: it pays");
        let space = behalf.allocate(file, len, len)?;
        assert_eq!(space.len(), len, "PACKING-1: a packed extent is in one piece");
        let packed = Some((packed.compression, end - start));
        Ok(Self { csums: Some(Vec::new()), packed, ..Self::nothing_written(file.engine, start, space) })
    }

    /// Gives the file these flags, too, when it gets the extent.
    pub(crate) const fn marking(mut self, marks: InodeFlags) -> Self {
        self.marks = self.marks.union(marks);
        self
    }

    /// Sets space aside, which reads as zeros until data is written there.
    pub(crate) fn preallocate(inode: &FileInode<'_>, start: u64, len: u64) -> Result<Self> {
        let file = For::of(inode, InodeFlags::empty());
        let space = set_aside(&mut ReserveSource::Operation, &file, len.min(PREALLOC_LEN_MAX))?;
        let ordered = Self { prealloc: true, ..Self::nothing_written(file.engine, start, space) };
        let ordered = ordered.marking(InodeFlags::PREALLOC);
        inode.set_data_behind(ordered.space_end());
        Ok(ordered)
    }

    fn nothing_written(engine: &Engine, start: u64, space: DataExtent) -> Self {
        let sector = u64::from(engine.sector_size());
        assert!(start.is_multiple_of(sector));
        let (proof, checksum) = (engine.volume().nothing_written(), engine.checksum_type());
        Self {
            start,
            space,
            prepared: 0,
            written: 0,
            proof,
            csums: None,
            prealloc: false,
            packed: None,
            marks: InodeFlags::empty(),
            checksum,
            sector,
        }
    }

    /// The flags that the file gets.
    pub(crate) const fn marks(&self) -> InodeFlags {
        self.marks
    }

    /// The position in the file where it begins.
    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// The position in the file where it ends.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.packed.map_or(self.space.len(), |(_, len)| len)
    }

    /// The address on the volume where its space ends.
    pub(crate) fn space_end(&self) -> Logical {
        self.space.start() + self.space.len()
    }

    /// Writes the next sectors.
    pub(crate) fn write(&mut self, engine: &Engine, data: &[u8]) -> Result<()> {
        let at = self.prepare([data].into_iter());
        self.landed(engine.volume().write_data(at, data)?);
        Ok(())
    }

    fn write_parts(&mut self, engine: &Engine, data: Parts) -> Result<()> {
        let at = self.prepare(data.iter());
        self.landed(engine.data().write_parts(at, data)?);
        Ok(())
    }

    /// Computes the checksums of the next sectors, which are about to be written. Returns their address.
    pub(super) fn prepare<'d>(&mut self, data: impl Iterator<Item = &'d [u8]>) -> Logical {
        let at = self.space.start() + self.prepared;
        for data in data {
            self.prepared += data.len() as u64;
            assert!(
                self.prepared.is_multiple_of(self.sector) && self.prepared <= self.space.len(),
                "ORDERED-2: no more is written than there is space"
            );
            if let Some(csums) = &mut self.csums {
                checksum_blocks(self.checksum, data, as_len(self.sector), csums);
            }
        }
        at
    }

    /// Notes that the prepared data is on its device.
    pub(super) fn landed(&mut self, proof: Written) {
        self.written = self.prepared;
        self.proof.add(proof);
    }

    /// A sink for the data.
    pub(crate) fn writer<'a>(&'a mut self, engine: &'a Engine) -> impl DataSink + 'a {
        struct OrderedWriter<'a>(&'a mut OrderedExtent, &'a Engine);
        impl DataSink for OrderedWriter<'_> {
            fn write(&mut self, data: &[u8]) -> Result<()> {
                self.0.write(self.1, data)
            }
            fn write_parts(&mut self, data: Parts) -> Result<()> {
                self.0.write_parts(self.1, data)
            }
        }
        OrderedWriter(self, engine)
    }

    /// Metadata units that completing it in an empty range takes.
    pub(crate) fn units(&self, engine: &Engine) -> u32 {
        reserve::complete_units(engine, self.csums.as_ref().map_or(0, Vec::len))
    }

    /// Metadata units that completing it takes in all its steps, over the file's present extents and once its data is prepared.
    pub(super) fn units_of_all_steps(&self, inode: &FileInode<'_>) -> Result<u32> {
        let (sector, end) = (u64::from(inode.engine().sector_size()), self.end());
        let (mut at, mut units, mut own) = (self.start, 0_u32, self.units(inode.engine()));
        let _still = inode.hold_extents(Wait::Yes)?;
        while at < end {
            let plan =
                DropPlan::from_front(inode.tree(), inode.id.ino, (at, end), reserve::DROP_EDITS_MAX, sector)?;
            units = units.saturating_add(reserve::drop_units(&plan) + own);
            (at, own) = (plan.stop, SHOW_MORE_UNITS);
        }
        Ok(units)
    }

    /// The file extent item for the first `shown` bytes. Notes the feature that reading it takes before a log can have it (LOG-7).
    pub(crate) fn item(&self, handle: &Handle<'_>, shown: u64) -> [u8; file_extent::REGULAR_LEN] {
        let whole = Extent::whole(handle.generation(), self.space.start(), self.space.len());
        let (compression, ram_bytes) = self.packed.unwrap_or((Compression::None, self.space.len()));
        handle.add_incompat(compression::incompat(compression));
        let extent = Extent { num_bytes: shown, ram_bytes, compression, ..whole };
        if self.prealloc { extent.encode_prealloc() } else { extent.encode() }
    }

    /// Hands the space over to the transaction, with the checksums and the one reference of the item at `start`.
    pub(crate) fn hand_over(self, handle: &Handle<'_>, owner: InodeId) -> Result<Logical> {
        let shown = if self.prealloc { 0 } else { self.space.len() };
        assert_eq!(self.written, shown, "ORDERED-2, DATA-3: a file shows only what was written");
        let sectors = as_len(self.written / self.sector);
        let summed = self.csums.as_ref().is_none_or(|csums| csums.len() == sectors * self.checksum.size());
        assert!(summed, "ORDERED-3: checksums of all sectors or of none");
        let at = self.space.start();
        handle.complete_data(self.space, self.proof, owner, self.start, self.csums.as_deref())?;
        Ok(at)
    }

    /// Makes it part of the file in place of the old extents.
    /// Errors: no space, damage (then the file has the front of the data, see [`Completion::reached`]); aborted.
    pub(crate) fn complete(self, completion: &mut Completion<'_, '_>, size: SizeAfter) -> Result<()> {
        let (inode, decided_on) = (completion.inode(), completion.file().flags);
        let (start, end, marks) = (self.start, self.end(), self.marks);
        let sector = u64::from(inode.engine().sector_size());
        let mut at = start;
        let mut fresh = Some(self);
        while at < end {
            let still = inode.hold_extents(Wait::Yes)?;
            let seen = inode.extents_seen();
            let plan =
                DropPlan::from_front(inode.tree(), inode.id.ino, (at, end), reserve::DROP_EDITS_MAX, sector)?;
            drop(still);
            let own = fresh.as_ref().map_or(SHOW_MORE_UNITS, |ordered| ordered.units(inode.engine()));
            let stop = plan.stop;
            assert!(at < stop && stop <= end, "DATA-2: each handle takes the file further");
            let step = CompletionStep {
                units: reserve::drop_units(&plan) + own,
                stop,
                changed: (at, stop),
                seen: Some(seen),
            };
            let exchange = |handle: &Handle<'_>| match fresh.take() {
                Some(ordered) => ordered.show(handle, inode, &plan),
                None => {
                    plan.apply(handle, inode.tree(), inode.id, None)?;
                    show_more(handle, inode, start, stop - start)
                }
            };
            let done = completion.step(step, exchange, |item| {
                item.flags |= compression::marks_that_hold(marks, decided_on, item.flags);
                item.nbytes = recount(item.nbytes, plan.bytes, stop - at);
                item.size = match size {
                    SizeAfter::AtLeast(size) => item.size.max(size.min(stop)),
                    SizeAfter::Exactly(size) => {
                        assert_eq!(stop, end, "an exact size goes with a range of one step");
                        size
                    }
                };
            })?;
            if done {
                at = stop;
            }
        }
        Ok(())
    }

    /// Shows the part of it for which `plan` has made room.
    fn show(self, handle: &Handle<'_>, inode: &FileInode<'_>, plan: &DropPlan) -> Result<()> {
        plan.apply(handle, inode.tree(), inode.id, Some(self.start))?;
        let shown = self.item(handle, plan.stop - self.start);
        inode.tree().upsert(handle, &extent_data(inode.id.ino, self.start), &shown)?;
        self.hand_over(handle, inode.id).map(drop)
    }
}

/// Lets the item at `start` show `shown` bytes of its extent.
fn show_more(handle: &Handle<'_>, inode: &FileInode<'_>, start: u64, shown: u64) -> Result<()> {
    let key = extent_data(inode.id.ino, start);
    inode
        .tree()
        .update(handle, &key, |data| file_extent::set_num_bytes(data, shown))?
        .expect("the item was made by the first step, and its range is locked since");
    Ok(())
}

/// Space for `len` bytes of data of `file`, or less.
fn set_aside(behalf: &mut ReserveSource<'_>, file: &For<'_>, len: u64) -> Result<DataExtent> {
    let sector = u64::from(file.engine.sector_size());
    assert!(len.is_multiple_of(sector));
    let space = behalf.allocate(file, len, sector)?;
    assert!(space.len() <= len);
    Ok(space)
}

/// A length that is bounded by an extent's.
fn as_len(len: u64) -> usize {
    usize::try_from(len).expect("bounded by the length of an extent")
}

#[cfg(test)]
mod tests {
    use creamery_base::{ObjectId, TreeId};
    use creamery_txn::ReserveItems;

    use super::*;
    use crate::data::tests::support::{SECTOR, assert_noticed};

    fn hand_over(engine: &Engine, spoil: impl FnOnce(&mut OrderedExtent)) {
        let file = For { engine, owner: TreeId::FS, flags: InodeFlags::default(), hint: None };
        let ordered = OrderedExtent::allocate_new(&mut ReserveSource::Operation, &file, 0, 2 * SECTOR);
        let mut ordered = ordered.expect("room");
        ordered.write(engine, &[7; SECTOR as usize]).expect("written");
        spoil(&mut ordered);
        let handle = engine.start(ReserveItems::items(2)).expect("room");
        let owner = InodeId::new(TreeId::FS, ObjectId::new(300));
        let _ = ordered.hand_over(&handle, owner);
    }

    #[test]
    fn an_extent_that_is_not_all_written_is_a_bug() {
        assert_noticed("ORDERED-2, DATA-3", |engine| hand_over(&engine, |_| ()));
    }

    #[test]
    fn an_extent_with_checksums_of_a_part_is_a_bug() {
        let all = |ordered: &mut OrderedExtent| ordered.written = ordered.space.len();
        assert_noticed("ORDERED-3", |engine| hand_over(&engine, all));
    }
}
