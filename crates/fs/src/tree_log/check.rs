//! A check of all of a log before anything is changed (REPLAY-3). Each item by itself was checked when its block was read, by the rules for
//! leaves that are written: it is copied into one. This module checks for the other damage that `creamery check` reports.

use creamery_base::{Error, ErrorKind, ObjectId, Result};
use creamery_format::file_extent::FileExtentItem;
use creamery_format::{
    FILE_EXTENT_INLINE, InodeExtrefs, InodeRefs, Key, KeyType, RawFileExtent, RawFileExtentHead, dir_item,
};
use creamery_txn::{Engine, LogTree, Replay};
use zerocopy::FromBytes;

use super::items::each_item;
use crate::inode::{FileType, InodeItem};
use crate::items::Name;

/// An inode that is in a log and has a name.
pub(super) struct LoggedInode {
    pub(super) ino: ObjectId,
    pub(super) item: InodeItem,
}

/// The inodes of a log. The extents that they name are withheld.
/// Errors: device errors; damage: an item that does not belong into a log, or has an impossible value.
pub(super) fn check(engine: &Engine, log: &LogTree, replay: &mut Replay<'_>) -> Result<Vec<LoggedInode>> {
    let (mut inodes, mut passed_over) = (Vec::<LoggedInode>::new(), None);
    let of = |error: Error, key: &Key| {
        error.context(format!("the log of subvolume {}, item {key}", log.subvolume()))
    };
    let sector = u64::from(engine.sector_size());
    each_item(log.tree(), Key::MIN, Key::MAX, &mut |key, data| {
        if key.kind == KeyType::INODE_ITEM && is_of_an_inode(key) {
            let item = InodeItem::decode(data).map_err(|error| of(error, key))?;
            match item.nlink {
                0 => passed_over = Some(key.objectid),
                _ => inodes.push(LoggedInode { ino: key.objectid, item }),
            }
            return Ok(());
        }
        let inode = inodes.last().filter(|inode| inode.ino == key.objectid);
        let belongs = match key.kind {
            KeyType::EXTENT_CSUM => key.objectid == ObjectId::EXTENT_CSUM,
            _ => is_of_an_inode(key) && (inode.is_some() || passed_over == Some(key.objectid)),
        };
        if !belongs {
            return Err(of(Error::new(ErrorKind::Corrupt, "its inode is missing in the log"), key));
        }
        match inode {
            Some(inode) => check_item(inode, key, data, sector, replay).map_err(|error| of(error, key)),
            None => Ok(()),
        }
    })?;
    Ok(inodes)
}

fn is_of_an_inode(key: &Key) -> bool {
    (ObjectId::FIRST_FREE..=ObjectId::LAST_FREE).contains(&key.objectid)
}

fn check_item(
    inode: &LoggedInode,
    key: &Key,
    data: &[u8],
    sector: u64,
    replay: &mut Replay<'_>,
) -> Result<()> {
    let kind = inode.item.kind();
    match key.kind {
        // The root directory is its own parent, under the name of two dots.
        KeyType::INODE_REF if inode.ino == ObjectId::FIRST_FREE => Ok(()),
        KeyType::INODE_REF => {
            InodeRefs::new(data).try_for_each(|found| check_name(found.map(|found| found.name)))
        }
        KeyType::INODE_EXTREF => {
            InodeExtrefs::new(data).try_for_each(|found| check_name(found.map(|found| found.name)))
        }
        KeyType::DIR_INDEX if kind == FileType::Directory => {
            let mut entries = dir_item::entries(data);
            let first = entries.next().transpose()?;
            let (Some((entry, _)), None) = (first, entries.next()) else {
                return Err(Error::new(ErrorKind::Corrupt, "expected one directory entry"));
            };
            Name::new(entry.name)
                .map(drop)
                .map_err(|error| Error::with_source(ErrorKind::Corrupt, "its name", error))
        }
        KeyType::EXTENT_DATA if matches!(kind, FileType::File | FileType::Symlink) => {
            check_extent(data)?;
            match FileExtentItem::check(key, data, sector)? {
                FileExtentItem::Regular(extent) | FileExtentItem::Prealloc(extent) => {
                    replay.withhold_extent(extent.disk_bytenr, extent.disk_num_bytes)
                }
                FileExtentItem::Inline { .. } | FileExtentItem::Hole { .. } => Ok(()),
            }
        }
        KeyType::DIR_ITEM | KeyType::DIR_LOG_ITEM | KeyType::DIR_LOG_INDEX if kind == FileType::Directory => {
            Ok(())
        }
        KeyType::VERITY_DESC_ITEM | KeyType::VERITY_MERKLE_ITEM if kind == FileType::File => Ok(()),
        KeyType::XATTR_ITEM => dir_item::entries(data).try_for_each(|entry| entry.map(drop)),
        _ => Err(Error::new(ErrorKind::Corrupt, format!("unexpected for a {kind:?} in a log"))),
    }
}

/// Checks the rules of `creamery check` for data in a file: a transaction made it, its encoding is known, and the file shows no
/// more than it holds.
fn check_extent(data: &[u8]) -> Result<()> {
    let damaged = |what: String| Err(Error::new(ErrorKind::Corrupt, what));
    let Ok((head, _)) = RawFileExtentHead::ref_from_prefix(data) else { return Ok(()) };
    let regular = RawFileExtent::ref_from_bytes(data).ok().filter(|_| head.kind != FILE_EXTENT_INLINE);
    if regular.is_some_and(RawFileExtent::is_hole) {
        return Ok(());
    }
    if head.generation.get() == 0 {
        return damaged("generation of a file extent, expected at least 1, found 0".to_owned());
    }
    if head.other_encoding.get() != 0 {
        return damaged(format!(
            "other encoding of a file extent, expected 0, found {}",
            head.other_encoding
        ));
    }
    let Some(extent) = regular else { return Ok(()) };
    let (end, held) = (extent.offset.get().saturating_add(extent.num_bytes.get()), extent.ram_bytes.get());
    if end > held {
        return damaged(format!("end of a file extent in memory, expected [0, {held}], found {end}"));
    }
    Ok(())
}

fn check_name<E: std::error::Error + Send + Sync + 'static>(
    name: std::result::Result<&[u8], E>,
) -> Result<()> {
    let name = name.map_err(|damage| Error::with_source(ErrorKind::Corrupt, "inode reference", damage))?;
    Name::new(name).map(drop).map_err(|error| Error::with_source(ErrorKind::Corrupt, "a name", error))
}
