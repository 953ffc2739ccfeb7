//! Directories whose inode items cannot be read, in a damaged filesystem that is only read.
//!
//! A directory's entries have keys of their own, mostly in other leaves than its item. Who wants what is left says of such an inode that it
//! is a directory ([`Filesystem::take_for_directory`]): a lost item then stands for one of which nothing is known, and its entries
//! can be listed as far as they can be read. An item that can be read goes before that.

use std::collections::HashSet;

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Error, InodeId, Result};

use super::{FileType, InodeItem};
use crate::Filesystem;

/// Those of which somebody said so.
#[derive(Default)]
pub(crate) struct LostDirectories(RankedMutex<HashSet<InodeId>, { rank::LEAF }>);

impl LostDirectories {
    /// What stands for the item of `id`, which cannot be read for this `error`.
    pub(super) fn item(&self, id: InodeId, error: Error) -> Result<InodeItem> {
        if !self.0.lock().contains(&id) {
            return Err(error);
        }
        Ok(InodeItem { mode: FileType::Directory.mode_bits() | 0o700, ..InodeItem::default() })
    }
}

impl Filesystem {
    /// Takes the inode `id`, as long as its item cannot be read, for a directory of root's, from 1970, into which nobody else
    /// may look: whose it was and who might is not known.
    ///
    /// # Errors
    /// Something may be written: nobody changes what is not known.
    pub fn take_for_directory(&self, id: InodeId) -> Result<()> {
        if self.engine().read_only().is_none() {
            return Err(Error::invalid("a directory whose inode is lost is for reading only"));
        }
        self.shared().lost_directories.0.lock().insert(id);
        Ok(())
    }
}
