//! Entries of directories: the entries that differ from the last commit, by their numbers.
//!
//! A log says for a number that the directory has this entry, or none.

use std::collections::BTreeMap;

use creamery_base::{ObjectId, Result, Wait};
use creamery_format::{Key, RawDirLogItem};
use creamery_txn::{InodeLog, LogBase};
use zerocopy::IntoBytes;

use super::items::{LogItem, items};
use crate::directory::EntryTarget;
use crate::inode::{DirectoryInode, Inode};
use crate::keys;

/// Upper bound of the entries that are compared. With more a commit costs less than comparing all of them each time.
const COMPARED_MAX: usize = 4096;
/// Upper bound of the entries that are put.
const PUT_MAX: usize = 256;

/// The inodes of the entries that differ.
#[derive(Default)]
pub(super) struct Differing {
    /// Inodes that have gained a name, and may be new.
    pub(super) gained: Vec<ObjectId>,
    /// Inodes that have lost a name.
    pub(super) lost: Vec<ObjectId>,
}

/// Adds the entries that differ. `None` when they are too many, or are of subvolumes: making or deleting a subvolume commits.
pub(super) fn look(
    dir: &DirectoryInode<'_>,
    base: &LogBase,
    log: &mut InodeLog,
) -> Result<Option<Differing>> {
    let Some(now) = entries_now(dir)? else { return Ok(None) };
    let Some(before) = entries_before(dir, base)? else { return Ok(None) };
    let (mut differing, mut said, mut ranges) = (Differing::default(), Vec::new(), Vec::new());
    for (number, item) in &now {
        if before.get(number) == Some(item) {
            continue;
        }
        let Some(ino) = inode_of(dir, item)? else { return Ok(None) };
        differing.gained.push(ino);
        said.push((keys::dir_index(dir.id.ino, *number), item.clone()));
        ranges.push(nothing_but_said(dir.id.ino, *number));
    }
    for (number, item) in &before {
        if now.get(number) == Some(item) {
            continue;
        }
        let Some(ino) = inode_of(dir, item)? else { return Ok(None) };
        differing.lost.push(ino);
        if !now.contains_key(number) {
            ranges.push(nothing_but_said(dir.id.ino, *number));
        }
    }
    // Neither the last commit nor the directory knows of an entry that came and went, but the log may.
    for (number, ino) in dir.engine().logs().entries_of(base, dir.id.ino) {
        let stands_for = now.get(&number).map(|item| inode_of(dir, item)).transpose()?;
        if stands_for != Some(Some(ino)) {
            differing.lost.push(ino);
            if stands_for.is_none() && !before.contains_key(&number) {
                ranges.push(nothing_but_said(dir.id.ino, number));
            }
        }
    }
    if ranges.len() > PUT_MAX {
        return Ok(None);
    }
    ranges.sort_by_key(|(key, _)| *key);
    log.items.extend(ranges);
    log.items.extend(said);
    Ok(Some(differing))
}

/// The item with which the log covers a number.
fn nothing_but_said(dir: ObjectId, number: u64) -> LogItem {
    let item = RawDirLogItem { end: number.into() };
    (keys::dir_log_index(dir, number), item.as_bytes().to_vec())
}

/// Whether the last commit has an entry in a directory.
pub(super) fn had_any(dir: ObjectId, base: &LogBase) -> Result<bool> {
    let (first, last) = all_of(dir);
    Ok(items(base.tree(), &first, &last, 0)?.is_none())
}

type Entries = BTreeMap<u64, Vec<u8>>;

/// The entries of a directory that no thread changes; `None` when they are too many.
fn entries_now(dir: &DirectoryInode<'_>) -> Result<Option<Entries>> {
    // Delayed entries may get into the tree meanwhile.
    let delayed = dir.delayed_entries(0, Wait::Yes)?;
    let (first, last) = all_of(dir.id.ino);
    let Some(found) = items(dir.tree(), &first, &last, COMPARED_MAX)? else { return Ok(None) };
    let mut entries: Entries = found.into_iter().map(|(key, data)| (key.offset, data)).collect();
    entries.extend(delayed.into_iter().map(|entry| (entry.index, entry.item.to_vec())));
    Ok(Some(entries))
}

fn entries_before(dir: &Inode, base: &LogBase) -> Result<Option<Entries>> {
    let (first, last) = all_of(dir.id.ino);
    let found = items(base.tree(), &first, &last, COMPARED_MAX)?;
    Ok(found.map(|found| found.into_iter().map(|(key, data)| (key.offset, data)).collect()))
}

const fn all_of(dir: ObjectId) -> (Key, Key) {
    (keys::dir_index(dir, 0), keys::dir_index(dir, u64::MAX))
}

/// The inode of an entry; `None` if it is a subvolume's.
fn inode_of(dir: &Inode, item: &[u8]) -> Result<Option<ObjectId>> {
    match EntryTarget::of_entry(item, dir.id)? {
        EntryTarget::Inode(ino) => Ok(Some(ino)),
        EntryTarget::Subvolume(_) => Ok(None),
    }
}
