//! Goes on without a file that cannot be read or made.
//!
//! A reader sends the data of a file of several names once, with the first of them. If that name is left out, the others are, too: their
//! steps come without data, and would make a file of zeros. If the first name was made, the others become links to it, also if one of them
//! fails.

use std::sync::mpsc::Receiver;

use creamery_base::{Error, Result};

use super::{Filler, Keep};
use crate::rootdir::progress::{Lost, OnError};
use crate::rootdir::reader::Part;
use crate::rootdir::source::Meta;

impl Filler<'_> {
    /// Goes on without the file at this path, if the options allow that and it is possible.
    pub(super) fn settle(&self, path: &[u8], error: Error) -> Result<()> {
        if self.rules.on_error == OnError::Stop || error.kind().ends_all() {
            return Err(error);
        }
        self.progress.lost(path, Lost::Everything { size: None }, &error);
        Ok(())
    }

    /// Takes the remaining parts of a file that is not made, so that its bytes go back to the budget.
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

    /// Notes that the data of this file does not come again with its other names, and that none of them has it.
    pub(super) fn miss(&mut self, subvolume: u32, meta: &Meta) {
        let key = (subvolume, meta.dev, meta.ino);
        if self.has_links(meta) && !self.links.contains_key(&key) {
            self.missed.insert(key);
        }
    }

    /// Leaves out attributes that fit into no leaf, if errors do not end the copy.
    pub(super) fn leave_out_large_xattrs(&self, meta: &mut Meta, path: &[u8]) -> Result<()> {
        if self.rules.on_error == OnError::Stop || self.rules.keep != Keep::Everything {
            return Ok(());
        }
        let mut fitting = Vec::with_capacity(meta.xattrs.len());
        for (name, value) in std::mem::take(&mut meta.xattrs) {
            let most = self.fs.xattr_value_max(&name)?;
            if value.len() > most {
                let what =
                    format!("it has {} bytes, expected at most {most} for this node size", value.len());
                self.progress.xattr_left_out(path, &name, &Error::invalid(what));
            } else {
                fitting.push((name, value));
            }
        }
        meta.xattrs = fitting;
        Ok(())
    }

    pub(super) fn has_links(&self, meta: &Meta) -> bool {
        meta.nlink > 1 && self.rules.keep == Keep::Everything
    }
}
