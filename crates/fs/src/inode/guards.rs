//! Several inodes, each locked alone, in ascending [`InodeId`].
//!
//! An operation on names locks the directories first, because only they show which inodes the names refer to. It then *tries* the
//! inodes: trying cannot wait, so it needs no order. When that fails, it releases everything, locks all of them in order, and
//! looks the names up once more.

use creamery_base::{InodeId, Result};

use smallvec::SmallVec;

use crate::inode::lock::ExclusiveInode;
use crate::inode::{Inode, InodeItem};

/// Inodes locked for one operation.
pub(crate) struct Guards<'a> {
    held: SmallVec<[(&'a Inode, ExclusiveInode<'a>); 4]>,
}

impl<'a> Guards<'a> {
    /// Locks `inodes` in order, each of them once.
    pub(crate) fn lock(inodes: &[&'a Inode]) -> Result<Self> {
        let mut sorted: SmallVec<[&'a Inode; 4]> = SmallVec::from_slice(inodes);
        sorted.sort_unstable_by_key(|inode| inode.id);
        sorted.dedup_by_key(|inode| inode.id);
        let mut held = SmallVec::new();
        for inode in sorted {
            held.push((inode, inode.lock_exclusive()?));
        }
        Ok(Self { held })
    }

    /// Adds one more without waiting; returns false when another thread has it.
    pub(crate) fn try_add(&mut self, inode: &'a Inode) -> Result<bool> {
        if self.position(inode.id).is_some() {
            return Ok(true);
        }
        match inode.try_lock_exclusive()? {
            Some(guard) => {
                self.held.push((inode, guard));
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Whether an inode is one of those locked.
    pub(crate) fn holds(&self, id: InodeId) -> bool {
        self.position(id).is_some()
    }

    fn position(&self, id: InodeId) -> Option<usize> {
        self.held.iter().position(|(inode, _)| inode.id == id)
    }

    /// The item of a locked inode, as it was when it was locked.
    pub(crate) fn item(&self, id: InodeId) -> &InodeItem {
        let at = self.position(id).expect("the inode is one of those locked");
        &self.held[at].1
    }
}
