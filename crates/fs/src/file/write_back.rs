//! Writeback of one file, for the line of files with delayed data.

use creamery_base::{InodeId, Result};
use creamery_txn::DelallocReservation;

use crate::data;
use crate::delalloc::{Delalloc, DelallocRange, Delayed, WriteErrors};
use crate::inode::{FileInode, Inode};

/// The file of an inode that stands in line, or has to write its data back: it has data.
fn file(inode: &Inode) -> FileInode<'_> {
    inode.as_file().expect("only a file has delayed data")
}

impl Delayed for Inode {
    fn id(&self) -> InodeId {
        self.id
    }

    fn delalloc(&self) -> &Delalloc {
        file(self).delalloc()
    }

    fn write_back(&self, run: &DelallocRange, room: &mut DelallocReservation) -> Result<()> {
        data::write_back(&file(self), run, room)
    }

    fn write_errors(&self) -> &WriteErrors {
        file(self).write_errors()
    }
}
