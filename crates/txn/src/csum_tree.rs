//! The checksum tree: one checksum per sector of data, packed into items keyed by the address of the first.
//!
//! # On disk
//! `(EXTENT_CSUM EXTENT_CSUM address)`: checksums of consecutive sectors. Items do not overlap; a data sector
//! without one belongs to a NODATASUM file.
//!
//! # Invariants
//! - CSUM-1: at every moment, each sector of an extent in use that has a checksum is found with it. Readers hold no
//!   transaction handle, and one item stands for the sectors of many extents; so an item is changed under one lock of
//!   its leaf, in one step from a right state to a right state. Shown by
//!   `readers_notice_checksums_that_are_removed_in_two_steps`, `items_cut_in_two_steps_are_caught`.
//! - CSUM-2: an item that holds a checksum which is still needed keeps its key, or gets one that is not behind that
//!   sector: a reader that released one leaf finds the next item by its key. Shown by
//!   `reads_beside_commits_in_schedules_from_a_fixed_seed`.
//! - CSUM-3: the reference runner and threads that allocate data remove, beside threads that insert. A run of checksums may grow
//!   while another thread cuts it, so each change passes the item that its thread saw, and looks again when the item differs.
//!   Shown by `extents_keep_their_checksums_while_their_neighbours_lose_theirs`.
//! - CSUM-4: data space has no checksums when it is handed out. Freed extents lose theirs before; leftovers of other programs are
//!   removed when the space is allocated (`engine/data`). Shown by
//!   `data_space_has_no_checksums_when_it_is_handed_out`.

use std::sync::Arc;

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_codec::ChecksumType;
use creamery_format::{ITEM_LEN, Key, KeyType};
use creamery_tree::{CowHost, Cursor, ReadAhead, SeenItem, Tree, Walk};

/// Most times in a row that an item may differ from the one just seen.
const MISSES_MAX: u32 = 64;
/// Leftover items that one handle removes.
pub(crate) const LEFT_OVER_PER_HANDLE: u32 = 2;

/// Checksums of a range, some of which may be missing.
pub(crate) struct RangeChecksums {
    size: usize,
    present: Vec<bool>,
    bytes: Vec<u8>,
}

impl RangeChecksums {
    /// The checksum of the sector at `index` in the range.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        self.present[index].then(|| &self.bytes[index * self.size..(index + 1) * self.size])
    }

    /// The first sector of the range without a checksum.
    pub(crate) fn first_missing(&self) -> Option<usize> {
        self.present.iter().position(|present| !present)
    }
}

/// The checksum tree of a filesystem.
pub(crate) struct CsumTree {
    tree: Arc<Tree>,
    checksum: ChecksumType,
    /// Bytes.
    sector: u64,
    #[cfg(feature = "faults")]
    in_two_steps: std::sync::atomic::AtomicBool,
    #[cfg(feature = "faults")]
    before_look: std::sync::OnceLock<BeforeLook>,
}

/// A test's callback before each look whether there are checksums.
#[cfg(feature = "faults")]
pub(crate) type BeforeLook = Box<dyn Fn() + Send + Sync>;

/// An item, and the end of the data that it covers, bytes.
#[derive(Clone, Copy)]
struct Item {
    seen: SeenItem,
    end: u64,
}

fn key(at: Logical) -> Key {
    Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get())
}

/// The error for an item that a walk finds and a search by key repeatedly does not: its leaf does not fit its parent, or
/// another item has the same key.
fn out_of_place(key: &Key) -> Error {
    Error::new(ErrorKind::Corrupt, format!("checksum item {key} is out of place"))
}

impl CsumTree {
    pub(crate) fn new(tree: Arc<Tree>, checksum: ChecksumType, sector: u32) -> Self {
        Self {
            tree,
            checksum,
            sector: sector.into(),
            #[cfg(feature = "faults")]
            in_two_steps: std::sync::atomic::AtomicBool::new(false),
            #[cfg(feature = "faults")]
            before_look: std::sync::OnceLock::new(),
        }
    }

    /// The tree, for operations on any tree.
    pub(crate) fn tree(&self) -> &Arc<Tree> {
        &self.tree
    }

    /// Plants a fault: removing a range from the middle of an item takes two steps.
    #[cfg(feature = "faults")]
    pub(crate) fn remove_in_two_steps(&self) {
        self.in_two_steps.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets a callback, once and for all, before each look whether there are checksums.
    #[cfg(feature = "faults")]
    pub(crate) fn before_look(&self, before: BeforeLook) {
        assert!(self.before_look.set(before).is_ok(), "one at a time");
    }

    /// Bytes of checksums in the largest item.
    pub(crate) fn most(&self) -> usize {
        let size = self.checksum.size();
        ((self.tree.max_item_size() - 2 * ITEM_LEN) / size - 1) * size
    }

    /// Bytes of data that `len` bytes of checksums cover.
    fn covered(&self, len: usize) -> u64 {
        (len / self.checksum.size()) as u64 * self.sector
    }

    /// The item under the cursor, if it holds checksums and begins at `at` or before.
    fn item(&self, cursor: &Cursor<'_>, at: &Key) -> Option<Item> {
        let (key, data) = cursor.item().filter(|(key, _)| key.kind == KeyType::EXTENT_CSUM && key <= at)?;
        let end = key.offset.saturating_add(self.covered(data.len()));
        Some(Item { seen: SeenItem { key, len: data.len() }, end })
    }

    /// Inserts the checksums of the sectors from `start` on, none of which has one yet (CSUM-4).
    pub(crate) fn insert(&self, host: &dyn CowHost, start: Logical, csums: &[u8]) -> Result<()> {
        let most = self.most();
        let (mut at, mut rest) = (start, csums);
        let end = start.get().saturating_add(self.covered(csums.len()));
        for _ in 0..MISSES_MAX {
            let before = self.last_before(end, Wait::Yes)?;
            if let Some(item) = before.as_ref().filter(|item| item.end > at.get()) {
                return Err(out_of_place(&item.seen.key));
            }
            let fits = |item: &Item| item.end == at.get() && item.seen.len < most;
            let Some(Item { seen, .. }) = before.filter(fits) else { break };
            let taken = rest.len().min(most - seen.len);
            if self.tree.extend_item(host, &seen, &rest[..taken])? {
                at = at + self.covered(taken);
                rest = &rest[taken..];
                break;
            }
        }
        while !rest.is_empty() {
            let taken = rest.len().min(most);
            self.tree.insert(host, &key(at), &rest[..taken])?;
            at = at + self.covered(taken);
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// The start, within a range, of its last [`LEFT_OVER_PER_HANDLE`] items, or of all if there are fewer; `None` when there is no item.
    pub(crate) fn last_of(&self, start: Logical, len: u64) -> Result<Option<Logical>> {
        let (start, mut from) = (start.get(), start.get().saturating_add(len));
        let mut found = None;
        for _ in 0..LEFT_OVER_PER_HANDLE {
            let item = if from > start { self.last_before(from, Wait::Yes)? } else { None };
            let Some(item) = item.filter(|item| item.end > start) else { break };
            from = item.seen.key.offset.max(start);
            found = Some(Logical::new(from));
        }
        Ok(found)
    }

    /// Removes the checksums of a range; items that reach beyond it are cut (CSUM-3).
    pub(crate) fn remove(&self, host: &dyn CowHost, start: Logical, len: u64) -> Result<()> {
        let (start, end) = (start.get(), start.get() + len);
        let mut misses = 0;
        while let Some(item) = self.last_before(end, Wait::Yes)?.filter(|item| item.end > start) {
            let seen = &item.seen;
            let bytes_before = |at: u64| {
                let sectors = usize::try_from((at - seen.key.offset) / self.sector).expect("inside an item");
                sectors * self.checksum.size()
            };
            let front = if seen.key.offset < start { bytes_before(start) } else { 0 };
            let back = if item.end > end { seen.len - bytes_before(end) } else { 0 };
            let done = match (front, back) {
                (0, 0) => self.tree.remove_item(host, seen)?,
                (_, 0) => self.tree.truncate_item(host, seen, front)?,
                _ => self.cut(host, seen, front, &key(Logical::new(end)), back)?,
            };
            misses = if done { 0 } else { misses + 1 };
            if misses > MISSES_MAX {
                return Err(out_of_place(&seen.key));
            }
        }
        Ok(())
    }

    /// Whether a range has checksums, at least in part: one look, however many there are.
    pub(crate) fn any(&self, start: Logical, len: u64, wait: Wait) -> Result<bool> {
        #[cfg(feature = "faults")]
        self.before_look.get().into_iter().for_each(|before| before());
        let last = self.last_before(start.get().saturating_add(len), wait)?;
        Ok(last.is_some_and(|item| item.end > start.get()))
    }

    /// The last item that begins before `end`.
    /// Errors: damage: it reaches beyond the beginning of the next one.
    fn last_before(&self, end: u64, wait: Wait) -> Result<Option<Item>> {
        let last = key(Logical::new(end - 1));
        let mut cursor = self.tree.cursor_at_or_before(&last, wait)?;
        let Some(item) = self.item(&cursor, &last) else { return Ok(None) };
        if item.end > end {
            cursor.advance()?;
            if let Some((behind, _)) = cursor.item().filter(|(behind, _)| behind.offset < item.end) {
                let message = format!("checksum items {} and {behind} overlap", item.seen.key);
                return Err(Error::new(ErrorKind::Corrupt, message));
            }
        }
        Ok(Some(item))
    }

    /// Takes the middle out of an item (CSUM-1).
    fn cut(&self, host: &dyn CowHost, item: &SeenItem, front: usize, new: &Key, back: usize) -> Result<bool> {
        #[cfg(feature = "faults")]
        if self.in_two_steps.load(std::sync::atomic::Ordering::Relaxed) {
            let Some(data) = self.tree.get(&item.key, Wait::Yes, <[u8]>::to_vec)? else { return Ok(false) };
            match front {
                0 => self.tree.remove_item(host, item)?,
                _ => self.tree.truncate_item(host, item, front)?,
            };
            std::thread::yield_now(); // parallel threads run here
            self.tree.insert(host, new, &data[data.len() - back..])?;
            return Ok(true);
        }
        self.tree.cut_item(host, item, front, new, back)
    }

    /// The checksums of `sectors` sectors from `at` on.
    pub(crate) fn read(&self, at: Logical, sectors: usize, wait: Wait) -> Result<RangeChecksums> {
        let (size, sector) = (self.checksum.size(), self.sector);
        let mut csums =
            RangeChecksums { size, present: vec![false; sectors], bytes: vec![0; sectors * size] };
        let end = at + sectors as u64 * sector;
        let walk = Walk::new(wait, ReadAhead::Forward);
        let mut cursor = self.tree.cursor_at_or_before(&key(at), walk)?;
        while let Some((found, data)) = cursor.item() {
            if found.objectid != ObjectId::EXTENT_CSUM || found.offset >= end.get() {
                break;
            }
            let item_end = found.offset.saturating_add(self.covered(data.len()));
            let (first, last) = (found.offset.max(at.get()), item_end.min(end.get()));
            if found.offset.is_multiple_of(sector) && first < last {
                let index = |address: u64, from: u64| {
                    usize::try_from((address - from) / sector).expect("inside an item or the range")
                };
                let (from, to) = (index(first, found.offset), index(first, at.get()));
                let count = index(last, first);
                csums.present[to..to + count].fill(true);
                csums.bytes[to * size..(to + count) * size]
                    .copy_from_slice(&data[from * size..(from + count) * size]);
            }
            if item_end >= end.get() {
                break;
            }
            cursor.advance()?;
        }
        Ok(csums)
    }
}
