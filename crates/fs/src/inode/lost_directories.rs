//! Directories whose inode items cannot be read, in a damaged filesystem that is only read.
//!
//! A directory's entries have keys of their own, mostly in other leaves than its item. A caller that rescues data declares such an
//! inode to be a directory ([`Filesystem::take_for_directory`](crate::Filesystem::take_for_directory)). A lost item then counts as that
//! of a directory with unknown attributes, and its readable entries can be listed. An item that can be read goes before that.

use std::collections::HashSet;

use creamery_base::InodeId;
use creamery_base::lock::{RankedMutex, rank};

/// The inodes that a caller declared to be directories.
#[derive(Default)]
pub(super) struct LostDirectories(RankedMutex<HashSet<InodeId>, { rank::LEAF }>);

impl LostDirectories {
    /// Adds one.
    pub(super) fn add(&self, id: InodeId) {
        self.0.lock().insert(id);
    }

    /// Whether a caller declared `id` to be one.
    pub(super) fn has(&self, id: InodeId) -> bool {
        self.0.lock().contains(&id)
    }
}
