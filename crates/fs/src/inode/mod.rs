//! The inode object: one per live inode, shared by everybody who names it.
//!
//! Its item is the in-memory copy of the inode item and changes together with the one in the tree ([`Inode::update`]).
//! So an inode object can be dropped from memory at any time without writing.
//! Directories are the exception while entries come and go: [`DirectoryInode::update_later`] puts the writing off (see `delayed`),
//! and the table keeps their objects until it is done.
//!
//! ```text
//!   Inode   id, subvolume, item, locks of operations and of the item, access time, what is known of xattrs
//!     body  Directory   DirectoryState   delayed entries, the next index, the default ACL             DirectoryInode
//!           File        FileState        delayed data, ranges, changes of extents, errors, hints      FileInode
//!           Other                        all of a symbolic link, device node, fifo or socket is in the tree
//! ```
//! Its kind never changes, and each kind has a part of its own (`body`). What only a file can do is a method of [`FileInode`], what only
//! a directory can do one of [`DirectoryInode`]: each is the inode with its part. An operation asks for one of them where it begins,
//! and is refused there if the inode is something else.
//!
//! # Invariants
//! - INODE-1: at most one `Inode` object that can be shared exists per [`InodeId`] and filesystem.
//! - INODE-2: while nobody has locked the item for writing, the copy equals the INODE_ITEM of the running transaction, or the
//!   delayed item that will replace it. What [`Inode::item`] tells has the delayed data in it besides, and the time of the last
//!   access may be newer (`access_time`). Shown by `what_is_set_on_a_directory_is_not_overwritten_by_what_was_put_off`.
//! - INODE-3: the number of an inode is not used again, so an id that was valid once names that inode for ever.
//!   Shown by `an_inode_that_is_removed_while_it_is_looked_at_stays_removed`.
//! - INODE-4: who waits for an inode has none with the same or a greater id (LOCK-1). Trying is exempt.
//!   Shown by `who_waits_for_an_earlier_inode_is_noticed`.
//!
//! # Locking
//! Operations first (INODE-4: several inodes in ascending [`InodeId`]), then ranges, then the transaction handle, then the
//! item (`lock`), then tree nodes. A request that outlives its call carries operations and a range from there on (`carried`). Nobody who holds a handle waits for operations or ranges. An operation that has
//! [`Wait::No`](creamery_base::Wait::No) only tries.

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
use crate::subvolume::{Change, SubvolumeRef};
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
    /// Whose operations share it, or who has it alone.
    operations: QueuedRwLock<(), { rank::INODE }>,
    /// The inode item; see `lock` for who may change it.
    item: RankedRwLock<InodeItem, { rank::INODE_ITEM }>,
    /// When it was read last, if [`state`] says that this is not part of the item yet.
    access_time: RankedMutex<Timespec, { rank::LEAF }>,
    /// Whose turn it is to put it into the logs.
    log_turn: LogTurn,
    /// Bits of [`state`].
    state: AtomicU8,
    /// What it has in memory for what it is.
    body: Body,
}

/// Bits that change before the object is shared, or with the inode locked alone. Bits of times that wait change as `access_time` and
/// `overwrite_times` say.
mod state {
    /// The items are deleted: nothing may use the object any more.
    pub(super) const GONE: u8 = 1;
    /// Made without a name on purpose: may be given one.
    pub(super) const LINKABLE: u8 = 2;
    /// Has no extended attributes.
    pub(super) const NO_XATTRS: u8 = 4;
    /// Has, or may have, extended attributes.
    pub(super) const XATTRS: u8 = 8;
    /// Was read, and the time of that is not part of the item.
    pub(super) const ACCESSED: u8 = 16;
    /// Is in the queue of those whose times are to be written.
    pub(super) const ACCESS_QUEUED: u8 = 32;
    /// Was written over in place, and the times of that are not part of the item.
    pub(super) const OVERWRITTEN: u8 = 64;
}

/// What is known about the extended attributes of an inode without looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum XattrsKnown {
    /// There are none.
    Absent,
    /// There may be some.
    Present,
    /// Nobody has looked yet.
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

    /// Has its delayed data, which only a file has, written back soon.
    pub(crate) fn hasten(self: &Arc<Self>) {
        if self.has_delayed_data() {
            let file: Arc<dyn Delayed> = Arc::<Self>::clone(self);
            self.context().writeback().hasten(&file, self.engine());
        }
    }

    /// Whether it has data that is in memory only.
    pub(crate) fn has_delayed_data(&self) -> bool {
        self.body.file().is_some_and(|file| file.delalloc().any())
    }

    /// Whose turn it is to put it into the logs.
    pub(crate) const fn log_turn(&self) -> &LogTurn {
        &self.log_turn
    }

    /// The subvolume's tree.
    #[must_use]
    pub fn tree(&self) -> &Arc<Tree> {
        self.subvolume.tree()
    }

    /// The subvolume it is in.
    pub(crate) const fn subvolume(&self) -> &SubvolumeRef {
        &self.subvolume
    }

    /// What all subvolumes share.
    pub(crate) fn context(&self) -> &Context {
        self.subvolume.context()
    }

    /// The engine below.
    pub(crate) fn engine(&self) -> &Engine {
        self.context().engine()
    }

    /// Refuses early what would change a subvolume that may not be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.subvolume.check_writable()
    }

    /// Begins a change in the subvolume, which does not become read-only before the change ends. Errors: it is read-only.
    pub(crate) fn begin_change(&self) -> Result<Change> {
        Change::begin(&self.subvolume)
    }

    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> FileType {
        self.body.kind()
    }

    pub(crate) const fn is_dir(&self) -> bool {
        self.body.directory().is_some()
    }

    /// The item of an object that nobody shares.
    pub(crate) fn own_item(&mut self) -> &InodeItem {
        self.item.get_mut()
    }

    /// Its place among inodes: subvolume, then number (INODE-4).
    fn place(&self) -> u128 {
        u128::from(self.id.subvolume.get()) << u64::BITS | u128::from(self.id.ino.get())
    }

    /// What it takes in memory, bytes.
    pub(crate) fn memory(&self) -> u64 {
        memory::shared::<Self>() + self.body.memory()
    }

    /// Refuses an inode that was deleted.
    pub(crate) fn check_alive(&self) -> Result<()> {
        if self.has(state::GONE) { Err(ErrorKind::Stale.into()) } else { Ok(()) }
    }

    /// Does `change`, which writes or deletes the INODE_ITEM in the tree, in place of what was put off (DELAYED-5).
    fn supersede_delayed(&self, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let delayed = self.body.directory().and_then(DirectoryState::delayed);
        let Some(delayed) = delayed else { return change() };
        if self.context().has(Fault::DelayedForgottenLate) {
            change()?;
            return delayed.supersede(|| Ok(()));
        }
        delayed.supersede(change)
    }

    /// Whether the object has to stay in memory: something is still to be written, or an error is still to be reported.
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

    /// Lets an inode that was made without a name be given one.
    pub(crate) fn set_linkable(&self) {
        self.state.fetch_or(state::LINKABLE, Ordering::AcqRel);
    }

    /// It was given a name: when it loses that it is a file like any other.
    pub(crate) fn clear_linkable(&self) {
        self.state.fetch_and(!state::LINKABLE, Ordering::AcqRel);
    }

    /// What is known about extended attributes.
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

    /// Remembers whether there are extended attributes. Once "may have" it stays so.
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
