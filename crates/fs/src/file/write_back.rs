//! Writing back, as the line of files with delayed data wants it done.

use creamery_base::{InodeId, Result};
use creamery_txn::DelallocReservation;

use crate::data;
use crate::delalloc::{Delalloc, Delayed, Run, WriteErrors};
use crate::inode::Inode;

impl Delayed for Inode {
    fn id(&self) -> InodeId {
        self.id
    }

    fn delalloc(&self) -> &Delalloc {
        self.delalloc()
    }

    fn write_back(&self, run: &Run, room: &mut DelallocReservation) -> Result<()> {
        data::write_back(self, run, room)
    }

    fn write_errors(&self) -> &WriteErrors {
        self.write_errors()
    }
}
