//! Judges whether all blocks of a commit are left.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use creamery_base::{Generation, Logical, Result, Timespec, TreeId, Wait};
use creamery_device::AlignedBuffer;
use creamery_format::{BlockRef, Expected, Key, KeyType, RawRootItem, Superblock};
use creamery_volume::Volume;

use super::candidates::RootTreeCandidate;
use super::commit::CommitState;
use super::progress::SearchProgress;

/// Subtrees whose fate is remembered, 16 bytes each and the overhead.
const FATES_MAX: usize = 16 << 20;
/// Blocks between two progress reports.
const BETWEEN: u64 = 256;

/// The blocks that are gone of a subtree, or of a commit.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct GoneBlocks {
    /// Number of blocks.
    gone: u64,
    /// Number of those that are not all zeros.
    not_zeros: u64,
}

impl GoneBlocks {
    fn and(self, other: Self) -> Self {
        Self {
            gone: self.gone.saturating_add(other.gone),
            not_zeros: self.not_zeros.saturating_add(other.not_zeros),
        }
    }

    pub(super) const fn is_whole(self) -> bool {
        self.gone == 0
    }

    const fn state(self) -> CommitState {
        match self {
            Self { gone: 0, .. } => CommitState::Whole,
            Self { gone, not_zeros: 0 } => CommitState::Discarded { blocks: gone },
            Self { gone, .. } => CommitState::Gone { blocks: gone },
        }
    }
}

/// The first and the last tree of every root tree (HISTORY-1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TreeEnds {
    first: bool,
    last: bool,
}

impl TreeEnds {
    const NONE: Self = Self { first: false, last: false };
    const BOTH: Self = Self { first: true, last: true };

    const fn has(self, wanted: Self) -> bool {
        (self.first || !wanted.first) && (self.last || !wanted.last)
    }
}

/// A tree that a root tree leads to.
#[derive(Clone, Copy)]
pub(super) struct TreeOfCommit {
    pub(super) id: TreeId,
    pub(super) root: (Logical, u8, Generation),
    /// The UUID of a subvolume: another subvolume can have the same number.
    pub(super) uuid: [u8; 16],
    ctransid: u64,
    ctime: Timespec,
}

/// The contents of a root tree, as far as they could be read.
pub(super) struct RootTree {
    pub(super) trees: Vec<TreeOfCommit>,
    fate: GoneBlocks,
    ends: TreeEnds,
    /// The transaction that made the root of the extent tree, from the root tree.
    extents_of: Option<Generation>,
    has_root: bool,
    /// Whether its first key can be the first of a root tree.
    begins: bool,
}

/// The root tree of a commit.
pub(super) struct FoundRootTree {
    pub(super) candidate: RootTreeCandidate,
    pub(super) tree: RootTree,
}

impl RootTree {
    /// Whether all its blocks could be read.
    pub(super) const fn is_whole(&self) -> bool {
        self.fate.is_whole()
    }

    /// Whether it was written in the midst of the transaction `generation`: each commit has its own extent tree (HISTORY-1).
    fn is_of_no_commit(&self, generation: Generation) -> bool {
        self.extents_of.is_some_and(|of| of != generation)
    }

    /// Whether its root block could be read.
    pub(super) const fn has_root(&self) -> bool {
        self.has_root
    }

    /// The time of the newest change of a subvolume in the transaction `generation`, else of all.
    pub(super) fn time(&self, generation: Generation) -> Option<Timespec> {
        let of_files =
            || self.trees.iter().filter(|tree| tree.id.is_subvolume() && tree.ctime != Timespec::default());
        let newest = |trees: &mut dyn Iterator<Item = &TreeOfCommit>| trees.map(|tree| tree.ctime).max();
        newest(&mut of_files().filter(|tree| tree.ctransid == generation.get()))
            .or_else(|| newest(&mut of_files()))
    }
}

/// Judges commits one after the other, and remembers the fate of the subtrees that they share.
pub(super) struct Judge<'v> {
    volume: &'v Volume,
    superblock: Superblock,
    /// Fates, by the [`Judge::key`] of a block pointer.
    fates: HashMap<u64, GoneBlocks>,
    hashes: RandomState,
    progress: &'v dyn SearchProgress,
    done: u64,
}

impl<'v> Judge<'v> {
    pub(super) fn new(volume: &'v Volume, progress: &'v dyn SearchProgress) -> Self {
        let (fates, hashes) = (HashMap::new(), RandomState::new());
        Self { volume, superblock: volume.superblock(), fates, hashes, progress, done: 0 }
    }

    /// The ends that the root tree of a commit must have: those of the last commit, if that can be read.
    pub(super) fn ends(&mut self) -> TreeEnds {
        let (logical, level) = self.superblock.root();
        let generation = self.superblock.generation();
        let last = self.root_tree(&RootTreeCandidate { generation, logical, level, is_named: true });
        if last.fate.is_whole() { last.ends } else { TreeEnds::BOTH }
    }

    /// Picks the block that is the root of the commit from several blocks of one generation, if any is (HISTORY-1).
    pub(super) fn pick(&mut self, candidates: &[RootTreeCandidate], ends: TreeEnds) -> Option<FoundRootTree> {
        let (mut complete, mut partial): (Vec<FoundRootTree>, Option<FoundRootTree>) = (Vec::new(), None);
        for candidate in candidates {
            let tree = self.root_tree(candidate);
            let found = FoundRootTree { candidate: *candidate, tree };
            if candidate.is_named && found.tree.has_root {
                return Some(found);
            }
            if found.tree.is_of_no_commit(candidate.generation) {
                continue;
            }
            if found.tree.has_root && found.tree.ends.has(ends) {
                complete.push(found);
            } else if !found.tree.fate.is_whole()
                && (candidate.is_named || found.tree.begins || !ends.first)
                && partial.as_ref().is_none_or(|first| !first.tree.has_root && found.tree.has_root)
            {
                // The end of the tree is gone; the block of the highest level is most likely the root.
                partial = Some(found);
            }
        }
        if complete.len() > 1 {
            let fates: Vec<u64> = complete.iter().map(|found| self.fate(&found.tree).gone).collect();
            let (best, _) = fates.iter().enumerate().min_by_key(|(_, gone)| **gone)?;
            return Some(complete.swap_remove(best));
        }
        complete.pop().or(partial)
    }

    /// The state of the commit with this root tree (HISTORY-2).
    pub(super) fn state(&mut self, tree: &RootTree) -> CommitState {
        self.fate(tree).state()
    }

    fn fate(&mut self, tree: &RootTree) -> GoneBlocks {
        tree.trees.iter().fold(tree.fate, |fate, one| {
            let want = self.expected(one.id, one.root, None);
            fate.and(self.subtree(&want))
        })
    }

    fn expected(
        &self,
        owner: TreeId,
        (logical, level, generation): (Logical, u8, Generation),
        first_key: Option<Key>,
    ) -> Expected {
        Expected {
            level: Some(level),
            generation: Some(generation),
            owner: Some(owner),
            first_key,
            ..Expected::anything(logical, &self.superblock)
        }
    }

    /// A hash of the fields of a block pointer. Subvolumes may share blocks, so they count as one owner.
    fn key(&self, want: &Expected) -> u64 {
        let owner = want.owner.map(|owner| if owner.is_subvolume() { TreeId::FS } else { owner });
        self.hashes.hash_one((want.logical, want.level, want.generation, owner, want.first_key))
    }

    fn read(&mut self, want: &Expected) -> Result<AlignedBuffer, GoneBlocks> {
        if self.done.is_multiple_of(BETWEEN) {
            self.progress.at(self.done, None);
        }
        self.done += 1;
        self.volume.read_tree_block(want.logical, want, Wait::Yes).map_err(|_| {
            let is_zeros = is_zeros(self.volume, want.logical);
            GoneBlocks { gone: 1, not_zeros: u64::from(!is_zeros) }
        })
    }

    fn subtree(&mut self, want: &Expected) -> GoneBlocks {
        let key = self.key(want);
        if let Some(known) = self.fates.get(&key) {
            return *known;
        }
        let fate = match self.read(want) {
            Err(gone) => gone,
            Ok(bytes) => {
                let block = BlockRef::new(&bytes);
                let children = if block.is_leaf() { 0 } else { block.count() };
                (0..children).fold(GoneBlocks::default(), |fate, slot| {
                    let (child, generation) = block.child(slot);
                    let owner = want.owner.unwrap_or_else(|| block.owner());
                    let root = (child, block.level() - 1, generation);
                    let below = self.expected(owner, root, Some(block.key(slot)));
                    fate.and(self.subtree(&below))
                })
            }
        };
        if self.fates.len() < FATES_MAX {
            self.fates.insert(key, fate);
        }
        fate
    }

    /// Reads a root tree as far as possible.
    pub(super) fn root_tree(&mut self, root: &RootTreeCandidate) -> RootTree {
        let mut tree = RootTree {
            trees: Vec::new(),
            fate: GoneBlocks::default(),
            ends: TreeEnds::NONE,
            extents_of: None,
            has_root: false,
            begins: false,
        };
        let mut todo = vec![self.expected(TreeId::ROOT, (root.logical, root.level, root.generation), None)];
        let mut met = std::collections::HashSet::new();
        while let Some(want) = todo.pop() {
            if !met.insert(self.key(&want)) {
                continue;
            }
            let bytes = match self.read(&want) {
                Ok(bytes) => bytes,
                Err(gone) => {
                    tree.fate = tree.fate.and(gone);
                    continue;
                }
            };
            let block = BlockRef::new(&bytes);
            if want.logical == root.logical {
                tree.has_root = true;
                tree.begins = block.first_key().is_some_and(|key| key.objectid <= TreeId::EXTENT.objectid());
            }
            if block.is_leaf() {
                tree.note(block);
                continue;
            }
            for slot in (0..block.count()).rev() {
                let (child, generation) = block.child(slot);
                let at = (child, block.level() - 1, generation);
                todo.push(self.expected(TreeId::ROOT, at, Some(block.key(slot))));
            }
        }
        tree
    }
}

impl RootTree {
    fn note(&mut self, leaf: BlockRef<'_>) {
        for slot in (0..leaf.count()).filter(|slot| leaf.key(*slot).kind == KeyType::ROOT_ITEM) {
            let id = TreeId::from(leaf.key(slot).objectid);
            let Ok(item) = RawRootItem::from_item(leaf.data(slot)) else {
                self.fate = self.fate.and(GoneBlocks { gone: 1, not_zeros: 1 });
                continue;
            };
            if id == TreeId::EXTENT {
                self.ends.first = true;
                self.extents_of = Some(item.root_generation());
            }
            self.ends.last |= id.objectid() == TreeId::DATA_RELOC.objectid();
            // The subvolume is deleted; its blocks go step by step.
            if (id.is_subvolume() || id == TreeId::TREE_RELOC) && item.refs.get() == 0 {
                continue;
            }
            self.trees.push(TreeOfCommit {
                id,
                root: (item.root(), item.level, item.root_generation()),
                uuid: item.uuid,
                ctransid: item.ctransid.get(),
                ctime: item.ctime.into(),
            });
        }
    }
}

/// Whether a copy of a block can be read, and each such copy is all zeros.
fn is_zeros(volume: &Volume, at: Logical) -> bool {
    let mut bytes = vec![0; usize::try_from(volume.node_size()).unwrap_or_default()];
    let Ok(ways) = volume.ways(at, bytes.len() as u64) else { return false };
    let copies = ways.filter(|way| !way.is_rebuilt());
    let mut read = copies.filter_map(|way| {
        let is_read = volume.read_way(&way, at, &mut bytes).is_ok();
        is_read.then(|| bytes.iter().all(|byte| *byte == 0))
    });
    read.next().is_some_and(|first| first && read.all(|zeros| zeros))
}
