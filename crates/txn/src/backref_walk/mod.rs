//! From an extent to its users: which files refer to the data at a logical address, in which subvolumes.
//!
//! The extent tree names the users of an extent, one step up. It names a file by its subvolume, its inode and an offset
//! (EXTENT_DATA_REF), or by the leaf that holds its items (SHARED_DATA_REF); a tree block by its tree (TREE_BLOCK_REF), in which a
//! search for the block's first key finds the parent, or by its parent's address (SHARED_BLOCK_REF). So a walk finds first the leaves that refer to
//! the data, and goes up from each leaf, block by block, until it ends at roots (`roots`). A tree that is
//! reached from a block shares everything below that block: one reference in a leaf may be a file of a thousand snapshots.
//!
//! # One moment
//! A walk reads the state of the last commit, all of it from one root tree (`trees`). Only there do the extent tree and the
//! referring trees agree: while a transaction runs, an item is in its leaf before its reference is queued, references run
//! one extent at a time, and each step of a walk would have to see the queue and the tree at once, at every level, with the
//! tree's shape changing below it. A caller that wants its own latest changes commits first, which leaves nothing queued
//! (COMMIT-1); that costs a commit, and no rule for other threads. A decision within a transaction, for which a wrong
//! "shared" is acceptable, uses `is_sole_user` of the extent tree. Quotas walk a second state, too: that of a transaction that
//! closes, whose gate is closed and which has nothing queued any more ([`ClosedBlocks`]).
//!
//! # How far
//! A walk for all users follows all ways to their ends. A walk for a second user ([`Sharing`](crate::Sharing)) ends with the second:
//! for each block it looks for no more than two trees, and the result for a block serves all blocks below it.
//!
//! # Deleted subvolumes
//! They use nothing any more, but extents that they have not dropped yet still count in their name: a leaf that a snapshot shares
//! may be reached only by way of the deleted tree it came from. So ways lead through deleted trees, and do not end there. In two
//! cases they do: quotas count a deleted subvolume until it is dropped, and an extent is shared with a deleted subvolume or with a tree
//! that relocation has begun, as long as these keep its space.
//! The items that such a tree has dropped lie before the key in its root item, and are no references of it any more.
//!
//! # Invariants
//! - WALK-1: the level rises by one at each step up, and a block of level 7 has no parent; so every way ends, also on a damaged
//!   disk. Shown by `a_block_that_says_to_be_above_itself_is_damage`.
//! - WALK-2: a walk goes up from a block once, however many ways lead to it.
//!   Shown by `ways_that_meet_are_walked_once`.
//! - WALK-3: a block that a reference names as parent has a pointer to its child, else it is damage.
//!   Shown by `a_parent_that_does_not_point_to_its_child_is_damage`.
//!
//! References that name a block as its own parent are skipped: Linux writes them for the roots of trees that it relocates.
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
use trees::BlockSource;
pub(crate) use trees::{ClosedBlocks, CommittedBlocks, Trees, read_by_address};

/// Most bytes in a compressed extent. Other extents hold their size on disk.
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
    /// Offset in the file, bytes.
    pub offset: u64,
    /// Offset in the extent's (uncompressed) data, bytes.
    pub extent_offset: u64,
    /// Length in the file, bytes.
    pub len: u64,
    /// Whether the extent is encoded (compressed), so that its bytes are not the file's.
    pub encoded: bool,
    /// Whether the file's bytes are written; false for preallocated space.
    pub is_written: bool,
}

/// A data extent, and its users.
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

/// The number of users of an extent: file extent items of one file that show it from one beginning are one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Few {
    Nobody,
    /// The file, and the offset in it where the extent would begin, in 64 bits.
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
    /// The item at `key`, if it is a file extent item that refers to `extent`.
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

    /// The offset in the file where the extent would begin. If no file shows the extent's head, it may begin before the file does: below zero, in
    /// 64 bits.
    const fn base(&self) -> u64 {
        self.offset.wrapping_sub(self.extent_offset)
    }
}

/// An extent, from its item.
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

/// A callback for users; it ends the walk with `Break`.
type Each<'a> = dyn FnMut(TreeId, &Sighting) -> ControlFlow<()> + 'a;

/// A walk over one state of the trees, with cached results.
pub(crate) struct Walk<B> {
    trees: Trees<B>,
    roots: RootsAbove,
}

impl Walk<CommittedBlocks<'_>> {
    pub(crate) const fn guard(&self) -> &CommitRootGuard {
        self.trees.guard()
    }
}

impl<B: BlockSource> Walk<B> {
    /// A walk for all users of extents.
    pub(crate) fn for_all(trees: Trees<B>) -> Self {
        Self { trees, roots: RootsAbove::new(usize::MAX) }
    }

    /// A walk for [`Walk::few`] alone: deleted trees count, too, for the extents that they have not dropped keep their space.
    pub(crate) fn for_few(trees: Trees<B>) -> Self {
        Self { trees, roots: RootsAbove::with_deleted(2) }
    }

    /// A walk for [`Walk::roots`], which include trees that are deleted and not dropped yet.
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

    /// The extents from `from` on, about `most` of them, and the start of the next one, if any. `node_size` is the size of a tree block,
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

    /// The users of the data extent that contains `at`. Errors: not found; device errors; damage.
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

    /// Whether the data extent that begins at `at` has no user, one or several. The walk ends at the second user.
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
    /// before its end. The reference's count does not limit the search: items in leaves whose references are counted by the
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

    /// Calls `each` for the items seen in a leaf, for each tree that the leaf is part of.
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
