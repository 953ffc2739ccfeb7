//! States that filesystems pass through, and damage to them: inodes that are being deleted, and logs.

use anyhow::{Context, Result};
use creamery_base::TreeId;
use creamery_check::Problem::*;
use creamery_format::{BlockMut, Key, KeyType, RawKey};
use zerocopy::IntoBytes;

use super::Change::{Image as Any, Item as One};
use super::edits::{add, any, is_directory, is_file, remove, set};
use super::{DamageRow, row};
use crate::image::{Image, Item};

const FS: TreeId = TreeId::FS;

pub(super) const ROWS: &[DamageRow] = &[
    row("nothing but a log", Any(|_| Ok(())), &[LogWaiting], false),
    row(
        "file that is being deleted and has fewer extents by now",
        One(FS, KeyType::INODE_ITEM, |it| is_file(it) && unlinked(it), |b, s| add(b, s, 24, 4096)),
        &[LogWaiting],
        false,
    ),
    row("directory that is being deleted and has an entry left", Any(entry_of_deleted), &[LogWaiting], false),
    row(
        "log without checksums",
        One(TreeId::TREE_LOG, KeyType::EXTENT_CSUM, any, remove),
        &[ChecksumLog, LogWaiting],
        true,
    ),
    row(
        "log of an inode that is not yet",
        One(TreeId::TREE_LOG, KeyType::INODE_ITEM, any, |b, s| set(b, s, 8, &[255; 6])),
        &[LogRefused, LogWaiting],
        false,
    ),
    row(
        "log of data of an unknown encoding",
        One(TreeId::TREE_LOG, KeyType::EXTENT_DATA, any, |b, s| set(b, s, 18, &[1])),
        &[LogRefused, LogWaiting],
        false,
    ),
    row("log whose checksums are in the checksum tree already", Any(move_checksums), &[LogWaiting], false),
    row("such a log, given up", Any(give_up_moved), &[ChecksumStale], false),
];

fn unlinked(item: &Item) -> bool {
    item.data[40..44] == [0; 4]
}

/// Inserts an item at the place of its key.
fn insert(image: &Image, tree: TreeId, key: Key, data: &[u8]) -> Result<()> {
    let before =
        image.items(tree)?.into_iter().rfind(|item| item.key < key).context("it would be the first")?;
    image.change(before.block, |bytes| {
        let mut block = BlockMut::new(bytes);
        block.insert_items(before.slot + 1, &[(key, data.len())]);
        block.data_mut(before.slot + 1).copy_from_slice(data);
    })
}

/// An entry for a file without links, as in a directory whose items are being deleted one after the other.
fn entry_of_deleted(image: &Image) -> Result<()> {
    let mut inodes = image.items(FS)?;
    inodes.retain(|it| it.key.kind == KeyType::INODE_ITEM && unlinked(it));
    let directory = inodes.iter().find(|it| is_directory(it)).context("no directory without links")?;
    let file = inodes.iter().find(|it| is_file(it)).context("no file without links")?;
    let name = b"left";
    let mut entry = RawKey::from(file.key).as_bytes().to_vec();
    entry.extend_from_slice(&image.volume.generation().get().to_le_bytes());
    entry.extend_from_slice(&[0, 0, name.len() as u8, 0, 1]);
    entry.extend_from_slice(name);
    insert(image, FS, Key::new(directory.key.objectid, KeyType::DIR_INDEX, 2), &entry)
}

/// The data named by the log has no extent item, but its checksums are left.
fn give_up_moved(image: &Image) -> Result<()> {
    move_checksums(image)?;
    image.change_superblocks(|raw| (raw.log_root, raw.log_root_level) = (0.into(), 0))
}

/// Moves checksums from the log to the checksum tree.
fn move_checksums(image: &Image) -> Result<()> {
    let items = image.items(TreeId::TREE_LOG)?;
    let sums = items.into_iter().find(|it| it.key.kind == KeyType::EXTENT_CSUM).context("no checksums")?;
    image.change(sums.block, |bytes| remove(bytes, sums.slot))?;
    insert(image, TreeId::CSUM, sums.key, &sums.data)
}
