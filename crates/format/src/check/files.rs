//! Items of subvolumes: inodes, names, attributes, ranges of files.

use creamery_base::{ObjectId, TreeId};
use zerocopy::FromBytes;

use super::{aligned, size};
use crate::corrupt::CorruptKind;
use crate::items::dir::{DirEntries, DirEntryRef, FileType};
use crate::items::file_extent::{Compression, FileExtent, RawFileExtent, RawFileExtentHead};
use crate::items::inode::{InodeExtrefs, InodeRefs, NAME_LEN_MAX, RawInodeItem};
use crate::key::{Key, KeyType};
use crate::name_bytes::position_of_any;

/// The known flags in the lower half of an inode's flags.
const FLAGS_KNOWN: u64 = 0x8000_0fff;
/// Type and permission bits, all of them.
const MODE_MAX: u32 = 0o177_777;

pub(super) fn inode(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    if key.offset != 0 {
        return Err(CorruptKind::Mismatch {
            what: "offset in the key of an inode",
            found: key.offset,
            want: 0,
        });
    }
    let Ok(inode) = RawInodeItem::ref_from_bytes(data) else {
        return Err(CorruptKind::ItemSize {
            kind: KeyType::INODE_ITEM,
            found: data.len(),
            want: RawInodeItem::LEN,
        });
    };
    // Readers ignore unknown flags in the upper half, and only there.
    let unknown = inode.flags.get() & u64::from(u32::MAX) & !FLAGS_KNOWN;
    if unknown != 0 {
        return Err(CorruptKind::Unknown { what: "flags of an inode", found: unknown });
    }
    let mode = inode.mode.get();
    if mode > MODE_MAX {
        return Err(CorruptKind::Unknown { what: "bits of mode", found: mode.into() });
    }
    match FileType::from_mode(mode) {
        Some(FileType::Directory) if inode.nlink.get() > 1 => {
            let found = inode.nlink.get().into();
            Err(CorruptKind::Range { what: "links of a directory", found, min: 0, max: 1 })
        }
        Some(_) => Ok(()),
        None => Err(CorruptKind::Unknown { what: "file type in mode", found: mode.into() }),
    }
}

/// Checks the name of a directory entry: one component of a path. A program that joins it to a folder's path, or passes it to a
/// system call relative to the folder, stays in that folder.
pub(super) fn name(name: &[u8]) -> Result<(), CorruptKind> {
    name_without(name, [0, b'/'])?;
    match name {
        b"." | b".." => Err(stands_for_directory(name)),
        _ => Ok(()),
    }
}

const fn stands_for_directory(name: &[u8]) -> CorruptKind {
    CorruptKind::Name { what: "name stands for a directory that has another name", at: 0, len: name.len() }
}

/// Checks the name of an attribute. It may have slashes, because it is in no path.
fn attribute_name(name: &[u8]) -> Result<(), CorruptKind> {
    name_without(name, [0, 0])
}

/// Checks that the length of a name is possible, and no byte is one of `bad`.
fn name_without(name: &[u8], bad: [u8; 2]) -> Result<(), CorruptKind> {
    let len = name.len();
    if !(1..=NAME_LEN_MAX).contains(&len) {
        let (found, max) = (len as u64, NAME_LEN_MAX as u64);
        return Err(CorruptKind::Range { what: "name length", found, min: 1, max });
    }
    let Some(at) = position_of_any(name, bad) else { return Ok(()) };
    let what = if name[at] == 0 { "name has a zero byte" } else { "name has a slash" };
    Err(CorruptKind::Name { what, at, len })
}

/// Checks the names of an inode. A root directory is its own parent, under the name `..`.
pub(super) fn inode_refs(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    not_empty(KeyType::INODE_REF, data)?;
    let is_root = key.objectid.get() == key.offset;
    InodeRefs::new(data).try_for_each(|entry| match entry?.name {
        b".." if is_root => Ok(()),
        other => name(other),
    })
}

pub(super) fn inode_extrefs(data: &[u8]) -> Result<(), CorruptKind> {
    not_empty(KeyType::INODE_EXTREF, data)?;
    InodeExtrefs::new(data).try_for_each(|entry| name(entry?.name))
}

fn not_empty(kind: KeyType, data: &[u8]) -> Result<(), CorruptKind> {
    match data.is_empty() {
        true => Err(CorruptKind::ItemSizeRange { kind, found: 0, min: 1, max: usize::MAX }),
        false => Ok(()),
    }
}

pub(super) fn dir_entries(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    not_empty(key.kind, data)?;
    let mut count = 0;
    for entry in DirEntries::new(data) {
        dir_entry(key, &entry?)?;
        count += 1;
    }
    match (key.kind, count) {
        (KeyType::DIR_INDEX, 2..) => {
            Err(CorruptKind::Mismatch { what: "several entries under one index", found: count, want: 1 })
        }
        _ => Ok(()),
    }
}

fn dir_entry(key: &Key, entry: &DirEntryRef<'_>) -> Result<(), CorruptKind> {
    match key.kind {
        KeyType::XATTR_ITEM => attribute_name(entry.name)?,
        _ => name(entry.name)?,
    }
    let Some(kind) = entry.file_type() else {
        return Err(CorruptKind::Unknown { what: "type of directory entry", found: entry.kind.into() });
    };
    let (is_xattr, want_xattr) = (kind == FileType::Xattr, key.kind == KeyType::XATTR_ITEM);
    if is_xattr != want_xattr {
        return Err(CorruptKind::Unknown { what: "type of directory entry", found: entry.kind.into() });
    }
    if !is_xattr {
        if !entry.data.is_empty() {
            let found = entry.data.len() as u64;
            return Err(CorruptKind::Mismatch { what: "directory entry has a value", found, want: 0 });
        }
        entry_location(&entry.location)?;
    } else if entry.location != Key::MIN {
        let found = entry.location.objectid.get();
        return Err(CorruptKind::Mismatch { what: "attribute that names an inode", found, want: 0 });
    }
    if key.kind != KeyType::DIR_INDEX {
        let hash = u64::from(creamery_codec::name_hash(entry.name));
        if hash != key.offset {
            let (found, want) = (key.offset, hash);
            return Err(CorruptKind::Mismatch { what: "key is not the hash of the name", found, want });
        }
    }
    Ok(())
}

/// Checks the target of a directory entry: an inode, or a subvolume by its number.
fn entry_location(to: &Key) -> Result<(), CorruptKind> {
    let (found, min, max) = (to.objectid, ObjectId::FIRST_FREE, ObjectId::LAST_FREE);
    let top = to.kind == KeyType::ROOT_ITEM && found == TreeId::FS.objectid();
    match to.kind {
        KeyType::INODE_ITEM | KeyType::ROOT_ITEM if !top && !(min..=max).contains(&found) => {
            let (what, found) = ("number that a directory entry names", found.get());
            Err(CorruptKind::Range { what, found, min: min.get(), max: max.get() })
        }
        KeyType::INODE_ITEM if to.offset != 0 => {
            let what = "offset in the key that a directory entry names";
            Err(CorruptKind::Mismatch { what, found: to.offset, want: 0 })
        }
        KeyType::INODE_ITEM | KeyType::ROOT_ITEM => Ok(()),
        other => {
            let found = other.get().into();
            Err(CorruptKind::Unknown { what: "key type of a directory entry", found })
        }
    }
}

pub(super) fn file_extent(key: &Key, data: &[u8]) -> Result<(), CorruptKind> {
    aligned("file offset", key.offset)?;
    match FileExtent::parse(data)? {
        FileExtent::Inline(head, inline) => inline_extent(key, head, inline),
        FileExtent::Regular(extent) | FileExtent::Prealloc(extent) => {
            size(key, data, RawFileExtent::LEN)?;
            regular_extent(key, extent)
        }
    }
}

/// Checks the encoding of data. Linux ignores `other_encoding` and always leaves it zero: a file with another number there
/// is read as if it was zero.
fn encoding(compression: u8, encryption: u8) -> Result<Compression, CorruptKind> {
    let found = compression.into();
    let compression =
        Compression::from_disk(compression).ok_or(CorruptKind::Unknown { what: "compression", found })?;
    if encryption != 0 {
        return Err(CorruptKind::Unknown { what: "encryption", found: encryption.into() });
    }
    Ok(compression)
}

fn inline_extent(key: &Key, head: &RawFileExtentHead, inline: &[u8]) -> Result<(), CorruptKind> {
    let compression = encoding(head.compression, head.encryption)?;
    if key.offset != 0 {
        return Err(CorruptKind::Mismatch {
            what: "inline extent not at file start",
            found: key.offset,
            want: 0,
        });
    }
    let found = head.ram_bytes.get();
    if compression == Compression::None && found != inline.len() as u64 {
        let want = inline.len() as u64;
        return Err(CorruptKind::Mismatch { what: "length of inline data", found, want });
    }
    Ok(())
}

/// Checks each address and length of an extent with `aligned`.
pub(super) fn check_alignment(
    extent: &RawFileExtent,
    aligned: impl Fn(&'static str, u64) -> Result<(), CorruptKind>,
) -> Result<(), CorruptKind> {
    for (what, found) in [
        ("disk_bytenr", extent.disk_bytenr.get()),
        ("disk_num_bytes", extent.disk_num_bytes.get()),
        ("offset of an extent", extent.offset.get()),
        ("num_bytes", extent.num_bytes.get()),
        ("ram_bytes", extent.ram_bytes.get()),
    ] {
        aligned(what, found)?;
    }
    Ok(())
}

fn regular_extent(key: &Key, extent: &RawFileExtent) -> Result<(), CorruptKind> {
    let compression = encoding(extent.compression, extent.encryption)?;
    check_alignment(extent, aligned)?;
    let found = extent.num_bytes.get();
    if found == 0 || key.offset.checked_add(found).is_none() {
        return Err(CorruptKind::Range { what: "num_bytes", found, min: 1, max: u64::MAX - key.offset });
    }
    let disk_len = extent.disk_num_bytes.get();
    if extent.disk_bytenr.get().checked_add(disk_len).is_none() {
        return Err(CorruptKind::Range { what: "disk_num_bytes", found: disk_len, min: 0, max: u64::MAX });
    }
    if extent.is_hole() {
        return Ok(());
    }
    // The part that the file shows must lie inside the extent. Only unpacking shows the real length of packed data: an item
    // with a smaller length costs its file a few bytes, but a refused leaf would cost all files in it.
    let (what, max) = match compression {
        Compression::None => ("end in the extent", disk_len),
        _ => ("end in the decompressed extent", u64::MAX),
    };
    match extent.offset.get().checked_add(found) {
        Some(end) if end <= max => Ok(()),
        end => Err(CorruptKind::Overrun { what, found: end.unwrap_or(u64::MAX), max }),
    }
}
