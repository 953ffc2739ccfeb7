//! The keys of a subvolume tree, each made in one place.

use creamery_base::ObjectId;
use creamery_format::{Key, KeyType};

/// The inode item.
pub(crate) const fn inode_item(ino: ObjectId) -> Key {
    Key::new(ino, KeyType::INODE_ITEM, 0)
}
