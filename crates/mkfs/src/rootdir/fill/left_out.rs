//! Going on without a file that cannot be read or made.
//!
//! A reader sends the data of a file of several names once, with the first of them. Where that name is left out the others are, too: their
//! steps come without data, and would make a file of zeros.

use std::sync::mpsc::Receiver;

use creamery_base::{Error, Result};

use super::{Filler, Keep};
use crate::rootdir::progress::{Lost, OnError};
use crate::rootdir::reader::Part;
use crate::rootdir::source::Meta;

impl Filler<'_> {
    /// Goes on without what has this path, where that is wished and can be.
    pub(super) fn settle(&self, path: &[u8], error: Error) -> Result<()> {
        if self.rules.on_error == OnError::Stop || error.kind().ends_all() {
            return Err(error);
        }
        self.progress.lost(path, Lost::Everything { size: None }, &error);
        Ok(())
    }

    /// Takes what is still to come of a file that is not made, so that its bytes go back to the budget.
    pub(super) fn drain(&mut self, parts: &Receiver<Result<Part>>, subvolume: u32) -> Result<()> {
        for part in parts {
            self.progress.go_on()?;
            match part {
                Ok(Part::Meta(meta)) => self.miss(subvolume, &meta),
                Ok(Part::Data { bytes, .. }) => self.shared.budget.give_back(bytes.len() as u64),
                Ok(Part::End { .. }) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Notes that the data of this file does not come again with its other names.
    pub(super) fn miss(&mut self, subvolume: u32, meta: &Meta) {
        if self.has_links(meta) {
            self.missed.insert((subvolume, meta.dev, meta.ino));
        }
    }

    pub(super) fn has_links(&self, meta: &Meta) -> bool {
        meta.nlink > 1 && self.rules.keep == Keep::Everything
    }
}
