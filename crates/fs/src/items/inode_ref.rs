//! From an inode to its names: INODE_REF and INODE_EXTREF items.
//!
//! An INODE_REF item holds all names that an inode has in one directory, packed one after the other. A name that does not fit in
//! a leaf any more goes into an INODE_EXTREF item, whose key is a hash of directory and name; names whose hashes collide share
//! one. Each name has its DIR_INDEX number with it.
//!
//! # Invariants
//! - INODEREF-1: a name of an inode is in exactly one of the two. Shown by `names_are_found_in_packed_references`.
//! - INODEREF-2: every returned slice lies inside the item; a length that does not fit is reported as damage.
//!   Shown by `a_reference_that_is_cut_short_is_damage`.

use creamery_base::{Error, ErrorKind, InodeId, ObjectId, Result, Wait};
use creamery_format::dir_item::ItemBytes;
use creamery_format::{
    CorruptKind, InodeExtref, InodeExtrefs, InodeRefs, Key, KeyType, RawInodeExtref, RawInodeRef,
};
use creamery_tree::Tree;
use creamery_txn::Handle;
use zerocopy::IntoBytes;

use super::Name;
use crate::keys;

/// One name of an inode, as a lookup found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FoundLink {
    /// The number of its DIR_INDEX.
    pub(crate) index: u64,
    place: RefItemKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RefItemKind {
    Ref,
    Extref,
}

/// The position of a name inside an item.
struct Spot {
    index: u64,
    start: usize,
    end: usize,
}

fn damaged(damage: CorruptKind) -> Error {
    Error::with_source(ErrorKind::Corrupt, "inode reference", damage)
}

/// Finds (`parent`, `name`) in an item. An INODE_REF item has its parent in the key.
fn find_in(item: &[u8], place: RefItemKind, parent: ObjectId, name: &[u8]) -> Result<Option<Spot>> {
    let mut start = 0;
    match place {
        RefItemKind::Ref => {
            for found in InodeRefs::new(item) {
                let found = found.map_err(damaged)?;
                let end = start + RawInodeRef::LEN + found.name.len();
                assert!(end <= item.len(), "INODEREF-2: a name lies inside its item");
                if found.name == name {
                    return Ok(Some(Spot { index: found.index, start, end }));
                }
                start = end;
            }
        }
        RefItemKind::Extref => {
            for found in InodeExtrefs::new(item) {
                let found = found.map_err(damaged)?;
                let end = start + RawInodeExtref::LEN + found.name.len();
                assert!(end <= item.len(), "INODEREF-2: a name lies inside its item");
                if found.parent == parent.get() && found.name == name {
                    return Ok(Some(Spot { index: found.index, start, end }));
                }
                start = end;
            }
        }
    }
    Ok(None)
}

fn key(place: RefItemKind, ino: ObjectId, parent: ObjectId, name: &[u8]) -> Key {
    match place {
        RefItemKind::Ref => keys::inode_ref(ino, parent),
        RefItemKind::Extref => keys::inode_extref(ino, parent, name),
    }
}

/// Finds the name `name` of `ino` in `parent`.
pub(crate) fn find(
    tree: &Tree,
    ino: ObjectId,
    parent: ObjectId,
    name: Name<'_>,
) -> Result<Option<FoundLink>> {
    for place in [RefItemKind::Ref, RefItemKind::Extref] {
        let spot = tree.get(&key(place, ino, parent, name.bytes()), Wait::Yes, |item| {
            find_in(item, place, parent, name.bytes())
        })?;
        if let Some(spot) = spot.transpose()?.flatten() {
            return Ok(Some(FoundLink { index: spot.index, place }));
        }
    }
    Ok(None)
}

/// Finds the name of a directory entry, as [`find`] does. A missing name is damage.
pub(crate) fn find_entry(tree: &Tree, id: InodeId, parent: ObjectId, name: Name<'_>) -> Result<FoundLink> {
    find(tree, id.ino, parent, name)?.ok_or_else(|| {
        let text = format!("inode {id}: a name lacks its reference to directory {parent}");
        Error::new(ErrorKind::Corrupt, text)
    })
}

/// The bytes of an INODE_REF item with one name.
pub(crate) fn single(index: u64, name: Name<'_>) -> ItemBytes {
    let raw = RawInodeRef { index: index.into(), name_len: name.len_u16().into() };
    let mut item = ItemBytes::from_slice(raw.as_bytes());
    item.extend_from_slice(name.bytes());
    item
}

fn single_extref(parent: ObjectId, index: u64, name: Name<'_>) -> ItemBytes {
    let raw =
        RawInodeExtref { parent: parent.get().into(), index: index.into(), name_len: name.len_u16().into() };
    let mut item = ItemBytes::from_slice(raw.as_bytes());
    item.extend_from_slice(name.bytes());
    item
}

/// Whether names may go into INODE_EXTREF items (the filesystem's feature).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Extrefs {
    Yes,
    No,
}

/// Refuses a name for which [`add`] and [`respell`] would have no room.
pub(crate) fn check_room(tree: &Tree, ino: ObjectId, new: Spelling<'_>, extrefs: Extrefs) -> Result<()> {
    let name_len = new.name.bytes().len();
    if fits(tree, &keys::inode_ref(ino, new.dir), RawInodeRef::LEN + name_len)? {
        return Ok(());
    }
    let key = keys::inode_extref(ino, new.dir, new.name.bytes());
    if extrefs == Extrefs::Yes && fits(tree, &key, RawInodeExtref::LEN + name_len)? {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TooManyLinks, "adding a name to an inode"))
}

/// Whether an item has room for `more` bytes.
fn fits(tree: &Tree, key: &Key, more: usize) -> Result<bool> {
    let len = tree.get(key, Wait::Yes, |item| item.len())?;
    Ok(len.unwrap_or(0) + more <= tree.max_item_size())
}

/// Adds a name. An error leaves everything unchanged.
pub(crate) fn add(
    handle: &Handle<'_>,
    tree: &Tree,
    ino: ObjectId,
    parent: ObjectId,
    (index, name): (u64, Name<'_>),
    extrefs: Extrefs,
) -> Result<()> {
    let refused = match put(handle, tree, &keys::inode_ref(ino, parent), &single(index, name)) {
        Err(error) if error.kind() == ErrorKind::Range => error,
        other => return other,
    };
    if extrefs == Extrefs::No {
        return Err(Error::with_source(ErrorKind::TooManyLinks, "adding a name to an inode", refused));
    }
    let key = keys::inode_extref(ino, parent, name.bytes());
    match put(handle, tree, &key, &single_extref(parent, index, name)) {
        Err(error) if error.kind() == ErrorKind::Range => {
            Err(Error::with_source(ErrorKind::TooManyLinks, "adding a name to an inode", error))
        }
        other => other,
    }
}

fn put(handle: &Handle<'_>, tree: &Tree, key: &Key, bytes: &[u8]) -> Result<()> {
    match tree.insert(handle, key, bytes) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        other => return other,
    }
    if tree.extend(handle, key, bytes)? {
        Ok(())
    } else {
        Err(Error::new(ErrorKind::Corrupt, format!("{key} vanished")))
    }
}

/// The bytes of the item without the name.
fn cut(tree: &Tree, key: &Key, place: RefItemKind, parent: ObjectId, name: Name<'_>) -> Result<ItemBytes> {
    let rest = tree.get(key, Wait::Yes, |item| -> Result<Option<ItemBytes>> {
        let Some(spot) = find_in(item, place, parent, name.bytes())? else { return Ok(None) };
        let mut rest = ItemBytes::from_slice(&item[..spot.start]);
        rest.extend_from_slice(&item[spot.end..]);
        Ok(Some(rest))
    })?;
    rest.transpose()?
        .flatten()
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{key}: a name vanished")))
}

/// Removes a name that [`find`] found.
pub(crate) fn remove(
    handle: &Handle<'_>,
    tree: &Tree,
    ino: ObjectId,
    parent: ObjectId,
    name: Name<'_>,
    link: FoundLink,
) -> Result<()> {
    let key = key(link.place, ino, parent, name.bytes());
    let rest = cut(tree, &key, link.place, parent, name)?;
    if rest.is_empty() { tree.remove(handle, &key).map(|_| ()) } else { tree.upsert(handle, &key, &rest) }
}

/// A name in an inode's reference: the directory, and the name in it.
#[derive(Clone, Copy)]
pub(crate) struct Spelling<'a> {
    pub(crate) dir: ObjectId,
    pub(crate) name: Name<'a>,
}

/// The rest of the work after [`respell`].
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Respelled {
    /// Nothing is left.
    Whole,
    /// The old spelling is still there.
    OldRemains,
}

/// Gives a name that [`find`] found another spelling and number. An error leaves everything unchanged. [`Respelled::finish`] does
/// the rest. As on Linux there must be room for the new spelling beside the old one, although the two may share an item that
/// never holds both.
pub(crate) fn respell(
    handle: &Handle<'_>,
    tree: &Tree,
    ino: ObjectId,
    (old, link): (Spelling<'_>, FoundLink),
    (new, index): (Spelling<'_>, u64),
    extrefs: Extrefs,
) -> Result<Respelled> {
    if link.place == RefItemKind::Ref && old.dir == new.dir {
        let key = keys::inode_ref(ino, old.dir);
        let more = single(index, new.name);
        if fits(tree, &key, more.len())? {
            let mut item = cut(tree, &key, RefItemKind::Ref, old.dir, old.name)?;
            item.extend_from_slice(&more);
            tree.upsert(handle, &key, &item)?;
            return Ok(Respelled::Whole);
        }
    }
    add(handle, tree, ino, new.dir, (index, new.name), extrefs)?;
    Ok(Respelled::OldRemains)
}

impl Respelled {
    /// Removes the old spelling if it is still there.
    pub(crate) fn finish(
        self,
        handle: &Handle<'_>,
        tree: &Tree,
        ino: ObjectId,
        old: Spelling<'_>,
        link: FoundLink,
    ) -> Result<()> {
        match self {
            Self::Whole => Ok(()),
            Self::OldRemains => remove(handle, tree, ino, old.dir, old.name, link),
        }
    }
}

/// Whether the first name of `ino` is `name` in `parent`. Directories have one.
pub(crate) fn is_first(
    tree: &Tree,
    ino: ObjectId,
    parent: ObjectId,
    name: &[u8],
    wait: Wait,
) -> Result<bool> {
    let cursor = tree.cursor(&Key::new(ino, KeyType::INODE_REF, 0), wait)?;
    match cursor.item() {
        Some((key, item)) if key == keys::inode_ref(ino, parent) => {
            let first = InodeRefs::new(item).next().transpose().map_err(damaged)?;
            Ok(first.is_some_and(|first| first.name == name))
        }
        _ => Ok(false),
    }
}

/// The directory of an inode's first name.
pub(crate) fn first_parent(tree: &Tree, id: InodeId, wait: Wait) -> Result<ObjectId> {
    let cursor = tree.cursor(&Key::new(id.ino, KeyType::INODE_REF, 0), wait)?;
    match cursor.item() {
        Some((key, _)) if key.objectid == id.ino && key.kind == KeyType::INODE_REF => {
            Ok(ObjectId::new(key.offset))
        }
        Some((key, item)) if key.objectid == id.ino && key.kind == KeyType::INODE_EXTREF => {
            let first = InodeExtrefs::new(item).next();
            let first = first.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("{key} is empty")))?;
            Ok(ObjectId::new(first.map_err(damaged)?.parent))
        }
        _ => Err(Error::new(ErrorKind::NotFound, format!("looking for a name of inode {id}"))),
    }
}

/// All names of an inode, with their directories.
pub(crate) fn names(tree: &Tree, ino: ObjectId, wait: Wait) -> Result<Vec<(ObjectId, Vec<u8>)>> {
    let mut cursor = tree.cursor(&Key::new(ino, KeyType::INODE_REF, 0), wait)?;
    let mut names = Vec::new();
    while let Some((key, item)) = cursor.item().filter(|(key, _)| key.objectid == ino) {
        match key.kind {
            KeyType::INODE_REF => {
                for found in InodeRefs::new(item) {
                    names.push((ObjectId::new(key.offset), found.map_err(damaged)?.name.to_vec()));
                }
            }
            KeyType::INODE_EXTREF => {
                for found in InodeExtrefs::new(item) {
                    let found = found.map_err(damaged)?;
                    names.push((ObjectId::new(found.parent), found.name.to_vec()));
                }
            }
            _ => break,
        }
        cursor.advance()?;
    }
    Ok(names)
}

/// An inode's first name, and its directory.
pub(crate) fn first_name(tree: &Tree, id: InodeId, wait: Wait) -> Result<(ObjectId, Vec<u8>)> {
    let cursor = tree.cursor(&Key::new(id.ino, KeyType::INODE_REF, 0), wait)?;
    let empty = |key: Key| Error::new(ErrorKind::Corrupt, format!("{key} is empty"));
    match cursor.item() {
        Some((key, item)) if key.objectid == id.ino && key.kind == KeyType::INODE_REF => {
            let first = InodeRefs::new(item).next().ok_or_else(|| empty(key))?.map_err(damaged)?;
            Ok((ObjectId::new(key.offset), first.name.to_vec()))
        }
        Some((key, item)) if key.objectid == id.ino && key.kind == KeyType::INODE_EXTREF => {
            let first = InodeExtrefs::new(item).next().ok_or_else(|| empty(key))?.map_err(damaged)?;
            Ok((ObjectId::new(first.parent), first.name.to_vec()))
        }
        _ => Err(Error::new(ErrorKind::NotFound, format!("looking for a name of inode {id}"))),
    }
}

/// The names in an inode's reference, in either kind of item: directory, number, name. Empty for an item of another kind.
/// Errors: damage.
pub(crate) fn names_in<'a>(key: &Key, data: &'a [u8]) -> Result<Vec<(ObjectId, u64, &'a [u8])>> {
    let damaged = |damage| Error::with_source(ErrorKind::Corrupt, format!("inode reference {key}"), damage);
    if key.kind == KeyType::INODE_REF {
        let dir = ObjectId::new(key.offset);
        return InodeRefs::new(data)
            .map(|found| found.map(|found| (dir, found.index, found.name)).map_err(damaged))
            .collect();
    }
    if key.kind != KeyType::INODE_EXTREF {
        return Ok(Vec::new());
    }
    let name = |found: InodeExtref<'a>| (ObjectId::new(found.parent), found.index, found.name);
    InodeExtrefs::new(data).map(|found| found.map(name).map_err(damaged)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Name<'_> {
        Name::new(bytes).expect("a valid name")
    }

    #[test]
    fn names_of_a_damaged_reference_are_damage() {
        let (ino, parent) = (ObjectId::new(300), ObjectId::new(256));
        let mut item = single(2, name(b"a"));
        item.extend_from_slice(&single(7, name(b"abc")));
        let key = keys::inode_ref(ino, parent);
        assert_eq!(names_in(&key, &item).expect("valid"), [(parent, 2, &b"a"[..]), (parent, 7, b"abc")]);
        let cut = &item[..item.len() - 1];
        assert_eq!(names_in(&key, cut).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
        let extref = keys::inode_extref(ino, parent, b"a");
        assert_eq!(names_in(&extref, cut).map_err(|error| error.kind()), Err(ErrorKind::Corrupt));
        assert_eq!(names_in(&keys::inode_item(ino), cut).expect("no names"), []);
    }

    #[test]
    fn names_are_found_in_packed_references() {
        let parent = ObjectId::new(256);
        let mut item = single(2, name(b"a"));
        item.extend_from_slice(&single(7, name(b"abc")));
        let spot = find_in(&item, RefItemKind::Ref, parent, b"abc").expect("valid").expect("there");
        assert_eq!((spot.index, spot.start, spot.end), (7, 11, 24));
        assert!(find_in(&item, RefItemKind::Ref, parent, b"ab").expect("valid").is_none());
        let mut item = single_extref(ObjectId::new(300), 4, name(b"x"));
        item.extend_from_slice(&single_extref(parent, 5, name(b"x")));
        assert_eq!(
            find_in(&item, RefItemKind::Extref, parent, b"x").expect("valid").map(|spot| spot.index),
            Some(5)
        );
    }

    #[test]
    fn a_reference_that_is_cut_short_is_damage() {
        let parent = ObjectId::new(256);
        for (place, item) in [
            (RefItemKind::Ref, single(2, name(b"abcd"))),
            (RefItemKind::Extref, single_extref(parent, 2, name(b"abcd"))),
        ] {
            for cut in 1..item.len() {
                assert!(find_in(&item[..cut], place, parent, b"abcd").is_err(), "{place:?} cut to {cut}");
            }
        }
    }
}
