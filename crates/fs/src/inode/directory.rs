//! An inode that is a directory.
//!
//! A [`DirectoryInode`] is the inode together with its [`DirectoryState`]: its holder needs no further check of the kind. The
//! checks of whether entries may come or go give it out, once for an operation.

use std::ops::Deref;
use std::sync::Arc;

use creamery_base::{Result, Wait};
use creamery_txn::Handle;

use super::acl::Acl;
use super::directory_state::DirectoryState;
use super::{Inode, InodeItem};
use crate::delayed::{DelayedEntry, DelayedNode};

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
    /// The inode as a directory; `None` if it is something else.
    pub(crate) fn as_directory(&self) -> Option<DirectoryInode<'_>> {
        self.body.directory().map(|state| DirectoryInode { inode: self, state })
    }

    /// The inode as a directory, for a test that made it as one.
    #[cfg(test)]
    pub(crate) fn directory(&self) -> DirectoryInode<'_> {
        self.as_directory().expect("a directory")
    }
}

impl<'a> DirectoryInode<'a> {
    /// Its delayed items.
    pub(crate) fn delayed(&self) -> &'a Arc<DelayedNode> {
        let make = || DelayedNode::new(self.id, Arc::clone(self.tree()), self.subvolume().later());
        self.state.delayed_or(make)
    }

    /// Adds a DIR_INDEX item before the transaction closes.
    pub(crate) fn insert_entry_later(&self, handle: &Handle<'_>, entry: DelayedEntry) -> Result<()> {
        self.delayed().put_off_entry(handle, self.context().delayed(), entry)
    }

    /// Takes back a delayed DIR_INDEX item. Returns false when it is in the tree, or does not exist.
    pub(crate) fn take_back_entry(&self, index: u64) -> bool {
        self.state.delayed().is_some_and(|delayed| delayed.take_back_entry(index))
    }

    /// Changes a delayed DIR_INDEX item. Returns `None` when it is in the tree, or does not exist.
    pub(crate) fn edit_delayed_entry<R>(&self, index: u64, edit: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        self.state.delayed()?.edit_entry(index, edit)
    }

    /// Delayed DIR_INDEX items from number `from` on. Call this before you look in the tree.
    pub(crate) fn delayed_entries(&self, from: u64, wait: Wait) -> Result<Vec<DelayedEntry>> {
        match self.state.delayed() {
            Some(delayed) if delayed.any() => delayed.entries(from, wait),
            _ => Ok(Vec::new()),
        }
    }

    /// The number of the last delayed DIR_INDEX item, which is the directory's last. Call this before you look in the tree.
    pub(crate) fn last_delayed_index(&self, wait: Wait) -> Result<Option<u64>> {
        self.state.delayed().map_or(Ok(None), |delayed| delayed.last_index(wait))
    }

    /// The next free DIR_INDEX number; 0 when it was not looked up yet.
    pub(crate) fn next_index(&self) -> u64 {
        self.state.next_index()
    }

    /// Notes the next free DIR_INDEX number.
    pub(crate) fn set_next_index(&self, index: u64) {
        self.state.set_next_index(index);
    }

    /// The default ACL, if it was looked up.
    pub(crate) fn known_default_acl(&self) -> Option<Option<Arc<Acl>>> {
        self.state.known_default_acl()
    }

    /// Remembers the default ACL.
    pub(crate) fn set_known_default_acl(&self, acl: Option<Arc<Acl>>) {
        self.state.set_known_default_acl(acl);
    }

    /// Changes the item when entries changed, as [`Inode::update`] does, but writes it later, before the transaction closes.
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
            locked.times_written();
            Ok(next)
        })
    }
}
