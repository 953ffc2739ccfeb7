//! Whether data may be written over existing extents, in place, instead of to new space (NOCOW).
//!
//! Space that was set aside (prealloc) may be written in any file, for no reader sees its bytes yet. Existing data may be
//! overwritten in a NODATACOW file. Both only where the extent is this file's alone: a snapshot or a clone that also has it would
//! show the new data. The checks that need only the file's leaf come first:
//!
//! | it goes to new space when the item | because |
//! |---|---|
//! | is inline, a hole, or compressed | there is no sector for it on a device |
//! | is regular, and the file is not NODATACOW | old data stays as it is |
//! | is as old as the last snapshot of the subvolume, or older | the snapshot may have it |
//!
//! Then the leaf is released. The next checks search other trees, and may wait there, so that no thread waits for the leaf
//! meanwhile.
//!
//! | it goes to new space when | because |
//! |---|---|
//! | another reference to the extent exists, in the tree or queued | a clone has it, or a snapshot |
//! | another file dropped its reference, and no durable commit has that yet | the file has the extent again after a power cut |
//! | a sector has a checksum | the checksum would be wrong |
//! | the block group is read-only, or there is none | it is being moved, or read through |
//!
//! The last check returns the right to write ([`NocowWriter`]), which is kept until the file has the data. A snapshot of the
//! subvolume that begins meanwhile waits (`subvolume/in_place`). No write in place begins while a snapshot is taken; this check
//! comes first, because it costs nothing.
//!
//! With the switch [`FsOptions::nocow_keeps_leaf`](crate::FsOptions) the leaf is kept until all checks are done, to measure the cost
//! of that.
//!
//! A refusal costs a new search, from the end of the refused item on: with its leaf let go, neighbours may have been cut or joined.
//!
//! # Invariants
//! - NOCOW-1: no leaf of a file tree is held while other trees are searched. Shown by `the_leaf_is_let_go_before_other_trees_are_searched`.
//! - NOCOW-2: data written in place has neither moved nor got checksums afterwards, but for prealloc in files that have them.
//!   Shown by `what_is_overwritten_in_place_stays_where_it_is`.

use creamery_base::lock::{HeldNote, rank};
use creamery_base::{Generation, Logical, Result, Wait};
use creamery_format::Compression;
use creamery_format::file_extent::{EXTENT_LEN_MAX, Extent, FileExtentItem};
use creamery_txn::NocowWriter;

use super::extent_map::{ExtentItem, ExtentItems};
use crate::counters::Nocow;
use crate::inode::lock::HeldExtents;
use crate::inode::{Inode, InodeFlags, InodeItem};
use crate::keys::extent_data;
use crate::subvolume::InPlaceWriter;

/// An item of a file that refers to an extent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    /// The position in the file where it begins.
    pub(crate) start: u64,
    /// The position in the file where it ends.
    pub(crate) end: u64,
    pub(crate) extent: Extent,
    /// Whether it reads as zeros until it is converted.
    pub(crate) is_prealloc: bool,
}

impl Candidate {
    /// The address on disk of the byte `at` of the file.
    pub(crate) fn disk(&self, at: u64) -> Logical {
        self.extent.disk_bytenr + self.extent.offset + (at - self.start)
    }

    /// Makes the checks in other trees, with no leaf of a file tree held (NOCOW-1), unless the inode's filesystem keeps it.
    /// Errors: would block; device errors; damage.
    pub(super) fn decide(self, inode: &Inode, range: (u64, u64), wait: Wait) -> Result<Decided> {
        let nocow = &inode.context().counters().nocow;
        if inode.context().policy().nocow_keeps_leaf {
            Nocow::count(&nocow.looks_with_leaf);
        } else {
            HeldNote::none_of(rank::NODE, "NOCOW-1: other trees are searched with a leaf held");
        }
        let engine = inode.engine();
        let Extent { disk_bytenr, disk_num_bytes, offset, .. } = self.extent;
        let (offset, since) = (self.start.wrapping_sub(offset), inode.tree().last_snapshot());
        if !engine.data().is_exclusive(disk_bytenr, disk_num_bytes, inode.id, offset, since, wait)? {
            Nocow::count(&nocow.shared);
            return Ok(Decided::Shared);
        }
        let (at, len) = (self.disk(range.0), range.1 - range.0);
        if engine.data().has_csums(at, len, wait)? {
            Nocow::count(&nocow.with_csums);
            return Ok(Decided::WithCsums);
        }
        let Some(writer) = engine.data().nocow_writer(at, len) else {
            Nocow::count(&nocow.no_group);
            return Ok(Decided::NoGroup);
        };
        Nocow::count(&nocow.written);
        Ok(Decided::InPlace(NocowExtent { item: self, range, _writer: writer }))
    }
}

/// The result of the checks in other trees.
pub(super) enum Decided {
    InPlace(NocowExtent),
    /// Another reference to the extent exists, or would after a power cut.
    Shared,
    WithCsums,
    /// The block group takes no writes, or there is none.
    NoGroup,
}

/// The next item that may be written in place, by the checks in its leaf.
fn candidate(
    items: &mut ExtentItems<'_>,
    may_overwrite: bool,
    since: Generation,
) -> Result<Option<Candidate>> {
    while let Some(ExtentItem { start, end, extent }) = items.next()? {
        let (extent, is_prealloc) = match extent {
            FileExtentItem::Prealloc(extent) => (extent, true),
            FileExtentItem::Regular(extent) if may_overwrite => (extent, false),
            _ => continue,
        };
        if extent.compression == Compression::None && extent.generation > since {
            return Ok(Some(Candidate { start, end, extent, is_prealloc }));
        }
    }
    Ok(None)
}

/// The prealloc item of a range, whatever its age.
pub(crate) fn prealloc_in(
    still: &HeldExtents<'_>,
    inode: &Inode,
    range: (u64, u64),
) -> Result<Option<Candidate>> {
    candidate(&mut items_of(still, inode, range, Wait::Yes)?, false, Generation::default())
}

fn items_of<'i>(
    _: &HeldExtents<'_>,
    inode: &'i Inode,
    range: (u64, u64),
    wait: Wait,
) -> Result<ExtentItems<'i>> {
    ExtentItems::new(inode.tree(), inode.id.ino, range, u64::from(inode.engine().sector_size()), wait)
}

/// A part of a file whose data is written in place. A scrub or a balance of its block group waits until this value drops (NOCOW-4).
pub(crate) struct NocowExtent {
    pub(crate) item: Candidate,
    /// The part of the file.
    pub(crate) range: (u64, u64),
    _writer: NocowWriter,
}

/// The destination of the front of the data that remains to be written.
pub(crate) enum FrontTarget {
    /// The extent is written in place.
    InPlace(NocowExtent),
    /// The data up to here goes to new space.
    New(u64),
}

/// A range of a file that is to be written, from the front on.
pub(crate) struct NocowWalk<'i> {
    inode: &'i Inode,
    /// Whether regular extents may be overwritten, too.
    may_overwrite: bool,
    end: u64,
    /// The extent found past the front.
    ahead: Option<NocowExtent>,
    /// The checks are done up to here.
    seen_to: u64,
    writer: Option<InPlaceWriter>,
}

impl<'i> NocowWalk<'i> {
    /// The range `[start, end)` of a file with this item, locked or in flight.
    pub(crate) fn new(inode: &'i Inode, item: &InodeItem, (start, end): (u64, u64)) -> Self {
        let may_overwrite = item.flags.contains(InodeFlags::NODATACOW | InodeFlags::NODATASUM);
        let writer = if may_overwrite || item.flags.contains(InodeFlags::PREALLOC) {
            let writer = InPlaceWriter::begin(inode.subvolume(), inode.id.ino);
            if writer.is_none() {
                Nocow::count(&inode.context().counters().nocow.barred);
            }
            writer
        } else {
            None
        };
        let seen_to = if writer.is_some() { start } else { end };
        Self { inode, may_overwrite, end, ahead: None, seen_to, writer }
    }

    /// Decides the destination of the front, which is at `at`.
    /// Errors: would block; device errors; damage.
    pub(crate) fn piece(&mut self, at: u64, wait: Wait) -> Result<FrontTarget> {
        if self.ahead.is_none() && at >= self.seen_to {
            self.ahead = self.find(at, wait)?;
            self.seen_to = self.ahead.as_ref().map_or(self.end, |ahead| ahead.range.1);
        }
        Ok(match self.ahead.take() {
            Some(ahead) if ahead.range.0 <= at => FrontTarget::InPlace(ahead),
            Some(ahead) => {
                let stop = ahead.range.0;
                self.ahead = Some(ahead);
                FrontTarget::New(stop)
            }
            None => FrontTarget::New(self.end),
        })
    }

    /// The writer that keeps snapshots waiting for the extents found.
    pub(crate) fn into_writer(self) -> Option<InPlaceWriter> {
        self.writer
    }

    fn find(&self, mut at: u64, wait: Wait) -> Result<Option<NocowExtent>> {
        let inode = self.inode;
        while at < self.end {
            let still = inode.hold_extents(wait)?;
            let since = inode.tree().last_snapshot();
            let mut items = items_of(&still, inode, (at, self.end), wait)?;
            let Some(found) = candidate(&mut items, self.may_overwrite, since)? else { break };
            // The leaf is released here, or, with the switch, only after all checks.
            drop(items);
            let kept = if inode.context().policy().nocow_keeps_leaf {
                let leaf = inode.tree().cursor_locked(&extent_data(inode.id.ino, at), wait)?;
                Some((leaf, still))
            } else {
                drop(still);
                None
            };
            let start = found.start.max(at);
            let range = (start, found.end.min(self.end).min(start + EXTENT_LEN_MAX));
            let decided = found.decide(inode, range, wait)?;
            drop(kept);
            if let Decided::InPlace(extent) = decided {
                return Ok(Some(extent));
            }
            at = range.1;
            if at < self.end {
                Nocow::count(&inode.context().counters().nocow.searched_again);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::TreeId;
    use creamery_format::Key;

    use super::*;
    use crate::data::tests::support::{SECTOR, assert_noticed, new_file};
    use crate::data::write;

    #[test]
    fn the_leaf_is_let_go_before_other_trees_are_searched() {
        assert_noticed("NOCOW-1", |engine| {
            let file = new_file(&engine, 300, InodeFlags::NODATACOW | InodeFlags::NODATASUM);
            let mut locked = file.lock_exclusive().expect("it lives");
            write(&file.file(), locked.item_mut(), 0, &[7; SECTOR as usize]).expect("room");
            let range = (0, SECTOR);
            let still = file.hold_extents(Wait::Yes).expect("nobody changes it");
            let mut items = items_of(&still, &file, range, Wait::Yes).expect("a readable tree");
            let found = candidate(&mut items, true, Generation::default());
            let found = found.expect("a readable tree").expect("an extent");
            drop((items, still));
            let tree = engine.tree(TreeId::FS).expect("the top level");
            let _leaf = tree.cursor(&Key::MIN, Wait::Yes).expect("a readable tree");
            let _ = found.decide(&file, range, Wait::Yes);
        });
    }
}
