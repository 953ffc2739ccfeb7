//! Names and attributes.

use creamery_base::{ObjectId, Result};
use creamery_format::{Key, KeyType};
use creamery_tree::Tree;
use creamery_txn::{InodeLog, LogBase, LogLink};

use super::items::{LogItem, items};
use crate::inode::Inode;
use crate::items::inode_ref;

/// Upper bound of the items of names and attributes that a logged inode may have.
const ITEMS_MAX: usize = 128;

/// The changes of an inode's names since the last commit.
pub(super) struct Became {
    /// Whether the inode had names at the last commit.
    pub(super) is_old: bool,
    /// Gained names.
    pub(super) gained: Vec<LogLink>,
    /// Lost names.
    pub(super) lost: Vec<LogLink>,
    /// Where the log has names of the inode: logged names that it has no more, and names that the log lacks.
    pub(super) unlike_log: Vec<LogLink>,
}

/// Adds the names of an inode and its attributes. It adds names that the last commit lacks, or all where the log has `logged` others.
/// Returns `None` when there are too many, or no names.
pub(super) fn look(
    inode: &Inode,
    base: &LogBase,
    logged: &[LogLink],
    log: &mut InodeLog,
) -> Result<Option<Became>> {
    let Some(now) = items_of(inode.tree(), inode.id.ino)? else { return Ok(None) };
    let Some(before) = items_of(base.tree(), inode.id.ino)? else { return Ok(None) };
    let (had, has) = (links(&before)?, links(&now)?);
    if has.is_empty() {
        return Ok(None);
    }
    let missing = |from: &[LogLink], others: &[LogLink]| -> Vec<LogLink> {
        from.iter().filter(|link| !others.contains(link)).cloned().collect()
    };
    let mut unlike_log = Vec::new();
    if !logged.is_empty() {
        unlike_log = [missing(logged, &has), missing(&has, logged)].concat();
    }
    for (key, data) in now {
        match key.kind {
            KeyType::INODE_REF | KeyType::INODE_EXTREF => {
                let was = before.binary_search_by(|(other, _)| other.cmp(&key)).map(|at| &before[at].1);
                if was != Ok(&data) || !unlike_log.is_empty() {
                    log.items.push((key, data));
                }
            }
            KeyType::XATTR_ITEM => log.items.push((key, data)),
            _ => return Ok(None), // items of a feature that logs do not cover here
        }
    }
    let (is_old, gained, lost) = (!had.is_empty(), missing(&has, &had), missing(&had, &has));
    // The root directory is its own parent, under the name of two dots: no other inode can take that name.
    log.links = if inode.id.ino == ObjectId::FIRST_FREE { Vec::new() } else { has };
    Ok(Some(Became { is_old, gained, lost, unlike_log }))
}

/// The names that an inode has in a tree. `None` when there are too many.
pub(super) fn names_in(tree: &Tree, ino: ObjectId) -> Result<Option<Vec<LogLink>>> {
    items_of(tree, ino)?.map(|items| links(&items)).transpose()
}

/// Items of names and attributes.
fn items_of(tree: &Tree, ino: ObjectId) -> Result<Option<Vec<LogItem>>> {
    let (first, last) = (
        Key::new(ino, KeyType::INODE_REF, 0),
        Key::new(ino, KeyType::new(KeyType::DIR_LOG_ITEM.get() - 1), u64::MAX),
    );
    items(tree, &first, &last, ITEMS_MAX)
}

fn links(items: &[LogItem]) -> Result<Vec<LogLink>> {
    let mut all = Vec::new();
    for (key, data) in items {
        all.extend(links_in(key, data)?);
    }
    Ok(all)
}

fn links_in(key: &Key, data: &[u8]) -> Result<Vec<LogLink>> {
    let link = |(dir, index, name): (ObjectId, u64, &[u8])| LogLink { dir, index, name: name.to_vec() };
    Ok(inode_ref::names_in(key, data)?.into_iter().map(link).collect())
}
