//! The keys of subvolume trees and of the root tree's references, each made in one place.

use creamery_base::{ObjectId, TreeId, Uuid};
use creamery_codec::{extref_hash, name_hash};
use creamery_format::{Key, KeyType, uuid_key};

/// The directory in place of a subvolume if a snapshot copied its entry but not its tree.
pub(crate) const EMPTY_SUBVOLUME_DIR: ObjectId = ObjectId::EMPTY_SUBVOLUME_DIR;

/// The key of an inode's attributes.
pub(crate) const fn inode_item(ino: ObjectId) -> Key {
    Key::new(ino, KeyType::INODE_ITEM, 0)
}

/// The key of the names that `ino` has in `parent`.
pub(crate) const fn inode_ref(ino: ObjectId, parent: ObjectId) -> Key {
    Key::new(ino, KeyType::INODE_REF, parent.get())
}

/// The key of a name that does not fit into the [`inode_ref`] item.
pub(crate) fn inode_extref(ino: ObjectId, parent: ObjectId, name: &[u8]) -> Key {
    Key::new(ino, KeyType::INODE_EXTREF, extref_hash(parent.get(), name))
}

/// The key of an extended attribute.
pub(crate) fn xattr(ino: ObjectId, name: &[u8]) -> Key {
    Key::new(ino, KeyType::XATTR_ITEM, u64::from(name_hash(name)))
}

/// The key of a directory entry by the hash of its name.
pub(crate) fn dir_item(dir: ObjectId, name: &[u8]) -> Key {
    Key::new(dir, KeyType::DIR_ITEM, u64::from(name_hash(name)))
}

/// The key of a directory entry by its number.
pub(crate) const fn dir_index(dir: ObjectId, index: u64) -> Key {
    Key::new(dir, KeyType::DIR_INDEX, index)
}

/// The key of a log item of a directory: the range of entry numbers, from `index` on, that the log is complete for.
pub(crate) const fn dir_log_index(dir: ObjectId, index: u64) -> Key {
    Key::new(dir, KeyType::DIR_LOG_INDEX, index)
}

/// The key of a file's extent at `offset`, bytes.
pub(crate) const fn extent_data(ino: ObjectId, offset: u64) -> Key {
    Key::new(ino, KeyType::EXTENT_DATA, offset)
}

/// The key of the orphan item that marks `ino` for cleaning up.
pub(crate) const fn orphan(ino: ObjectId) -> Key {
    Key::new(ObjectId::ORPHAN, KeyType::ORPHAN_ITEM, ino.get())
}

/// The first key that an item of `ino` can have.
pub(crate) const fn first_of(ino: ObjectId) -> Key {
    Key::new(ino, KeyType::UNTYPED, 0)
}

/// The last key that an item of `ino` can have.
pub(crate) const fn last_of(ino: ObjectId) -> Key {
    Key::new(ino, KeyType::new(u8::MAX), u64::MAX)
}

/// The key in a subvolume's entry, which points to its root item.
pub(crate) const fn subvolume_location(id: TreeId) -> Key {
    Key::new(id.objectid(), KeyType::ROOT_ITEM, u64::MAX)
}

/// Root tree: the key of the reference from a subvolume to one below it.
pub(crate) const fn root_ref(parent: TreeId, child: TreeId) -> Key {
    Key::new(parent.objectid(), KeyType::ROOT_REF, child.get())
}

/// Root tree: the key of the reference from a subvolume to the one above it.
pub(crate) const fn root_backref(child: TreeId, parent: TreeId) -> Key {
    Key::new(child.objectid(), KeyType::ROOT_BACKREF, parent.get())
}

/// UUID tree: the key that leads from a subvolume's UUID to its id.
pub(crate) fn uuid_subvolume(uuid: Uuid) -> Key {
    uuid_key(uuid, KeyType::UUID_SUBVOL)
}

/// UUID tree: the key that leads from the UUID at the sender to the ids of the received subvolumes.
pub(crate) fn uuid_received(uuid: Uuid) -> Key {
    uuid_key(uuid, KeyType::UUID_RECEIVED_SUBVOL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_a_kernel_made_image() {
        assert_eq!(xattr(ObjectId::new(257), b"user.x").offset, 153_960_099);
        assert_eq!(dir_item(ObjectId::new(256), b"sv").offset, 3_250_315_169);
        let uuid = Uuid::parse_str("5a34a0f0-863a-6f4e-85a6-62e735658157").expect("a UUID");
        let key = uuid_subvolume(uuid);
        assert_eq!((key.objectid.get(), key.offset), (0x4e6f_3a86_f0a0_345a, 0x5781_6535_e762_a685));
    }
}
