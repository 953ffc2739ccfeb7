//! What a tree needs from the transaction that changes it.

use creamery_base::{Generation, Logical, Result, TreeId, Wait};
use creamery_format::BlockRef;

/// How many references a block has, and whether its own references are by parent.
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
    /// The FULL_BACKREF flag: what the block points to counts it by address, not by tree.
    pub full_backref: bool,
}

/// A block that a tree let go of.
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
    /// Where the block is.
    pub logical: Logical,
    /// Its level.
    pub level: u8,
    /// The transaction that wrote it.
    pub generation: Generation,
    /// The block that pointed to it, where the reference is counted by that one's address; none where it is by `tree`.
    pub by_parent: Option<Logical>,
    /// Whether nobody else refers to it.
    pub last_reference: bool,
    /// The tree for which it was made, where it was read.
    pub owner: Option<TreeId>,
}

/// The running transaction as a tree sees it. Implementations queue reference changes and never edit a tree from
/// here; `references` may read the extent tree while nodes of a subvolume are locked.
pub trait CowHost {
    /// Generation of the running transaction.
    fn generation(&self) -> Generation;

    /// An unused block for `tree`, reserved before the change began, with one queued reference by `tree`.
    /// Errors: no space (the reservation was too small), device errors.
    fn allocate(&self, tree: TreeId, level: u8, hint: Logical) -> Result<Logical>;

    /// Queues giving up `tree`'s reference to a block.
    fn free(&self, block: FreedBlock) -> Result<()>;

    /// Current references of a block that may be shared.
    /// Errors: would block (what says so is not in memory, and waiting is not allowed); device errors; damage.
    fn references(&self, at: Logical, level: u8, wait: Wait) -> Result<BlockReferences>;

    /// Queues one more reference to everything `block` points to: by the block's address when `by_parent`, else
    /// by `tree`.
    fn add_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool) -> Result<()>;

    /// Queues giving up one reference to everything `block` points to.
    fn drop_references(&self, tree: TreeId, block: BlockRef<'_>, by_parent: bool) -> Result<()>;

    /// Whether [`leaves_shared`](Self::leaves_shared) is worth asking who has a block.
    fn traces_shared(&self) -> bool {
        false
    }

    /// A tree that is dropped is about to give up its pointer to the block at `at`, which others have as well: what that leads
    /// to stays as it is, and has a user less. It may wait for a device, and be told more than once.
    /// Errors: device errors; damage.
    fn leaves_shared(&self, _at: Logical, _level: u8) -> Result<()> {
        Ok(())
    }

    /// Queues setting FULL_BACKREF on a block's extent.
    fn set_full_backref(&self, at: Logical, level: u8) -> Result<()>;
}
