//! Whole trees and filesystems, in dump-tree's order. The caller reads the blocks.
//!
//! A tree is printed breadth first: its root, then each level from left to right. A filesystem is the root tree,
//! the chunk tree, the tree of log trees if there is one, the trees of the root tree in the order of their keys,
//! the log trees, and three lines from the superblock.
//!
//! A damaged block is reported, shown as far as possible, and not followed; the walk goes on beside it.

use std::collections::HashSet;
use std::fmt;

use creamery_base::{Generation, Logical, TreeId};

use super::{DumpContext, block};
use crate::block::{BlockRef, LEVEL_MAX};
use crate::items::root::RawRootItem;
use crate::key::{Key, KeyType};
use crate::superblock::Superblock;
use crate::verify::Expected;

/// The error of a walk: the writer failed, which ends it, or blocks are damaged, which does not.
///
/// ```
/// use creamery_format::dump::WalkError;
/// let error: WalkError<&str> = WalkError::Damaged { first: "no such block", blocks: 1 };
/// assert!(matches!(error, WalkError::Damaged { .. }));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkError<E> {
    /// The writer failed.
    Write(fmt::Error),
    /// This many blocks are damaged; everything else was printed.
    Damaged {
        /// The error of the caller's reader for the first one.
        first: E,
        /// The number of damaged blocks.
        blocks: u64,
    },
}

/// A block that differs from its expectation.
///
/// ```
/// use creamery_format::dump::BadBlock;
/// assert_eq!(BadBlock::from("no such block").bytes, None);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadBlock<E> {
    /// The reason.
    pub why: E,
    /// The bytes, if any could be read.
    pub bytes: Option<Vec<u8>>,
}

impl<E> From<E> for BadBlock<E> {
    fn from(why: E) -> Self {
        Self { why, bytes: None }
    }
}

/// The damaged blocks of a walk.
struct Damage<E> {
    first: Option<E>,
    blocks: u64,
}

impl<E> Damage<E> {
    const fn none() -> Self {
        Self { first: None, blocks: 0 }
    }

    fn add(&mut self, why: E) {
        self.blocks += 1;
        self.first.get_or_insert(why);
    }

    fn finish(self) -> Result<(), WalkError<E>> {
        match self.first {
            Some(first) => Err(WalkError::Damaged { first, blocks: self.blocks }),
            None => Ok(()),
        }
    }
}

impl<E> From<fmt::Error> for WalkError<E> {
    fn from(error: fmt::Error) -> Self {
        Self::Write(error)
    }
}

/// A reader of verified blocks.
type Reader<'r, E> = &'r mut dyn FnMut(&Expected) -> Result<Vec<u8>, BadBlock<E>>;

/// A tree's root pointer, from the superblock or a root item.
struct Root {
    id: TreeId,
    logical: Logical,
    level: u8,
    generation: Generation,
}

/// Prints the line above a tree of a root item.
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

/// Prints the blocks of the tree `id` whose root is at `logical`. `read` returns the bytes of a block that was
/// verified against its expectation.
///
/// # Errors
/// Those of `w`; blocks are damaged (all others are printed).
pub fn tree<E: fmt::Display>(
    w: &mut dyn fmt::Write,
    id: TreeId,
    root: (Logical, u8, Generation),
    superblock: &Superblock,
    context: &DumpContext,
    read: Reader<'_, E>,
) -> Result<(), WalkError<E>> {
    let root = Root { id, logical: root.0, level: root.1, generation: root.2 };
    let mut damage = Damage::none();
    walk(w, &root, superblock, context, read, &mut damage, &mut |_| ())?;
    damage.finish()
}

/// Prints one tree and passes every intact leaf to `each`.
fn walk<E: fmt::Display>(
    w: &mut dyn fmt::Write,
    root: &Root,
    superblock: &Superblock,
    context: &DumpContext,
    read: Reader<'_, E>,
    damage: &mut Damage<E>,
    each: &mut dyn FnMut(BlockRef<'_>),
) -> fmt::Result {
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
    // No tree has a block twice: pointers that repeat one would make the walk almost endless.
    let mut seen = HashSet::new();
    loop {
        let mut below = Vec::new();
        for want in &this {
            if !seen.insert(want.logical) {
                writeln!(w, "damaged: block {} is in the tree twice", want.logical)?;
                continue;
            }
            let bytes = match read(want) {
                Ok(bytes) => bytes,
                Err(bad) => {
                    damaged(w, want, &bad, context)?;
                    damage.add(bad.why);
                    continue;
                }
            };
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

/// Reports the damage of a block, and shows its bytes if it is that block at all.
fn damaged<E: fmt::Display>(
    w: &mut dyn fmt::Write,
    want: &Expected,
    bad: &BadBlock<E>,
    context: &DumpContext,
) -> fmt::Result {
    writeln!(w, "damaged: {}", bad.why)?;
    match bad.bytes.as_deref().map(BlockRef::new) {
        Some(found) if found.logical() == want.logical => block(w, found, context),
        _ => Ok(()),
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

/// Prints a whole filesystem like `dump-tree` without options, except its first line (the version).
///
/// # Errors
/// Those of `w`; blocks are damaged (all others are printed).
pub fn filesystem<E: fmt::Display>(
    w: &mut dyn fmt::Write,
    superblock: &Superblock,
    context: &DumpContext,
    read: Reader<'_, E>,
) -> Result<(), WalkError<E>> {
    let mut roots = Vec::new();
    let mut damage = Damage::none();
    let (logical, level) = superblock.root();
    let root = Root { id: TreeId::ROOT, logical, level, generation: superblock.generation() };
    writeln!(w, "root tree")?;
    walk(w, &root, superblock, context, read, &mut damage, &mut |leaf| collect_roots(leaf, &mut roots))?;

    let (logical, level, generation) = superblock.chunk_root();
    writeln!(w, "chunk tree")?;
    let root = Root { id: TreeId::CHUNK, logical, level, generation };
    walk(w, &root, superblock, context, read, &mut damage, &mut |_| ())?;

    if let Some((logical, level)) = superblock.log_root() {
        // The log was written by the transaction after the superblock's.
        let root = Root { id: TreeId::TREE_LOG, logical, level, generation: superblock.generation().next() };
        writeln!(w, "log root tree")?;
        walk(w, &root, superblock, context, read, &mut damage, &mut |leaf| collect_roots(leaf, &mut roots))?;
    }
    for (key, item) in roots {
        let id = TreeId::from(key.objectid);
        let root = Root { id, logical: item.root(), level: item.level, generation: item.root_generation() };
        tree_heading(w, &key)?;
        walk(w, &root, superblock, context, read, &mut damage, &mut |_| ())?;
    }
    writeln!(w, "total bytes {}", superblock.total_bytes())?;
    writeln!(w, "bytes used {}", superblock.bytes_used())?;
    writeln!(w, "uuid {}", superblock.fsid())?;
    damage.finish()
}
