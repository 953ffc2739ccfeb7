//! From an extent to its users: which files refer to the data at a logical address, in which subvolumes.
//!
//! The extent tree names who refers to an extent, one step up. A file is named by its subvolume, its inode and an offset
//! (EXTENT_DATA_REF), or by the leaf that holds its items (SHARED_DATA_REF); a tree block by its tree (TREE_BLOCK_REF), in which
//! its parent is found by searching for its first key, or by its parent's address (SHARED_BLOCK_REF). So the leaves that refer to
//! the data come first, and from each leaf the way goes up, block by block, until it ends at roots (`roots`). A tree that is
//! reached from a block shares all that is below that block: what refers to a leaf once may be a file of a thousand snapshots.
//!
//! # One moment
//! The state that is looked at is the last commit's, all of it from one root tree (`trees`). Only there do the extent tree and the
//! trees that refer say the same: while a transaction runs, an item is in its leaf before its reference is queued, references run
//! one extent at a time, and each step of a walk would have to see the queue and the tree at once, at every level, with the
//! tree's shape changing below it. Who wants to know of what he has just done commits first, which leaves nothing queued
//! (COMMIT-1); that costs a commit, and no rule for anybody else. Whoever must decide within a transaction, and may be told
//! "shared" where that is not so, has `is_sole_user` of the extent tree. Quotas walk a second state, too: that of a transaction that
//! closes, whose gate is closed and which has nothing queued any more ([`ClosedBlocks`]).
//!
//! # How far
//! "Who are they?" takes all ways to their ends. "Is there a second one?" ([`Sharing`](crate::Sharing)) ends with the second:
//! of each block no more than two trees are looked for, and what is known of a block serves all that is below it.
//!
//! # Deleted subvolumes
//! They use nothing any more, but what they have not dropped yet is still counted in their name: a leaf that a snapshot shares
//! may be reached only by way of the deleted tree it came from. So the ways lead through deleted trees, and do not end there. For two
//! questions they do: quotas count a deleted subvolume until it is dropped, and an extent is shared with a deleted subvolume or with a tree
//! that relocation has begun, as long as these keep its space.
//! What such a tree has dropped is before the key in its root item, and is nobody's any more in its name.
//!
//! # Invariants
//! - WALK-1: the level rises by one at each step up, and a block of level 7 has no parent; so every way ends, whatever the disk
//!   says. Shown by `a_block_that_says_to_be_above_itself_is_damage`.
//! - WALK-2: a block is walked up from once, however many ways lead to it.
//!   Shown by `ways_that_meet_are_walked_once`.
//! - WALK-3: a block that is said to be a parent has a pointer to its child, else it is damage.
//!   Shown by `a_parent_that_does_not_point_to_its_child_is_damage`.
//!
//! Blocks that say to be their own parents are passed over: Linux writes that of the roots of trees that it relocates.
//!
//! # Locking
//! Blocks of a commit do not change, so they are read without locks.

mod references;
mod roots;
#[cfg(test)]
mod tests;
mod trees;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use creamery_base::{Error, ErrorKind, InodeId, Logical, ObjectId, Result, TreeId};
use creamery_format::{
    BlockRef, ExtentFlags, FILE_EXTENT_INLINE, FILE_EXTENT_PREALLOC, Key, KeyType, LEVEL_MAX, RawFileExtent,
};
use creamery_tree::CommitRootGuard;
use zerocopy::FromBytes;

use crate::extent_tree::{Backref, ExtentItem, ExtentKind, Owners};
use references::References;
use roots::RootsAbove;
use trees::Blocks;
pub(crate) use trees::{ClosedBlocks, CommittedBlocks, Trees, read_by_address};

/// No compressed extent holds more, bytes. Others hold what they take on disk.
const COMPRESSED_MAX: u64 = 128 << 10;

/// A file extent item that refers to a data extent.
///
/// ```
/// use creamery_base::{InodeId, ObjectId, TreeId};
/// use creamery_txn::ExtentUser;
/// let id = InodeId::new(TreeId::FS, ObjectId::new(257));
/// let user = ExtentUser { id, offset: 0, extent_offset: 4096, len: 8192, encoded: false, is_written: true };
/// assert!(user.extent_offset < user.extent_offset + user.len);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExtentUser {
    /// The file.
    pub id: InodeId,
    /// Where in the file, bytes.
    pub offset: u64,
    /// Where in the extent it begins, bytes of what is in it.
    pub extent_offset: u64,
    /// How much of the file it is, bytes.
    pub len: u64,
    /// Whether the extent's bytes are not the file's, since they are compressed.
    pub encoded: bool,
    /// Whether the file's bytes are there, and the space is not only reserved for them.
    pub is_written: bool,
}

/// A data extent, and whoever refers to it.
///
/// ```no_run
/// # fn show(engine: &creamery_txn::Engine) -> creamery_base::Result<()> {
/// let found = engine.extent_users(creamery_base::Logical::new(13631488))?;
/// println!("{} has {} users", found.start, found.users.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtentUsers {
    /// Its first byte.
    pub start: Logical,
    /// Bytes on disk.
    pub len: u64,
    /// In ascending order, each once.
    pub users: Vec<ExtentUser>,
}

/// How many refer to an extent: file extent items of one file that show it from one beginning are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Few {
    Nobody,
    /// The file, and where in it the extent would begin, in 64 bits.
    One(InodeId, u64),
    Several,
}

/// A file extent item, in a leaf that may be part of many trees.
#[derive(Clone, Copy)]
struct Sighting {
    ino: ObjectId,
    offset: u64,
    extent_offset: u64,
    len: u64,
    encoded: bool,
    is_written: bool,
}

impl Sighting {
    /// The item at `key`, when it is a file extent item that refers to `extent`.
    fn of(key: &Key, data: &[u8], extent: Logical) -> Option<Self> {
        if key.kind != KeyType::EXTENT_DATA {
            return None;
        }
        let (item, _) = RawFileExtent::ref_from_prefix(data).ok()?;
        if item.kind == FILE_EXTENT_INLINE || item.disk_bytenr.get() != extent.get() {
            return None;
        }
        Some(Self {
            ino: key.objectid,
            offset: key.offset,
            extent_offset: item.offset.get(),
            len: item.num_bytes.get(),
            encoded: item.compression != 0,
            is_written: item.kind != FILE_EXTENT_PREALLOC,
        })
    }

    /// Where in the file the extent would begin. One whose head no file shows may begin before the file does: below zero, in
    /// 64 bits.
    const fn base(&self) -> u64 {
        self.offset.wrapping_sub(self.extent_offset)
    }
}

/// An extent, as its item has it.
pub(crate) struct FoundExtent {
    pub(crate) at: Logical,
    /// Bytes.
    pub(crate) len: u64,
    pub(crate) kind: ExtentKind,
    pub(crate) owners: Owners,
}

impl FoundExtent {
    fn of(key: &Key, data: &[u8], node_size: u64) -> Result<Self> {
        let item = ExtentItem::parse(key, data)?;
        let at = Logical::new(key.objectid.get());
        let owners = Owners::of(&item);
        if item.flags.contains(ExtentFlags::DATA) {
            return Ok(Self { at, len: key.offset, kind: ExtentKind::Data, owners });
        }
        let in_key = u8::try_from(key.offset).ok().filter(|_| key.kind == KeyType::METADATA_ITEM);
        let level = in_key.or(item.level()).filter(|level| *level <= LEVEL_MAX);
        let damaged =
            || Error::new(ErrorKind::Corrupt, format!("extent item {key}: a tree block of no level"));
        let kind = ExtentKind::TreeBlock { level: level.ok_or_else(damaged)? };
        Ok(Self { at, len: node_size, kind, owners })
    }
}

/// Whoever is told of users, until he breaks.
type Each<'a> = dyn FnMut(TreeId, &Sighting) -> ControlFlow<()> + 'a;

/// A walk over one state of the trees, with what it has learned.
pub(crate) struct Walk<B> {
    trees: Trees<B>,
    roots: RootsAbove,
}

impl Walk<CommittedBlocks<'_>> {
    pub(crate) const fn guard(&self) -> &CommitRootGuard {
        self.trees.guard()
    }
}

impl<B: Blocks> Walk<B> {
    /// For all users of extents.
    pub(crate) fn for_all(trees: Trees<B>) -> Self {
        Self { trees, roots: RootsAbove::new(usize::MAX) }
    }

    /// For [`Walk::few`] alone: deleted trees count, too, for what they have not dropped keeps its space.
    pub(crate) fn for_few(trees: Trees<B>) -> Self {
        Self { trees, roots: RootsAbove::with_deleted(2) }
    }

    /// For [`Walk::roots`], of which those count, too, that were deleted and are not dropped yet.
    pub(crate) fn for_roots(trees: Trees<B>) -> Self {
        Self { trees, roots: RootsAbove::with_deleted(usize::MAX) }
    }

    /// The subvolumes that reach the extent of `len` bytes at `at`. Errors: device errors; damage.
    pub(crate) fn roots(&mut self, at: Logical, len: u64, kind: ExtentKind) -> Result<BTreeSet<TreeId>> {
        let mut found = BTreeSet::new();
        match kind {
            ExtentKind::TreeBlock { level } => {
                found.extend(self.roots.of(&mut self.trees, at, level)?.iter())
            }
            ExtentKind::Data => {
                let _ = self.visit(at, len, &mut |root, _| {
                    found.insert(root);
                    ControlFlow::Continue(())
                })?;
            }
        }
        found.retain(|root| root.is_subvolume());
        Ok(found)
    }

    /// The extents from `from` on, `most` of them about, and where the next one may be. `node_size` is what a tree block has,
    /// bytes. Errors: device errors; damage.
    pub(crate) fn extents(
        &mut self,
        from: Logical,
        most: usize,
        node_size: u64,
    ) -> Result<(Vec<FoundExtent>, Option<Logical>)> {
        let mut key = Key::new(ObjectId::new(from.get()), KeyType::UNTYPED, 0);
        let mut found: Vec<FoundExtent> = Vec::new();
        loop {
            let leaf = self.trees.leaf(self.trees.extent_root(), &key)?;
            for (key, data) in leaf.from(&key) {
                let at = Logical::new(key.objectid.get());
                if found.len() >= most && found.last().is_some_and(|last| last.at < at) {
                    return Ok((found, Some(at)));
                }
                if key.kind == KeyType::EXTENT_ITEM || key.kind == KeyType::METADATA_ITEM {
                    found.push(FoundExtent::of(&key, data, node_size)?);
                }
            }
            match leaf.next {
                Some(next) => key = next,
                None => return Ok((found, None)),
            }
        }
    }

    /// Whoever refers to the data extent in which `at` is. Errors: not found; device errors; damage.
    pub(crate) fn users(&mut self, at: Logical) -> Result<ExtentUsers> {
        let found = references::data_extent(&mut self.trees, at)?;
        let missing = || Error::new(ErrorKind::NotFound, format!("no data extent at {at}"));
        let (start, len) = found.ok_or_else(missing)?;
        let mut users = BTreeSet::new();
        let _ = self.visit(start, len, &mut |subvolume, seen| {
            users.insert(ExtentUser {
                id: InodeId::new(subvolume, seen.ino),
                offset: seen.offset,
                extent_offset: seen.extent_offset,
                len: seen.len,
                encoded: seen.encoded,
                is_written: seen.is_written,
            });
            ControlFlow::Continue(())
        })?;
        Ok(ExtentUsers { start, len, users: users.into_iter().collect() })
    }

    /// Whether nobody, one or several refer to the data extent that begins at `at`. It ends with the second.
    /// Errors: device errors; damage.
    pub(crate) fn few(&mut self, at: Logical) -> Result<Few> {
        let found = references::data_extent(&mut self.trees, at)?;
        let Some((start, len)) = found.filter(|(start, _)| *start == at) else { return Ok(Few::Nobody) };
        let mut few = Few::Nobody;
        let _ = self.visit(start, len, &mut |subvolume, seen| {
            let user = Few::One(InodeId::new(subvolume, seen.ino), seen.base());
            few = if few == Few::Nobody || few == user { user } else { Few::Several };
            if few == Few::Several { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(few)
    }

    fn visit(&mut self, start: Logical, len: u64, each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        let mut references = References::to(start);
        while let Some(some) = references.next(&mut self.trees)? {
            for backref in some {
                let flow = match backref {
                    Backref::ExtentData { root, ino, offset } => {
                        self.visit_in_tree((start, len), root, ino, offset, each)?
                    }
                    Backref::SharedData { parent } => self.visit_leaf(start, parent, each)?,
                    Backref::TreeBlock { .. } | Backref::SharedBlock { .. } => {
                        let message =
                            format!("corrupt extent: logical={start}, data is referred to as a tree block");
                        return Err(Error::new(ErrorKind::Corrupt, message));
                    }
                };
                if flow.is_break() {
                    return Ok(flow);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn visit_leaf(&mut self, extent: Logical, at: Logical, each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        let bytes = self.trees.block(at, 0)?;
        let leaf = BlockRef::new(&bytes);
        let items = (0..leaf.count()).map(|slot| (leaf.key(slot), leaf.data(slot)));
        let seen: Vec<_> = items.filter_map(|(key, data)| Sighting::of(&key, data, extent)).collect();
        self.tell(at, &seen, each)
    }

    /// Looks in a subvolume for the items of one EXTENT_DATA_REF. They begin in the file where the extent would, or later, but
    /// before its end. How many they are is not taken from the reference: items in leaves whose references are counted by the
    /// leaf may be among them.
    fn visit_in_tree(
        &mut self,
        (extent, len): (Logical, u64),
        root: TreeId,
        ino: ObjectId,
        base: u64,
        each: &mut Each<'_>,
    ) -> Result<ControlFlow<()>> {
        let Some(tree) = self.trees.root(root)? else { return Ok(ControlFlow::Continue(())) };
        let end = base.wrapping_add(len.max(COMPRESSED_MAX));
        let begin = if base > end { 0 } else { base };
        let last = Key::new(ino, KeyType::EXTENT_DATA, end);
        let mut from = Key::new(ino, KeyType::EXTENT_DATA, begin).max(tree.dropped_to);
        while from < last {
            let leaf = self.trees.leaf(tree.pointer, &from)?;
            let items = leaf.from(&from).take_while(|(key, _)| *key < last);
            let seen = items.filter_map(|(key, data)| Sighting::of(&key, data, extent));
            let seen: Vec<_> = seen.filter(|seen| seen.base() == base).collect();
            let flow = self.tell(leaf.at, &seen, each)?;
            match leaf.next {
                Some(next) if flow.is_continue() => from = next,
                _ => return Ok(flow),
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Tells of what was seen in a leaf, for each tree that the leaf is part of.
    fn tell(&mut self, leaf: Logical, seen: &[Sighting], each: &mut Each<'_>) -> Result<ControlFlow<()>> {
        if seen.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let roots = self.roots.of(&mut self.trees, leaf, 0)?;
        for &root in roots.iter() {
            for sighting in seen {
                if each(root, sighting).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
