//! A handle on the running transaction: the right to change trees until it ends.
//!
//! A thread that holds a handle never waits for a commit, which waits for all handles. So a thread holds at most one,
//! reserves before it begins, and takes inode and range locks before.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::sync::Arc;

use creamery_base::{Env, Error, ErrorKind, Generation, InodeId, Logical, Result, Timespec, TreeId, Wait};
use creamery_format::{BlockRef, Incompat, KeyType};
use creamery_tree::{BlockReferences, CowHost, FreedBlock};
use creamery_volume::Written;
use smallvec::SmallVec;

use crate::commit::NextSuperblock;
use crate::csum_tree::CsumTree;
use crate::data_extent::DataExtent;
use crate::extent_tree::{Backref, ExtentKind, ExtentTree, file_extent_address};
use crate::held;
use crate::qgroup::{Qgroups, QuotaMode};
use crate::roots::RootTree;
use crate::space_info::{BlockReserve, Space, SpaceKind, Ticket};
use crate::transaction::{Joined, Transaction};

/// The right to change trees in the running transaction. End it with [`Handle::end`]; dropping it unfinished
/// aborts the transaction.
///
/// ```no_run
/// # fn touch(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// use creamery_txn::ReserveItems;
/// let handle = engine.start(ReserveItems::items(1))?;
/// // ... change trees, passing &handle ...
/// handle.end();
/// # Ok(())
/// # }
/// ```
///
/// A handle stays with its thread:
///
/// ```compile_fail
/// fn lend(handle: creamery_txn::Handle<'static>) {
///     std::thread::spawn(move || handle.end());
/// }
/// ```
#[must_use]
pub struct Handle<'e> {
    on: HandlePorts<'e>,
    generation: Generation,
    ended: bool,
    _running: Option<Joined<'e>>,
    ticket: Option<Ticket<'e>>,
    /// Bytes of its promise that were kept for delayed data before.
    kept_before: u64,
    /// Bytes of tree blocks that it took without a ticket.
    unpromised: Cell<u64>,
    /// References to drop when the handle ends (REF-4).
    given_up: RefCell<SmallVec<[DroppedRef; 2]>>,
}

/// A reference to a data extent that the handle drops.
struct DroppedRef {
    start: Logical,
    len: u64,
    backref: Backref,
}

/// The parts of the engine that handles change.
#[derive(Clone, Copy)]
pub(crate) struct HandlePorts<'e> {
    pub(crate) transaction: &'e Transaction,
    pub(crate) root_tree: &'e RootTree,
    pub(crate) extent_tree: &'e ExtentTree,
    pub(crate) csum_tree: &'e CsumTree,
    pub(crate) space: &'e Space,
    pub(crate) qgroups: &'e Arc<Qgroups>,
    pub(crate) superblock: &'e NextSuperblock,
    pub(crate) env: &'e dyn Env,
    /// Bytes.
    pub(crate) node_size: u32,
}

/// How a handle was obtained.
pub(crate) enum HandleKind<'e> {
    /// Joined with a ticket: an operation.
    Operation(Joined<'e>, Ticket<'e>),
    /// Joined without a promise: a step of running refs. Its blocks are part of the room that all promises leave for the commit
    /// (RESERVE-1).
    Refs(Joined<'e>),
    /// The committer's own: the gate is closed, or no other thread uses the transaction.
    Committer,
}

impl<'e> Handle<'e> {
    /// Creates a handle on the running transaction. The thread has no other.
    pub(crate) fn new(on: HandlePorts<'e>, right: HandleKind<'e>) -> Self {
        if let HandleKind::Operation(_, ticket) = &right {
            let same = ticket.generation() == on.transaction.generation();
            assert!(same, "RESERVE-5: a promise of another transaction");
        }
        held::set_held(true);
        let (running, ticket) = match right {
            HandleKind::Operation(running, ticket) => (Some(running), Some(ticket)),
            HandleKind::Refs(running) => (Some(running), None),
            HandleKind::Committer => (None, None),
        };
        let generation = on.transaction.generation();
        let (unpromised, given_up) = (Cell::default(), RefCell::default());
        Handle {
            on,
            generation,
            ended: false,
            _running: running,
            ticket,
            kept_before: 0,
            unpromised,
            given_up,
        }
    }

    /// Notes that `bytes` bytes of the promise were kept for delayed data before.
    pub(crate) const fn came_of_kept(&mut self, bytes: u64) {
        self.kept_before = bytes;
    }

    /// Takes the unused promise from the handle, which changes nothing any more. Returns it, and how many bytes of it were kept before.
    pub(crate) fn give_up_promise(&mut self) -> (Option<Ticket<'e>>, u64) {
        let ticket = self.ticket.take();
        ticket.iter().for_each(Ticket::check_unused);
        (ticket, std::mem::take(&mut self.kept_before))
    }
}

impl Handle<'_> {
    /// Generation of the running transaction.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// The time now, by the engine's clock.
    #[must_use]
    pub fn now(&self) -> Timespec {
        self.on.env.now()
    }

    /// Bytes of tree blocks that it took without a promise.
    pub(crate) fn unpromised(&self) -> u64 {
        self.unpromised.get()
    }

    /// Checks that the commit took no more than `need`, the bytes that every promise left for it (RESERVE-1).
    pub(crate) fn check_commit_need(&self, need: u64) {
        let taken = self.unpromised.get();
        // A tree's number of blocks comes from its root item. On a damaged filesystem that may be any number, and there was room.
        let as_reckoned = taken <= need || !cfg!(feature = "faults");
        assert!(
            as_reckoned,
            "RESERVE-1: a commit takes {taken} bytes of tree blocks, {need} were left for it"
        );
    }

    pub(crate) fn root_tree(&self) -> &RootTree {
        self.on.root_tree
    }

    pub(crate) fn qgroups(&self) -> &Qgroups {
        self.on.qgroups
    }

    /// Keeps room for `items` items of this handle's promise, for changes that are put off: a participant of
    /// the commit makes them ([`crate::CommitParticipant`]), or a later handle.
    pub fn keep(&self, items: u32) -> BlockReserve {
        self.ticket.as_ref().expect("the commit's own handle puts nothing off").keep(items)
    }

    /// Keeps all room of this handle's promise, for changes that are put off.
    pub fn keep_all(&self) -> BlockReserve {
        self.ticket.as_ref().expect("the commit's own handle puts nothing off").keep_all()
    }

    /// Finishes the work: its changes are part of the next commit. Damage that shows only now, an extent that loses a
    /// reference it never had, aborts the transaction; the next operation reports it.
    #[track_caller]
    pub fn end(mut self) {
        self.on.transaction.check_running(self.generation);
        let refs = self.on.extent_tree.refs();
        for DroppedRef { start, len, backref } in self.given_up.take() {
            if let Err(error) = refs.change(start, len, ExtentKind::Data, backref, -1) {
                self.on.transaction.abort(&error, Location::caller());
            }
        }
        self.ended = true;
    }

    /// Gives up in the middle of an operation: the transaction is aborted, the filesystem is read-only from here
    /// on. Returns the error for the caller to pass on.
    #[track_caller]
    pub fn abort(&self, error: Error) -> Error {
        self.on.transaction.abort(&error, Location::caller());
        error
    }

    /// Completes data that was `written` to `extent`: queues its extent with one reference by `owner`'s file extent item
    /// whose key offset less its offset into the extent is `offset`, and records its checksums (one after
    /// another, one per sector; none for NODATASUM).
    /// Errors: those of inserting checksums; the caller aborts then.
    pub fn complete_data(
        &self,
        extent: DataExtent,
        written: Written,
        owner: InodeId,
        offset: u64,
        csums: Option<&[u8]>,
    ) -> Result<()> {
        let (start, len) = (extent.start(), extent.len());
        if let Some(csums) = csums {
            self.on.csum_tree.insert(self, start, csums)?;
        }
        self.queue_reference();
        let backref = Backref::of_file(owner, offset);
        self.on.extent_tree.refs().insert(start, len, ExtentKind::Data, backref)?;
        self.on.transaction.wrote(written);
        extent.completed();
        Ok(())
    }

    /// Completes data that was `written` at `at` into an extent which is in use already, where no thread could read it: records
    /// its checksums, as [`Handle::complete_data`] does.
    /// Errors: those of inserting checksums; the caller aborts then.
    pub fn complete_in_place(&self, at: Logical, written: Written, csums: Option<&[u8]>) -> Result<()> {
        if let Some(csums) = csums {
            self.on.csum_tree.insert(self, at, csums)?;
        }
        self.on.transaction.wrote(written);
        Ok(())
    }

    /// Counts a reference against the promise (RESERVE-3). Participants of the commit have none: their references were counted before.
    fn queue_reference(&self) {
        if let Some(ticket) = &self.ticket {
            ticket.queue_reference();
        }
    }

    /// Queues one more reference to a data extent; `offset` is that of [`Handle::complete_data`].
    /// Errors: damage.
    pub fn add_data_ref(&self, start: Logical, len: u64, owner: InodeId, offset: u64) -> Result<()> {
        self.queue_reference();
        let backref = Backref::of_file(owner, offset);
        self.on.extent_tree.refs().change(start, len, ExtentKind::Data, backref, 1)
    }

    /// Drops one reference to a data extent, which is queued when the handle ends (REF-4): the leaf that has it may be
    /// shared, and a later copy of the leaf makes the copy's references from the items in the leaf.
    pub fn drop_data_ref(&self, start: Logical, len: u64, owner: InodeId, offset: u64) {
        self.queue_reference();
        self.given_up.borrow_mut().push(DroppedRef { start, len, backref: Backref::of_file(owner, offset) });
    }

    /// Sets bits of the superblock's incompat features, with this transaction.
    pub fn add_incompat(&self, features: Incompat) {
        self.on.superblock.add_incompat(features);
    }

    /// Sets the superblock's label, with this transaction.
    pub fn set_label(&self, label: &[u8]) {
        self.on.superblock.set_label(label);
    }

    /// Adds `more` bytes to the superblock's total size of the devices, with this transaction.
    pub(crate) fn add_total_bytes(&self, more: u64) {
        self.on.superblock.add_total_bytes(more);
    }

    /// Allocates a block for a log, which no tree counts (LOG-2). The number of blocks of a log is unknown in advance: changing items that lie far
    /// apart copies many leaves.
    /// Errors: no space, or more than was promised.
    pub(crate) fn take_log_block(&self, hint: Logical) -> Result<Logical> {
        let len = u64::from(self.on.node_size);
        if !self.ticket.as_ref().is_some_and(|ticket| ticket.has_room_for(len)) {
            return Err(Error::new(ErrorKind::NoSpace, "a log exceeds its reservation"));
        }
        let at = self.on.space.allocate_block(SpaceKind::Metadata, len, hint);
        let at = at.ok_or_else(|| Error::new(ErrorKind::NoSpace, "allocating a block for a log"))?;
        self.ticket.as_ref().expect("logs are written by operations").take_block(len);
        Ok(at)
    }

    fn change_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool, by: i64) -> Result<()> {
        let refs = self.on.extent_tree.refs();
        let parent = block.logical();
        if !block.is_leaf() {
            let level = block.level() - 1;
            let backref =
                if by_parent { Backref::SharedBlock { parent } } else { Backref::TreeBlock { root: tree } };
            for slot in 0..block.count() {
                let (child, _) = block.child(slot);
                let len = u64::from(self.on.node_size);
                refs.change(child, len, ExtentKind::TreeBlock { level }, backref, by)?;
            }
            return Ok(());
        }
        for slot in 0..block.count() {
            let key = block.key(slot);
            if key.kind != KeyType::EXTENT_DATA {
                continue;
            }
            let Some((start, len, offset)) = file_extent_address(block.data(slot)) else { continue };
            let backref = if by_parent {
                Backref::SharedData { parent }
            } else {
                Backref::ExtentData { root: tree, ino: key.objectid, offset: key.offset.wrapping_sub(offset) }
            };
            refs.change(start, len, ExtentKind::Data, backref, by)?;
        }
        Ok(())
    }
}

impl CowHost for Handle<'_> {
    fn generation(&self) -> Generation {
        self.generation
    }

    fn allocate(&self, tree: TreeId, level: u8, hint: Logical) -> Result<Logical> {
        let len = u64::from(self.on.node_size);
        let kind = SpaceKind::of_tree(tree);
        let at = self.on.space.allocate_block(kind, len, hint).ok_or_else(|| {
            Error::new(ErrorKind::NoSpace, format!("allocating a {kind} block for tree {tree} level {level}"))
        })?;
        match &self.ticket {
            Some(ticket) => ticket.take_block(len),
            None if kind == SpaceKind::Metadata => self.unpromised.set(self.unpromised.get() + len),
            None => {} // the chunk tree's own room (CHUNK-2)
        }
        let backref = Backref::TreeBlock { root: tree };
        self.on.extent_tree.refs().insert(at, len, ExtentKind::TreeBlock { level }, backref)?;
        Ok(at)
    }

    fn free(&self, block: FreedBlock) -> Result<()> {
        let len = u64::from(self.on.node_size);
        let backref = match block.by_parent {
            Some(parent) => Backref::SharedBlock { parent },
            None => Backref::TreeBlock { root: block.tree },
        };
        let unwritten = block.generation == self.generation && block.last_reference;
        if unwritten && self.on.extent_tree.refs().cancel(block.logical, backref) {
            return self.on.space.give_back(block.logical, len);
        }
        let owner = block.owner.filter(|_| block.last_reference);
        self.on.extent_tree.refs().give_up_block(block.logical, len, block.level, backref, owner)
    }

    fn references(&self, at: Logical, level: u8, wait: Wait) -> Result<BlockReferences> {
        self.on.extent_tree.block_references(at, level, wait)
    }

    fn add_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool) -> Result<()> {
        self.on.root_tree.copy_shared();
        self.change_references(tree, block, by_parent, 1)
    }

    fn drop_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool) -> Result<()> {
        self.change_references(tree, block, by_parent, -1)
    }

    fn traces_shared(&self) -> bool {
        self.on.qgroups.mode() == Some(QuotaMode::Full)
    }

    fn leaves_shared(&self, at: Logical, level: u8) -> Result<()> {
        if self.traces_shared() {
            self.on.qgroups.trace(self.on.root_tree.tree().store(), at, level)?;
        }
        Ok(())
    }

    fn set_full_backref(&self, at: Logical, level: u8) -> Result<()> {
        self.on.extent_tree.refs().set_full_backref(at, u64::from(self.on.node_size), level);
        Ok(())
    }
}

impl Drop for Handle<'_> {
    #[track_caller]
    fn drop(&mut self) {
        held::set_held(false);
        if !self.ended {
            let error = Error::new(ErrorKind::Aborted, "a transaction handle was dropped unfinished");
            self.on.transaction.abort(&error, Location::caller());
        }
    }
}
