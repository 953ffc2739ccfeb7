//! The interface of a tree to the transaction that changes it.

use creamery_base::{Generation, Logical, Result, TreeId, Wait};
use creamery_format::BlockRef;

/// The reference count of a block, and whether the block's own references are by parent.
///
/// ```
/// use creamery_tree::BlockReferences;
/// let unshared = BlockReferences { count: 1, full_backref: false };
/// assert_eq!(unshared.count, 1);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockReferences {
    /// Reference count, pending changes included.
    pub count: u64,
    /// The FULL_BACKREF flag: the block's children and extents count it by its address, not by its tree.
    pub full_backref: bool,
}

/// A block that a tree has given up.
///
/// ```
/// use creamery_tree::FreedBlock;
/// use creamery_base::{Generation, Logical, TreeId};
/// let block = FreedBlock { tree: TreeId::FS, logical: Logical::new(30408704), level: 0,
///     generation: Generation::new(7), by_parent: None, last_reference: true, owner: None };
/// assert!(block.last_reference);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreedBlock {
    /// The tree that gives up its reference.
    pub tree: TreeId,
    /// The block's address.
    pub logical: Logical,
    /// The block's level.
    pub level: u8,
    /// The transaction that wrote the block.
    pub generation: Generation,
    /// The address of the parent, if the reference is counted by parent; `None` if it is counted by `tree`.
    pub by_parent: Option<Logical>,
    /// Whether no other tree references the block.
    pub last_reference: bool,
    /// The owner in the block's header, if the block was read.
    pub owner: Option<TreeId>,
}

/// The running transaction as a tree sees it. Implementations queue reference changes and never edit a tree from
/// here; `references` may read the extent tree while nodes of a subvolume are locked.
pub trait CowHost {
    /// Generation of the running transaction.
    fn generation(&self) -> Generation;

    /// Returns an unused block for `tree`, reserved before the change began, with one queued reference by `tree`.
    /// Errors: no space (the reservation was too small), device errors.
    fn allocate(&self, tree: TreeId, level: u8, hint: Logical) -> Result<Logical>;

    /// Queues giving up `tree`'s reference to a block.
    fn free(&self, block: FreedBlock) -> Result<()>;

    /// Returns the current references of a block that may be shared.
    /// Errors: would block (the record of the references is not in memory, and waiting is not allowed); device errors; damage.
    fn references(&self, at: Logical, level: u8, wait: Wait) -> Result<BlockReferences>;

    /// Queues one more reference to each child or extent of `block`: by the block's address if `by_parent`, else
    /// by `tree`.
    fn add_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool) -> Result<()>;

    /// Queues the removal of one reference to each child or extent of `block`.
    fn drop_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool) -> Result<()>;

    /// Whether the drop of a tree should look for shared blocks in order to call [`leaves_shared`](Self::leaves_shared).
    fn traces_shared(&self) -> bool {
        false
    }

    /// Reports that a tree drop is about to give up its pointer to the shared block at `at`: the blocks below stay, with one
    /// user less. The implementation may wait for a device. The same block may be reported more than once.
    /// Errors: device errors; damage.
    fn leaves_shared(&self, _at: Logical, _level: u8) -> Result<()> {
        Ok(())
    }

    /// Queues setting FULL_BACKREF on a block's extent.
    fn set_full_backref(&self, at: Logical, level: u8) -> Result<()>;
}
