//! Writing in place: data goes into the space that was preallocated for it.
//!
//! Space that no reader can see yet may be overwritten: a prealloc item reads as zeros until it is converted, so a crash before
//! that leaves zeros. The write needs no new space. The data goes to the device first; then one handle converts the part of the
//! item that was written, and puts its checksums into their tree. The rest of the item in front of it and behind it stays prealloc,
//! and a regular neighbour that shows the adjoining part of the same extent is joined to it:
//!
//! ```text
//!   before  |--- regular ---|~~~~~~~~~~~~~ prealloc ~~~~~~~~~~~~~|
//!   write                   |xxxxxxxx|
//!   after   |------- regular --------|~~~~~~~~ prealloc ~~~~~~~~~|
//! ```
//!
//! All these items show parts of one extent, and hold a reference each.
//!
//! # Invariants
//! - INPLACE-1: an extent is written in place only when it is this file's alone: its item is younger than the last snapshot of the
//!   subvolume, and no other reference to the extent exists. Otherwise the data goes to new space. Shown by
//!   `prealloc_that_a_snapshot_or_a_clone_shares_is_not_written_in_place`,
//!   `prealloc_that_claims_what_is_not_its_own_is_not_written_in_place`.
//! - INPLACE-2: only sectors that were written are converted: the rest stays prealloc.
//! - INPLACE-3: sectors that have checksums already are not written in place: the old ones would be wrong. Shown by
//!   `what_has_checksums_already_is_not_written_in_place`.

use creamery_base::{Error, ErrorKind, Logical, Result, Wait};
use creamery_codec::{ChecksumType, checksum_blocks};
use creamery_device::Parts;
use creamery_format::Compression;
use creamery_format::file_extent::{Extent, FileExtentItem};
use creamery_txn::{Engine, Handle};
use creamery_volume::Written;
use smallvec::SmallVec;

use super::completion::{Completion, CompletionStep};
use super::data_source::DataSink;
use super::drop_extents::expect_found;
use super::extent_map::{ExtentItem, ExtentItems};
use super::nocow::{self, Candidate, NocowExtent};
use super::{NO_EXTENTS, reserve};
use crate::inode::file_state::ExtentsSeen;
use crate::inode::lock::HeldExtents;
use crate::inode::{FileInode, InodeFlags};
use crate::keys::extent_data;

/// The prealloc item that has the part `[start, end)` of `was` now. That part is locked, and no other thread writes there. A
/// snapshot that was taken while the data was on its way has the old item, which reads as zeros whatever the space holds.
fn prealloc_now(
    still: &HeldExtents<'_>,
    inode: &FileInode<'_>,
    was: &Candidate,
    (start, end): (u64, u64),
) -> Result<Candidate> {
    let found = nocow::prealloc_in(still, inode, (start, end))?;
    let same = found.filter(|now| now.start <= start && end <= now.end && now.disk(start) == was.disk(start));
    same.ok_or_else(|| {
        let key = extent_data(inode.id.ino, was.start);
        let message = format!("file extent {key}: prealloc from {start} to {end} vanished");
        Error::new(ErrorKind::Corrupt, message)
    })
}

impl Candidate {
    /// The item for `[start, end)` of the file.
    fn part(&self, handle: &Handle<'_>, start: u64, end: u64) -> Extent {
        let offset = (self.extent.offset + start).wrapping_sub(self.start);
        Extent { generation: handle.generation(), offset, num_bytes: end - start, ..self.extent }
    }

    /// Whether `item` shows another part of the same extent, at the same distance.
    fn is_continued_by(&self, item: &ExtentItem<'_>) -> bool {
        let FileExtentItem::Regular(extent) = item.extent else { return false };
        let distance = |start: u64, extent: &Extent| start.wrapping_sub(extent.offset);
        extent.compression == Compression::None
            && (extent.disk_bytenr, extent.disk_num_bytes)
                == (self.extent.disk_bytenr, self.extent.disk_num_bytes)
            && distance(item.start, &extent) == distance(self.start, &self.extent)
    }
}

/// Data on its way into an existing extent.
pub(crate) struct InPlace {
    extent: NocowExtent,
    /// Data up to here was handed to the writer, with its checksums.
    prepared: u64,
    /// Data up to here is on its device.
    written: u64,
    /// The proof of the writes, which the commit flushes before a reader sees the data.
    proof: Written,
    /// `None` in a NODATASUM file.
    csums: Option<Vec<u8>>,
    checksum: ChecksumType,
}

impl InPlace {
    /// Begins a write into `extent`, for a file with `flags`.
    pub(crate) fn new(engine: &Engine, flags: InodeFlags, extent: NocowExtent) -> Self {
        let csums = (!flags.contains(InodeFlags::NODATASUM)).then(Vec::new);
        assert!(extent.item.is_prealloc || csums.is_none(), "NOCOW-2: what has checksums is not overwritten");
        let (proof, checksum) = (engine.volume().nothing_written(), engine.checksum_type());
        let (prepared, written) = (extent.range.0, extent.range.0);
        Self { extent, prepared, written, proof, csums, checksum }
    }

    /// The part of the file.
    pub(crate) const fn range(&self) -> (u64, u64) {
        self.extent.range
    }

    /// A sink for the data.
    pub(crate) fn writer<'a>(&'a mut self, engine: &'a Engine) -> impl DataSink + 'a {
        Filling(self, engine)
    }

    /// Computes the checksums of the next sectors, which are about to be written. Returns their address.
    pub(super) fn prepare<'d>(&mut self, sector: u32, data: impl Iterator<Item = &'d [u8]>) -> Logical {
        let at = self.extent.item.disk(self.prepared);
        for data in data {
            self.prepared += data.len() as u64;
            assert!(
                self.prepared <= self.extent.range.1,
                "INPLACE-2: nothing is written that is not converted"
            );
            if let Some(csums) = &mut self.csums {
                checksum_blocks(self.checksum, data, sector as usize, csums);
            }
        }
        at
    }

    /// Notes that the prepared data is on its device.
    pub(super) fn landed(&mut self, proof: Written) {
        self.written = self.prepared;
        self.proof.add(proof);
    }

    /// Metadata units that completing it takes, once its data is prepared.
    pub(super) fn units(&self, engine: &Engine) -> u32 {
        if self.extent.item.is_prealloc {
            reserve::complete_units(engine, self.csums.as_ref().map_or(0, Vec::len)) + CONVERSION_UNITS
        } else {
            OVERWRITE_UNITS
        }
    }

    /// Whether it goes over existing data of the file, which has `size` bytes: then no item of an extent changes.
    pub(super) const fn is_overwrite(&self, size: u64) -> bool {
        !self.extent.item.is_prealloc && self.extent.range.1 <= size
    }

    /// Ends it where it is an [overwrite](Self::is_overwrite): the file shows it since it was written.
    pub(super) fn end_overwrite(self, engine: &Engine) {
        assert_eq!(self.written, self.extent.range.1, "INPLACE-2: a file shows only what was written");
        engine.data().overwrote(self.proof);
    }

    /// Shows the data in the file. The file has `size` bytes at least then, or reaches to the end of the data if that is less. One
    /// handle.
    /// Errors: no space, damage: then nothing changed; aborted.
    pub(crate) fn complete(self, completion: &mut Completion<'_, '_>, size: u64) -> Result<()> {
        let (inode, range) = (completion.inode(), self.extent.range);
        assert_eq!(self.written, range.1, "INPLACE-2: a file shows only what was written");
        let at = self.extent.item.disk(range.0);
        let units = self.units(inode.engine());
        let mut proof = Some(self.proof);
        loop {
            let (conversion, seen) = self.extent.conversion(inode)?;
            let (changed, seen) = match conversion {
                Some(_) => (range, Some(seen)),
                None => (NO_EXTENTS, None),
            };
            let exchange = |handle: &Handle<'_>| {
                let proof = proof.take().expect("it is completed once");
                if let Some(conversion) = conversion {
                    conversion.apply(handle, inode)?;
                }
                handle.complete_in_place(at, proof, self.csums.as_deref())
            };
            let step = CompletionStep { units, stop: range.1, changed, seen };
            if completion.step(step, exchange, |item| item.size = item.size.max(size.min(range.1)))? {
                return Ok(());
            }
        }
    }
}

impl NocowExtent {
    /// The change of its item, if that is prealloc, and the state of the extents at that time. An overwritten extent keeps its
    /// item.
    fn conversion(&self, inode: &FileInode<'_>) -> Result<(Option<Conversion>, ExtentsSeen)> {
        let still = inode.hold_extents(Wait::Yes)?;
        let seen = inode.extents_seen();
        if !self.item.is_prealloc {
            return Ok((None, seen));
        }
        // Another thread that shares the inode may have converted another part of it meanwhile.
        let prealloc = prealloc_now(&still, inode, &self.item, self.range)?;
        Ok((Some(Conversion::plan(&still, inode, prealloc, self.range)?), seen))
    }
}

/// Writes data into its place.
struct Filling<'a>(&'a mut InPlace, &'a Engine);

impl DataSink for Filling<'_> {
    fn write(&mut self, data: &[u8]) -> Result<()> {
        let at = self.0.prepare(self.1.sector_size(), [data].into_iter());
        self.0.landed(self.1.volume().write_data(at, data)?);
        Ok(())
    }

    fn write_parts(&mut self, data: Parts) -> Result<()> {
        let at = self.0.prepare(self.1.sector_size(), data.iter());
        self.0.landed(self.1.data().write_parts(at, data)?);
        Ok(())
    }
}

/// Units beyond those of every completion: three items instead of one, and two references instead of one.
const CONVERSION_UNITS: u32 = 3;
/// The inode.
const OVERWRITE_UNITS: u32 = 1;

/// The split of a prealloc item into the items of its parts.
struct Conversion {
    prealloc: Candidate,
    /// The part that becomes regular, with the neighbours that are joined to it.
    regular: (u64, u64),
    /// The parts that stay prealloc, in front of it and behind it.
    left: SmallVec<[(u64, u64); 2]>,
    /// The existing items: the prealloc item, and neighbours that are joined.
    before: SmallVec<[u64; 3]>,
}

impl Conversion {
    /// Plans for the part `[start, end)` of `prealloc`.
    fn plan(
        _: &HeldExtents<'_>,
        inode: &FileInode<'_>,
        prealloc: Candidate,
        (start, end): (u64, u64),
    ) -> Result<Self> {
        let around = (prealloc.start.saturating_sub(1), prealloc.end.saturating_add(1));
        let sector = u64::from(inode.engine().sector_size());
        let mut plan = Self {
            prealloc,
            regular: (start, end),
            left: [(prealloc.start, start), (end, prealloc.end)].into_iter().filter(|(a, b)| a < b).collect(),
            before: SmallVec::from_slice(&[prealloc.start]),
        };
        let mut items = ExtentItems::new(inode.tree(), inode.id.ino, around, sector, Wait::Yes)?;
        while let Some(item) = items.next()? {
            if !prealloc.is_continued_by(&item) {
                continue;
            }
            if item.end == start {
                plan.regular.0 = item.start;
                plan.before.push(item.start);
            } else if item.start == end {
                plan.regular.1 = item.end;
                plan.before.push(item.start);
            }
        }
        Ok(plan)
    }

    /// Carries it out. Any error is one after the first change: the caller aborts.
    fn apply(&self, handle: &Handle<'_>, inode: &FileInode<'_>) -> Result<()> {
        let prealloc = &self.prealloc;
        let (tree, ino) = (inode.tree(), inode.id.ino);
        let (start, end) = self.regular;
        for at in
            self.before.iter().filter(|at| **at != start && self.left.iter().all(|(left, _)| left != *at))
        {
            expect_found(tree.remove(handle, &extent_data(ino, *at))?, ino, *at)?;
        }
        for &(start, end) in &self.left {
            let bytes = prealloc.part(handle, start, end).encode_prealloc();
            tree.upsert(handle, &extent_data(ino, start), &bytes)?;
        }
        tree.upsert(handle, &extent_data(ino, start), &prealloc.part(handle, start, end).encode())?;
        let Extent { disk_bytenr, disk_num_bytes, offset, .. } = prealloc.extent;
        let offset = prealloc.start.wrapping_sub(offset);
        let (before, after) = (self.before.len(), self.left.len() + 1);
        for _ in before..after {
            handle.add_data_ref(disk_bytenr, disk_num_bytes, inode.id, offset)?;
        }
        for _ in after..before {
            handle.drop_data_ref(disk_bytenr, disk_num_bytes, inode.id, offset);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use creamery_txn::ReserveItems;

    use super::*;
    use crate::data::nocow::{FrontTarget, NocowWalk};
    use crate::data::tests::support::{Kind, SECTOR, assert_noticed, fixture, items, new_file};
    use crate::data::{ReserveSource, prealloc, write};
    use crate::inode::{Inode, InodeItem};
    use crate::operation::in_handle;

    fn found(inode: &Inode, item: &InodeItem, range: (u64, u64)) -> NocowExtent {
        match NocowWalk::new(inode, item, range).piece(range.0, Wait::Yes).expect("a readable tree") {
            FrontTarget::InPlace(extent) => extent,
            FrontTarget::New(_) => panic!("it is ours alone"),
        }
    }

    fn complete_after(sectors: usize, written: impl FnOnce(&mut InPlace, &Engine)) {
        assert_noticed("INPLACE-2", |engine| {
            let file = new_file(&engine, 300, InodeFlags::default());
            let mut locked = file.lock_exclusive().expect("it lives");
            let item = locked.item_mut();
            prealloc(&file.file(), item, (0, 4 * SECTOR), 0).expect("room");
            let mut data = InPlace::new(&engine, item.flags, found(&file, item, (0, 2 * SECTOR)));
            data.writer(&engine).write(&vec![7; sectors * SECTOR as usize]).expect("written");
            written(&mut data, &engine);
            let (behalf, file) = (&mut ReserveSource::Operation, &file.file());
            let _ = data.complete(&mut Completion::new(behalf, file, item, &mut 0), 0);
        });
    }

    #[test]
    fn prealloc_that_is_not_all_written_is_not_converted() {
        complete_after(1, |_, _| ());
    }

    #[test]
    fn what_is_not_converted_is_not_written() {
        complete_after(2, |data, engine| drop(data.writer(engine).write(&[7; SECTOR as usize])));
    }

    #[test]
    fn what_has_checksums_already_is_not_written_in_place() {
        let Some(fixture) = fixture(Kind::DEFAULT) else { return };
        let file = fixture.named("f0");
        let mut locked = file.lock_exclusive().expect("it lives");
        let item = locked.item_mut();
        prealloc(&file.file(), item, (0, 4 * SECTOR), 4 * SECTOR).expect("room");
        let disk = found(&file, item, (0, SECTOR)).item.disk(2 * SECTOR);
        in_handle(&fixture, ReserveItems::items(1), |handle| {
            let nothing = fixture.volume().nothing_written();
            handle.complete_in_place(disk, nothing, Some(&[1; 4]))
        })
        .expect("room");
        for at in [0, 2] {
            write(&file.file(), item, at * SECTOR, &[7; SECTOR as usize]).expect("room");
        }
        assert_eq!(items(&file), "0+1 a@0, 1+1 ~a@1, 2+1 b@0, 3+1 ~a@3");
    }
}
