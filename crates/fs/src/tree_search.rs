//! A search for items of a tree in their present state, for programs that use `BTRFS_IOC_TREE_SEARCH` on Linux.

use std::ops::ControlFlow;

use creamery_base::{ObjectId, Result, TreeId, Wait};
use creamery_format::{Key, KeyType};
use creamery_tree::{ReadAhead, Walk};
use creamery_txn::Engine;

/// The items of a tree to search for: those between two keys, in blocks of some transactions. Bounds are included.
///
/// ```
/// use creamery_base::TreeId;
/// let all = creamery_fs::SearchKey::all_of(TreeId::FS);
/// assert_eq!(all.types, (0, 255));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchKey {
    /// The tree.
    pub tree: TreeId,
    /// First and last object.
    pub objectids: (u64, u64),
    /// First type, of the first object, and last type, of the last one.
    pub types: (u32, u32),
    /// First offset, of the first type and object, and last one.
    pub offsets: (u64, u64),
    /// First and last transaction of blocks.
    pub transids: (u64, u64),
}

impl SearchKey {
    /// All items of a tree.
    #[must_use]
    pub const fn all_of(tree: TreeId) -> Self {
        let all = (0, u64::MAX);
        Self { tree, objectids: all, types: (0, 255), offsets: all, transids: all }
    }
}

/// An item that was found.
///
/// ```
/// let found = creamery_fs::FoundItem { transid: 7, objectid: 256, kind: 1, offset: 0, data: &[] };
/// assert!(found.data.is_empty());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FoundItem<'a> {
    /// The transaction of the block that it is in.
    pub transid: u64,
    /// The parts of its key.
    pub objectid: u64,
    /// The type.
    pub kind: u32,
    /// The offset.
    pub offset: u64,
    /// The bytes of the item.
    pub data: &'a [u8],
}

/// Reports the found items, in the order of keys, until `each` breaks; it runs under a lock of the tree and must not wait.
/// Errors: not found; damage.
pub(crate) fn search(
    engine: &Engine,
    wanted: &SearchKey,
    each: &mut dyn FnMut(FoundItem<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let kind = |kind: u32| KeyType::new(u8::try_from(kind).unwrap_or(u8::MAX));
    let (first, last) = (wanted.objectids.0, wanted.objectids.1);
    let start = Key::new(ObjectId::new(first), kind(wanted.types.0), wanted.offsets.0);
    let end = Key::new(ObjectId::new(last), kind(wanted.types.1), wanted.offsets.1);
    let tree = engine.tree(wanted.tree)?;
    let mut cursor = tree.cursor(&start, Walk::new(Wait::Yes, ReadAhead::Forward))?;
    while let Some((key, data)) = cursor.item() {
        if key > end {
            break;
        }
        let transid = cursor.generation().get();
        if (wanted.transids.0..=wanted.transids.1).contains(&transid) {
            let (objectid, kind, offset) = (key.objectid.get(), u32::from(key.kind.get()), key.offset);
            if each(FoundItem { transid, objectid, kind, offset, data }).is_break() {
                break;
            }
        }
        cursor.advance()?;
    }
    Ok(())
}
