//! Delayed items: items that every change of a directory's entries would write to the same two places. They are kept in memory and written once.
//!
//! A new entry adds a DIR_INDEX item behind the last one of its directory and changes the directory's INODE_ITEM. If both were written at once, each would cost a
//! search, and all threads that work in neighbouring directories would meet in the leaf of their INODE_ITEMs. So the directory's object keeps both: entries until
//! they fill a quarter of a leaf, which one search then inserts, and the inode item until the transaction closes. An entry that is removed before that never gets
//! into the tree. The DIR_ITEM is inserted at once: it shows whether a name is taken.
//!
//! # Invariants
//! - DELAYED-1: the delayed items of a transaction are in the tree when it closes ([`DelayedRoot`] takes part in every commit).
//!   Shown by `what_was_committed_survives_every_power_cut`.
//! - DELAYED-2: the numbers of delayed entries rise, and are greater than those of all DIR_INDEX items in the tree.
//! - DELAYED-3: the reservation for writing the items is held until they are written.
//! - DELAYED-4: the table of inodes keeps an object that has delayed items, so no thread reads the older item in the tree.
//!   Shown by `attributes_of_directories_stay_with_more_of_them_delayed_than_there_is_room_for`.
//! - DELAYED-5: a delayed item is never older than the one in the tree. A thread that writes or deletes the item in the tree drops the delayed one, under the lock
//!   of the delayed items. A thread that writes delayed items holds this lock, too.
//!   Shown by `what_is_set_on_a_directory_is_not_overwritten_by_what_was_put_off`, `a_directory_is_removed_with_what_it_put_off`.
//!
//! # Locking
//! [`DelayedNode::items`] comes after the transaction handle and the item, and before tree nodes. It changes under the exclusive lock of the directory, or when the
//! items are written. A reader of entries looks here first and then into the tree, so it sees an entry that is being written meanwhile at least once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use creamery_base::gate::Reason;
use creamery_base::lock::{RankedGuard, RankedMutex, rank};
use creamery_base::{Error, ErrorKind, InodeId, Result, Wait, memory};
use creamery_format::dir_item::ItemBytes;
use creamery_format::{ITEM_LEN, Key};
use creamery_tree::Tree;
use creamery_txn::{BlockReserve, CommitParticipant, Handle};

use smallvec::SmallVec;

use crate::items::InodeItem;
use crate::keys;

/// The largest number of directories with delayed items. Beyond it, the one that waits longest is written. It is small under the scheduler, whose executions are
/// short.
const DIRECTORIES_MAX: usize = if cfg!(feature = "shuttle") { 2 } else { 64 };

/// The directories of a filesystem that have delayed items, in the order in which they got their first one.
#[derive(Default)]
pub(crate) struct DelayedRoot {
    queue: RankedMutex<VecDeque<Arc<DelayedNode>>, { rank::LEAF }>,
}

impl DelayedRoot {
    /// The number of directories in the queue.
    pub(crate) fn len(&self) -> usize {
        self.queue.lock().len()
    }

    /// Bytes of memory that delayed entries take.
    pub(crate) fn memory(&self) -> u64 {
        let queue = self.queue.lock();
        let (own, queued) = (memory::vec::<Arc<DelayedNode>>(queue.capacity()), queue.clone());
        drop(queue);
        own + queued.iter().map(|delayed| delayed.entries_memory()).sum::<u64>()
    }

    /// Puts a directory at the end of the queue; if the queue is full, writes the one at its front.
    fn queue(&self, handle: &Handle<'_>, delayed: Arc<DelayedNode>) -> Result<()> {
        let mut queue = self.queue.lock();
        queue.push_back(delayed);
        let longest = if queue.len() > DIRECTORIES_MAX { queue.pop_front() } else { None };
        drop(queue);
        longest.map_or(Ok(()), |longest| longest.write_queued(handle))
    }
}

impl CommitParticipant for DelayedRoot {
    fn settle(&self, handle: &Handle<'_>) -> Result<()> {
        let queue = std::mem::take(&mut *self.queue.lock());
        queue.iter().try_for_each(|delayed| delayed.write_queued(handle))?;
        assert_eq!(self.len(), 0, "DELAYED-1: nobody puts off more while a transaction closes");
        Ok(())
    }
}

/// An entry whose DIR_INDEX item is still to be inserted.
#[derive(Clone)]
pub(crate) struct DelayedEntry {
    pub(crate) index: u64,
    pub(crate) item: ItemBytes,
}

/// Permission to write into the tree of a subvolume later: while a copy besides the subvolume's own exists, the subvolume is not dropped.
#[derive(Clone, Default)]
pub(crate) struct Later(Arc<()>);

impl Later {
    /// Whether only the subvolume itself has it.
    pub(crate) fn is_alone(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }
}

/// The delayed items of one directory.
pub(crate) struct DelayedNode {
    id: InodeId,
    tree: Arc<Tree>,
    /// Kept because the items may be written when their directory's object is gone.
    _later: Later,
    items: RankedMutex<DelayedItems, { rank::DELAYED_ITEMS }>,
    /// Whether there are delayed items; changes under the mutex.
    any: AtomicBool,
}

#[derive(Default)]
struct DelayedItems {
    inode: Option<(InodeItem, BlockReserve)>,
    entries: Vec<DelayedEntry>,
    /// Bytes that the entries will take in a leaf.
    entry_bytes: usize,
    /// The reservation for the leaf that the entries go into.
    entry_room: Option<BlockReserve>,
    queued: bool,
}

fn bytes_in_leaf(entry: &DelayedEntry) -> usize {
    ITEM_LEN + entry.item.len()
}

impl DelayedNode {
    pub(crate) fn new(id: InodeId, tree: Arc<Tree>, later: Later) -> Self {
        Self { id, tree, _later: later, items: RankedMutex::default(), any: AtomicBool::new(false) }
    }

    fn entries_memory(&self) -> u64 {
        // A request for memory figures does not wait for a thread that writes items.
        let Some(items) = self.items.try_lock() else { return 0 };
        let outside = |entry: &DelayedEntry| {
            if entry.item.spilled() { memory::vec::<u8>(entry.item.capacity()) } else { 0 }
        };
        memory::vec::<DelayedEntry>(items.entries.capacity()) + items.entries.iter().map(outside).sum::<u64>()
    }

    /// Whether there are delayed items.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn lock(&self, wait: Wait) -> Result<RankedGuard<'_, DelayedItems, { rank::DELAYED_ITEMS }>> {
        match wait {
            Wait::Yes => Ok(self.items.lock_for(Reason::InodeLock)),
            Wait::No => self.items.try_lock().ok_or_else(|| ErrorKind::WouldBlock.into()),
        }
    }

    fn change<R>(&self, change: impl FnOnce(&mut DelayedItems) -> R) -> R {
        let mut items = self.lock(Wait::Yes).expect("waiting is allowed");
        let result = change(&mut items);
        self.any.store(items.inode.is_some() || !items.entries.is_empty(), Ordering::Release);
        result
    }

    /// Adds delayed items with `put`. It may keep no more of the handle's reservation than writing them at once would take.
    fn put_off(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        root: &DelayedRoot,
        put: impl FnOnce(&mut DelayedItems) -> Result<()>,
    ) -> Result<()> {
        let queued = self.change(|items| put(items).map(|()| std::mem::replace(&mut items.queued, true)))?;
        if queued { Ok(()) } else { root.queue(handle, Arc::clone(self)) }
    }

    /// Delays writing the inode item.
    pub(crate) fn put_off_inode(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        root: &DelayedRoot,
        item: &InodeItem,
    ) -> Result<()> {
        self.put_off(handle, root, |items| {
            match &mut items.inode {
                Some((newest, _)) => newest.clone_from(item),
                none => *none = Some((item.clone(), handle.keep(1))),
            }
            Ok(())
        })
    }

    /// Delays inserting a DIR_INDEX item.
    pub(crate) fn put_off_entry(
        self: &Arc<Self>,
        handle: &Handle<'_>,
        root: &DelayedRoot,
        entry: DelayedEntry,
    ) -> Result<()> {
        self.put_off(handle, root, |items| {
            assert!(items.entries.last().is_none_or(|last| last.index < entry.index), "DELAYED-2");
            items.entry_room.get_or_insert_with(|| handle.keep(1));
            items.entry_bytes += bytes_in_leaf(&entry);
            items.entries.push(entry);
            if items.entry_bytes > self.tree.max_item_size() / 4 {
                self.write_entries(handle, items)
            } else {
                Ok(())
            }
        })
    }

    /// Runs `change`, which writes or deletes the inode item in the tree, and drops the delayed one (DELAYED-5).
    pub(crate) fn supersede<R>(&self, change: impl FnOnce() -> R) -> R {
        self.change(|items| {
            items.inode = None;
            change()
        })
    }

    /// Drops a delayed entry. Returns false if there is none with this number: it is in the tree, or nowhere.
    pub(crate) fn take_back_entry(&self, index: u64) -> bool {
        self.change(|items| {
            let Ok(at) = items.entries.binary_search_by_key(&index, |entry| entry.index) else {
                return false;
            };
            let entry = items.entries.remove(at);
            items.entry_bytes -= bytes_in_leaf(&entry);
            true
        })
    }

    /// Edits a delayed entry in place. Returns `None` if there is none with this number: it is in the tree, or nowhere.
    pub(crate) fn edit_entry<R>(&self, index: u64, edit: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        self.change(|items| {
            let at = items.entries.binary_search_by_key(&index, |entry| entry.index).ok()?;
            Some(edit(&mut items.entries[at].item))
        })
    }

    /// The delayed entries from number `from` on.
    pub(crate) fn entries(&self, from: u64, wait: Wait) -> Result<Vec<DelayedEntry>> {
        let items = self.lock(wait)?;
        let start = items.entries.partition_point(|entry| entry.index < from);
        Ok(items.entries[start..].to_vec())
    }

    /// The number of the last delayed entry.
    pub(crate) fn last_index(&self, wait: Wait) -> Result<Option<u64>> {
        Ok(self.lock(wait)?.entries.last().map(|entry| entry.index))
    }

    fn write_entries(&self, handle: &Handle<'_>, items: &mut DelayedItems) -> Result<()> {
        assert!(items.entries.is_empty() || items.entry_room.is_some(), "DELAYED-3");
        let batch: SmallVec<[(Key, &[u8]); 64]> = items
            .entries
            .iter()
            .map(|entry| (keys::dir_index(self.id.ino, entry.index), &entry.item[..]))
            .collect();
        self.tree.insert_batch(handle, &batch)?;
        drop(batch);
        items.entries.clear();
        items.entry_bytes = 0;
        items.entry_room = None;
        Ok(())
    }

    /// Writes all delayed items of a directory that was taken from the queue.
    fn write_queued(&self, handle: &Handle<'_>) -> Result<()> {
        self.change(|items| {
            items.queued = false;
            self.write_entries(handle, items)?;
            // Frees the list: there are as many as directories in memory, and each has space for a quarter of a leaf.
            items.entries = Vec::new();
            match items.inode.take() {
                Some((item, _room)) => write_inode(handle, &self.tree, self.id, &item),
                None => Ok(()),
            }
        })
    }
}

/// Writes `item` over the INODE_ITEM in the tree. One leaf change.
pub(crate) fn write_inode(handle: &Handle<'_>, tree: &Tree, id: InodeId, item: &InodeItem) -> Result<()> {
    let bytes = item.encode();
    let copied = tree.update(handle, &keys::inode_item(id.ino), |data| {
        let fits = data.len() == bytes.len();
        if fits {
            data.copy_from_slice(&bytes);
        }
        fits
    })?;
    match copied {
        Some(true) => Ok(()),
        Some(false) => {
            Err(Error::new(ErrorKind::Corrupt, format!("inode {id}: inode item has a wrong size")))
        }
        None => Err(Error::new(ErrorKind::Corrupt, format!("inode {id}: inode item is missing"))),
    }
}

#[cfg(test)]
mod tests {
    use creamery_txn::ReserveItems;

    use super::*;
    use crate::data::tests::support::{assert_noticed, new_directory};

    fn entry(index: u64) -> DelayedEntry {
        DelayedEntry { index, item: ItemBytes::from_slice(b"an entry") }
    }

    #[test]
    fn an_entry_before_the_last_one_is_a_bug() {
        assert_noticed("DELAYED-2", |engine| {
            let inode = new_directory(&engine, 300);
            let dir = inode.directory();
            let handle = engine.start(ReserveItems::items(4)).expect("room");
            for index in [7, 6] {
                dir.insert_entry_later(&handle, entry(index)).expect("room");
            }
        });
    }

    #[test]
    fn an_entry_that_nobody_kept_room_for_is_a_bug() {
        assert_noticed("DELAYED-3", |engine| {
            let inode = new_directory(&engine, 300);
            let dir = inode.directory();
            let handle = engine.start(ReserveItems::items(4)).expect("room");
            dir.delayed().change(|items| items.entries.push(entry(7)));
            let _ = dir.delayed().write_queued(&handle);
        });
    }
}
