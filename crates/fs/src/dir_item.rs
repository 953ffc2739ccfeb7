//! Packed directory items: the payload of DIR_ITEM, DIR_INDEX and XATTR_ITEM.
//!
//! An entry is a key (what it points to), the transaction that wrote it, the lengths of name and data, a type byte,
//! then name and data. A DIR_INDEX item has one entry. DIR_ITEM and XATTR_ITEM keys hold a 32-bit hash of the
//! name, so entries whose names collide stand one after the other in one item.
//!
//! # Invariants
//! - DIRITEM-1: every slice handed out lies inside the item; a length that does not fit is reported as damage.

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Generation, ObjectId, Result};
use creamery_format::{Key, KeyType};
use smallvec::SmallVec;

use crate::name::Name;

/// Bytes in front of an entry's name.
pub(crate) const HEADER_LEN: usize = 30;

/// The type byte of an extended attribute.
pub(crate) const TYPE_XATTR: u8 = 8;

/// The bytes of an item that is being made; long enough for one entry with the longest name.
pub(crate) type ItemBytes = SmallVec<[u8; 320]>;

/// One entry of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    /// What the name stands for.
    pub(crate) location: Key,
    /// Type byte.
    pub(crate) kind: u8,
    /// The name.
    pub(crate) name: &'a [u8],
    /// The value of an extended attribute.
    pub(crate) data: &'a [u8],
    /// Where the entry lies in the item.
    pub(crate) place: Range<usize>,
}

/// The entries of an item.
pub(crate) struct Entries<'a> {
    item: &'a [u8],
    at: usize,
}

/// Walks over the entries of `item`; ends after the first damaged one.
pub(crate) const fn entries(item: &[u8]) -> Entries<'_> {
    Entries { item, at: 0 }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the header's length was checked")
}

impl<'a> Entries<'a> {
    fn parse(&self) -> Option<Entry<'a>> {
        let header = self.item.get(self.at..self.at.checked_add(HEADER_LEN)?)?;
        let data_len = usize::from(u16::from_le_bytes(field(header, 25)));
        let name_len = usize::from(u16::from_le_bytes(field(header, 27)));
        let name_at = self.at + HEADER_LEN;
        let data_at = name_at + name_len;
        let end = data_at + data_len;
        Some(Entry {
            location: Key::new(
                ObjectId::new(u64::from_le_bytes(field(header, 0))),
                KeyType::new(header[8]),
                u64::from_le_bytes(field(header, 9)),
            ),
            kind: header[29],
            name: self.item.get(name_at..data_at)?,
            data: self.item.get(data_at..end)?,
            place: self.at..end,
        })
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.item.len() {
            return None;
        }
        match self.parse() {
            Some(entry) => {
                self.at = entry.place.end;
                Some(Ok(entry))
            }
            None => {
                let at = std::mem::replace(&mut self.at, usize::MAX);
                let text = format!("directory item of {} bytes, entry at {at} runs past its end", self.item.len());
                Some(Err(Error::new(ErrorKind::Corrupt, text)))
            }
        }
    }
}

/// The entry called `name`.
pub(crate) fn find<'a>(item: &'a [u8], name: &[u8]) -> Result<Option<Entry<'a>>> {
    for entry in entries(item) {
        let entry = entry?;
        if entry.name == name {
            return Ok(Some(entry));
        }
    }
    Ok(None)
}

/// Appends an entry to `item`.
pub(crate) fn push(item: &mut ItemBytes, head: &Head, name: &[u8], data: &[u8]) {
    item.reserve(HEADER_LEN + name.len() + data.len());
    item.extend_from_slice(&head.encode());
    item.extend_from_slice(&u16::try_from(data.len()).expect("values are limited by the leaf").to_le_bytes());
    item.extend_from_slice(&u16::try_from(name.len()).expect("names are checked").to_le_bytes());
    item.push(head.kind);
    item.extend_from_slice(name);
    item.extend_from_slice(data);
}

/// An item with the one entry `name`.
pub(crate) fn single(head: &Head, name: Name<'_>) -> ItemBytes {
    let mut item = ItemBytes::new();
    push(&mut item, head, name.bytes(), &[]);
    item
}

/// What stands in front of an entry's name, lengths aside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// What the name stands for.
    pub(crate) location: Key,
    /// The transaction that writes the entry.
    pub(crate) transid: Generation,
    /// Type byte.
    pub(crate) kind: u8,
}

impl Head {
    /// Of an extended attribute.
    pub(crate) const fn xattr(transid: Generation) -> Self {
        Self { location: Key::MIN, transid, kind: TYPE_XATTR }
    }

    fn encode(&self) -> [u8; 25] {
        let mut bytes = [0; 25];
        bytes[0..8].copy_from_slice(&self.location.objectid.get().to_le_bytes());
        bytes[8] = self.location.kind.get();
        bytes[9..17].copy_from_slice(&self.location.offset.to_le_bytes());
        bytes[17..25].copy_from_slice(&self.transid.get().to_le_bytes());
        bytes
    }

    /// Makes the entry `name` of `item` stand for something else; `false` when there is no such entry.
    pub(crate) fn redirect(&self, item: &mut [u8], name: &[u8]) -> Result<bool> {
        let Some(place) = find(item, name)?.map(|entry| entry.place) else { return Ok(false) };
        item[place.start..place.start + 25].copy_from_slice(&self.encode());
        item[place.start + HEADER_LEN - 1] = self.kind;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(ino: u64) -> Head {
        let location = Key::new(ObjectId::new(ino), KeyType::INODE_ITEM, 0);
        Head { location, transid: Generation::new(9), kind: 1 }
    }

    #[test]
    fn colliding_entries_are_found_and_redirected_one_by_one() {
        let mut item = ItemBytes::new();
        push(&mut item, &head(257), b"first", b"");
        push(&mut item, &head(258), b"second", b"value");
        push(&mut item, &head(259), b"third", b"");
        let found = find(&item, b"second").expect("valid").expect("there");
        assert_eq!((found.location.objectid.get(), found.data), (258, &b"value"[..]));
        assert!(head(300).redirect(&mut item, b"third").expect("valid"));
        assert!(!head(300).redirect(&mut item, b"fourth").expect("valid"));
        let inos: Vec<u64> = entries(&item).map(|entry| entry.expect("valid").location.objectid.get()).collect();
        assert_eq!(inos, [257, 258, 300]);
    }

    #[test]
    fn an_entry_like_the_kernels_has_its_bytes() {
        let mut item = ItemBytes::new();
        push(&mut item, &Head::xattr(Generation::new(9)), b"user.x", b"hello");
        assert_eq!(item.len(), 41);
        assert_eq!(&item[17..30], [9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 0, TYPE_XATTR]);
    }

    #[test]
    fn lengths_past_the_end_are_damage_and_end_the_walk() {
        let mut item = ItemBytes::new();
        push(&mut item, &head(257), b"name", b"");
        for cut in 1..item.len() {
            let kinds: Vec<_> = entries(&item[..cut]).map(|entry| entry.map(|_| ()).unwrap_err().kind()).collect();
            assert_eq!(kinds, [ErrorKind::Corrupt], "cut to {cut}");
        }
        item[27] = 0xff;
        assert!(find(&item, b"name").is_err());
    }
}
