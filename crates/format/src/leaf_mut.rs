//! Edits of leaves, and the form of a leaf while it is filled.
//!
//! On disk the data of items lies in the order of their slots, so an insertion in the middle would move the data of
//! all items behind it and change their heads. Names hash to anywhere in their leaf, so that would be half of a leaf
//! each time, and nobody sees the order before the leaf is written. Therefore a leaf that is not marked as
//! written may be *loose*: new data goes below all other data, wherever the item's slot is, and only the heads make
//! room.
//!
//! ```text
//! in order: | header | A B C | unused | data C | data B | data A |
//! loose:    | header, floor | A B C | unused | data B | data C | data A |      B came last
//!                                            ^ floor
//! ```
//! The last item then no longer shows where the data begins. So the first bytes of the header's checksum field,
//! which has no meaning before the leaf is written, hold that *floor*; zero means that the leaf is in order. Marking a
//! leaf as written puts its data in order, once for all insertions.
//!
//! # Invariants
//! - LOOSE-1: loose or not, the data of a leaf has no gap: the free space is one piece, and an insertion gets all of the room
//!   that it asks for. Shown by `any_sequence_of_leaf_edits_equals_the_model_and_leaves_no_trace`.
//! - LOOSE-2: a leaf that is marked as written is in order. Shown by `items_come_in_any_order_and_are_written_in_theirs`.

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, IntoBytes};

use crate::block::{BlockRef, HEADER_LEN, ITEM_LEN, RawItem};
use crate::block_mut::BlockMut;
use crate::key::Key;

/// The end of an item's data that stays when the item shrinks.
///
/// ```
/// use creamery_format::Keep;
/// assert_ne!(Keep::Front, Keep::Back);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// The first bytes stay, the tail goes.
    Front,
    /// The last bytes stay, the front goes.
    Back,
}

impl BlockMut<'_> {
    /// Inserts items with these keys and lengths at `slot`; their data is zero.
    pub fn insert_items(&mut self, slot: usize, items: &[(Key, usize)]) {
        let bytes = items.iter().map(|(_, len)| len).sum();
        self.open_items(slot, items.len(), bytes, |leaf, mut end| {
            leaf.zero_data(end - bytes, end);
            for (i, (key, len)) in items.iter().enumerate() {
                end -= len;
                *leaf.item_mut(slot + i) =
                    RawItem { key: (*key).into(), offset: U32::new(end as u32), size: U32::new(*len as u32) };
            }
        });
    }

    /// Inserts copies of `n` items of `src`, from its slot `src_slot` on, at `dst_slot`.
    pub fn copy_items_from(&mut self, dst_slot: usize, src: BlockRef<'_>, src_slot: usize, n: usize) {
        assert!(
            n <= src.count() && src_slot <= src.count() - n,
            "{n} items at slot {src_slot} of {}",
            src.count()
        );
        let heads = &src.items()[src_slot..src_slot + n];
        let bytes = heads.iter().map(|head| head.size.get() as usize).sum();
        self.open_items(dst_slot, n, bytes, |leaf, end| {
            if src.is_loose() {
                leaf.copy_each(dst_slot, src, src_slot, n, end);
            } else if n > 0 {
                leaf.copy_all(dst_slot, src, heads, end, bytes);
            }
        });
    }

    /// Copies these items of a leaf in order, whose data is one piece of `bytes` bytes, to a piece that ends at `end`.
    fn copy_all(&mut self, slot: usize, src: BlockRef<'_>, heads: &[RawItem], end: usize, bytes: usize) {
        let (first, n) = (heads[heads.len() - 1].offset.get() as usize, heads.len());
        self.0[HEADER_LEN + end - bytes..HEADER_LEN + end]
            .copy_from_slice(&src.bytes()[HEADER_LEN + first..HEADER_LEN + first + bytes]);
        let at = HEADER_LEN + slot * ITEM_LEN;
        let copies = <[RawItem]>::mut_from_bytes(&mut self.0[at..at + n * ITEM_LEN])
            .expect("the slice holds whole items");
        for (copy, head) in copies.iter_mut().zip(heads) {
            let offset = head.offset.get() as usize - first + end - bytes;
            *copy = RawItem { offset: U32::new(offset as u32), ..*head };
        }
    }

    /// Copies items one by one to data that ends at `end`.
    fn copy_each(&mut self, slot: usize, src: BlockRef<'_>, src_slot: usize, n: usize, mut end: usize) {
        for i in 0..n {
            let (head, data) = (src.items()[src_slot + i], src.data(src_slot + i));
            self.0[HEADER_LEN + end - data.len()..HEADER_LEN + end].copy_from_slice(data);
            end -= data.len();
            *self.item_mut(slot + i) = RawItem { offset: U32::new(end as u32), ..head };
        }
    }

    /// Removes `n` items from `slot` on.
    pub fn remove_items(&mut self, slot: usize, n: usize) {
        self.assert_leaf();
        let count = self.as_ref().count();
        assert!(n <= count && slot <= count - n, "{n} items at slot {slot} of {count}");
        if n == 0 {
            return;
        }
        if n > 1 {
            self.put_in_order(); // so that their data is one piece
        }
        let first = self.as_ref().item_offset(slot + n - 1);
        self.raise_data(slot + n, first, self.as_ref().item_end(slot) - first);
        let end = HEADER_LEN + count * ITEM_LEN;
        let at = HEADER_LEN + slot * ITEM_LEN;
        self.0.copy_within(at + n * ITEM_LEN..end, at);
        self.0[end - n * ITEM_LEN..end].fill(0);
        self.set_count(count - n);
        if n == count {
            self.set_floor_if_loose(0);
        }
    }

    /// The data of the item in `slot`, for changing in place.
    pub fn data_mut(&mut self, slot: usize) -> &mut [u8] {
        let (offset, size) = (self.as_ref().item_offset(slot), self.as_ref().item_size(slot));
        &mut self.0[HEADER_LEN + offset..HEADER_LEN + offset + size]
    }

    /// Appends `bytes` of zeros to the data of the item in `slot`.
    pub fn grow_item(&mut self, slot: usize, bytes: usize) {
        self.assert_leaf();
        assert!(
            self.as_ref().free_space() >= bytes,
            "{bytes} more bytes in a leaf with {} free",
            self.as_ref().free_space()
        );
        let (start, size) = (self.as_ref().data_start(), self.as_ref().item_size(slot));
        // Empty data has no place of its own in a loose leaf.
        let end = if size == 0 && self.as_ref().is_loose() { start } else { self.as_ref().item_end(slot) };
        self.move_data(start, end, start - bytes);
        self.zero_data(end - bytes, end);
        self.move_offsets(slot, end, (bytes as u32).wrapping_neg());
        self.set_floor_if_loose(start - bytes);
        let item = self.item_mut(slot);
        item.offset = U32::new((end - size - bytes) as u32);
        item.size = U32::new((size + bytes) as u32);
    }

    /// Shortens the data of the item in `slot` to `new_len` bytes.
    pub fn shrink_item(&mut self, slot: usize, new_len: usize, keep: Keep) {
        self.assert_leaf();
        let (offset, size) = (self.as_ref().item_offset(slot), self.as_ref().item_size(slot));
        assert!(new_len <= size, "shrink {size} bytes to {new_len}");
        let cut = size - new_len;
        let kept_end = match keep {
            Keep::Front => offset + new_len,
            Keep::Back => offset,
        };
        self.raise_data(slot, kept_end, cut);
        let item = self.item_mut(slot);
        item.offset = U32::new((offset + cut) as u32);
        item.size = U32::new(new_len as u32);
    }

    /// Replaces the key of the item in `slot`.
    pub fn set_item_key(&mut self, slot: usize, key: &Key) {
        self.assert_leaf();
        assert!(slot < self.as_ref().count(), "slot {slot} of {}", self.as_ref().count());
        self.write_key(HEADER_LEN + slot * ITEM_LEN, key);
    }

    /// Puts the data of a loose leaf in the order of its slots.
    pub(crate) fn put_in_order(&mut self) {
        let Some(floor) = self.as_ref().floor() else { return };
        let loose = self.0[HEADER_LEN + floor..].to_vec();
        let count = self.as_ref().count();
        let (heads, ordered) = self.0.split_at_mut(HEADER_LEN + floor);
        let heads = &mut heads[HEADER_LEN..HEADER_LEN + count * ITEM_LEN];
        let mut end = ordered.len();
        for head in <[RawItem]>::mut_from_bytes(heads).expect("the slice holds whole items") {
            let (offset, size) = (head.offset.get() as usize, head.size.get() as usize);
            if size > 0 {
                let from = offset - floor;
                ordered[end - size..end].copy_from_slice(&loose[from..from + size]);
            }
            end -= size;
            head.offset = U32::new((floor + end) as u32);
        }
        assert_eq!(end, 0, "LOOSE-1: the data of a leaf has no gap");
        self.set_floor(0);
    }
}

impl BlockMut<'_> {
    fn assert_leaf(&self) {
        assert!(self.as_ref().is_leaf(), "only leaves have items");
    }

    fn set_floor(&mut self, floor: usize) {
        self.header_mut().csum[..4].copy_from_slice(U32::new(floor as u32).as_bytes());
    }

    fn set_floor_if_loose(&mut self, floor: usize) {
        if self.as_ref().is_loose() {
            self.set_floor(floor);
        }
    }

    fn item_mut(&mut self, slot: usize) -> &mut RawItem {
        let at = HEADER_LEN + slot * ITEM_LEN;
        RawItem::mut_from_bytes(&mut self.0[at..at + ITEM_LEN]).expect("the slice has an item's length")
    }

    /// Moves data in `[from, to)` (from the end of the header) so that it begins at `at`.
    fn move_data(&mut self, from: usize, to: usize, at: usize) {
        self.0.copy_within(HEADER_LEN + from..HEADER_LEN + to, HEADER_LEN + at);
    }

    fn zero_data(&mut self, from: usize, to: usize) {
        self.0[HEADER_LEN + from..HEADER_LEN + to].fill(0);
    }

    /// Moves the data below `end` up by `bytes`, and the offsets of its items: in a leaf in order those from `slot` on.
    fn raise_data(&mut self, slot: usize, end: usize, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let start = self.as_ref().data_start();
        self.move_data(start, end, start + bytes);
        self.zero_data(start, start + bytes);
        self.move_offsets(slot, end, bytes as u32);
        self.set_floor_if_loose(start + bytes);
    }

    /// Moves the offsets of the items whose data lies below `end`: in a leaf in order those from `slot` on. In a loose
    /// leaf items without data have no place. No branch depends on an offset, because in a loose leaf it is unpredictable.
    fn move_offsets(&mut self, slot: usize, end: usize, by: u32) {
        let (count, loose) = (self.as_ref().count(), self.as_ref().is_loose());
        let first = if loose { 0 } else { slot };
        let heads = &mut self.0[HEADER_LEN + first * ITEM_LEN..HEADER_LEN + count * ITEM_LEN];
        for item in <[RawItem]>::mut_from_bytes(heads).expect("the slice holds whole items") {
            let offset = item.offset.get();
            let moves = !loose | ((offset < end as u32) & (item.size.get() > 0));
            item.offset = U32::new(offset.wrapping_add(by & u32::from(moves).wrapping_neg()));
        }
    }

    /// Makes room for `n` heads before `slot`, and for `bytes` of their data below all other data. Calls `fill` with the end of
    /// that room; it fills in both. Afterwards, a leaf that is marked as written is in order.
    fn open_items(&mut self, slot: usize, n: usize, bytes: usize, fill: impl FnOnce(&mut Self, usize)) {
        self.assert_leaf();
        let (count, flags) = (self.as_ref().count(), self.as_ref().flags());
        assert!(slot <= count, "slot {slot} of {count}");
        assert!(
            self.as_ref().free_space() >= n * ITEM_LEN + bytes,
            "{n} items with {bytes} bytes in a leaf with {} free",
            self.as_ref().free_space()
        );
        if n == 0 {
            return;
        }
        let end = self.as_ref().data_start();
        let written = self.as_ref().is_written();
        if written {
            self.begin_again();
        }
        if slot < count || self.as_ref().is_loose() {
            self.set_floor(end - bytes);
        }
        let at = HEADER_LEN + slot * ITEM_LEN;
        self.0.copy_within(at..HEADER_LEN + count * ITEM_LEN, at + n * ITEM_LEN);
        self.set_count(count + n);
        fill(self, end);
        if written {
            self.set_flags(flags);
        }
    }
}
