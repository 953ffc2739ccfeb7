//! Names of key types and of well-known ids, in the form of dump-tree.

use std::fmt;

use creamery_base::{ObjectId, TreeId};

use crate::key::{Key, KeyType};

/// Returns the name of a key type; `None` for a number without a name.
pub(crate) const fn key_type(kind: KeyType) -> Option<&'static str> {
    Some(match kind {
        KeyType::INODE_ITEM => "INODE_ITEM",
        KeyType::INODE_REF => "INODE_REF",
        KeyType::INODE_EXTREF => "INODE_EXTREF",
        KeyType::XATTR_ITEM => "XATTR_ITEM",
        KeyType::VERITY_DESC_ITEM => "VERITY_DESC_ITEM",
        KeyType::VERITY_MERKLE_ITEM => "VERITY_MERKLE_ITEM",
        KeyType::ORPHAN_ITEM => "ORPHAN_ITEM",
        KeyType::DIR_LOG_ITEM => "DIR_LOG_ITEM",
        KeyType::DIR_LOG_INDEX => "DIR_LOG_INDEX",
        KeyType::DIR_ITEM => "DIR_ITEM",
        KeyType::DIR_INDEX => "DIR_INDEX",
        KeyType::EXTENT_DATA => "EXTENT_DATA",
        KeyType::CSUM_ITEM => "CSUM_ITEM",
        KeyType::EXTENT_CSUM => "EXTENT_CSUM",
        KeyType::ROOT_ITEM => "ROOT_ITEM",
        KeyType::ROOT_BACKREF => "ROOT_BACKREF",
        KeyType::ROOT_REF => "ROOT_REF",
        KeyType::EXTENT_ITEM => "EXTENT_ITEM",
        KeyType::METADATA_ITEM => "METADATA_ITEM",
        KeyType::EXTENT_OWNER_REF => "EXTENT_OWNER_REF",
        KeyType::TREE_BLOCK_REF => "TREE_BLOCK_REF",
        KeyType::EXTENT_DATA_REF => "EXTENT_DATA_REF",
        KeyType::EXTENT_REF_V0 => "EXTENT_REF_V0",
        KeyType::SHARED_BLOCK_REF => "SHARED_BLOCK_REF",
        KeyType::SHARED_DATA_REF => "SHARED_DATA_REF",
        KeyType::BLOCK_GROUP_ITEM => "BLOCK_GROUP_ITEM",
        KeyType::FREE_SPACE_INFO => "FREE_SPACE_INFO",
        KeyType::FREE_SPACE_EXTENT => "FREE_SPACE_EXTENT",
        KeyType::FREE_SPACE_BITMAP => "FREE_SPACE_BITMAP",
        KeyType::DEV_EXTENT => "DEV_EXTENT",
        KeyType::DEV_ITEM => "DEV_ITEM",
        KeyType::CHUNK_ITEM => "CHUNK_ITEM",
        KeyType::RAID_STRIPE => "RAID_STRIPE",
        KeyType::QGROUP_STATUS => "QGROUP_STATUS",
        KeyType::QGROUP_INFO => "QGROUP_INFO",
        KeyType::QGROUP_LIMIT => "QGROUP_LIMIT",
        KeyType::QGROUP_RELATION => "QGROUP_RELATION",
        KeyType::TEMPORARY_ITEM => "TEMPORARY_ITEM",
        KeyType::PERSISTENT_ITEM => "PERSISTENT_ITEM",
        KeyType::DEV_REPLACE => "DEV_REPLACE",
        KeyType::UUID_SUBVOL => "UUID_KEY_SUBVOL",
        KeyType::UUID_RECEIVED_SUBVOL => "UUID_KEY_RECEIVED_SUBVOL",
        KeyType::STRING_ITEM => "STRING_ITEM",
        _ => return None,
    })
}

/// The name of a well-known objectid in a key of type `kind`.
const fn objectid(id: ObjectId, kind: KeyType) -> Option<&'static str> {
    match (kind, id.get()) {
        (KeyType::PERSISTENT_ITEM, 0) => return Some("DEV_STATS"),
        (KeyType::PERSISTENT_ITEM | KeyType::DEV_EXTENT, _) => return None,
        (KeyType::DEV_ITEM, 1) => return Some("DEV_ITEMS"),
        (KeyType::CHUNK_ITEM, 256) => return Some("FIRST_CHUNK_TREE"),
        _ => {}
    }
    Some(match id.get().cast_signed() {
        1 => "ROOT_TREE",
        2 => "EXTENT_TREE",
        3 => "CHUNK_TREE",
        4 => "DEV_TREE",
        5 => "FS_TREE",
        6 => "ROOT_TREE_DIR",
        7 => "CSUM_TREE",
        8 => "QUOTA_TREE",
        9 => "UUID_TREE",
        10 => "FREE_SPACE_TREE",
        11 => "BLOCK_GROUP_TREE",
        12 => "RAID_STRIPE_TREE",
        -1 => "-1",
        -4 => "BALANCE",
        -5 => "ORPHAN",
        -6 => "TREE_LOG",
        -7 => "LOG_FIXUP",
        -8 => "TREE_RELOC",
        -9 => "DATA_RELOC_TREE",
        -10 => "EXTENT_CSUM",
        -11 => "FREE_SPACE",
        -12 => "FREE_INO",
        -13 => "CSUM_CHANGE",
        -255 => "MULTIPLE",
        _ => return None,
    })
}

/// Writes the objectid of a key of type `kind`, by name if it has one.
pub(crate) fn write_objectid(f: &mut dyn fmt::Write, id: ObjectId, kind: KeyType) -> fmt::Result {
    match (kind, objectid(id, kind)) {
        (KeyType::QGROUP_RELATION, _) => write_qgroup(f, id.get()),
        (KeyType::UUID_SUBVOL | KeyType::UUID_RECEIVED_SUBVOL, _) => write!(f, "0x{:016x}", id.get()),
        (_, Some(name)) => f.write_str(name),
        (_, None) => write!(f, "{id}"),
    }
}

/// A quota group's id: level, slash, subvolume or number.
pub(crate) fn write_qgroup(f: &mut dyn fmt::Write, id: u64) -> fmt::Result {
    write!(f, "{}/{}", id >> 48, id & ((1 << 48) - 1))
}

/// A whole key in parentheses.
pub(crate) fn write_key(f: &mut dyn fmt::Write, key: &Key) -> fmt::Result {
    f.write_char('(')?;
    write_objectid(f, key.objectid, key.kind)?;
    match (key.kind, key.objectid.get().cast_signed()) {
        (KeyType::UNTYPED, -11) => f.write_str(" UNTYPED ")?,
        _ => write!(f, " {} ", key.kind)?,
    }
    match key.kind {
        KeyType::QGROUP_INFO | KeyType::QGROUP_LIMIT | KeyType::QGROUP_RELATION => {
            write_qgroup(f, key.offset)?
        }
        KeyType::UUID_SUBVOL | KeyType::UUID_RECEIVED_SUBVOL => write!(f, "0x{:016x}", key.offset)?,
        // The root of a relocation tree has the relocated tree's id in its offset.
        KeyType::ROOT_ITEM if key.objectid.get() == TreeId::TREE_RELOC.get() => {
            write_objectid(f, ObjectId::new(key.offset), key.kind)?;
        }
        KeyType::ROOT_ITEM => write!(f, "{}", key.offset)?,
        _ if key.offset == u64::MAX => f.write_str("-1")?,
        _ => write!(f, "{}", key.offset)?,
    }
    f.write_char(')')
}
