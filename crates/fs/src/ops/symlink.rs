//! Symbolic links: the target is stored as the data of a file, as one inline extent.
//!
//! The inode's size is the target's length. btrfs-progs stores a NUL byte behind the target. `btrfs-image` writes zeros in place of
//! targets: such a link has an empty target, on Linux too.

use creamery_base::{Error, ErrorKind, Result, Wait};
use creamery_format::file_extent::INLINE_HEADER;
use creamery_tree::Tree;

use crate::data;
use crate::inode::{FileType, Inode};

/// The longest target that Linux accepts (PATH_MAX with its NUL byte is 4096).
const TARGET_LEN_MAX: usize = 4095;

/// Refuses targets that cannot be stored.
pub(crate) fn check_target(tree: &Tree, target: &[u8]) -> Result<()> {
    let room = tree.max_item_size().saturating_sub(INLINE_HEADER);
    if target.is_empty() {
        return Err(ErrorKind::NotFound.into());
    }
    if target.len() > TARGET_LEN_MAX.min(room) {
        return Err(Error::new(ErrorKind::NameTooLong, "the target of a symbolic link"));
    }
    if target.contains(&0) {
        return Err(Error::invalid("symbolic link target contains a NUL byte"));
    }
    Ok(())
}

/// The target of a symbolic link. It ends before the first NUL byte, as on Linux, and may be empty.
pub(crate) fn read_link(inode: &Inode, wait: Wait) -> Result<Vec<u8>> {
    let item = inode.item(wait)?;
    if item.kind() != FileType::Symlink {
        return Err(Error::invalid("not a symbolic link"));
    }
    let len = usize::try_from(item.size).ok().filter(|len| *len <= TARGET_LEN_MAX);
    let len = len.ok_or_else(|| {
        let (id, size) = (inode.id, item.size);
        let message =
            format!("inode {id}: size of a symbolic link, expected [0, {TARGET_LEN_MAX}], found {size}");
        Error::new(ErrorKind::Corrupt, message)
    })?;
    let mut target = vec![0; len];
    data::read(inode, &item, 0, &mut target, wait)?;
    target.truncate(target.iter().position(|byte| *byte == 0).unwrap_or(len));
    Ok(target)
}
