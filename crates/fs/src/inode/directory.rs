//! A directory: what an inode has in memory because it has entries.
//!
//! [`DirectoryState`] is that part. A [`DirectoryInode`] is the inode together with it: whoever has one knows that the inode is a
//! directory, and asks no more. The checks of whether entries may come or go give it out, once for an operation. It is all of the
//! inode, too.

use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use creamery_base::lock::{RankedMutex, rank};
use creamery_base::{Result, Wait, memory};
use creamery_txn::Handle;

use super::acl::Acl;
use super::{Inode, InodeItem};
use crate::delayed::{DelayedEntry, DelayedNode};

/// What a directory has besides what every inode has.
pub(crate) struct DirectoryState {
    /// The next free DIR_INDEX number; 0 = not looked up yet. Read and raised by who has the directory alone, so relaxed loads and
    /// stores are enough.
    next_index: AtomicU64,
    /// The default ACL, once looked up.
    default_acl: RankedMutex<Option<Option<Arc<Acl>>>, { rank::LEAF }>,
    /// What was put off, once entries changed.
    delayed: OnceLock<Arc<DelayedNode>>,
}

impl DirectoryState {
    pub(super) fn new() -> Self {
        Self { next_index: AtomicU64::new(0), default_acl: RankedMutex::new(None), delayed: OnceLock::new() }
    }

    /// What was put off, once entries changed.
    pub(super) fn delayed(&self) -> Option<&Arc<DelayedNode>> {
        self.delayed.get()
    }

    /// Whether anything that was put off is still to be written.
    pub(super) fn is_unwritten(&self) -> bool {
        self.delayed.get().is_some_and(|delayed| delayed.any())
    }

    /// What it takes in memory outside, bytes; entries that were put off are counted by [`DelayedRoot`](crate::delayed::DelayedRoot).
    pub(super) fn memory(&self) -> u64 {
        let acl = self.default_acl.lock().as_ref().map_or(0, |acl| acl.as_deref().map_or(0, Acl::memory));
        acl + self.delayed.get().map_or(0, |_| memory::shared::<DelayedNode>())
    }
}

/// An inode that is a directory.
#[derive(Clone, Copy)]
pub(crate) struct DirectoryInode<'a> {
    inode: &'a Inode,
    state: &'a DirectoryState,
}

impl Deref for DirectoryInode<'_> {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        self.inode
    }
}

impl Inode {
    /// It as a directory; none where it is something else.
    pub(crate) fn as_directory(&self) -> Option<DirectoryInode<'_>> {
        self.directory_state().map(|state| DirectoryInode { inode: self, state })
    }

    /// The same of an inode that a test made as one.
    #[cfg(test)]
    pub(crate) fn directory(&self) -> DirectoryInode<'_> {
        self.as_directory().expect("a directory")
    }
}

impl<'a> DirectoryInode<'a> {
    /// What is put off.
    pub(crate) fn delayed(&self) -> &'a Arc<DelayedNode> {
        self.state.delayed.get_or_init(|| {
            Arc::new(DelayedNode::new(self.id, Arc::clone(self.tree()), self.subvolume().later()))
        })
    }

    /// Adds a DIR_INDEX item before the transaction closes.
    pub(crate) fn insert_entry_later(&self, handle: &Handle<'_>, entry: DelayedEntry) -> Result<()> {
        self.delayed().put_off_entry(handle, self.context().delayed(), entry)
    }

    /// Takes back a DIR_INDEX item; false when it is in the tree, or nowhere.
    pub(crate) fn take_back_entry(&self, index: u64) -> bool {
        self.state.delayed().is_some_and(|delayed| delayed.take_back_entry(index))
    }

    /// Changes a delayed DIR_INDEX item; none when it is in the tree, or nowhere.
    pub(crate) fn edit_delayed_entry<R>(&self, index: u64, edit: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        self.state.delayed()?.edit_entry(index, edit)
    }

    /// Delayed DIR_INDEX items from number `from` on. To be asked before the tree.
    pub(crate) fn delayed_entries(&self, from: u64, wait: Wait) -> Result<Vec<DelayedEntry>> {
        match self.state.delayed() {
            Some(delayed) if delayed.any() => delayed.entries(from, wait),
            _ => Ok(Vec::new()),
        }
    }

    /// The number of the last delayed DIR_INDEX item, which is the directory's last. To be asked before the tree.
    pub(crate) fn last_delayed_index(&self, wait: Wait) -> Result<Option<u64>> {
        self.state.delayed().map_or(Ok(None), |delayed| delayed.last_index(wait))
    }

    /// The next free DIR_INDEX number; 0 when it was not looked up yet.
    pub(crate) fn next_index(&self) -> u64 {
        self.state.next_index.load(Ordering::Relaxed)
    }

    /// Notes the next free DIR_INDEX number.
    pub(crate) fn set_next_index(&self, index: u64) {
        assert!(index >= self.next_index(), "DIR-2: a number is not given again");
        self.state.next_index.store(index, Ordering::Relaxed);
    }

    /// The default ACL, if it was looked up.
    pub(crate) fn known_default_acl(&self) -> Option<Option<Arc<Acl>>> {
        self.state.default_acl.lock().clone()
    }

    /// Remembers the default ACL.
    pub(crate) fn set_known_default_acl(&self, acl: Option<Arc<Acl>>) {
        *self.state.default_acl.lock() = Some(acl);
    }

    /// As [`Inode::update`], when entries changed: written before the transaction closes.
    #[track_caller]
    pub(crate) fn update_later(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut InodeItem),
    ) -> Result<InodeItem> {
        self.change_item(handle, |locked| {
            let mut next = locked.item.clone();
            self.take_along(&mut next);
            change(&mut next);
            next.touch(handle.generation());
            self.delayed().put_off_inode(handle, self.context().delayed(), &next)?;
            locked.item.clone_from(&next);
            locked.access_time_written();
            Ok(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::data::tests::support::{assert_noticed, new_directory};

    #[test]
    fn an_index_number_that_is_given_again_is_a_bug() {
        assert_noticed("DIR-2", |engine| {
            let inode = new_directory(&engine, 300);
            inode.directory().set_next_index(7);
            inode.directory().set_next_index(6);
        });
    }
}
