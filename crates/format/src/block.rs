//! Tree blocks, for reading: a header, then key pointers (nodes) or items (leaves).
//!
//! ```text
//! node: | header 101 | (key, child, generation) 33 each ...            | unused |
//! leaf: | header 101 | (key, offset, size) 25 each ... | unused | ... data of item 1 | data of item 0 |
//! ```
//!
//! An item's offset counts from the end of the header. Item heads grow forward, data grows backward without gaps:
//! the data of item *i* ends where that of item *i* - 1 begins, and that of item 0 ends with the block. A leaf in memory that
//! was not written yet may have its data in another order (see `leaf_mut`).

use std::cmp::Ordering;
use std::mem::offset_of;
use std::ops::Range;

use creamery_base::{Generation, Logical, ObjectId, TreeId, Uuid};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::key::{Key, KeyType, RawKey};

/// Bytes of a block's header.
pub const HEADER_LEN: usize = 101;
/// Bytes of an item's head in a leaf.
pub const ITEM_LEN: usize = 25;
/// Bytes of a key pointer in a node.
pub const KEY_PTR_LEN: usize = 33;
/// The highest level of a tree's root.
pub const LEVEL_MAX: u8 = 7;
/// Header flag: the block has been written.
pub const HEADER_FLAG_WRITTEN: u64 = 1;
/// Header flag: a copy made by relocation.
pub const HEADER_FLAG_RELOC: u64 = 2;
/// The backref revision of every filesystem since 2009; it lies in the top byte of the header flags.
pub const MIXED_BACKREF_REV: u64 = 1;
/// The first bit of the backref revision in the header flags.
pub(crate) const BACKREF_REV_SHIFT: u32 = 56;

/// The number of entries below which a guess saves nothing.
const GUESS_MIN: usize = 16;
/// The usual error of a guess: the square root of the number of entries, halved.
const STEP: usize = 8;

/// The header of a tree block.
///
/// ```
/// use creamery_format::RawHeader;
/// assert_eq!(size_of::<RawHeader>(), 101);
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawHeader {
    /// Checksum of everything after it; before the block is written, the offset where the data of a loose leaf begins, or 0.
    pub csum: [u8; 32],
    /// The filesystem's (metadata) UUID.
    pub fsid: [u8; 16],
    /// The block's own logical address.
    pub bytenr: U64,
    /// Flags in the lower 56 bits, backref revision above.
    pub flags: U64,
    /// UUID of the chunk tree.
    pub chunk_tree_uuid: [u8; 16],
    /// The transaction that wrote the block.
    pub generation: U64,
    /// The tree that the block was made for.
    pub owner: U64,
    /// Number of items or key pointers.
    pub nritems: U32,
    /// 0 for leaves.
    pub level: u8,
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);
const _: () = assert!(offset_of!(RawHeader, fsid) == 32);
const _: () = assert!(offset_of!(RawHeader, bytenr) == 48);
const _: () = assert!(offset_of!(RawHeader, flags) == 56);
const _: () = assert!(offset_of!(RawHeader, chunk_tree_uuid) == 64);
const _: () = assert!(offset_of!(RawHeader, generation) == 80);
const _: () = assert!(offset_of!(RawHeader, owner) == 88);
const _: () = assert!(offset_of!(RawHeader, nritems) == 96);
const _: () = assert!(offset_of!(RawHeader, level) == 100);

/// The head of an item in a leaf.
///
/// ```
/// use creamery_format::RawItem;
/// assert_eq!(size_of::<RawItem>(), 25);
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawItem {
    /// The item's key.
    pub key: RawKey,
    /// Where its data begins, from the end of the header.
    pub offset: U32,
    /// Length of its data.
    pub size: U32,
}

const _: () = assert!(size_of::<RawItem>() == ITEM_LEN);
const _: () = assert!(offset_of!(RawItem, offset) == 17);
const _: () = assert!(offset_of!(RawItem, size) == 21);

/// A pointer of a node to a child.
///
/// ```
/// use creamery_format::RawKeyPtr;
/// assert_eq!(size_of::<RawKeyPtr>(), 33);
/// ```
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawKeyPtr {
    /// The first key of the child.
    pub key: RawKey,
    /// The child's address.
    pub blockptr: U64,
    /// The child's generation.
    pub generation: U64,
}

const _: () = assert!(size_of::<RawKeyPtr>() == KEY_PTR_LEN);
const _: () = assert!(offset_of!(RawKeyPtr, blockptr) == 17);
const _: () = assert!(offset_of!(RawKeyPtr, generation) == 25);

/// Returns how many key pointers a node of `node_size` bytes holds.
///
/// ```
/// assert_eq!(creamery_format::node_ptr_max(16384), 493);
/// ```
#[must_use]
pub const fn node_ptr_max(node_size: usize) -> usize {
    (node_size - HEADER_LEN) / KEY_PTR_LEN
}

/// Returns the bytes for item heads and data in a leaf of `node_size` bytes.
///
/// ```
/// assert_eq!(creamery_format::leaf_data_max(16384), 16283);
/// ```
#[must_use]
pub const fn leaf_data_max(node_size: usize) -> usize {
    node_size - HEADER_LEN
}

/// A tree block that was verified, for reading. As cheap to copy as a slice.
///
/// Slots count from 0. Access to a slot that does not exist, or to items of a node, is a bug of the caller and panics.
///
/// ```
/// use creamery_base::*;
/// use creamery_format::*;
/// let mut bytes = vec![0; 4096];
/// let mut leaf = BlockMut::init(&mut bytes, &NewBlock {
///     logical: Logical::new(1 << 20), generation: Generation::new(7), owner: TreeId::FS, level: 0,
///     fsid: Uuid::nil(), chunk_tree_uuid: Uuid::nil(),
/// });
/// let key = Key::new(ObjectId::new(257), KeyType::XATTR_ITEM, 1);
/// leaf.insert_items(0, &[(key, 3)]);
/// leaf.data_mut(0).copy_from_slice(b"abc");
/// let leaf = leaf.as_ref();
/// assert_eq!(leaf.search(&key, 0), Ok(0));
/// assert_eq!(leaf.data(0), b"abc");
/// ```
#[derive(Copy, Clone)]
pub struct BlockRef<'a>(&'a [u8]);

impl<'a> BlockRef<'a> {
    /// Creates a view of the block in `bytes`, which [`verify_block`](crate::verify_block) has passed (or which this program made).
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        assert!(bytes.len() > HEADER_LEN, "a block is longer than its header");
        Self(bytes)
    }

    /// The whole block.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// Length of the block.
    #[must_use]
    pub const fn node_size(self) -> usize {
        self.0.len()
    }

    /// Returns the header in its on-disk form.
    #[must_use]
    pub fn header(self) -> &'a RawHeader {
        RawHeader::ref_from_prefix(self.0).expect("a block is longer than its header").0
    }

    /// The block's own address.
    #[must_use]
    pub fn logical(self) -> Logical {
        Logical::new(self.header().bytenr.get())
    }

    /// The transaction that wrote it.
    #[must_use]
    pub fn generation(self) -> Generation {
        Generation::new(self.header().generation.get())
    }

    /// Returns the tree it was made for. A shared block may be reached through another tree.
    #[must_use]
    pub fn owner(self) -> TreeId {
        TreeId::new(self.header().owner.get())
    }

    /// Whether it may be reached through `tree`. Subvolumes share blocks with each other, and take over blocks that
    /// relocation copied.
    #[must_use]
    pub fn may_belong_to(self, tree: TreeId) -> bool {
        let owner = self.owner();
        let relocated = || owner == TreeId::TREE_RELOC && self.flags() & HEADER_FLAG_RELOC != 0;
        owner == tree
            || (tree.is_subvolume() && (owner.is_subvolume() || relocated()))
            || (tree == TreeId::TREE_RELOC && owner.is_shareable())
    }

    /// 0 for leaves.
    #[must_use]
    pub fn level(self) -> u8 {
        self.header().level
    }

    /// Number of items or key pointers.
    #[must_use]
    pub fn count(self) -> usize {
        self.header().nritems.get() as usize
    }

    /// The whole flags field: flags in the lower 56 bits, the backref revision above.
    #[must_use]
    pub fn flags(self) -> u64 {
        self.header().flags.get()
    }

    /// The backref revision, 1 on any filesystem of today.
    #[must_use]
    pub fn backref_revision(self) -> u64 {
        self.flags() >> BACKREF_REV_SHIFT
    }

    /// The filesystem's UUID in the header.
    #[must_use]
    pub fn fsid(self) -> Uuid {
        Uuid::from_bytes(self.header().fsid)
    }

    /// The chunk tree's UUID in the header.
    #[must_use]
    pub fn chunk_tree_uuid(self) -> Uuid {
        Uuid::from_bytes(self.header().chunk_tree_uuid)
    }

    /// Whether the block holds items.
    #[must_use]
    pub fn is_leaf(self) -> bool {
        self.level() == 0
    }

    /// Length of one entry after the header.
    fn stride(self) -> usize {
        if self.is_leaf() { ITEM_LEN } else { KEY_PTR_LEN }
    }

    /// The key in `slot`.
    #[must_use]
    pub fn key(self, slot: usize) -> Key {
        assert!(slot < self.count(), "slot {slot} of {}", self.count());
        let at = HEADER_LEN + slot * self.stride();
        // In place: the processor would wait for a copy before it can read fields of it.
        RawKey::ref_from_bytes(&self.0[at..at + RawKey::LEN]).expect("the slice has a key's length").into()
    }

    /// Returns the key in slot 0; `None` if the block is empty.
    #[must_use]
    pub fn first_key(self) -> Option<Key> {
        (self.count() > 0).then(|| self.key(0))
    }

    /// Returns the key in the last slot; `None` if the block is empty.
    #[must_use]
    pub fn last_key(self) -> Option<Key> {
        self.count().checked_sub(1).map(|slot| self.key(slot))
    }

    /// All item heads of a leaf.
    #[must_use]
    pub fn items(self) -> &'a [RawItem] {
        assert!(self.is_leaf(), "only leaves have items");
        let end = HEADER_LEN + self.count() * ITEM_LEN;
        <[RawItem]>::ref_from_bytes(&self.0[HEADER_LEN..end]).expect("the slice holds whole items")
    }

    /// All key pointers of a node.
    #[must_use]
    pub fn key_ptrs(self) -> &'a [RawKeyPtr] {
        assert!(!self.is_leaf(), "only nodes have key pointers");
        let end = HEADER_LEN + self.count() * KEY_PTR_LEN;
        <[RawKeyPtr]>::ref_from_bytes(&self.0[HEADER_LEN..end]).expect("the slice holds whole pointers")
    }

    /// Head of the item in `slot`, read without making a view of all items.
    fn item(self, slot: usize) -> &'a RawItem {
        assert!(self.is_leaf(), "only leaves have items");
        assert!(slot < self.count(), "slot {slot} of {}", self.count());
        let at = HEADER_LEN + slot * ITEM_LEN;
        RawItem::ref_from_bytes(&self.0[at..at + ITEM_LEN]).expect("the slice has an item's length")
    }

    /// Returns the offset where the data of the item in `slot` begins, counted from the end of the header.
    #[must_use]
    pub fn item_offset(self, slot: usize) -> usize {
        self.item(slot).offset.get() as usize
    }

    /// Length of the data of the item in `slot`.
    #[must_use]
    pub fn item_size(self, slot: usize) -> usize {
        self.item(slot).size.get() as usize
    }

    /// The data of the item in `slot`.
    #[must_use]
    pub fn data(self, slot: usize) -> &'a [u8] {
        let item = self.item(slot);
        let start = HEADER_LEN + item.offset.get() as usize;
        &self.0[start..start + item.size.get() as usize]
    }

    /// Returns the offset where the data of the item in `slot` ends, counted from the end of the header.
    pub(crate) fn item_end(self, slot: usize) -> usize {
        self.item_offset(slot) + self.item_size(slot)
    }

    /// Whether the block is marked as written.
    #[must_use]
    pub fn is_written(self) -> bool {
        self.flags() & HEADER_FLAG_WRITTEN != 0
    }

    /// Returns the offset where the data of a loose leaf begins: one whose data is not in the order of its slots.
    pub(crate) fn floor(self) -> Option<usize> {
        let floor = U32::read_from_prefix(&self.header().csum).expect("the field is longer").0.get();
        let floor = (floor != 0 && !self.is_written()).then_some(floor as usize);
        debug_assert!(
            floor
                .is_none_or(|floor| (self.count() * ITEM_LEN..=leaf_data_max(self.0.len())).contains(&floor)),
            "LOOSE-1: a floor of {floor:?} below {} items",
            self.count()
        );
        floor
    }

    /// Whether this is a leaf whose data is not in the order of its slots.
    pub(crate) fn is_loose(self) -> bool {
        self.floor().is_some()
    }

    /// Returns the offset where the data of a leaf begins, counted from the end of the header.
    #[must_use]
    pub fn data_start(self) -> usize {
        match (self.floor(), self.count()) {
            (Some(floor), _) => floor,
            (None, 0) => leaf_data_max(self.0.len()),
            (None, count) => self.item_offset(count - 1),
        }
    }

    /// Returns the free bytes in a leaf; a new item takes [`ITEM_LEN`] more than its data.
    #[must_use]
    pub fn free_space(self) -> usize {
        self.data_start() - self.count() * ITEM_LEN
    }

    /// Returns the used bytes in a leaf, heads and data.
    #[must_use]
    pub fn used_space(self) -> usize {
        leaf_data_max(self.0.len()) - self.free_space()
    }

    /// Address and generation of the child in `slot`.
    #[must_use]
    pub fn child(self, slot: usize) -> (Logical, Generation) {
        assert!(!self.is_leaf(), "only nodes have children");
        assert!(slot < self.count(), "slot {slot} of {}", self.count());
        let at = HEADER_LEN + slot * KEY_PTR_LEN;
        let ptr = RawKeyPtr::ref_from_bytes(&self.0[at..at + KEY_PTR_LEN])
            .expect("the slice has a pointer's length");
        (Logical::new(ptr.blockptr.get()), Generation::new(ptr.generation.get()))
    }

    /// Searches from slot `low` on: `Ok` is the slot that has the key, `Err` the slot where it would go.
    ///
    /// # Errors
    /// The key is not there; the value is the slot where it would go.
    pub fn search(self, key: &Key, low: usize) -> Result<usize, usize> {
        self.search_from(self.guess(key, low, None), key, low, |_| {})
    }

    /// Searches from slot 0 on, like [`search`](Self::search). `next` is the first key behind this block, if the nodes above have shown it:
    /// then the last key need not be read.
    ///
    /// # Errors
    /// The key is not there; the value is the slot where it would go.
    pub fn search_before(self, key: &Key, next: Option<&Key>) -> Result<usize, usize> {
        self.search_from(self.guess(key, 0, next), key, 0, |_| {})
    }

    /// Searches like [`search`](Self::search), and calls `probe` with every slot whose key is compared.
    ///
    /// # Errors
    /// The key is not there; the value is the slot where it would go.
    pub fn search_probing(self, key: &Key, low: usize, probe: impl FnMut(usize)) -> Result<usize, usize> {
        self.search_from(self.guess(key, low, None), key, low, probe)
    }

    fn search_from(
        self,
        guess: Option<usize>,
        key: &Key,
        low: usize,
        mut probe: impl FnMut(usize),
    ) -> Result<usize, usize> {
        let mut compare_at = |slot| {
            probe(slot);
            compare(self.raw_key(slot), key)
        };
        let (mut low, mut high) = match guess {
            Some(guess) => match around(guess, low..self.count(), &mut compare_at) {
                Ok(slots) => (slots.start, slots.end),
                Err(found) => return Ok(found),
            },
            None => (low, self.count()),
        };
        while low < high {
            let middle = usize::midpoint(low, high);
            match compare_at(middle) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Guesses the slot of `key`, from slot `low` on, as if keys were evenly spaced: names are by their hashes, and inodes by their
    /// numbers. A block without recent use is not in the processor's caches, and each access to another part of it waits for
    /// memory. A guess reads both ends, or only the first key if `next` replaces the last. `None` if it makes no difference.
    fn guess(self, key: &Key, low: usize, next: Option<&Key>) -> Option<usize> {
        let last = self.count().checked_sub(1)?;
        if last < low + GUESS_MIN {
            return None;
        }
        let from = self.key(low);
        if let Some(part) = next.map(|next| part_of(&from, key, next))
            && part > 0.0
            && part < 1.0
        {
            return Some(last.min(low + (part * (last + 1 - low) as f64) as usize));
        }
        Some(low + (part_of(&from, key, &self.key(last)) * (last - low) as f64) as usize)
    }

    fn raw_key(self, slot: usize) -> &'a [u8; RawKey::LEN] {
        let at = HEADER_LEN + slot * self.stride();
        self.0[at..].first_chunk().expect("an entry begins with a key")
    }

    /// The slot of the child to follow for `key`: the last whose key is not greater, or 0.
    #[must_use]
    pub fn child_slot(self, key: &Key) -> usize {
        match self.search(key, 0) {
            Ok(slot) => slot,
            Err(slot) => slot.saturating_sub(1),
        }
    }
}

/// Returns the fraction of the way from one key to another at which a key lies, by the field in which the two differ.
fn part_of(from: &Key, key: &Key, to: &Key) -> f64 {
    let (from, at, to) = if from.objectid == to.objectid && from.kind == to.kind {
        (from.offset, key.offset, to.offset)
    } else {
        (from.objectid.get(), key.objectid.get(), to.objectid.get())
    };
    if at >= to {
        1.0
    } else if at <= from {
        0.0
    } else {
        (at - from) as f64 / (to - from) as f64
    }
}

/// Returns the part of `slots` around `guess` where a key is or would go, found in steps that double.
///
/// # Errors
/// The key was found; the value is its slot.
fn around(
    guess: usize,
    slots: Range<usize>,
    compare_at: &mut impl FnMut(usize) -> Ordering,
) -> Result<Range<usize>, usize> {
    let Range { start: mut low, end: mut high } = slots;
    let (mut at, mut step) = (guess, STEP);
    let mut side = None;
    while (low..high).contains(&at) {
        let order = compare_at(at);
        match order {
            Ordering::Less => low = at + 1,
            Ordering::Greater => high = at,
            Ordering::Equal => return Err(at),
        }
        if side.is_some_and(|side| side != order) {
            break; // passed
        }
        side = Some(order);
        at = if order == Ordering::Less { at + step } else { at.saturating_sub(step) };
        step *= 2;
    }
    Ok(low..high)
}

/// Compares a key on disk with one in memory; most comparisons end at the first eight bytes.
fn compare(raw: &[u8; RawKey::LEN], key: &Key) -> Ordering {
    let raw = RawKey::ref_from_bytes(raw).expect("an array of a key's length");
    ObjectId::new(raw.objectid.get())
        .cmp(&key.objectid)
        .then_with(|| KeyType::new(raw.kind).cmp(&key.kind))
        .then_with(|| raw.offset.get().cmp(&key.offset))
}
