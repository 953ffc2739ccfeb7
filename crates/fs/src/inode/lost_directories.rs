//! Directories whose inode items cannot be read, in a damaged filesystem that is only read.
//!
//! A directory's entries have keys of their own, mostly in other leaves than its item. Who wants what is left says of such an inode that it
//! is a directory ([`Filesystem::take_for_directory`](crate::Filesystem::take_for_directory)): a lost item then stands for one of which
//! nothing is known, and its entries can be listed as far as they can be read. An item that can be read goes before that.

use std::collections::HashSet;

use creamery_base::InodeId;
use creamery_base::lock::{RankedMutex, rank};

/// Those of which somebody said so.
#[derive(Default)]
pub(super) struct LostDirectories(RankedMutex<HashSet<InodeId>, { rank::LEAF }>);

impl LostDirectories {
    /// Adds one.
    pub(super) fn add(&self, id: InodeId) {
        self.0.lock().insert(id);
    }

    /// Whether somebody said so of `id`.
    pub(super) fn has(&self, id: InodeId) -> bool {
        self.0.lock().contains(&id)
    }
}
