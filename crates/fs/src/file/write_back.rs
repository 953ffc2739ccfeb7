//! Writing back, as the line of files with delayed data wants it done.

use std::sync::Arc;

use creamery_base::{Error, Result, TreeId};
use creamery_txn::DelallocReservation;

use crate::data;
use crate::delalloc::{Delalloc, Delayed, Run, WriteErrors};
use crate::inode::Inode;

impl Delayed for Inode {
    fn subvolume(&self) -> TreeId {
        self.id.subvolume
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

    fn note_failure(&self, error: Arc<Error>) {
        self.write_errors().note(Arc::clone(&error));
        self.shared().write_errors.note(error);
    }

    fn tell_loss(&self) {
        if let Some(tell) = self.shared().tell_loss.get() {
            tell(self.id);
        }
    }
}
