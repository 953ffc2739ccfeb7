//! Subvolumes: turns leaves into summaries, and judges the summary of a whole subvolume.

use std::collections::HashMap;

use creamery_base::{Logical, ObjectId};
use creamery_codec::UnpackError;
use creamery_format::{
    DirEntries, Expected, ExtentRef, FileExtent, Incompat, InodeExtrefs, InodeRefs, Key, KeyType,
    RawFileExtent, RawFileExtentHead, RawInodeItem, VerityDescriptor, verity_descriptor_len,
};
use zerocopy::FromBytes;

use crate::bad_data::BadData;
use crate::features::Features;
use crate::hash;
use crate::inode_group::{FileExtentSlice, Group, GroupRules, orphan_hash};
use crate::packed::{misfit, unpack, unpack_extent};
use crate::problem::Problem;
use crate::ranges::Ranges;
use crate::reader::Reader;
use crate::references::{Reference, References};
use crate::report::Sink;
use crate::summary::Summary;
use crate::summed::{is_compressed, summed_range};
use crate::unwritten::Unwritten;
use crate::walk::{Again, Leaf, Meta, Sequence, TreeBlocks};

/// The context for digesting a leaf.
pub(crate) struct LeafContext<'a> {
    pub(crate) rules: GroupRules,
    pub(crate) reader: &'a Reader<'a>,
    pub(crate) sink: &'a Sink,
    pub(crate) references: &'a References,
    pub(crate) features: &'a Features,
    pub(crate) unwritten: &'a Unwritten,
    /// Data that has checksums; `None` if that is not known.
    pub(crate) sums: Option<&'a Ranges>,
    /// Bad data, which needs the names of its files.
    pub(crate) bad: &'a BadData,
    /// Whether data is read, to test its decompression.
    pub(crate) read_data: bool,
}

/// The hash of one name of an inode: equal from the directory and from the inode.
pub(crate) fn link_hash(dir: u64, index: u64, name: &[u8], ino: u64) -> u64 {
    hash::numbers(4, &[dir, index, ino, hash::name(name)])
}

/// Maximum bytes of an fs-verity descriptor in one item.
const VERITY_PIECE: usize = 2048;

/// The summary of one leaf.
pub(crate) fn digest(context: &LeafContext<'_>, leaf: &Leaf<'_>) -> Summary {
    let mut sum = Summary::default();
    let mut links = Links::default();
    let mut group: Option<Group> = None;
    for slot in 0..leaf.block.count() {
        let key = leaf.block.key(slot);
        if key.objectid == ObjectId::ORPHAN && key.kind == KeyType::ORPHAN_ITEM {
            links.orphans = links.orphans.wrapping_sub(orphan_hash(key.offset));
        }
        let ino = key.objectid.get();
        let mut current = match group.take() {
            Some(group) if group.ino == ino => group,
            Some(done) => {
                sum = sum.join(Summary::of(done), &context.rules, context.sink);
                Group::new(ino)
            }
            None => Group::new(ino),
        };
        item(context, leaf, slot, key, &mut current, &mut links);
        group = Some(current);
    }
    if let Some(last) = group {
        sum = sum.join(Summary::of(last), &context.rules, context.sink);
    }
    sum.links = sum.links.wrapping_add(links.links);
    sum.orphans = sum.orphans.wrapping_add(links.orphans);
    sum
}

/// The share of a leaf in the sums that does not depend on its inodes.
#[derive(Default)]
struct Links {
    links: u64,
    orphans: u64,
}

/// Reads one item of an inode. The block check has verified its lengths.
fn item(
    context: &LeafContext<'_>,
    leaf: &Leaf<'_>,
    slot: usize,
    key: Key,
    group: &mut Group,
    links: &mut Links,
) {
    let data = leaf.block.data(slot);
    let ino = key.objectid.get();
    match key.kind {
        KeyType::INODE_ITEM => {
            if ino == ObjectId::FREE_INO.get() {
                context.sink.add(Problem::InodeCache, leaf.place(slot), "");
            }
            if let Ok(raw) = RawInodeItem::ref_from_bytes(data) {
                group.set_inode(raw);
            }
        }
        KeyType::INODE_REF => {
            for name in InodeRefs::new(data).flatten() {
                if key.offset == ino && name.index != 0 {
                    let message = format!("a root directory's own name with index {}, expected 0", name.index);
                    context.sink.add(Problem::RefWithoutEntry, leaf.place(slot), message);
                }
                add_name(group, links, key.offset, name.index, name.name);
            }
        }
        KeyType::INODE_EXTREF => {
            context.features.see(Incompat::EXTENDED_IREF, || leaf.place(slot));
            for name in InodeExtrefs::new(data).flatten() {
                let want = creamery_codec::extref_hash(name.parent, name.name);
                if want != key.offset {
                    context.sink.add(Problem::ExtrefHash, leaf.place(slot), format!("expected {want}"));
                }
                add_name(group, links, name.parent, name.index, name.name);
            }
        }
        KeyType::DIR_ITEM | KeyType::DIR_INDEX => {
            let by_index = key.kind == KeyType::DIR_INDEX;
            for entry in DirEntries::new(data).flatten() {
                let to = entry.location;
                let row = [to.objectid.get(), to.kind.get().into(), entry.kind.into()];
                let hashed = hash::numbers(hash::name(entry.name), &row);
                group.add_entry(hashed, entry.name.len(), by_index);
                if by_index && to.kind == KeyType::INODE_ITEM {
                    let child = to.objectid.get();
                    group.add_link(link_hash(ino, key.offset, entry.name, child), child, entry.kind);
                }
            }
            if let Some(name) = name_twice(data) {
                let message = format!("'{}'", String::from_utf8_lossy(name));
                context.sink.add(Problem::EntryTwice, leaf.place(slot), message);
            }
        }
        KeyType::EXTENT_DATA => {
            if let Some(piece) = file_extent(context, leaf, slot, key) {
                group.add_piece(&piece);
            }
        }
        KeyType::VERITY_DESC_ITEM | KeyType::VERITY_MERKLE_ITEM => verity_item(context, leaf, slot, key),
        KeyType::XATTR_ITEM
        | KeyType::ORPHAN_ITEM
        // The header of the inode cache.
        | KeyType::UNTYPED => {}
        kind => context.sink.add(Problem::ItemForeign, leaf.place(slot), format!("type {}", kind.get())),
    }
}

/// Checks an fs-verity item by itself: the first one has the length of the descriptor, the others are pieces of the descriptor and of the
/// Merkle tree.
fn verity_item(context: &LeafContext<'_>, leaf: &Leaf<'_>, slot: usize, key: Key) {
    let data = leaf.block.data(slot);
    let damage = match (key.kind, key.offset) {
        (KeyType::VERITY_DESC_ITEM, 0) => verity_descriptor_len(data).err(),
        // The first piece of the descriptor, which is all of it unless it has a long signature.
        (KeyType::VERITY_DESC_ITEM, 1) if data.len() < VERITY_PIECE => VerityDescriptor::parse(data).err(),
        _ => None,
    };
    let message = damage.map(|damage| damage.to_string());
    if let Some(message) = message.or_else(|| data.is_empty().then(|| "it is empty".to_owned())) {
        context.sink.add(Problem::VerityItem, leaf.place(slot), message);
    }
}

/// A name that occurs twice in one item. Names of one hash share an item, so a directory with a duplicate name has both here.
fn name_twice(item: &[u8]) -> Option<&[u8]> {
    let mut names: Vec<&[u8]> = DirEntries::new(item).flatten().map(|entry| entry.name).collect();
    names.sort_unstable();
    names.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0])
}

fn add_name(group: &mut Group, links: &mut Links, parent: u64, index: u64, name: &[u8]) {
    group.add_name(parent);
    // A root directory is its own parent and has no entry.
    if parent != group.ino {
        links.links = links.links.wrapping_sub(link_hash(parent, index, name, group.ino));
    }
}

fn file_extent(context: &LeafContext<'_>, leaf: &Leaf<'_>, slot: usize, key: Key) -> Option<FileExtentSlice> {
    let (extent, written) = match FileExtent::parse(leaf.block.data(slot)).ok()? {
        FileExtent::Inline(head, data) => {
            judge_head(context, leaf, slot, head.generation.get(), head.other_encoding.get());
            let bytes = head.ram_bytes.get();
            let sector = context.rules.sector_size;
            if bytes > sector.max(4096) || data.is_empty() && bytes > 0 {
                let message = format!("{bytes} bytes in {}", data.len());
                context.sink.add(Problem::FileInline, leaf.place(slot), message);
            } else if let Err(error) = unpack_inline(head, data, sector)
                && data.iter().any(|&byte| byte != 0)
            {
                // btrfs-image leaves zeros in place of data.
                context.sink.add(Problem::FileInline, leaf.place(slot), error.to_string());
            }
            let end = key.offset.checked_add(bytes)?.checked_next_multiple_of(sector)?;
            let has_zero = data.iter().rev().skip(1).any(|&byte| byte == 0) && head.compression == 0;
            return Some(FileExtentSlice {
                start: key.offset,
                end,
                bytes,
                has_zero,
                ..FileExtentSlice::default()
            });
        }
        FileExtent::Regular(extent) => (extent, true),
        FileExtent::Prealloc(extent) => (extent, false),
    };
    let bytes = extent.num_bytes.get();
    let end = key.offset.checked_add(bytes)?;
    let mut piece = FileExtentSlice { start: key.offset, end, ..FileExtentSlice::default() };
    if extent.is_hole() {
        return Some(piece);
    }
    piece.bytes = bytes;
    judge_head(context, leaf, slot, extent.generation.get(), extent.other_encoding.get());
    let (shown, held) = (extent.offset.get().saturating_add(bytes), extent.ram_bytes.get());
    if shown > held {
        let message = format!("ends at {shown} of {held} bytes in memory");
        context.sink.add(Problem::BlockItem, leaf.place(slot), message);
    }
    if leaf.first {
        find_data(context.references, leaf, slot);
    }
    let (start, end) = summed_range(extent)?;
    context.bad.claim((start, end), context.rules.tree, key.objectid, |logical| {
        match is_compressed(extent) {
            true => key.offset,
            false => key.offset.saturating_add(logical - start),
        }
    });
    if is_compressed(extent) {
        judge_packed(context, leaf, slot, extent, written);
    }
    if let Some(sums) = context.sums.filter(|_| !written && context.rules.checksums)
        && sums.covered(start, end) > 0
    {
        context.unwritten.add((start, end), context.rules.tree, key);
    }
    if let Some(sums) = context.sums.filter(|_| written) {
        let found = sums.covered(start, end);
        piece.with_sums = (found > 0).then_some(start);
        piece.without_sums = sums.first_gap(start, end).map(|gap| gap.0);
        piece.packed_without_sums = piece.without_sums.filter(|_| is_compressed(extent));
    }
    Some(piece)
}

/// Checks the common head of file extent items.
fn judge_head(context: &LeafContext<'_>, leaf: &Leaf<'_>, slot: usize, generation: u64, other_encoding: u16) {
    if generation == 0 || generation > context.rules.generation {
        let message = format!("expected 1 to {}, found {generation}", context.rules.generation);
        context.sink.add(Problem::FileExtentGeneration, leaf.place(slot), message);
    }
    if other_encoding != 0 {
        let message = format!("other encoding {other_encoding}, expected 0");
        context.sink.add(Problem::BlockItem, leaf.place(slot), message);
    }
}

/// Decompresses inline data; at most a sector of it is visible.
fn unpack_inline(head: &RawFileExtentHead, data: &[u8], sector: u64) -> Result<usize, UnpackError> {
    let mut out = vec![0; usize::try_from(head.ram_bytes.get()).expect("at most a sector")];
    unpack(head.compression, data, sector, &mut out)
}

/// Checks that compressed data has possible lengths and is written. If data is read and matches its checksums, it must also decompress.
fn judge_packed(
    context: &LeafContext<'_>,
    leaf: &Leaf<'_>,
    slot: usize,
    extent: &RawFileExtent,
    written: bool,
) {
    let say = |message| context.sink.add(Problem::DataPacked, leaf.place(slot), message);
    if !written {
        return say("allocated and not written".to_owned());
    }
    if let Some(message) = misfit(extent) {
        return say(message);
    }
    let (start, len) = (extent.disk_bytenr.get(), extent.disk_num_bytes.get());
    let end = start.saturating_add(len);
    let whole = context.sums.is_some_and(|sums| sums.covered(start, end) == len);
    let as_written = whole && !context.bad.touches(start, end);
    if context.read_data
        && as_written
        && leaf.first
        && is_begin(leaf, slot)
        && let Some(error) = unpack_extent(context.reader, extent)
    {
        say(format!("logical {start}: {error}"));
    }
}

/// Whether the item before has another extent or another compression: a file that was written to in the middle has one extent in several
/// items, and only the first of them counts.
fn is_begin(leaf: &Leaf<'_>, slot: usize) -> bool {
    let extent = |slot: usize| match FileExtent::parse(leaf.block.data(slot)) {
        Ok(FileExtent::Regular(extent)) => Some((extent.disk_bytenr, extent.compression)),
        _ => None,
    };
    let before = slot.checked_sub(1).filter(|slot| leaf.block.key(*slot).kind == KeyType::EXTENT_DATA);
    before.and_then(extent) != extent(slot)
}

/// Notes the data extent that an item refers to.
pub(crate) fn find_data(references: &References, leaf: &Leaf<'_>, slot: usize) {
    let key = leaf.block.key(slot);
    if key.kind != KeyType::EXTENT_DATA {
        return;
    }
    let Ok(FileExtent::Regular(extent) | FileExtent::Prealloc(extent)) =
        FileExtent::parse(leaf.block.data(slot))
    else {
        return;
    };
    if extent.is_hole() {
        return;
    }
    let to = match leaf.full_backref {
        true => ExtentRef::SharedData { parent: leaf.block.logical(), count: 1 },
        false => ExtentRef::ExtentData {
            root: leaf.block.owner(),
            objectid: key.objectid.get(),
            offset: key.offset.wrapping_sub(extent.offset.get()),
            count: 1,
        },
    };
    let bytenr = Logical::new(extent.disk_bytenr.get());
    references.find(Reference::new(bytenr, extent.disk_num_bytes.get(), &to));
}

/// Notes all data extents that a leaf refers to.
pub(crate) fn find_all_data(references: &References, leaf: &Leaf<'_>) {
    if leaf.first {
        (0..leaf.block.count()).for_each(|slot| find_data(references, leaf, slot));
    }
}

/// Summaries of subtrees that several trees share.
#[derive(Default)]
pub(crate) struct Memory {
    kept: HashMap<u64, (Meta, Box<Summary>)>,
}

/// Joins the summaries of a subvolume's leaves.
pub(crate) struct SubvolumeSequence<'a> {
    pub(crate) rules: GroupRules,
    pub(crate) sink: &'a Sink,
    pub(crate) tables: &'a TreeBlocks,
    pub(crate) memory: &'a mut Memory,
    /// With simple quotas: the number of tree blocks by the tree that created them, from a generation on.
    owned: Option<(u64, HashMap<u64, u64>)>,
    /// The joined summaries of the nodes from the root down to the current one.
    stack: Vec<Summary>,
}

impl<'a> SubvolumeSequence<'a> {
    pub(crate) fn new(
        rules: GroupRules,
        sink: &'a Sink,
        tables: &'a TreeBlocks,
        memory: &'a mut Memory,
    ) -> Self {
        Self { rules, sink, tables, memory, owned: None, stack: vec![Summary::default()] }
    }

    /// Sums up tree blocks by the tree that created them, from a generation on.
    pub(crate) fn owned_since(self, since: Option<u64>) -> Self {
        Self { owned: since.map(|since| (since, HashMap::new())), ..self }
    }

    /// The number of blocks that each tree created.
    pub(crate) fn take_owned(&mut self) -> HashMap<u64, u64> {
        self.owned.take().map(|owned| owned.1).unwrap_or_default()
    }

    fn count_owned(&mut self, meta: &Meta) {
        if let Some((since, owned)) = &mut self.owned
            && meta.first
            && meta.generation.get() >= *since
        {
            *owned.entry(meta.owner.get()).or_default() += 1;
        }
    }

    fn add(&mut self, next: Summary) {
        let top = self.stack.last_mut().expect("the stack has the whole tree at its bottom");
        *top = std::mem::take(top).join(next, &self.rules, self.sink);
    }

    fn keep(&mut self, meta: &Meta, summary: &Summary) {
        if !meta.first || self.tables.shared(meta.logical) {
            self.memory.kept.insert(meta.logical.get(), (*meta, Box::new(*summary)));
        }
    }

    /// The summary of the whole tree.
    pub(crate) fn finish(mut self) -> Summary {
        let whole = self.stack.pop().unwrap_or_default();
        whole.finish(&self.rules, self.sink)
    }
}

impl Sequence<Summary> for SubvolumeSequence<'_> {
    fn leaf(&mut self, meta: &Meta, digest: Summary) {
        self.count_owned(meta);
        self.keep(meta, &digest);
        self.add(digest);
    }

    fn begin(&mut self, meta: &Meta) {
        self.count_owned(meta);
        self.stack.push(Summary::default());
    }

    fn end(&mut self, meta: &Meta) {
        let done = self.stack.pop().unwrap_or_default();
        self.keep(meta, &done);
        self.add(done);
    }

    fn again(&mut self, want: &Expected, upper: Option<Key>) -> Again {
        match self.memory.kept.get(&want.logical.get()) {
            // A subtree that does not fit this parent is read once more, which gives the reason.
            Some((meta, summary)) if meta.fits(want, upper) => {
                let summary = **summary;
                self.add(summary);
                Again::Known
            }
            _ => Again::Walk,
        }
    }

    fn hole(&mut self) {
        self.add(Summary::hole());
    }
}

/// A sequence that ignores leaves: for walks that only read references or blocks.
pub(crate) struct Nothing;

impl Sequence<()> for Nothing {
    fn leaf(&mut self, _meta: &Meta, (): ()) {}

    fn again(&mut self, _want: &Expected, _upper: Option<Key>) -> Again {
        Again::Known
    }
}
