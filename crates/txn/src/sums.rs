//! The checksum tree: one checksum per sector of data, packed into items keyed by the address of the first.
//!
//! # On disk
//! `(EXTENT_CSUM EXTENT_CSUM address)`: checksums of consecutive sectors. Items do not overlap; a data sector
//! without one belongs to a NODATASUM file.

use creamery_base::{Error, ErrorKind, Logical, ObjectId, Result, Wait};
use creamery_format::{Keep, Key, KeyType};
use creamery_tree::CowHost;

use crate::engine::Engine;

/// Checksums of a range, some of which may be missing.
pub(crate) struct Sums {
    size: usize,
    present: Vec<bool>,
    bytes: Vec<u8>,
}

impl Sums {
    /// The checksum of the sector at `index` in the range.
    pub(crate) fn get(&self, index: usize) -> Option<&[u8]> {
        self.present[index].then(|| &self.bytes[index * self.size..(index + 1) * self.size])
    }
}

fn key(at: Logical) -> Key {
    Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, at.get())
}

/// An item that was walked to and is not found by its key lies in a leaf that its parent is wrong about.
fn in_place(key: &Key, found: bool) -> Result<()> {
    let out = || Error::new(ErrorKind::Corrupt, format!("checksum item {key} is out of place"));
    if found { Ok(()) } else { Err(out()) }
}

impl Engine {
    fn sum_size(&self) -> usize {
        self.checksum_type().size()
    }

    /// Bytes in an item that holds checksums of so many bytes of data cover; and the reverse bound for one item.
    fn sums_per_item(&self) -> usize {
        (self.csum_tree.max_item_size() - 2 * creamery_format::ITEM_LEN) / self.sum_size() - 1
    }

    /// Bytes of data that an item with `len` bytes of checksums stands for.
    fn covered(&self, len: usize) -> u64 {
        (len / self.sum_size()) as u64 * u64::from(self.sector_size())
    }

    /// Inserts the checksums of the sectors from `start` on. The range has none yet: freed extents lose theirs
    /// before their space is handed out again.
    pub(crate) fn insert_sums(&self, host: &dyn CowHost, start: Logical, sums: &[u8]) -> Result<()> {
        let most = self.sums_per_item() * self.sum_size();
        let (mut at, mut rest) = (start, sums);
        let before = {
            let cursor = self.csum_tree.cursor_at_or_before(&key(at), Wait::Yes)?;
            cursor.item().map(|(key, data)| (key, data.len()))
        };
        if let Some((before, len)) = before
            && before.kind == KeyType::EXTENT_CSUM
            && before.offset.checked_add(self.covered(len)) == Some(at.get())
            && len < most
        {
            let taken = rest.len().min(most - len);
            if self.csum_tree.extend(host, &before, &rest[..taken])? {
                at = at + self.covered(taken);
                rest = &rest[taken..];
            }
        }
        while !rest.is_empty() {
            let taken = rest.len().min(most);
            self.csum_tree.insert(host, &key(at), &rest[..taken])?;
            at = at + self.covered(taken);
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Removes the checksums of a range; items that reach beyond it are cut.
    pub(crate) fn remove_sums(&self, host: &dyn CowHost, start: Logical, len: u64) -> Result<()> {
        let end = start + len;
        loop {
            // The last item that begins before the range's end.
            let last = Key::new(ObjectId::EXTENT_CSUM, KeyType::EXTENT_CSUM, end.get() - 1);
            let item = {
                let cursor = self.csum_tree.cursor_at_or_before(&last, Wait::Yes)?;
                cursor.item().map(|(key, data)| (key, data.to_vec()))
            };
            let Some((found, data)) = item else { return Ok(()) };
            let item_end = found.offset.saturating_add(self.covered(data.len()));
            if found.kind != KeyType::EXTENT_CSUM || found.offset >= end.get() || item_end <= start.get() {
                return Ok(());
            }
            let sector = u64::from(self.sector_size());
            let bytes_before = |at: u64| {
                usize::try_from((at - found.offset) / sector).expect("inside an item") * self.sum_size()
            };
            if item_end > end.get() {
                let tail = data[bytes_before(end.get())..].to_vec();
                if found.offset >= start.get() {
                    let keep = tail.len();
                    in_place(&found, self.csum_tree.truncate_item(host, &found, keep, Keep::Back)?)?;
                    self.csum_tree.rekey(host, &found, &key(end), |_| ())?;
                } else {
                    let keep = bytes_before(start.get());
                    in_place(&found, self.csum_tree.truncate_item(host, &found, keep, Keep::Front)?)?;
                    self.csum_tree.insert(host, &key(end), &tail)?;
                }
            } else if found.offset >= start.get() {
                in_place(&found, self.csum_tree.remove(host, &found)?)?;
            } else {
                let keep = bytes_before(start.get());
                in_place(&found, self.csum_tree.truncate_item(host, &found, keep, Keep::Front)?)?;
            }
        }
    }

    /// The checksums of `sectors` sectors from `at` on; none when not a single one has one.
    pub(crate) fn read_sums(&self, at: Logical, sectors: usize, wait: Wait) -> Result<Option<Sums>> {
        let (size, sector) = (self.sum_size(), u64::from(self.sector_size()));
        let mut sums = Sums { size, present: vec![false; sectors], bytes: vec![0; sectors * size] };
        let mut any = false;
        let end = at + sectors as u64 * sector;
        let mut cursor = self.csum_tree.cursor_at_or_before(&key(at), wait)?;
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
                sums.present[to..to + count].fill(true);
                sums.bytes[to * size..(to + count) * size]
                    .copy_from_slice(&data[from * size..(from + count) * size]);
                any = true;
            }
            cursor.advance()?;
        }
        Ok(any.then_some(sums))
    }
}
