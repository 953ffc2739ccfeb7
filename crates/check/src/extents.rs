//! The extent tree: the extents in use, their users, and the used bytes of each block group.
//!
//! The walk meets extents in the order of their addresses, each followed by its references and, where one begins, by a block group. So it
//! judges overlap, reference counts and used bytes in passing. The user of each reference goes to [`References`], tree blocks go to a table
//! for later walks, and the ranges in use are kept, merged, for free space and checksums.

use std::cmp::Reverse;
use std::collections::HashMap;

use creamery_base::{Logical, TreeId};
use creamery_format::{
    BlockGroupFlags, BlockRef, ExtentFlags, ExtentItem, ExtentRef, Incompat, Key, KeyType, RawBlockGroupItem,
};
use zerocopy::FromBytes;

pub(crate) use crate::block_groups::BlockGroup;
use crate::chunks::ChunkTable;
use crate::features::Features;
use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::references::{Reference, References};
use crate::report::{ProblemSite, Sink};
use crate::walk::{Meta, Sequence, TreeBlock, TreeBlocks};

/// The distance behind its hash within which the item of a reference is accepted. References with one hash lie at neighbouring offsets, and
/// clones can make very many of them; a wrong hash is far away in 63 bits.
const HASH_REACH: u64 = 1 << 16;

/// The content of the extent tree after the walk.
#[derive(Default)]
pub(crate) struct Extents {
    pub(crate) tree_blocks: TreeBlocks,
    pub(crate) groups: Vec<BlockGroup>,
    /// All ranges in use.
    pub(crate) used: Ranges,
    pub(crate) data: Ranges,
    pub(crate) data_extents: u64,
    pub(crate) data_bytes: u64,
    /// With simple quotas: bytes of data by the tree that created them.
    pub(crate) owned: HashMap<u64, u64>,
}

/// The extent whose references the walk is reading.
struct OpenExtent {
    bytenr: u64,
    len: u64,
    is_tree: bool,
    generation: u64,
    want: u64,
    listed: u64,
    roots: Vec<u64>,
    place: ProblemSite,
}

/// Visits the leaves of the extent tree.
pub(crate) struct ExtentSequence<'a> {
    sink: &'a Sink,
    references: &'a References,
    features: &'a Features,
    chunks: &'a mut ChunkTable,
    node_size: u64,
    generation: u64,
    /// Whether this is the second walk, which only collects references.
    references_only: bool,
    open: Option<OpenExtent>,
    /// With simple quotas: the first generation that counts.
    owned_since: Option<u64>,
    /// The end of the last extent.
    end: u64,
    found: Extents,
}

impl<'a> ExtentSequence<'a> {
    pub(crate) fn new(
        reader: &Reader<'a>,
        references: &'a References,
        features: &'a Features,
        chunks: &'a mut ChunkTable,
        references_only: bool,
    ) -> Self {
        let (sink, node_size, generation) = (reader.sink, reader.node_size, reader.generation.get());
        let (open, owned_since, end, found) = (None, None, 0, Extents::default());
        Self {
            sink,
            references,
            features,
            chunks,
            node_size,
            generation,
            references_only,
            open,
            owned_since,
            end,
            found,
        }
    }

    /// Sums up data by the tree that created it, from a generation on.
    pub(crate) fn owned_since(self, owned_since: Option<u64>) -> Self {
        Self { owned_since, ..self }
    }

    pub(crate) fn finish(mut self) -> Extents {
        self.close(true);
        self.found
    }

    fn say(&self, problem: Problem, place: ProblemSite, message: String) {
        if !self.references_only {
            self.sink.add(problem, place, message);
        }
    }

    /// Ends the open extent. `whole`: all of its references were read, so there was no hole; then their count is compared.
    fn close(&mut self, whole: bool) {
        let Some(open) = self.open.take() else { return };
        if whole && open.want != open.listed {
            let message = format!("expected {}, found {}", open.listed, open.want);
            self.say(Problem::ExtentRefCount, open.place, message);
        }
        if !open.is_tree || self.references_only {
            return;
        }
        let Some(block) = self.found.tree_blocks.blocks.get_mut(&open.bytenr) else { return };
        block.refs = u32::try_from(open.listed).unwrap_or(u32::MAX);
        match open.roots[..] {
            [] => {}
            [one] => block.owner = one,
            _ => drop(self.found.tree_blocks.owners.insert(open.bytenr, open.roots)),
        }
    }

    fn add_reference(&mut self, found: &ExtentRef) {
        let Some(open) = &mut self.open else { return };
        let count = u64::from(found.count());
        if let ExtentRef::Owner { root } = found {
            self.features.see(Incompat::SIMPLE_QUOTA, || open.place.clone());
            // The owner ref has the tree that created the extent, not a user of it.
            if self.owned_since.is_some_and(|since| open.generation >= since) {
                let bytes = self.found.owned.entry(root.get()).or_default();
                *bytes = bytes.saturating_add(open.len);
            }
            return;
        }
        open.listed = open.listed.saturating_add(count);
        if let ExtentRef::TreeBlock { root } = found
            && open.is_tree
        {
            open.roots.push(root.get());
        }
        let len = if open.is_tree { 0 } else { open.len };
        self.references.record(Reference::new(Logical::new(open.bytenr), len, found), count);
    }

    fn extent(&mut self, key: Key, data: &[u8], place: ProblemSite) {
        self.close(true);
        let Ok(item) = ExtentItem::parse(key.kind, data) else { return };
        let bytenr = key.objectid.get();
        let flags = item.head.flags();
        let is_tree = flags.contains(ExtentFlags::TREE_BLOCK);
        let skinny = key.kind == KeyType::METADATA_ITEM;
        if skinny {
            self.features.see(Incompat::SKINNY_METADATA, || place.clone());
        }
        let len = if skinny { self.node_size } else { key.offset };
        if !self.references_only {
            self.judge(bytenr, len, is_tree, item.head.generation.get(), &place);
            self.keep(bytenr, len, &item, skinny.then_some(key.offset));
        }
        self.references.extent(bytenr);
        self.end = self.end.max(bytenr.saturating_add(len));
        let want = item.head.refs.get();
        let generation = item.head.generation.get();
        self.open =
            Some(OpenExtent { bytenr, len, is_tree, generation, want, listed: 0, roots: Vec::new(), place });
        let mut last = None;
        for found in item.refs().flatten() {
            // References are ordered, and Linux stops its search at the place where the reference would have to be.
            let order = (found.kind().get(), Reverse(found.key_offset()));
            if let Some(open) = self.open.as_ref().filter(|_| last.is_some_and(|last| last > order)) {
                let message = format!("{} after one that has to follow it", found.kind());
                self.say(Problem::ReferenceOrder, open.place.clone(), message);
            }
            last = Some(order);
            self.add_reference(&found);
        }
    }

    fn judge(&mut self, bytenr: u64, len: u64, is_tree: bool, generation: u64, place: &ProblemSite) {
        if bytenr < self.end {
            let message = format!("[{bytenr}, {}), the one before ends at {}", bytenr + len, self.end);
            self.say(Problem::ExtentOverlap, place.clone(), message);
        }
        if is_tree && len != self.node_size {
            self.say(
                Problem::ExtentLength,
                place.clone(),
                format!("expected {}, found {len}", self.node_size),
            );
        }
        if generation > self.generation.saturating_add(1) {
            let message = format!("expected at most {}, found {generation}", self.generation);
            self.say(Problem::ExtentGeneration, place.clone(), message);
        }
        match self.chunks.use_range(bytenr, len) {
            None => {
                let message = format!("[{bytenr}, {})", bytenr.saturating_add(len));
                self.say(Problem::ExtentOutside, place.clone(), message);
            }
            Some(flags) => {
                let metadata = BlockGroupFlags::METADATA | BlockGroupFlags::SYSTEM;
                let fits = match is_tree {
                    true => flags.intersects(metadata),
                    false => flags.contains(BlockGroupFlags::DATA),
                };
                if !fits {
                    let what = if is_tree { "tree block" } else { "data" };
                    self.say(Problem::ExtentKind, place.clone(), format!("{what} in a chunk for {flags}"));
                }
            }
        }
    }

    fn keep(&mut self, bytenr: u64, len: u64, item: &ExtentItem<'_>, skinny_level: Option<u64>) {
        let end = bytenr.saturating_add(len);
        self.found.used.push(bytenr, end);
        let flags = item.head.flags();
        if !flags.contains(ExtentFlags::TREE_BLOCK) {
            self.found.data.push(bytenr, end);
            self.found.data_extents += 1;
            self.found.data_bytes = self.found.data_bytes.saturating_add(len);
            return;
        }
        let level = match (skinny_level, item.tree_block) {
            (Some(level), _) => u8::try_from(level).unwrap_or(u8::MAX),
            (None, Some(info)) => info.level,
            (None, None) => u8::MAX,
        };
        let full_backref = flags.contains(ExtentFlags::FULL_BACKREF);
        let generation = item.head.generation.get();
        let block = TreeBlock { full_backref, level, generation, refs: 0, owner: 0 };
        self.found.tree_blocks.blocks.insert(bytenr, block);
    }

    fn keyed(&mut self, key: Key, data: &[u8], place: ProblemSite) {
        let bytenr = key.objectid.get();
        if self.open.as_ref().is_none_or(|open| open.bytenr != bytenr) {
            return self.say(Problem::ReferenceOrphan, place, String::new());
        }
        let Ok(Some(found)) = ExtentRef::parse_keyed(key.kind, key.offset, data) else { return };
        let want = found.key_offset();
        if key.offset.wrapping_sub(want) > HASH_REACH {
            self.say(Problem::ReferenceHash, place, format!("expected {want}, found {}", key.offset));
        }
        self.add_reference(&found);
    }
}

/// The block group in an item, if the item is one.
pub(crate) fn block_group(key: Key, data: &[u8], tree: TreeId) -> Option<BlockGroup> {
    if key.kind != KeyType::BLOCK_GROUP_ITEM {
        return None;
    }
    let item = RawBlockGroupItem::ref_from_bytes(data).ok()?;
    let (start, len) = (key.objectid.get(), key.offset);
    Some(BlockGroup { start, len, used: item.used.get(), flags: item.flags(), tree })
}

impl Sequence<Vec<u8>> for ExtentSequence<'_> {
    fn leaf(&mut self, meta: &Meta, bytes: Vec<u8>) {
        let leaf = BlockRef::new(&bytes);
        for slot in 0..leaf.count() {
            let (key, data) = (leaf.key(slot), leaf.data(slot));
            let place = || ProblemSite::slot(TreeId::EXTENT, meta.logical, slot, key);
            match key.kind {
                KeyType::EXTENT_ITEM | KeyType::METADATA_ITEM => self.extent(key, data, place()),
                KeyType::TREE_BLOCK_REF
                | KeyType::SHARED_BLOCK_REF
                | KeyType::EXTENT_DATA_REF
                | KeyType::SHARED_DATA_REF => self.keyed(key, data, place()),
                _ => self.found.groups.extend(block_group(key, data, TreeId::EXTENT)),
            }
        }
    }

    fn hole(&mut self) {
        self.close(false);
    }
}

/// Copies the bytes of a leaf, for sequences that one thread reads in order.
pub(crate) fn bytes_of(leaf: &crate::walk::Leaf<'_>) -> Vec<u8> {
    leaf.block.bytes().to_vec()
}
