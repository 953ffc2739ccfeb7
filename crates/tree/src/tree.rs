//! A tree: its id, its root now and at the last commit, and its state for copy-on-write.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use creamery_base::lock::{RankedRwLock, rank};
use creamery_base::{Error, ErrorKind, Generation, Logical, PerThread, Result, TreeId, Wait, memory};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockMut, BlockRef, Expected, HEADER_LEN, ITEM_LEN, Key};

use crate::buffer::ExtentBuffer;
use crate::counters::{Counters, TreeCounters};
use crate::finger::Fingers;
use crate::host::CowHost;
use crate::store::BufferStore;

/// Where a tree's root block is.
///
/// ```
/// use creamery_base::{Generation, Logical};
/// let root = creamery_tree::RootPointer { logical: Logical::new(30408704), generation: Generation::new(5), level: 0 };
/// assert_eq!(root.level, 0);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootPointer {
    /// Address of the root block.
    pub logical: Logical,
    /// The transaction that wrote it.
    pub generation: Generation,
    /// Its level.
    pub level: u8,
}

/// The commit root of a tree before its first commit. The generation of zero marks it.
pub(crate) const NO_COMMIT_ROOT: RootPointer =
    RootPointer { logical: Logical::new(0), generation: Generation::new(0), level: 0 };

/// Called by insertions, with their key and whether their leaf's parent is locked.
type LeafObserver = Box<dyn Fn(&Key, bool) + Send + Sync>;

/// One B-tree of a filesystem.
///
/// ```no_run
/// # fn show(tree: &creamery_tree::Tree) -> creamery_base::Result<()> {
/// use creamery_base::Wait;
/// use creamery_format::Key;
/// let mut cursor = tree.cursor(&Key::MIN, Wait::Yes)?;
/// while let Some((key, data)) = cursor.item() {
///     println!("{key} has {} bytes", data.len());
///     cursor.advance()?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct Tree {
    id: TreeId,
    pub(crate) store: Arc<BufferStore>,
    root: ArcSwap<ExtentBuffer>,
    commit_root: RankedRwLock<RootPointer, { rank::LEAF }>,
    last_snapshot: AtomicU64,
    pub(crate) force_cow: AtomicU32,
    early_unlock: AtomicBool,
    has_fingers: AtomicBool,
    pub(crate) fingers: Fingers,
    blocks: AtomicI64,
    /// Blocks older than the running transaction that it has neither copied nor given up.
    old_blocks: AtomicI64,
    leaf_observer: OnceLock<LeafObserver>,
    #[cfg(feature = "shuttle")]
    uncoupled: AtomicBool,
    #[cfg(feature = "shuttle")]
    unmarked: AtomicBool,
    pub(crate) counters: PerThread<Counters>,
}

impl Tree {
    /// Opens the tree `id` whose root block is at `root`. `blocks` is the number of its blocks (a root item's
    /// bytes_used in nodes); 0 if the number is unknown: it is then estimated from the root block.
    /// `last_snapshot` is the generation up to which its blocks may be shared.
    /// Errors: device errors, damage.
    pub fn open(
        store: Arc<BufferStore>,
        id: TreeId,
        root: RootPointer,
        blocks: u64,
        last_snapshot: Generation,
    ) -> Result<Self> {
        let want = expected(&store, id, root, None);
        let buffer = store.get(&want, Wait::Yes)?;
        let guard = Arc::clone(&buffer).read(Wait::Yes)?;
        check_root(id, root, guard.block())?;
        let blocks =
            if blocks == 0 { blocks_below(guard.block(), store.volume().node_size()) } else { blocks };
        drop(guard);
        let tree = Self::with_root(store, id, buffer, root, blocks, last_snapshot);
        tree.begin_transaction();
        Ok(tree)
    }

    /// Opens the tree `id` as a durable commit left it, for cursors that take no lock. The caller has a guard at that commit or an earlier one.
    /// Errors: device errors, damage.
    pub fn open_committed(store: Arc<BufferStore>, id: TreeId, root: RootPointer) -> Result<Self> {
        let want = expected(&store, id, root, None);
        check_root(id, root, BlockRef::new(&store.committed(&want)?))?;
        let buffer = store.get(&want, Wait::Yes)?;
        Ok(Self::with_root(store, id, buffer, root, 0, Generation::default()))
    }

    /// Creates the tree `id` with an empty leaf as root.
    /// Errors: those of [`CowHost::allocate`].
    pub fn create(store: Arc<BufferStore>, id: TreeId, host: &dyn CowHost) -> Result<Self> {
        let logical = host.allocate(id, 0, Logical::new(0))?;
        let mut bytes = AlignedBuffer::zeroed(store.volume().node_size() as usize);
        format_block(&store, &mut bytes, id, logical, host.generation(), 0);
        let buffer = store.create(logical, 0, bytes);
        Ok(Self::with_root(store, id, buffer, NO_COMMIT_ROOT, 1, Generation::new(0)))
    }

    /// Creates an empty stand-in for the tree `id`, whose root cannot be read. For readers that can do without its items.
    #[must_use]
    pub fn left_out(store: Arc<BufferStore>, id: TreeId) -> Self {
        let nowhere = Logical::new(0); // no tree has a block there
        let mut bytes = AlignedBuffer::zeroed(store.volume().node_size() as usize);
        format_block(&store, &mut bytes, id, nowhere, Generation::new(0), 0);
        let root = store.apart(nowhere, bytes);
        Self::with_root(store, id, root, NO_COMMIT_ROOT, 1, Generation::new(0))
    }

    pub(crate) fn with_root(
        store: Arc<BufferStore>,
        id: TreeId,
        root: Arc<ExtentBuffer>,
        commit_root: RootPointer,
        blocks: u64,
        last_snapshot: Generation,
    ) -> Self {
        Self {
            id,
            store,
            root: ArcSwap::new(root),
            commit_root: RankedRwLock::new(commit_root),
            last_snapshot: AtomicU64::new(last_snapshot.get()),
            force_cow: AtomicU32::new(0),
            early_unlock: AtomicBool::new(true),
            has_fingers: AtomicBool::new(true),
            fingers: Fingers::default(),
            blocks: AtomicI64::new(i64::try_from(blocks).unwrap_or(i64::MAX)),
            old_blocks: AtomicI64::new(0),
            leaf_observer: OnceLock::new(),
            #[cfg(feature = "shuttle")]
            uncoupled: AtomicBool::new(false),
            #[cfg(feature = "shuttle")]
            unmarked: AtomicBool::new(false),
            counters: PerThread::default(),
        }
    }

    /// Returns the store of the tree's blocks.
    #[must_use]
    pub fn store(&self) -> &Arc<BufferStore> {
        &self.store
    }

    /// The tree's id.
    #[must_use]
    pub fn id(&self) -> TreeId {
        self.id
    }

    /// Memory of the tree, bytes. The store counts the blocks.
    #[must_use]
    pub fn memory(&self) -> u64 {
        memory::shared::<Self>() + PerThread::<Counters>::memory() + self.fingers.memory()
    }

    /// Returns the number of the tree's blocks, as root items count them.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        u64::try_from(self.blocks.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns how many blocks the running transaction may still copy. A block that it has copied is its own (OWN-1).
    #[must_use]
    pub fn blocks_to_copy(&self) -> u64 {
        u64::try_from(self.old_blocks.load(Ordering::SeqCst)).unwrap_or(0)
    }

    /// Returns how many blocks the running transaction has copied or made, and not given up again. No thread may change the tree meanwhile.
    #[must_use]
    pub fn own_blocks(&self) -> u64 {
        let (blocks, old) = (self.blocks.load(Ordering::Relaxed), self.old_blocks.load(Ordering::SeqCst));
        let own = u64::try_from(blocks.wrapping_sub(old));
        own.expect("OWN-1: a transaction gives up no more blocks of its own than it has made")
    }

    /// Makes all blocks old: their transaction is closed, and the next one has no blocks yet.
    pub(crate) fn begin_transaction(&self) {
        self.old_blocks.store(self.blocks.load(Ordering::Relaxed), Ordering::SeqCst);
    }

    /// Counts the root as made by the running transaction, the only such block of the tree.
    pub(crate) fn count_own_root(&self) {
        self.old_blocks.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a new block.
    pub(crate) fn count_new_block(&self) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a block that was given up. `own`: it belonged to the running transaction.
    pub(crate) fn count_given_up(&self, own: bool) {
        self.blocks.fetch_sub(1, Ordering::Relaxed);
        if !own {
            self.old_blocks.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Blocks of this generation or older may be shared with a snapshot.
    #[must_use]
    pub fn last_snapshot(&self) -> Generation {
        Generation::new(self.last_snapshot.load(Ordering::Acquire))
    }

    /// Records that a snapshot of the tree was taken in `generation`.
    pub fn set_last_snapshot(&self, generation: Generation) {
        self.last_snapshot.store(generation.get(), Ordering::Release);
    }

    /// Whether a change must copy every block, even those of the running transaction (a snapshot was just taken).
    #[must_use]
    pub fn force_cow(&self) -> bool {
        self.force_cow.load(Ordering::Acquire) > 0
    }

    /// Turns the early unlocking of parents on insertion on or off, to measure its effect.
    pub fn set_early_unlock(&self, on: bool) {
        self.early_unlock.store(on, Ordering::Relaxed);
    }

    pub(crate) fn early_unlock(&self) -> bool {
        self.early_unlock.load(Ordering::Relaxed)
    }

    /// Turns fingers on or off, to measure their effect.
    pub fn set_fingers(&self, on: bool) {
        self.has_fingers.store(on, Ordering::Relaxed);
    }

    pub(crate) fn has_fingers(&self) -> bool {
        self.has_fingers.load(Ordering::Relaxed)
    }

    /// Plants a fault: readers unlock a block before they lock the next one. A test harness for locking faults
    /// has to find it.
    #[cfg(feature = "shuttle")]
    pub fn uncouple_readers(&self) {
        self.uncoupled.store(true, Ordering::Relaxed);
    }

    /// Plants a fault: blocks that are given up are not marked (FROZEN-2).
    #[cfg(feature = "shuttle")]
    pub fn leave_unmarked(&self) {
        self.unmarked.store(true, Ordering::Relaxed);
    }

    /// Marks a block whose last reference is about to be given up.
    pub(crate) fn mark_given_up(&self, buffer: &ExtentBuffer) {
        #[cfg(feature = "shuttle")]
        if self.unmarked.load(Ordering::Relaxed) {
            return;
        }
        buffer.mark_given_up();
    }

    #[cfg(feature = "shuttle")]
    pub(crate) fn is_uncoupled(&self) -> bool {
        self.uncoupled.load(Ordering::Relaxed)
    }

    /// Makes every insertion call `observer` before it searches its leaf, which it has locked, with
    /// its key and whether the leaf's parent is locked too. For tests: an observer that waits shows which threads can be
    /// there at the same time. It can be set once.
    pub fn observe_leaf_searches(&self, observer: impl Fn(&Key, bool) + Send + Sync + 'static) {
        let set = self.leaf_observer.set(Box::new(observer));
        assert!(set.is_ok(), "a tree has one observer");
    }

    pub(crate) fn observe(&self, key: &Key, parent_locked: bool) {
        if let Some(observer) = self.leaf_observer.get() {
            observer(key, parent_locked);
        }
    }

    /// Returns the tree's counters since it was opened.
    #[must_use]
    pub fn counters(&self) -> TreeCounters {
        TreeCounters::sum_of(&self.counters)
    }

    /// Adds one to a counter in this thread's stripe.
    pub(crate) fn count(&self, counter: fn(&Counters) -> &AtomicU64) {
        counter(self.counters.mine()).fetch_add(1, Ordering::Relaxed);
    }

    /// Data bytes of the largest item that a leaf can take.
    #[must_use]
    pub fn max_item_size(&self) -> usize {
        self.store.volume().node_size() as usize - HEADER_LEN - ITEM_LEN
    }

    /// Returns the present root block.
    #[must_use]
    pub fn root_buffer(&self) -> Arc<ExtentBuffer> {
        self.root.load_full()
    }

    /// Borrows the present root block, without a change of its reference count.
    pub(crate) fn root_borrowed(&self) -> arc_swap::Guard<Arc<ExtentBuffer>> {
        self.root.load()
    }

    /// Whether `buffer`, which the caller has locked, is the root. If so, it stays the root until it is unlocked.
    pub(crate) fn is_root(&self, buffer: &Arc<ExtentBuffer>) -> bool {
        Arc::ptr_eq(&self.root.load(), buffer)
    }

    /// Makes `buffer` the root. The caller has the old root locked for writing.
    pub(crate) fn set_root(&self, buffer: Arc<ExtentBuffer>) {
        self.root.store(buffer);
    }

    /// Returns the present root pointer.
    pub fn root_pointer(&self) -> Result<RootPointer> {
        let root = self.root_buffer();
        let place = self.place_on_the_way(root.level());
        let guard = root.read_at(place, Wait::Yes)?;
        let block = guard.block();
        Ok(RootPointer { logical: block.logical(), generation: block.generation(), level: block.level() })
    }

    /// Returns the root pointer of the last commit.
    #[must_use]
    pub fn commit_root(&self) -> RootPointer {
        *self.commit_root.read()
    }

    /// Makes `root` the commit root: the transaction is closed, and the next one owns no blocks yet.
    pub fn switch_commit_root(&self, root: RootPointer) {
        *self.commit_root.write() = root;
        self.begin_transaction();
    }

    /// Returns the values that a block of this tree must have.
    pub(crate) fn expected(&self, root: RootPointer, first_key: Option<Key>) -> Expected {
        expected(&self.store, self.id, root, first_key)
    }
}

/// Returns the number of blocks of a tree with this root: exact for up to two levels, else an estimate with nodes that are half full.
fn blocks_below(root: BlockRef<'_>, node_size: u32) -> u64 {
    let (children, room) = (root.count() as u64, u64::from(node_size) / creamery_format::KEY_PTR_LEN as u64);
    match root.level() {
        0 => 1,
        1 => 1 + children,
        level => (1..u32::from(level)).fold(1 + children, |blocks, _| blocks.saturating_mul(room / 2)),
    }
}

/// Checks that a root block agrees with its root item. The block was verified when it was read, but perhaps through another
/// pointer; on a damaged filesystem the two need not agree.
pub(crate) fn check_root(id: TreeId, root: RootPointer, block: BlockRef<'_>) -> Result<()> {
    let found =
        RootPointer { logical: block.logical(), generation: block.generation(), level: block.level() };
    if found == root && block.may_belong_to(id) {
        return Ok(());
    }
    let message = format!(
        "corrupt root of tree {id}: logical={}, expected generation {} level {}, found generation {} level {} owner {}",
        root.logical,
        root.generation,
        root.level,
        found.generation,
        found.level,
        block.owner()
    );
    Err(Error::new(ErrorKind::Corrupt, message))
}

fn expected(store: &BufferStore, id: TreeId, root: RootPointer, first_key: Option<Key>) -> Expected {
    let volume = store.volume();
    Expected {
        logical: root.logical,
        level: Some(root.level),
        generation: Some(root.generation),
        owner: Some(id),
        first_key,
        fsid: volume.metadata_uuid(),
        checksum: volume.checksum_type(),
    }
}

/// Gives a copied block its new address, owner and generation, and clears its marks of a written block.
pub(crate) fn retitle(bytes: &mut [u8], owner: TreeId, logical: Logical, generation: Generation) {
    let mut block = BlockMut::new(bytes);
    block.set_logical(logical);
    block.set_generation(generation);
    block.set_owner(owner);
    block.begin_again();
}

/// Fills in the header of a new block.
pub(crate) fn format_block(
    store: &BufferStore,
    bytes: &mut [u8],
    owner: TreeId,
    logical: Logical,
    generation: Generation,
    level: u8,
) {
    let volume = store.volume();
    let mut block = BlockMut::new(bytes);
    block.set_fsid(volume.metadata_uuid());
    block.set_chunk_tree_uuid(store.chunk_tree_uuid());
    block.set_level(level);
    block.set_count(0);
    retitle(bytes, owner, logical, generation);
}
