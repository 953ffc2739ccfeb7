//! The inode object: one for each live inode, shared by all its users.
//!
//! Its item is the in-memory copy of the inode item and changes together with the one in the tree ([`Inode::update`]).
//! So an inode object can leave memory at any time without a write. Directories are the exception while entries come and go:
//! [`DirectoryInode::update_later`] delays the writes (see `delayed`), and the table keeps their objects until these are done.
//!
//! ```text
//!   Inode   id, subvolume, item, locks of operations and of the item, access time, what is known of xattrs
//!     body  Directory   DirectoryState   delayed entries, the next index, the default ACL             DirectoryInode
//!           File        FileState        delayed data, ranges, changes of extents, errors, hints      FileInode
//!           Other                        all of a symbolic link, device node, fifo or socket is in the tree
//! ```
//! The kind of an inode never changes, and each kind has a part of its own (`body`). Operations on files are methods of [`FileInode`],
//! operations on directories are methods of [`DirectoryInode`]: each is the inode with its part. An operation asks for one of them at
//! its start, and fails there if the inode has another kind.
//!
//! # Invariants
//! - INODE-1: at most one `Inode` object that can be shared exists per [`InodeId`] and filesystem.
//! - INODE-2: while no thread has locked the item for writing, the copy equals the INODE_ITEM of the running transaction, or the
//!   delayed item that will replace it. [`Inode::item`] adds the delayed data, and its last access time may be newer
//!   (`access_time`). Shown by `what_is_set_on_a_directory_is_not_overwritten_by_what_was_put_off`.
//! - INODE-3: the number of an inode is not used again, so an id that was valid once names that inode for ever.
//!   Shown by `an_inode_that_is_removed_while_it_is_looked_at_stays_removed`.
//! - INODE-4: a thread that waits for an inode has none with an equal or greater id (LOCK-1). A thread may try any inode.
//!   Shown by `who_waits_for_an_earlier_inode_is_noticed`.
//!
//! # Locking
//! Operations first (INODE-4: several inodes in ascending [`InodeId`]), then ranges, then the transaction handle, then the item
//! (`lock`), then tree nodes. A request that outlives its call carries operations and a range from there on (`carried`). No thread
//! waits for operations or ranges while it holds a handle. An operation that has [`Wait::No`](creamery_base::Wait::No) only tries.

mod accessed;
pub(crate) mod acl;
pub(crate) mod attributes;
mod body;
pub(crate) mod carried;
mod carried_locks;
mod directory;
mod directory_state;
pub(crate) mod extent_changes;
pub(crate) mod file;
pub(crate) mod file_state;
pub(crate) mod guards;
mod inodes;
pub(crate) mod lock;
pub(crate) mod log_turn;
mod lost_directories;
mod noted_writes;
mod overwritten;
pub(crate) mod permission;
mod range_lock;
pub(crate) mod table;
pub(crate) mod xattr;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use creamery_base::lock::{QueuedRwLock, RankedMutex, RankedRwLock, rank};
use creamery_base::{ErrorKind, InodeId, Result, Timespec, memory};
use creamery_tree::Tree;
use creamery_txn::Engine;

pub(crate) use crate::items::{FILE_SIZE_MAX, InodeItem};
pub use creamery_format::{FileType, InodeFlags};
pub(crate) use inodes::{InodeToChange, Inodes, LOOKUP_ROUNDS_MAX};
pub use range_lock::{RangeGuard, RangeLocks};

use crate::context::Context;
use crate::delalloc::Delayed;
use crate::fault::Fault;
use crate::subvolume::{SubvolumeChange, SubvolumeRef};
use body::Body;
pub(crate) use directory::DirectoryInode;
use directory_state::DirectoryState;
pub(crate) use file::FileInode;
use log_turn::LogTurn;

/// One live inode.
///
/// ```
/// fn is_empty_file(inode: &creamery_fs::Inode) -> bool {
///     inode.item(creamery_base::Wait::Yes).is_ok_and(|item| item.size == 0)
/// }
/// ```
pub struct Inode {
    /// The subvolume and number.
    pub id: InodeId,
    subvolume: SubvolumeRef,
    /// The lock of operations: shared or exclusive.
    operations: QueuedRwLock<(), { rank::INODE }>,
    /// The inode item; `lock` has the rules for changing it.
    item: RankedRwLock<InodeItem, { rank::INODE_ITEM }>,
    /// The last access time, if [`state`] has the bit for one that is not part of the item yet.
    access_time: RankedMutex<Timespec, { rank::LEAF }>,
    /// The lock for putting the inode into the logs.
    log_turn: LogTurn,
    /// Bits of [`state`].
    state: AtomicU8,
    /// The part in memory for its kind.
    body: Body,
}

/// Bits that change before the object is shared, or with the inode locked alone. `access_time` and `overwrite_times` have the rules
/// for the bits of unwritten times.
mod state {
    /// The items are deleted: nothing may use the object any more.
    pub(super) const GONE: u8 = 1;
    /// Made without a name on purpose: link(2) may give it one.
    pub(super) const LINKABLE: u8 = 2;
    /// Has no extended attributes.
    pub(super) const NO_XATTRS: u8 = 4;
    /// Has, or may have, extended attributes.
    pub(super) const XATTRS: u8 = 8;
    /// The inode was read, and the access time is not part of the item.
    pub(super) const ACCESSED: u8 = 16;
    /// The inode stands in the queue of unwritten access times.
    pub(super) const ACCESS_QUEUED: u8 = 32;
    /// The file was overwritten in place, and the times of that are not part of the item.
    pub(super) const OVERWRITTEN: u8 = 64;
}

/// Whether an inode has extended attributes, as far as memory knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum XattrsKnown {
    /// There are none.
    Absent,
    /// There may be some.
    Present,
    /// No thread has looked yet.
    Unknown,
}

impl Inode {
    /// The object for an item just read from, or just made for, the tree of `subvolume`.
    pub(crate) fn new(id: InodeId, subvolume: SubvolumeRef, item: InodeItem) -> Self {
        Self {
            id,
            subvolume,
            body: Body::new(item.kind()),
            operations: QueuedRwLock::new(()),
            item: RankedRwLock::new(item),
            access_time: RankedMutex::default(),
            log_turn: LogTurn::default(),
            state: AtomicU8::new(0),
        }
    }

    /// Has its delayed data written back soon. Only a file has any.
    pub(crate) fn start_writeback(self: &Arc<Self>) {
        if self.has_delayed_data() {
            let file: Arc<dyn Delayed> = Arc::<Self>::clone(self);
            self.context().writeback().start_writeback(&file, self.engine());
        }
    }

    /// Whether it has data that is in memory only.
    pub(crate) fn has_delayed_data(&self) -> bool {
        self.body.file().is_some_and(|file| file.delalloc().any())
    }

    /// The lock for putting the inode into the logs.
    pub(crate) const fn log_turn(&self) -> &LogTurn {
        &self.log_turn
    }

    /// The subvolume's tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        self.subvolume.tree()
    }

    /// The subvolume of the inode.
    pub(crate) const fn subvolume(&self) -> &SubvolumeRef {
        &self.subvolume
    }

    /// The context that all subvolumes share.
    pub(crate) fn context(&self) -> &Context {
        self.subvolume.context()
    }

    /// The engine below.
    pub(crate) fn engine(&self) -> &Engine {
        self.context().engine()
    }

    /// Refuses a change early when the subvolume is read-only.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.subvolume.check_writable()
    }

    /// Begins a change in the subvolume, which does not become read-only before the change ends. Errors: it is read-only.
    pub(crate) fn begin_change(&self) -> Result<SubvolumeChange> {
        SubvolumeChange::begin(&self.subvolume)
    }

    /// The kind of the inode.
    #[must_use]
    pub const fn kind(&self) -> FileType {
        self.body.kind()
    }

    pub(crate) const fn is_dir(&self) -> bool {
        self.body.directory().is_some()
    }

    /// The item of an object that no other thread has yet.
    pub(crate) fn own_item(&mut self) -> &InodeItem {
        self.item.get_mut()
    }

    /// Its place among inodes: subvolume, then number (INODE-4).
    fn place(&self) -> u128 {
        u128::from(self.id.subvolume.get()) << u64::BITS | u128::from(self.id.ino.get())
    }

    /// The memory it takes, bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory::shared::<Self>() + self.body.memory()
    }

    /// Refuses an inode that was deleted.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.has(state::GONE) { Err(ErrorKind::Stale.into()) } else { Ok(()) }
    }

    /// Runs `change`, which writes or deletes the INODE_ITEM in the tree, in place of the delayed item (DELAYED-5).
    fn supersede_delayed(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let delayed = self.body.directory().and_then(DirectoryState::delayed);
        let Some(delayed) = delayed else { return change() };
        if self.context().has(Fault::DelayedForgottenLate) {
            change()?;
            return delayed.supersede(|| Ok(()));
        }
        delayed.supersede(change)
    }

    /// Whether the object has to stay in memory: something is unwritten, or an error is unreported.
    pub(crate) fn has_to_stay(&self) -> bool {
        self.has(state::ACCESSED | state::OVERWRITTEN) || self.body.has_to_stay()
    }

    fn has(&self, bit: u8) -> bool {
        self.state.load(Ordering::Acquire) & bit != 0
    }

    /// Marks the object as one whose items are deleted.
    pub(crate) fn set_gone(&self) {
        self.state.fetch_or(state::GONE, Ordering::AcqRel);
    }

    /// Whether an inode without a name may be given one.
    pub(crate) fn is_linkable(&self) -> bool {
        self.has(state::LINKABLE)
    }

    /// Allows a first name for an inode that was made without one.
    pub(crate) fn set_linkable(&self) {
        self.state.fetch_or(state::LINKABLE, Ordering::AcqRel);
    }

    /// Notes that it got a name: when it loses that, it is deleted as any other file.
    pub(crate) fn clear_linkable(&self) {
        self.state.fetch_and(!state::LINKABLE, Ordering::AcqRel);
    }

    /// Whether the inode has extended attributes, as far as memory knows.
    pub(crate) fn xattrs_known(&self) -> XattrsKnown {
        let state = self.state.load(Ordering::Acquire);
        if state & state::XATTRS != 0 {
            XattrsKnown::Present
        } else if state & state::NO_XATTRS != 0 {
            XattrsKnown::Absent
        } else {
            XattrsKnown::Unknown
        }
    }

    /// Remembers whether there are extended attributes. "May have some" is final.
    pub(crate) fn set_xattrs_known(&self, present: bool) {
        let bit = if present { state::XATTRS } else { state::NO_XATTRS };
        self.state.fetch_or(bit, Ordering::AcqRel);
    }
}

impl Drop for Inode {
    fn drop(&mut self) {
        let (nlink, nbytes) = (self.item.get_mut().nlink, self.item.get_mut().nbytes);
        if let Some(file) = self.body.file()
            && file.delalloc().set_queued(false)
        {
            self.context().writeback().forget_inode(file.delalloc().bytes());
        }
        if nlink == 0 && !self.has(state::GONE) {
            self.context().add_dead(self.id, nbytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::Wait;

    use super::*;
    use crate::data::tests::support::{assert_noticed, new_file};

    #[test]
    fn who_waits_for_an_earlier_inode_is_noticed() {
        assert_noticed("LOCK-1", |engine| {
            let [earlier, later] = [300, 301].map(|ino| new_file(&engine, ino, InodeFlags::default()));
            let _later = later.lock_exclusive().expect("it lives");
            drop(earlier.lock_shared(Wait::Yes));
        });
    }
}
