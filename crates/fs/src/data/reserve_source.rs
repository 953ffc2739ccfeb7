//! The party on whose behalf extents change, and the file that their space is for.

use creamery_base::{Logical, Result, TreeId};
use creamery_txn::{DataExtent, DelallocReservation, Engine, Handle, ReserveItems};

use crate::inode::{FileInode, InodeFlags};

/// The party on whose behalf the extents of a file change.
pub(crate) enum ReserveSource<'a> {
    /// An operation: it reserves room, and the file changes now.
    Operation,
    /// An operation that leaves the file's content and its times as they are.
    Rearranging,
    /// An operation in flight. Its room was kept when it began: it asks no thread to write data back or to free room.
    Flight(&'a mut DelallocReservation),
    /// Writeback: room is kept, and the times are those of the writes that it carries out.
    Writeback(&'a mut DelallocReservation),
    /// Writeback of changes that its run needs in front of it.
    BeforeRun(&'a mut DelallocReservation),
}

/// The file that new data is for.
#[derive(Clone, Copy)]
pub(crate) struct For<'e> {
    pub(super) engine: &'e Engine,
    /// The subvolume that the file is in.
    pub(super) owner: TreeId,
    pub(super) flags: InodeFlags,
    /// The preferred place of its space.
    pub(super) hint: Option<Logical>,
}

impl<'e> For<'e> {
    /// Describes an existing file, which has `flags`.
    pub(super) fn of(inode: &'e FileInode<'_>, flags: InodeFlags) -> Self {
        Self { engine: inode.engine(), owner: inode.id.subvolume, flags, hint: inode.data_behind() }
    }
}

impl ReserveSource<'_> {
    /// Allocates space for data of `file`: `len` bytes, or less, but not below `min`.
    pub(crate) fn allocate(&mut self, file: &For<'_>, len: u64, min: u64) -> Result<DataExtent> {
        let For { engine, owner, hint, .. } = *file;
        match self {
            Self::Operation | Self::Rearranging => engine.allocate_data(owner, len, min, hint),
            Self::Flight(room) | Self::Writeback(room) | Self::BeforeRun(room) => {
                engine.allocate_reserved(len, min, hint, room)
            }
        }
    }

    /// Starts a handle for `units`, to change `inode`.
    pub(crate) fn start<'e>(&mut self, inode: &'e FileInode<'_>, units: ReserveItems) -> Result<Handle<'e>> {
        let (engine, units) = (inode.engine(), units.of(inode.id.subvolume));
        match self {
            Self::Operation | Self::Rearranging => engine.start(units),
            Self::Flight(room) | Self::Writeback(room) | Self::BeforeRun(room) => {
                engine.start_reserved(units, room)
            }
        }
    }

    /// Ends a handle of [`ReserveSource::start`] that changed nothing, because the change has to be planned anew. Keeps its room again.
    pub(crate) fn end_unused(&mut self, inode: &FileInode<'_>, handle: Handle<'_>) {
        match self {
            Self::Operation | Self::Rearranging => handle.end(),
            Self::Flight(room) | Self::Writeback(room) | Self::BeforeRun(room) => {
                inode.engine().end_unused(handle, room)
            }
        }
    }

    /// Notes that the file has the data up to `stop`, while its item is still locked.
    pub(crate) fn completed(&self, inode: &FileInode<'_>, stop: u64) {
        if let Self::Writeback(_) = self {
            inode.delalloc().complete_to(stop);
        }
    }
}
