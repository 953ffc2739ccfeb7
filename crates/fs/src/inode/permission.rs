//! Changes that the flags of an inode forbid to every caller.

use creamery_base::{Error, ErrorKind, Result};
use creamery_format::InodeFlags;

use crate::inode::{DirectoryInode, Inode, InodeItem};

/// Refuses a change of an inode that is immutable.
pub(crate) fn check_not_immutable(item: &InodeItem) -> Result<()> {
    if item.flags.intersects(InodeFlags::IMMUTABLE.union(InodeFlags::READONLY)) {
        let error = Error::new(ErrorKind::PermissionDenied, "the inode is marked immutable");
        return Err(error.advise("clear the flag on a mount with chattr -i"));
    }
    Ok(())
}

/// Refuses a change of an inode that is immutable or append-only, except appending.
pub(crate) fn check_not_append_only(item: &InodeItem) -> Result<()> {
    check_not_immutable(item)?;
    if item.flags.contains(InodeFlags::APPEND) {
        let error = Error::new(ErrorKind::PermissionDenied, "the inode is marked append-only");
        return Err(error.advise("clear the flag on a mount with chattr -a"));
    }
    Ok(())
}

/// Refuses a change of the data of a file with fs-verity.
pub(crate) fn check_not_sealed(item: &InodeItem) -> Result<()> {
    if item.flags.contains(InodeFlags::VERITY) {
        return Err(Error::new(ErrorKind::PermissionDenied, "the file has fs-verity"));
    }
    Ok(())
}

/// Refuses writes at any offset of a file that is immutable or append-only, or has fs-verity.
pub(crate) fn check_overwrites(item: &InodeItem) -> Result<()> {
    check_not_append_only(item)?;
    check_not_sealed(item)
}

/// The directory that is to lose an entry; `item` is its item. Errors: it is no directory, or may not be changed.
pub(crate) fn check_may_remove<'d>(dir: &'d Inode, item: &InodeItem) -> Result<DirectoryInode<'d>> {
    let dir = dir.as_directory().ok_or(ErrorKind::NotADirectory)?;
    check_not_append_only(item)?;
    Ok(dir)
}

/// Refuses data at `offset` in an inode that is immutable or has fs-verity. In an append-only inode refuses any offset but the end of
/// the file.
pub(crate) fn check_appends(item: &InodeItem, offset: u64) -> Result<()> {
    if offset == item.size {
        check_not_immutable(item)?
    } else {
        check_not_append_only(item)?
    }
    check_not_sealed(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_forbid_what_they_are_for() {
        for (flags, changes, appends) in [
            (InodeFlags::empty(), true, true),
            (InodeFlags::NODUMP | InodeFlags::SYNC, true, true),
            (InodeFlags::APPEND, false, true),
            (InodeFlags::IMMUTABLE, false, false),
            (InodeFlags::READONLY, false, false),
        ] {
            let item = InodeItem { mode: 0o100_644, size: 10, flags, ..InodeItem::default() };
            assert_eq!(check_not_append_only(&item).is_ok(), changes, "{flags:?}");
            assert_eq!(check_appends(&item, 10).is_ok(), appends, "{flags:?}");
            assert_eq!(check_appends(&item, 9).is_ok(), changes, "{flags:?}");
        }
    }
}
