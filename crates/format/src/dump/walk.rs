//! Whole trees and filesystems, in dump-tree's order. Reading blocks is the caller's business.
//!
//! A tree is printed breadth first: its root, then each level from left to right. A filesystem is the root tree,
//! the chunk tree, the tree of log trees if there is one, the trees of the root tree in the order of their keys,
//! the log trees, and three lines from the superblock.

use std::fmt;

use creamery_base::{Generation, Logical, TreeId};

use super::{DumpContext, block};
use crate::block::{BlockRef, LEVEL_MAX};
use crate::items::root::RawRootItem;
use crate::key::{Key, KeyType};
use crate::superblock::Superblock;
use crate::verify::Expected;

/// Why a walk ended early: the writer failed, or a block could not be read.
///
/// ```
/// use creamery_format::dump::WalkError;
/// let error: WalkError<&str> = WalkError::Read("no such block");
/// assert!(matches!(error, WalkError::Read(_)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkError<E> {
    /// The writer failed.
    Write(fmt::Error),
    /// What the caller's reader said.
    Read(E),
}

impl<E> From<fmt::Error> for WalkError<E> {
    fn from(error: fmt::Error) -> Self {
        Self::Write(error)
    }
}

/// A reader of verified blocks.
type Reader<'r, E> = &'r mut dyn FnMut(&Expected) -> Result<Vec<u8>, E>;

/// A tree's root as the superblock or a root item gives it.
struct Root {
    id: TreeId,
    logical: Logical,
    level: u8,
    generation: Generation,
}

/// The line above a tree that a root item names.
///
/// # Errors
/// Only what `w` returns.
pub fn tree_heading(w: &mut dyn fmt::Write, key: &Key) -> fmt::Result {
    let name = match key.objectid.get().cast_signed() {
        1 => "root",
        2 => "extent",
        3 => "chunk",
        4 => "device",
        5 => "fs",
        6 => "directory",
        7 => "checksum",
        8 => "quota",
        9 => "uuid",
        10 => "free space",
        11 => "block group",
        12 => "raid stripe",
        -255 => "multiple",
        -10 => "extent checksum",
        -9 => "data reloc",
        -8 => "reloc",
        -7 => "log fixup",
        -6 => "log",
        -5 => "orphan",
        _ => "file",
    };
    writeln!(w, "{name} tree key {key} ")
}

/// Prints the blocks of the tree `id` whose root is at `logical`. `read` gives the bytes of a block that was
/// verified against what is expected of it.
///
/// # Errors
/// What `w` or `read` return.
pub fn tree<E>(
    w: &mut dyn fmt::Write,
    id: TreeId,
    root: (Logical, u8, Generation),
    superblock: &Superblock,
    context: &DumpContext,
    read: Reader<'_, E>,
) -> Result<(), WalkError<E>> {
    let root = Root { id, logical: root.0, level: root.1, generation: root.2 };
    walk(w, &root, superblock, context, read, &mut |_| ())
}

/// Prints one tree and shows every leaf to `each`.
fn walk<E>(
    w: &mut dyn fmt::Write,
    root: &Root,
    superblock: &Superblock,
    context: &DumpContext,
    read: Reader<'_, E>,
    each: &mut dyn FnMut(BlockRef<'_>),
) -> Result<(), WalkError<E>> {
    let expected = |logical, level, generation, first_key| Expected {
        logical,
        level: Some(level),
        generation: Some(generation),
        owner: Some(root.id),
        first_key,
        fsid: superblock.metadata_uuid(),
        checksum: superblock.checksum_type(),
    };
    let mut level = root.level.min(LEVEL_MAX);
    let mut this = vec![expected(root.logical, root.level, root.generation, None)];
    loop {
        let mut below = Vec::new();
        for want in &this {
            let bytes = read(want).map_err(WalkError::Read)?;
            let found = BlockRef::new(&bytes);
            block(w, found, context)?;
            if found.is_leaf() {
                each(found);
                continue;
            }
            for slot in 0..found.count() {
                let (child, generation) = found.child(slot);
                below.push(expected(child, level.saturating_sub(1), generation, Some(found.key(slot))));
            }
        }
        if level == 0 || below.is_empty() {
            return Ok(());
        }
        level -= 1;
        this = below;
    }
}

/// The root items of a leaf.
fn collect_roots(leaf: BlockRef<'_>, roots: &mut Vec<(Key, RawRootItem)>) {
    for slot in 0..leaf.count() {
        let key = leaf.key(slot);
        if key.kind == KeyType::ROOT_ITEM
            && let Ok(root) = RawRootItem::from_item(leaf.data(slot))
        {
            roots.push((key, root));
        }
    }
}

/// Prints a whole filesystem as `dump-tree` without options does, but for its first line (the version).
///
/// # Errors
/// What `w` or `read` return.
pub fn filesystem<E>(
    w: &mut dyn fmt::Write,
    superblock: &Superblock,
    context: &DumpContext,
    read: Reader<'_, E>,
) -> Result<(), WalkError<E>> {
    let mut roots = Vec::new();
    let (logical, level) = superblock.root();
    let root = Root { id: TreeId::ROOT, logical, level, generation: superblock.generation() };
    writeln!(w, "root tree")?;
    walk(w, &root, superblock, context, read, &mut |leaf| collect_roots(leaf, &mut roots))?;

    let (logical, level, generation) = superblock.chunk_root();
    writeln!(w, "chunk tree")?;
    walk(w, &Root { id: TreeId::CHUNK, logical, level, generation }, superblock, context, read, &mut |_| ())?;

    if let Some((logical, level)) = superblock.log_root() {
        // The log was written by the transaction after the superblock's.
        let generation = Generation::new(superblock.generation().get().saturating_add(1));
        let root = Root { id: TreeId::TREE_LOG, logical, level, generation };
        writeln!(w, "log root tree")?;
        walk(w, &root, superblock, context, read, &mut |leaf| collect_roots(leaf, &mut roots))?;
    }
    for (key, item) in roots {
        let id = TreeId::from(key.objectid);
        let root = Root { id, logical: item.root(), level: item.level, generation: item.root_generation() };
        tree_heading(w, &key)?;
        walk(w, &root, superblock, context, read, &mut |_| ())?;
    }
    writeln!(w, "total bytes {}", superblock.total_bytes())?;
    writeln!(w, "bytes used {}", superblock.bytes_used())?;
    Ok(writeln!(w, "uuid {}", superblock.fsid())?)
}
