//! The walker: visits the blocks of a tree in key order, reads and judges them, several at a time.
//!
//! A parent has for each child its address, level, generation, first key, and an upper bound of the child's keys. So keys are in order over
//! the whole tree when each block is in order and fits its parent. Levels fall by one from parent to child, so a walk ends regardless of
//! the pointers.
//!
//! Snapshots share subtrees. The walker offers a block that it has seen before to the [`Sequence`], which may have kept enough about the
//! subtree. If not, the subtree is walked once more, and this time kept. So no block is read more than twice, also if pointers form a
//! cycle.
//!
//! Several threads read, judge and digest the leaves under one node; one thread puts the digests together in key order.

use std::collections::{HashMap, HashSet};

use creamery_base::{Generation, Logical, Result, TreeId};
use creamery_format::{BlockRef, Expected, ExtentRef, HEADER_FLAG_RELOC, Key, MIXED_BACKREF_REV};

use crate::problem::Problem;
use crate::reader::Reader;
use crate::references::{Reference, References};
use crate::report::{ProblemSite, Sink};

/// Bytes of leaves in flight.
const BATCH_BYTES: u64 = 8 << 20;
/// With fewer leaves than this, threads cost more than they bring.
const BATCH_PARALLEL_MIN: usize = 8;

/// The lowest bit of the backref revision in a header's flags.
const REVISION_SHIFT: u32 = 56;

/// The root of a tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) tree: TreeId,
    /// The address of the root block.
    pub(crate) logical: Logical,
    pub(crate) level: u8,
    pub(crate) generation: Generation,
    /// The last transaction in which blocks of the tree became shared. Relocation shares blocks, too.
    pub(crate) last_snapshot: u64,
    /// The progress of dropping a deleted subvolume: the key it has reached, and the level of that key.
    pub(crate) dropped: Option<(Key, u8)>,
}

impl Root {
    /// The root of a tree that is never shared or dropped.
    pub(crate) const fn unshared(tree: TreeId, logical: Logical, level: u8, generation: Generation) -> Self {
        Self { tree, logical, level, generation, last_snapshot: 0, dropped: None }
    }

    /// The expected header of the root block.
    pub(crate) fn expected(&self, reader: &Reader<'_>) -> Expected {
        Expected {
            logical: self.logical,
            level: Some(self.level),
            generation: Some(self.generation),
            owner: Some(self.tree),
            first_key: None,
            fsid: reader.fsid,
            checksum: reader.checksum,
        }
    }
}

/// The extent item of a tree block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TreeBlock {
    pub(crate) full_backref: bool,
    pub(crate) level: u8,
    pub(crate) generation: u64,
    pub(crate) refs: u32,
    /// The tree of its only reference by tree. 0 if there is none, or if [`TreeBlocks::owners`] has several.
    pub(crate) owner: u64,
}

/// All tree blocks in the extent tree.
#[derive(Default)]
pub(crate) struct TreeBlocks {
    pub(crate) blocks: HashMap<u64, TreeBlock>,
    /// The trees that refer to a block, for blocks with several.
    pub(crate) owners: HashMap<u64, Vec<u64>>,
}

impl TreeBlocks {
    fn full_backref(&self, logical: Logical) -> bool {
        self.blocks.get(&logical.get()).is_some_and(|block| block.full_backref)
    }

    /// Whether the extent tree has several references to the block.
    pub(crate) fn shared(&self, logical: Logical) -> bool {
        self.blocks.get(&logical.get()).is_some_and(|block| block.refs > 1)
    }
}

/// A leaf for [`Digest`].
pub(crate) struct Leaf<'a> {
    pub(crate) block: BlockRef<'a>,
    pub(crate) tree: TreeId,
    /// Whether no walk has seen the leaf before, in any tree.
    pub(crate) first: bool,
    /// Whether references from the leaf name the leaf, not its tree.
    pub(crate) full_backref: bool,
}

impl Leaf<'_> {
    pub(crate) fn place(&self, slot: usize) -> ProblemSite {
        ProblemSite::slot(self.tree, self.block.logical(), slot, self.block.key(slot))
    }
}

/// The header fields of a block that was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meta {
    pub(crate) logical: Logical,
    pub(crate) level: u8,
    pub(crate) generation: Generation,
    pub(crate) owner: TreeId,
    /// The whole flags field.
    flags: u64,
    /// Whether the block is in its header's tree, and younger than the last time that tree was shared.
    unshared: bool,
    pub(crate) keys: Option<(Key, Key)>,
    pub(crate) first: bool,
}

impl Meta {
    fn new(block: BlockRef<'_>, root: &Root, first: bool) -> Self {
        let (owner, generation) = (block.owner(), block.generation());
        let since = if owner.is_shareable() { root.last_snapshot } else { 0 };
        Self {
            logical: block.logical(),
            level: block.level(),
            generation,
            owner,
            flags: block.flags(),
            unshared: owner == root.tree && generation.get() > since,
            keys: block.first_key().zip(block.last_key()),
            first,
        }
    }

    /// Reports that no reference names the tree in the block's header.
    pub(crate) fn report_owner(&self, sink: &Sink) {
        let message = format!("no reference by tree {}", self.owner.get().cast_signed());
        sink.add(
            Problem::ExtentOwner,
            ProblemSite::block(self.owner, self.logical, Some(self.level)),
            message,
        );
    }

    /// Whether the block is the one that a parent wants.
    pub(crate) fn fits(&self, want: &Expected, upper: Option<Key>) -> bool {
        let keys_fit = match self.keys {
            Some((first, last)) => {
                want.first_key.is_none_or(|want| want == first) && upper.is_none_or(|upper| last < upper)
            }
            None => want.first_key.is_none(),
        };
        want.level == Some(self.level) && want.generation == Some(self.generation) && keys_fit
    }
}

/// The treatment of a block that was seen before.
pub(crate) enum Again {
    /// Its content is known: skip it.
    Known,
    /// Walk it once more.
    Walk,
    /// A second visit is an error.
    Twice,
}

/// Takes digests of leaves in key order, and the begin and end of nodes.
pub(crate) trait Sequence<T> {
    fn leaf(&mut self, meta: &Meta, digest: T);
    fn begin(&mut self, _meta: &Meta) {}
    fn end(&mut self, _meta: &Meta) {}
    fn again(&mut self, _want: &Expected, _upper: Option<Key>) -> Again {
        Again::Twice
    }
    /// A block in between could not be read.
    fn hole(&mut self) {}
}

/// Digests a leaf, on any thread.
pub(crate) type Digest<'d, T> = &'d (dyn Fn(&Leaf<'_>) -> T + Sync);

/// Walks trees, remembering which blocks it has seen.
pub(crate) struct Walker<'a> {
    reader: &'a Reader<'a>,
    references: &'a References,
    threads: usize,
    /// `None` until the extent tree is read.
    tables: Option<&'a TreeBlocks>,
    seen: HashSet<u64>,
    /// Blocks seen before the extent tree was read.
    early: Vec<Meta>,
    /// Whether the trees have extent items; log trees have none.
    counting: bool,
    /// Blocks without full backrefs to which parents refer, but no tree.
    unowned: Vec<Meta>,
    pub(crate) complete: bool,
}

/// A child, as its parent describes it.
struct Child {
    want: Expected,
    upper: Option<Key>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(reader: &'a Reader<'a>, references: &'a References, threads: usize) -> Self {
        Self {
            reader,
            references,
            threads: threads.max(1),
            tables: None,
            seen: HashSet::new(),
            early: Vec::new(),
            counting: true,
            unowned: Vec::new(),
            complete: true,
        }
    }

    /// Sets the content of the extent tree, and judges the blocks that were visited before.
    pub(crate) fn set_tables(&mut self, tables: &'a TreeBlocks) {
        self.tables = Some(tables);
        for meta in std::mem::take(&mut self.early) {
            self.compare(&meta);
        }
    }

    pub(crate) fn blocks_seen(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Sets whether the following trees have extent items.
    pub(crate) fn count(&mut self, counting: bool) {
        self.counting = counting;
    }

    /// The blocks that must be found in their header's tree, as no reference shows that they belong to it.
    pub(crate) fn take_unowned(&mut self) -> Vec<Meta> {
        std::mem::take(&mut self.unowned)
    }

    /// Walks one tree. Returns false if a part of it could not be read.
    ///
    /// # Errors
    /// The volume does not support this kind of chunk.
    pub(crate) fn walk<T: Send>(
        &mut self,
        root: &Root,
        digest: Digest<'_, T>,
        sequence: &mut dyn Sequence<T>,
    ) -> Result<bool> {
        let before = std::mem::replace(&mut self.complete, true);
        let want = root.expected(self.reader);
        if self.counting {
            let by = match root.tree {
                TreeId::TREE_RELOC => ExtentRef::SharedBlock { parent: root.logical },
                tree => ExtentRef::TreeBlock { root: tree },
            };
            self.references.find(Reference::new(root.logical, 0, &by));
        }
        self.descend(&Child { want, upper: None }, root, root.dropped.is_some(), digest, sequence)?;
        let whole = self.complete;
        self.complete &= before;
        Ok(whole)
    }

    /// Visits one block and the blocks below it. `spine`: the block lies on the path to the key that dropping has reached.
    fn descend<T: Send>(
        &mut self,
        child: &Child,
        root: &Root,
        spine: bool,
        digest: Digest<'_, T>,
        sequence: &mut dyn Sequence<T>,
    ) -> Result<()> {
        let first = !self.seen.contains(&child.want.logical.get());
        if !first {
            match sequence.again(&child.want, child.upper) {
                Again::Known => return Ok(()),
                Again::Walk => {}
                Again::Twice => {
                    let place = ProblemSite::block(root.tree, child.want.logical, child.want.level);
                    self.reader.sink.add(Problem::BlockTwice, place, "");
                    self.hole(sequence);
                    return Ok(());
                }
            }
        }
        self.seen.insert(child.want.logical.get());
        if child.want.level == Some(0) {
            let outcome = digest_leaf(self.reader, self.tables, child, root, first, digest)?;
            self.take_leaf(outcome, sequence);
            return Ok(());
        }
        let Some(bytes) = self.reader.block(&child.want, child.upper) else {
            self.hole(sequence);
            return Ok(());
        };
        let node = BlockRef::new(&bytes);
        let meta = Meta::new(node, root, first);
        self.note(&meta);
        sequence.begin(&meta);
        self.children(node, child, root, spine, first, digest, sequence)?;
        sequence.end(&meta);
        Ok(())
    }

    #[allow(clippy::too_many_arguments)] // one call site, and every argument belongs to the recursion
    fn children<T: Send>(
        &mut self,
        node: BlockRef<'_>,
        parent: &Child,
        root: &Root,
        spine: bool,
        first: bool,
        digest: Digest<'_, T>,
        sequence: &mut dyn Sequence<T>,
    ) -> Result<()> {
        let from = match root.dropped {
            Some((key, level)) if spine && node.level() >= level => node.child_slot(&key),
            _ => 0,
        };
        let level = node.level() - 1;
        let children: Vec<Child> =
            (from..node.count()).map(|slot| child_at(node, slot, parent, level)).collect();
        if first && self.counting {
            let by = match self.tables.is_some_and(|tables| tables.full_backref(node.logical())) {
                true => ExtentRef::SharedBlock { parent: node.logical() },
                false => ExtentRef::TreeBlock { root: node.owner() },
            };
            for child in &children {
                self.references.find(Reference::new(child.want.logical, 0, &by));
            }
        }
        if level > 0 {
            for (index, child) in children.iter().enumerate() {
                self.descend(child, root, spine && index == 0, digest, sequence)?;
            }
            return Ok(());
        }
        let batch = usize::try_from(BATCH_BYTES / self.reader.node_size).unwrap_or(usize::MAX).max(1);
        children.chunks(batch).try_for_each(|batch| self.leaves(batch, root, digest, sequence))
    }

    /// Reads the leaves that were not seen before with several threads, then takes all in order.
    fn leaves<T: Send>(
        &mut self,
        batch: &[Child],
        root: &Root,
        digest: Digest<'_, T>,
        sequence: &mut dyn Sequence<T>,
    ) -> Result<()> {
        let fresh: Vec<bool> = batch.iter().map(|child| self.seen.insert(child.want.logical.get())).collect();
        let wanted: Vec<&Child> =
            batch.iter().zip(&fresh).filter(|(_, fresh)| **fresh).map(|(child, _)| child).collect();
        let (reader, tables) = (self.reader, self.tables);
        let read = |child: &&Child| digest_leaf(reader, tables, child, root, true, digest);
        let mut outcomes = in_parallel(self.threads, &wanted, &read).into_iter();
        for (child, fresh) in batch.iter().zip(fresh) {
            match outcomes.next_if(fresh) {
                Some(outcome) => self.take_leaf(outcome?, sequence),
                None => self.descend(child, root, false, digest, sequence)?,
            }
        }
        Ok(())
    }

    fn take_leaf<T>(&mut self, outcome: Option<(Meta, T)>, sequence: &mut dyn Sequence<T>) {
        match outcome {
            Some((meta, digest)) => {
                self.note(&meta);
                sequence.leaf(&meta, digest);
            }
            None => self.hole(sequence),
        }
    }

    fn hole<T>(&mut self, sequence: &mut dyn Sequence<T>) {
        self.complete = false;
        sequence.hole();
    }

    /// Notes a block that was read.
    fn note(&mut self, meta: &Meta) {
        if !meta.first || !self.counting {
            return;
        }
        match self.tables {
            Some(_) => self.compare(meta),
            None => self.early.push(*meta),
        }
    }

    /// Compares a block with its extent item. A missing item shows up among the references.
    fn compare(&mut self, meta: &Meta) {
        let Some(tables) = self.tables else { return };
        let Some(extent) = tables.blocks.get(&meta.logical.get()) else { return };
        let place = ProblemSite::block(meta.owner, meta.logical, Some(meta.level));
        if extent.level != meta.level {
            let message = format!("extent item of level {}, expected {}", extent.level, meta.level);
            self.reader.sink.add(Problem::ExtentLevel, place.clone(), message);
        }
        if extent.generation != meta.generation.get() {
            let older = extent.generation < meta.generation.get();
            let problem = if older { Problem::ExtentOlder } else { Problem::ExtentNewer };
            let message = format!("expected {}, found {}", meta.generation, extent.generation);
            self.reader.sink.add(problem, place.clone(), message);
        }
        // References name relocation's copy by its address, and old backrefs are not supported.
        let relocated = meta.flags & HEADER_FLAG_RELOC != 0;
        let revision = meta.flags >> REVISION_SHIFT;
        if (relocated && !extent.full_backref) || revision != MIXED_BACKREF_REV {
            let message = format!("found 0x{:x}, full backrefs: {}", meta.flags, extent.full_backref);
            self.reader.sink.add(Problem::BlockFlags, place.clone(), message);
        }
        if meta.owner == TreeId::TREE_RELOC {
            return;
        }
        // A shared block gets full backrefs, and keeps them when relocation leaves it to its owner.
        if extent.full_backref && meta.unshared && !relocated {
            let message = format!("full backrefs, but only tree {} ever had the block", meta.owner);
            self.reader.sink.add(Problem::BlockFlags, place, message);
        }
        let owner = meta.owner.get();
        let (listed, by_tree) = match tables.owners.get(&meta.logical.get()) {
            Some(owners) => (owners.contains(&owner), owners.len()),
            None => (extent.owner == owner, usize::from(extent.owner != 0)),
        };
        if listed || extent.full_backref {
            return;
        }
        // Relocation may have given the parent in the owner's tree full backrefs; then the parent refers to the block.
        if extent.refs as usize > by_tree {
            self.unowned.push(*meta);
        } else {
            meta.report_owner(self.reader.sink);
        }
    }
}

/// `next`, if the flag is set.
trait NextIf: Iterator {
    fn next_if(&mut self, wanted: bool) -> Option<Self::Item>;
}

impl<I: Iterator> NextIf for I {
    fn next_if(&mut self, wanted: bool) -> Option<I::Item> {
        if wanted { self.next() } else { None }
    }
}

fn child_at(node: BlockRef<'_>, slot: usize, parent: &Child, level: u8) -> Child {
    let (logical, generation) = node.child(slot);
    let next = (slot + 1 < node.count()).then(|| node.key(slot + 1));
    let want = Expected {
        logical,
        level: Some(level),
        generation: Some(generation),
        first_key: Some(node.key(slot)),
        ..parent.want
    };
    Child { want, upper: next.or(parent.upper) }
}

fn digest_leaf<T>(
    reader: &Reader<'_>,
    tables: Option<&TreeBlocks>,
    child: &Child,
    root: &Root,
    first: bool,
    digest: Digest<'_, T>,
) -> Result<Option<(Meta, T)>> {
    let Some(bytes) = reader.block(&child.want, child.upper) else { return Ok(None) };
    let block = BlockRef::new(&bytes);
    if let Some(refusal) = reader.refusal(block) {
        reader.sink.refuse(refusal);
    }
    let full_backref = tables.is_some_and(|tables| tables.full_backref(block.logical()));
    let digest = digest(&Leaf { block, tree: root.tree, first, full_backref });
    Ok(Some((Meta::new(block, root, first), digest)))
}

/// Calls `work` with every item, on several threads; the results are in order.
pub(crate) fn in_parallel<I: Sync, T: Send>(
    threads: usize,
    items: &[I],
    work: &(dyn Fn(&I) -> T + Sync),
) -> Vec<T> {
    if threads < 2 || items.len() < BATCH_PARALLEL_MIN {
        return items.iter().map(work).collect();
    }
    let share = items.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let mut shares = items.chunks(share);
        let own = shares.next().unwrap_or_default();
        let others: Vec<_> =
            shares.map(|share| scope.spawn(move || share.iter().map(work).collect::<Vec<T>>())).collect();
        let mut results: Vec<T> = items[..own.len()].iter().map(work).collect();
        for other in others {
            match other.join() {
                Ok(more) => results.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        results
    })
}
