//! fallocate(2) on an open file.

use creamery_base::{Error, ErrorKind, Result, Wait};

use crate::data;
use crate::inode::permission::{check_not_append_only, check_not_immutable, check_not_sealed};
use crate::inode::{FILE_SIZE_MAX, InodeItem};
use crate::open_file::OpenFile;

/// The operation of fallocate(2) on a range of a file.
///
/// ```
/// use creamery_fs::Fallocate;
/// let ahead = Fallocate::Allocate { keep_size: true };
/// assert_ne!(ahead, Fallocate::ZeroRange { keep_size: true });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Gives the holes of the range space, which reads as zeros; the file grows over it, or keeps its size.
    Allocate {
        /// The file does not grow; the range past its end gets space all the same.
        keep_size: bool,
    },
    /// Makes the range a hole; the file keeps its size.
    PunchHole,
    /// Makes the range zeros that have space; the file grows over it, or keeps its size.
    ZeroRange {
        /// The file does not grow; the range past its end gets space all the same.
        keep_size: bool,
    },
}

impl OpenFile {
    /// Applies `mode` to the `len` bytes from `offset` on.
    /// Errors: no space; too large; an empty range; it is no file; the inode is marked immutable, or append-only and existing data
    /// would change; it has fs-verity.
    pub fn fallocate(&self, mode: Fallocate, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Err(Error::invalid("empty range"));
        }
        let inode = self.inode();
        let mut locked = inode.lock_exclusive()?;
        inode.engine().check_open()?;
        let _change = inode.begin_change()?;
        let inode = &inode.regular()?;
        check(&locked, mode)?;
        let end =
            offset.checked_add(len).filter(|end| *end <= FILE_SIZE_MAX).ok_or(ErrorKind::FileTooLarge)?;
        // Growing over a gap changes the bytes between the old end and the range.
        let range = inode.lock_range(offset.min(locked.size), end, Wait::Yes)?;
        inode.settle(&mut locked)?;
        let item = locked.item_mut();
        let size = |keep_size: bool| if keep_size { 0 } else { end };
        let done = match mode {
            Fallocate::Allocate { keep_size } => data::prealloc(inode, item, (offset, end), size(keep_size)),
            Fallocate::PunchHole => data::punch_hole(inode, item, (offset, end)),
            Fallocate::ZeroRange { keep_size } => {
                data::zero_range(inode, item, (offset, end), size(keep_size))
            }
        };
        drop(range);
        done
    }
}

fn check(item: &InodeItem, mode: Fallocate) -> Result<()> {
    check_not_sealed(item)?;
    match mode {
        Fallocate::Allocate { .. } => check_not_immutable(item),
        Fallocate::PunchHole | Fallocate::ZeroRange { .. } => check_not_append_only(item),
    }
}
