//! Packed directory items: the payload of DIR_ITEM, DIR_INDEX and XATTR_ITEM.
//!
//! An entry is a key (its target), the transaction that wrote it, the lengths of name and data, a type byte,
//! then name and data. A DIR_INDEX item has one entry. DIR_ITEM and XATTR_ITEM keys hold a 32-bit hash of the
//! name, so entries whose names collide follow one another in one item.
//!
//! # Invariants
//! - DIRITEM-1: every slice handed out lies inside the item; a length that does not fit is reported as damage.
//!   Shown by `lengths_past_the_end_are_damage_and_end_the_walk`.

use std::ops::Range;

use creamery_base::{Error, ErrorKind, Generation, Result};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::items::dir::{DirEntries, DirEntryRef, FileType, RawDirItem};
use crate::key::Key;

/// Bytes in front of an entry's name.
pub const HEADER_LEN: usize = RawDirItem::LEN;

/// The bytes of an item in the making; long enough for one entry with a name of usual length. They are moved often, so
/// there is room for no more.
///
/// ```
/// use creamery_base::Generation;
/// use creamery_format::dir_item::{Head, ItemBytes, find, push, without};
///
/// let head = Head::xattr(Generation::new(9));
/// let mut item = ItemBytes::new();
/// push(&mut item, &head, b"user.a", b"1");
/// push(&mut item, &head, b"user.b", b"2");
/// let rest = without(&item, b"user.a")?.expect("it is there");
/// assert!(find(&rest, b"user.a")?.is_none());
/// assert_eq!(find(&rest, b"user.b")?.expect("it is there").0.data, b"2");
/// # Ok::<(), creamery_base::Error>(())
/// ```
pub type ItemBytes = SmallVec<[u8; 96]>;

/// Walks over the entries of `item` with the place of each; ends after the first damaged one.
///
/// Errors: damage.
#[inline]
pub fn entries(item: &[u8]) -> impl Iterator<Item = Result<(DirEntryRef<'_>, Range<usize>)>> {
    let mut end = 0;
    DirEntries::new(item).map(move |entry| {
        let entry =
            entry.map_err(|damage| Error::with_source(ErrorKind::Corrupt, "directory item", damage))?;
        let start = end;
        end += entry.len();
        assert!(end <= item.len(), "DIRITEM-1: an entry lies inside its item");
        Ok((entry, start..end))
    })
}

/// The entry called `name`, and its place.
///
/// Errors: damage.
#[inline]
pub fn find<'a>(item: &'a [u8], name: &[u8]) -> Result<Option<(DirEntryRef<'a>, Range<usize>)>> {
    for entry in entries(item) {
        let (entry, place) = entry?;
        if entry.name == name {
            return Ok(Some((entry, place)));
        }
    }
    Ok(None)
}

/// Returns the item without its entry `name`; `None` if there is no such entry.
///
/// Errors: damage.
#[inline]
pub fn without(item: &[u8], name: &[u8]) -> Result<Option<ItemBytes>> {
    let Some((_, place)) = find(item, name)? else { return Ok(None) };
    let mut rest = ItemBytes::from_slice(&item[..place.start]);
    rest.extend_from_slice(&item[place.end..]);
    Ok(Some(rest))
}

/// Appends an entry to `item`.
///
/// # Panics
/// If the length of `name` or `data` needs more than 16 bits.
#[inline]
pub fn push(item: &mut ItemBytes, head: &Head, name: &[u8], data: &[u8]) {
    let raw = RawDirItem {
        data_len: u16::try_from(data.len()).expect("values are limited by the leaf").into(),
        name_len: u16::try_from(name.len()).expect("names are checked").into(),
        ..head.raw()
    };
    item.reserve(HEADER_LEN + name.len() + data.len());
    item.extend_from_slice(raw.as_bytes());
    item.extend_from_slice(name);
    item.extend_from_slice(data);
}

/// Creates an item with the one entry `name`.
///
/// # Panics
/// If the length of `name` needs more than 16 bits.
#[inline]
pub fn single(head: &Head, name: &[u8]) -> ItemBytes {
    let mut item = ItemBytes::new();
    push(&mut item, head, name, &[]);
    item
}

/// The fields before an entry's name, except lengths.
///
/// ```
/// use creamery_base::{Generation, ObjectId};
/// use creamery_format::dir_item::{Head, find, single};
/// use creamery_format::{FileType, Key, KeyType};
///
/// let location = Key::new(ObjectId::new(257), KeyType::INODE_ITEM, 0);
/// let head = Head { location, transid: Generation::new(9), kind: FileType::File };
/// let item = single(&head, b"name");
/// assert_eq!(find(&item, b"name")?.expect("it is there").0.location, location);
/// # Ok::<(), creamery_base::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Head {
    /// The key of the named object.
    pub location: Key,
    /// The transaction that writes the entry.
    pub transid: Generation,
    /// The type of the named object.
    pub kind: FileType,
}

impl Head {
    /// Creates the head of an extended attribute.
    #[inline]
    pub const fn xattr(transid: Generation) -> Self {
        Self { location: Key::MIN, transid, kind: FileType::Xattr }
    }

    #[inline]
    fn raw(&self) -> RawDirItem {
        RawDirItem {
            location: self.location.into(),
            transid: self.transid.get().into(),
            kind: self.kind.to_disk(),
            ..RawDirItem::default()
        }
    }

    /// Gives the entry `name` of `item` another target; `false` if there is no such entry.
    ///
    /// Errors: damage.
    ///
    /// # Panics
    /// If the length of `name` needs more than 16 bits.
    pub fn redirect(&self, item: &mut [u8], name: &[u8]) -> Result<bool> {
        let Some((entry, place)) = find(item, name)? else { return Ok(false) };
        let raw = RawDirItem {
            data_len: u16::try_from(entry.data.len()).expect("read from 16 bits").into(),
            name_len: u16::try_from(name.len()).expect("read from 16 bits").into(),
            ..self.raw()
        };
        item[place.start..place.start + HEADER_LEN].copy_from_slice(raw.as_bytes());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use creamery_base::ObjectId;

    use super::*;
    use crate::key::KeyType;

    fn head(ino: u64) -> Head {
        let location = Key::new(ObjectId::new(ino), KeyType::INODE_ITEM, 0);
        Head { location, transid: Generation::new(9), kind: FileType::File }
    }

    #[test]
    fn colliding_entries_are_found_and_redirected_one_by_one() {
        let mut item = ItemBytes::new();
        push(&mut item, &head(257), b"first", b"");
        push(&mut item, &head(258), b"second", b"value");
        push(&mut item, &head(259), b"third", b"");
        let (found, place) = find(&item, b"second").expect("valid").expect("there");
        assert_eq!(place, 35..76);
        assert_eq!((found.location.objectid.get(), found.data), (258, &b"value"[..]));
        assert!(head(300).redirect(&mut item, b"third").expect("valid"));
        assert!(!head(300).redirect(&mut item, b"fourth").expect("valid"));
        let inos: Vec<u64> =
            entries(&item).map(|entry| entry.expect("valid").0.location.objectid.get()).collect();
        assert_eq!(inos, [257, 258, 300]);
    }

    #[test]
    fn an_entry_like_the_kernels_has_its_bytes() {
        let mut item = ItemBytes::new();
        push(&mut item, &Head::xattr(Generation::new(9)), b"user.x", b"hello");
        assert_eq!(item.len(), 41);
        assert_eq!(&item[17..30], [9, 0, 0, 0, 0, 0, 0, 0, 5, 0, 6, 0, 8]);
    }

    #[test]
    fn lengths_past_the_end_are_damage_and_end_the_walk() {
        let mut item = ItemBytes::new();
        push(&mut item, &head(257), b"name", b"");
        for cut in 1..item.len() {
            let kinds: Vec<_> =
                entries(&item[..cut]).map(|entry| entry.map(|_| ()).unwrap_err().kind()).collect();
            assert_eq!(kinds, [ErrorKind::Corrupt], "cut to {cut}");
        }
        item[27] = 0xff;
        assert!(find(&item, b"name").is_err());
    }
}
