//! The numbers of a whole filesystem, each at its edges: a table of damage, one field at a time. For tests and fuzz targets.

mod values;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use creamery_base::TreeId;
use creamery_format::{
    BlockRef, FILE_EXTENT_INLINE, Field, HEADER_LEN, ITEM_LEN, KEY_PTR_LEN, Key, KeyType, RawFileExtentHead,
    RawSuperblock,
};

pub use values::{edge_values, fields_of};

/// Fields of a block's header, except its checksum and identity.
const HEADER: [Field; 6] = [
    Field { name: "bytenr", offset: 48, len: 8 },
    Field { name: "flags", offset: 56, len: 8 },
    Field { name: "generation", offset: 80, len: 8 },
    Field { name: "owner", offset: 88, len: 8 },
    Field { name: "nritems", offset: 96, len: 4 },
    Field { name: "level", offset: 100, len: 1 },
];
const KEY: [Field; 3] = [
    Field { name: "objectid", offset: 0, len: 8 },
    Field { name: "type", offset: 8, len: 1 },
    Field { name: "offset", offset: 9, len: 8 },
];
const ITEM: [Field; 2] =
    [Field { name: "data offset", offset: 17, len: 4 }, Field { name: "data size", offset: 21, len: 4 }];
const POINTER: [Field; 2] =
    [Field { name: "blockptr", offset: 17, len: 8 }, Field { name: "generation", offset: 25, len: 8 }];

/// Offset of the type in a file extent.
const KIND: usize = 20;

/// A number of a superblock or a tree block, and a value at its edge. Shown with its place.
#[derive(Clone, Debug)]
pub struct Edge {
    /// The block, as a position among those passed to [`edges_of`]; `None` for the superblock.
    pub block: Option<usize>,
    /// The tree, and the level or the item.
    pub place: String,
    /// The structure of the number: `superblock`, `header`, `pointer`, `key`, `item` or the type of an item.
    pub part: String,
    /// The field; if it is more than a number, with the place in it.
    pub field: String,
    /// The offset of the number in the block.
    pub at: usize,
    /// Its bytes, 1 to 8.
    pub width: usize,
    /// Its present value.
    pub now: u64,
    /// The edge value.
    pub value: u64,
}

impl Edge {
    /// Sets the number in the bytes of its block. The checksum then no longer fits.
    pub fn set(&self, bytes: &mut [u8]) {
        bytes[self.at..self.at + self.width].copy_from_slice(&self.value.to_le_bytes()[..self.width]);
    }
}

impl fmt::Display for Edge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, part, field, now, value, .. } = self;
        write!(f, "{place} {part} {field}: {now} -> {value}")
    }
}

/// Returns the numbers of a superblock and of whole tree blocks at their edges: five items of each type in each tree, including the first
/// and the last; the first block of each level of each tree; the superblock.
///
/// ```
/// use creamery_edges::edges_of;
/// use creamery_format::SUPERBLOCK_LEN;
/// let edges = edges_of(&[0; SUPERBLOCK_LEN], &[]);
/// assert!(edges.iter().any(|edge| edge.field == "generation" && edge.value == u64::MAX));
/// ```
#[must_use]
pub fn edges_of(superblock: &[u8], blocks: &[&[u8]]) -> Vec<Edge> {
    let mut edges = Vec::new();
    let mut from = |start: Start<'_>, fields: &[Field]| start.add(fields, &mut edges);
    let whole =
        Start { block: None, bytes: superblock, place: "", part: "superblock", at: 0, end: superblock.len() };
    // Longer fields are text, space for later, or structures of their own.
    let fields = RawSuperblock::FIELDS.iter().filter(|field| field.len <= 192 && field.offset > 0);
    from(whole, &fields.copied().collect::<Vec<_>>());
    let mut levels = HashSet::new();
    let mut kinds = BTreeMap::<(TreeId, KeyType), Vec<(Key, usize, usize)>>::new();
    for (number, bytes) in blocks.iter().enumerate() {
        let block = BlockRef::new(bytes);
        let (tree, level) = (block.owner(), block.level());
        if levels.insert((tree, level)) {
            let place = format!("tree {tree} level {level}");
            let start =
                Start { block: Some(number), bytes, place: &place, part: "header", at: 0, end: HEADER_LEN };
            from(start, &HEADER);
            for slot in [0, block.count() - 1].into_iter().filter(|_| !block.is_leaf()) {
                let at = HEADER_LEN + slot * KEY_PTR_LEN;
                let place = format!("{place} slot {slot}");
                let start = Start { place: &place, part: "pointer", at, end: at + KEY_PTR_LEN, ..start };
                from(Start { part: "key", ..start }, &KEY);
                from(start, &POINTER);
            }
        }
        for slot in (0..block.count()).filter(|_| block.is_leaf()) {
            let key = block.key(slot);
            kinds.entry((tree, key.kind)).or_default().push((key, number, slot));
        }
    }
    for ((tree, kind), mut items) in kinds {
        items.sort_unstable();
        let last = items.len() - 1;
        let mut chosen = [0, last / 4, last / 2, last * 3 / 4, last].map(|at| items[at]).to_vec();
        chosen.dedup();
        for (key, number, slot) in chosen {
            let bytes = blocks[number];
            let place = format!("tree {tree} {key}");
            let at = HEADER_LEN + slot * ITEM_LEN;
            let start =
                Start { block: Some(number), bytes, place: &place, part: "key", at, end: at + ITEM_LEN };
            from(start, &KEY);
            from(Start { part: "item", ..start }, &ITEM);
            let data = BlockRef::new(bytes).data(slot);
            let mut at = data.as_ptr() as usize - bytes.as_ptr() as usize;
            let end = at + data.len();
            for fields in fields_of(kind) {
                let is_inline = kind == KeyType::EXTENT_DATA && data.get(KIND) == Some(&FILE_EXTENT_INLINE);
                let fields = if is_inline { RawFileExtentHead::FIELDS } else { fields };
                from(Start { part: &kind.to_string(), at, end, ..start }, fields);
                at += fields.last().map_or(0, |field| field.offset + field.len);
            }
        }
    }
    edges
}

/// The start of a structure.
#[derive(Clone, Copy)]
struct Start<'a> {
    block: Option<usize>,
    bytes: &'a [u8],
    place: &'a str,
    part: &'a str,
    at: usize,
    /// The end of the structure; fields beyond it do not exist.
    end: usize,
}

impl Start<'_> {
    fn add(self, fields: &[Field], edges: &mut Vec<Edge>) {
        let numbers = fields.iter().flat_map(|field| field.numbers().map(move |number| (field, number)));
        for (field, (offset, width)) in numbers {
            let at = self.at + offset;
            if at + width > self.end {
                continue;
            }
            let more = offset - field.offset;
            let name = if more == 0 { field.name.to_owned() } else { format!("{}+{more}", field.name) };
            let mut now = [0; 8];
            now[..width].copy_from_slice(&self.bytes[at..at + width]);
            let now = u64::from_le_bytes(now);
            let values: BTreeSet<u64> = edge_values(width, now).filter(|value| *value != now).collect();
            edges.extend(values.into_iter().map(|value| Edge {
                block: self.block,
                place: self.place.to_owned(),
                part: self.part.to_owned(),
                field: name.clone(),
                at,
                width,
                now,
                value,
            }));
        }
    }
}
