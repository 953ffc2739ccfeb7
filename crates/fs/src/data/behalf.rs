//! On whose behalf extents change, and the file that their space is for.

use creamery_base::{Logical, Result, TreeId};
use creamery_txn::{DataExtent, DelallocReservation, Engine, Handle, Units};

use crate::inode::{FileInode, InodeFlags};

/// On whose behalf the extents of a file change.
pub(crate) enum Behalf<'a> {
    /// An operation's: it asks for room, and the file changes now.
    Operation,
    /// The same of one that leaves what the file has, and its times, as they are.
    Rearranging,
    /// An operation's that is in flight. Its room was kept when it began: it asks nobody to write data back or to free any.
    Flight(&'a mut DelallocReservation),
    /// Writeback's: room is kept, and the times are those of the writes that it carries out.
    Writeback(&'a mut DelallocReservation),
    /// The same of what its run needs to have in front of it.
    BeforeRun(&'a mut DelallocReservation),
}

/// The file that new data is for.
#[derive(Clone, Copy)]
pub(crate) struct For<'e> {
    pub(super) engine: &'e Engine,
    /// The subvolume that it is in.
    pub(super) owner: TreeId,
    pub(super) flags: InodeFlags,
    /// Where its space is to be, if possible.
    pub(super) near: Option<Logical>,
}

impl<'e> For<'e> {
    /// A file that there is, which has `flags`.
    pub(super) fn of(inode: &'e FileInode<'_>, flags: InodeFlags) -> Self {
        Self { engine: inode.engine(), owner: inode.id.subvolume, flags, near: inode.data_behind() }
    }
}

impl Behalf<'_> {
    /// Space for data of `file`: `len` bytes, or less, but not below `min`.
    pub(crate) fn allocate(&mut self, file: &For<'_>, len: u64, min: u64) -> Result<DataExtent> {
        let For { engine, owner, near, .. } = *file;
        match self {
            Self::Operation | Self::Rearranging => engine.allocate_data(owner, len, min, near),
            Self::Flight(room) | Self::Writeback(room) | Self::BeforeRun(room) => {
                engine.allocate_reserved(len, min, near, room)
            }
        }
    }

    /// A handle for `units`, to change `inode`.
    pub(crate) fn start<'e>(&mut self, inode: &'e FileInode<'_>, units: Units) -> Result<Handle<'e>> {
        let (engine, units) = (inode.engine(), units.of(inode.id.subvolume));
        match self {
            Self::Operation | Self::Rearranging => engine.start(units),
            Self::Flight(room) | Self::Writeback(room) | Self::BeforeRun(room) => {
                engine.start_reserved(units, room)
            }
        }
    }

    /// Ends a handle of [`Behalf::start`] that changed nothing, because it has to be planned anew: the room for it is kept again.
    pub(crate) fn end_unused(&mut self, inode: &FileInode<'_>, handle: Handle<'_>) {
        match self {
            Self::Operation | Self::Rearranging => handle.end(),
            Self::Flight(room) | Self::Writeback(room) | Self::BeforeRun(room) => {
                inode.engine().end_unused(handle, room)
            }
        }
    }

    /// The file has the data up to `stop`; its item is locked still.
    pub(crate) fn completed(&self, inode: &FileInode<'_>, stop: u64) {
        if let Self::Writeback(_) = self {
            inode.delalloc().complete_to(stop);
        }
    }
}
