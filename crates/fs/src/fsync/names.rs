//! Names and attributes.

use creamery_base::{Error, ErrorKind, ObjectId, Result, Wait};
use creamery_format::{InodeExtrefs, InodeRefs, Key, KeyType};
use creamery_txn::{InodeLog, LogBase};

use super::items::{Item, items};
use crate::inode::{Inode, InodeItem};
use crate::keys;
use crate::names::dir_item;

/// Items of names and attributes that one inode may have and still be logged.
const ITEMS_MAX: usize = 128;

/// A name of an inode, and the number of its entry.
#[derive(Clone, PartialEq, Eq)]
struct Link {
    dir: ObjectId,
    name: Vec<u8>,
    index: u64,
}

/// Adds the names of an inode that is newer than the last commit, and its attributes. False when a replay could not give it the
/// names, or when an older inode has others than it had.
pub(super) fn look(inode: &Inode, base: &LogBase, log: &mut InodeLog) -> Result<bool> {
    let ino = inode.id.ino;
    let (first, last) = (
        Key::new(ino, KeyType::INODE_REF, 0),
        Key::new(ino, KeyType::new(KeyType::EXTENT_DATA.get() - 1), u64::MAX),
    );
    let Some(now) = items(inode.tree(), &first, &last, ITEMS_MAX)? else { return Ok(false) };
    let Some(before) = items(base.tree(), &first, &last, ITEMS_MAX)? else { return Ok(false) };
    let (had, has) = (links(&before)?, links(&now)?);
    if has.is_empty() || had.iter().any(|link| !has.contains(link)) {
        return Ok(false);
    }
    // With a new name of an old file Linux makes durable what else is new in that directory.
    if !had.is_empty() && has.len() > had.len() {
        return Ok(false);
    }
    for link in has.iter().filter(|link| !had.contains(link)) {
        if !is_free(base, link)? {
            return Ok(false);
        }
        log.names.push((link.dir, link.name.clone()));
        log.numbers.push((link.dir, link.index));
    }
    for (key, data) in now {
        match key.kind {
            KeyType::INODE_REF | KeyType::INODE_EXTREF => {
                let is_new = links_in(&key, &data)?.iter().any(|link| !had.contains(link));
                if is_new {
                    log.items.push((key, data));
                }
            }
            KeyType::XATTR_ITEM => log.items.push((key, data)),
            _ => return Ok(false), // of a feature that logs know nothing of here
        }
    }
    Ok(true)
}

/// Whether the last commit has the directory of a name, and neither that name in it nor its number.
fn is_free(base: &LogBase, link: &Link) -> Result<bool> {
    let tree = base.tree();
    let dir = tree.get(&keys::inode_item(link.dir), Wait::Yes, InodeItem::decode)?.transpose()?;
    if !dir.is_some_and(|dir| dir.is_dir() && dir.nlink > 0) {
        return Ok(false);
    }
    let key = keys::dir_item(link.dir, &link.name);
    let taken =
        tree.get(&key, Wait::Yes, |data| dir_item::find(data, &link.name).map(|found| found.is_some()))?;
    let number_is_taken = tree.get(&keys::dir_index(link.dir, link.index), Wait::Yes, |_| ())?.is_some();
    Ok(!taken.transpose()?.unwrap_or(false) && !number_is_taken)
}

fn links(items: &[Item]) -> Result<Vec<Link>> {
    let mut all = Vec::new();
    for (key, data) in items {
        all.extend(links_in(key, data)?);
    }
    Ok(all)
}

fn links_in(key: &Key, data: &[u8]) -> Result<Vec<Link>> {
    let damaged = |damage| Error::with_source(ErrorKind::Corrupt, format!("inode reference {key}"), damage);
    match key.kind {
        KeyType::INODE_REF => {
            let dir = ObjectId::new(key.offset);
            let link = |(index, name): (u64, &[u8])| Link { dir, name: name.to_vec(), index };
            InodeRefs::new(data)
                .map(|found| found.map(|found| link((found.index, found.name))).map_err(damaged))
                .collect()
        }
        KeyType::INODE_EXTREF => InodeExtrefs::new(data)
            .map(|found| {
                let link = |found: creamery_format::InodeExtref<'_>| Link {
                    dir: ObjectId::new(found.parent),
                    name: found.name.to_vec(),
                    index: found.index,
                };
                found.map(link).map_err(damaged)
            })
            .collect(),
        _ => Ok(Vec::new()),
    }
}
