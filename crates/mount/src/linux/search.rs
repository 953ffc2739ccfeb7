//! Tree search: `BTRFS_IOC_TREE_SEARCH`, and for Linux' own Btrfs `BTRFS_IOC_TREE_SEARCH_V2`, one answer at a time.

use std::ops::RangeInclusive;

use creamery_base::{Error, ErrorKind, Result, TreeId};

use super::LiveBtrfs;
use super::controls::{KEY_WORDS, bytes_of, halves};
use crate::messages::SEARCH_HEADER;

/// Offset of the number of items in the key, in words.
const COUNT: usize = 8;

/// An item of a tree.
pub(super) struct Item {
    pub(super) objectid: u64,
    pub(super) kind: u32,
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

impl Item {
    /// The eight bytes at `at` of its data. Errors: it has fewer.
    pub(super) fn u64_at(&self, at: usize) -> Result<u64> {
        self.chunk_at(at).map(u64::from_le_bytes)
    }

    /// The name behind its length at `at`, and its end. Errors: it is truncated.
    pub(super) fn name_at(&self, at: usize) -> Result<(&[u8], usize)> {
        let len = usize::from(u16::from_le_bytes(self.chunk_at(at)?));
        let end = at + 2 + len;
        self.data.get(at + 2..end).map(|name| (name, end)).ok_or_else(|| self.is_short())
    }

    pub(super) fn chunk_at<const LEN: usize>(&self, at: usize) -> Result<[u8; LEN]> {
        let found = self.data.get(at..).and_then(|rest| rest.first_chunk());
        found.copied().ok_or_else(|| self.is_short())
    }

    fn is_short(&self) -> Error {
        let Self { objectid, kind, offset, data } = self;
        Error::new(
            ErrorKind::Corrupt,
            format!("item ({objectid} {kind} {offset}) is too short: {} bytes", data.len()),
        )
    }
}

impl LiveBtrfs {
    /// The items of `tree` that belong to `objectids` and are of the types `kinds`.
    /// Errors: permission denied, for all but root (and the mounter, on ours); there is no such tree.
    pub(super) fn items(
        &self,
        tree: TreeId,
        objectids: RangeInclusive<u64>,
        kinds: RangeInclusive<u32>,
    ) -> Result<Vec<Item>> {
        let mut items = Vec::new();
        let mut next = Some((*objectids.start(), *kinds.start(), 0));
        while let Some(from) = next {
            let page = self.page(tree, from, (*objectids.end(), *kinds.end()))?;
            // Keys rise, so the loop ends.
            let last =
                page.last().map(|item| (item.objectid, item.kind, item.offset)).filter(|last| *last >= from);
            next = last.and_then(behind);
            for item in page.into_iter().filter(|item| kinds.contains(&item.kind)) {
                // An item that fits into no answer arrives empty; no item of the wanted types is empty.
                if item.data.is_empty() {
                    let Item { objectid, kind, offset, .. } = item;
                    let text =
                        format!("item ({objectid} {kind} {offset}) does not fit into an answer of the mount");
                    return Err(Error::unsupported(text));
                }
                items.push(item);
            }
        }
        Ok(items)
    }

    /// The items of one answer, from a key on.
    fn page(&self, tree: TreeId, from: (u64, u32, u64), to: (u64, u32)) -> Result<Vec<Item>> {
        let most = u64::MAX;
        let mut key = [0; KEY_WORDS];
        key[..7].copy_from_slice(&[tree.get(), from.0, to.0, from.2, most, 0, most]);
        key[7] = u64::from_ne_bytes(halves(from.1, to.1));
        key[COUNT] = u64::from_ne_bytes(halves(u32::MAX, 0));
        let bytes = bytes_of(&self.answering.search(key).map_err(|errno| self.failed(errno))?);
        let word = |at: usize| {
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|word| u64::from_ne_bytes(*word))
        };
        let half = |at: usize| {
            bytes.get(at..).and_then(|rest| rest.first_chunk()).map(|half| u32::from_ne_bytes(*half))
        };
        let (mut items, mut at) = (Vec::new(), KEY_WORDS * 8);
        for _ in 0..half(COUNT * 8).unwrap_or(0) {
            let read = || -> Option<(Item, usize)> {
                let len = usize::try_from(half(at + 28)?).ok()?;
                let end = (at + SEARCH_HEADER).checked_add(len)?;
                let data = bytes.get(at + SEARCH_HEADER..end)?.to_vec();
                Some((
                    Item { objectid: word(at + 8)?, kind: half(at + 24)?, offset: word(at + 16)?, data },
                    end,
                ))
            };
            let Some((item, end)) = read() else {
                let text = format!("{}: the answer ends within an item", self.path.display());
                return Err(Error::new(ErrorKind::Corrupt, text));
            };
            items.push(item);
            at = end;
        }
        Ok(items)
    }
}

/// The next key, if there is any.
fn behind((objectid, kind, offset): (u64, u32, u64)) -> Option<(u64, u32, u64)> {
    if let Some(offset) = offset.checked_add(1) {
        return Some((objectid, kind, offset));
    }
    if kind < u32::from(u8::MAX) {
        return Some((objectid, kind + 1, 0));
    }
    Some((objectid.checked_add(1)?, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_rise_to_the_last_one() {
        let most = u64::MAX;
        assert_eq!(behind((256, 12, 5)), Some((256, 12, 6)));
        assert_eq!(behind((256, 12, most)), Some((256, 13, 0)));
        assert_eq!(behind((256, 255, most)), Some((257, 0, 0)));
        assert_eq!(behind((most, 255, most)), None);
    }

    #[test]
    fn a_name_that_is_cut_off_is_an_error() {
        let item = |data: &[u8]| Item { objectid: 257, kind: 12, offset: 256, data: data.to_vec() };
        assert_eq!(item(b"\x03\0abcd").name_at(0).expect("whole"), (&b"abc"[..], 5));
        for data in [&b"\x03\0ab"[..], b"\x03", b""] {
            assert!(item(data).name_at(0).is_err());
        }
        assert!(item(&[0; 7]).u64_at(0).is_err() && item(&[0; 8]).u64_at(usize::MAX).is_err());
    }
}
