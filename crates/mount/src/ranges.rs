//! Ranges of a file's data, for lseek(2), fallocate(2) and copy_file_range(2).

use creamery_base::{ErrorKind, Wait};
use creamery_fs::{Fallocate, InodeFlags, OpenFile, SeekTarget};
use creamery_fuse::{Errno, Result, SeekTo};

const KEEP_SIZE: u32 = 0x1;
const PUNCH_HOLE: u32 = 0x2;
const ZERO_RANGE: u32 = 0x10;

/// Interprets the mode of fallocate(2). Errors: modes that neither Btrfs nor FUSE has, like collapsing a range.
pub(crate) const fn fallocate(mode: u32) -> Result<Fallocate> {
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Fallocate::Allocate { keep_size }),
        PUNCH_HOLE if keep_size => Ok(Fallocate::PunchHole),
        ZERO_RANGE => Ok(Fallocate::ZeroRange { keep_size }),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Shares as much of the range to copy as possible; returns the number of bytes. The kernel copies the data if this returns "not
/// supported".
pub(crate) fn copy(
    (source, from): (&OpenFile, u64),
    (target, to): (&OpenFile, u64),
    len: u64,
    flags: u64,
    is_durable: bool,
) -> Result<u64> {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let shared = target.share_range(source, from, len, to)?;
    if is_durable || target.inode().item(Wait::Yes)?.flags.contains(InodeFlags::SYNC) {
        target.sync()?;
    }
    Ok(shared)
}

/// A search for data or a hole.
pub(crate) struct Seek<'a> {
    pub(crate) file: &'a OpenFile,
    /// For a file whose mappings may have changed pages: makes the kernel hand over the pages of a range; false if it may not
    /// have done so.
    pub(crate) hand_over: Option<&'a dyn Fn((u64, u64)) -> bool>,
    pub(crate) is_interrupted: &'a dyn Fn() -> bool,
}

/// Bytes to hand over at once from the second time on.
const REACH: u64 = 1 << 20;

impl Seek<'_> {
    /// Finds the next data, or hole, of the file.
    pub(crate) fn run(&self, offset: u64, to: SeekTo) -> Result<u64> {
        // As on Linux, a negative offset means the beginning of the file.
        let offset = if i64::try_from(offset).is_ok() { offset } else { 0 };
        let want = match to {
            SeekTo::Data => SeekTarget::Data,
            SeekTo::Hole => SeekTarget::Hole,
            SeekTo::Start | SeekTo::End => return Err(Errno::EINVAL),
        };
        match (self.hand_over, want) {
            (None, want) => self.find(offset, want)?.ok_or(Errno::ENXIO),
            (Some(hand_over), SeekTarget::Data) => self.data(offset, hand_over)?.ok_or(Errno::ENXIO),
            (Some(hand_over), SeekTarget::Hole) => self.hole(offset, hand_over)?.ok_or(Errno::ENXIO),
        }
    }

    fn find(&self, offset: u64, want: SeekTarget) -> Result<Option<u64>> {
        match self.file.seek(offset, want, self.is_interrupted) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.stat(Wait::Yes)?.size)
    }

    /// Finds data. After the kernel has handed over the pages before the result, the search is repeated; if it does not, all of them may be data.
    fn data(&self, offset: u64, hand_over: &dyn Fn((u64, u64)) -> bool) -> Result<Option<u64>> {
        let size = self.size()?;
        let found = self.find(offset, SeekTarget::Data)?;
        if offset >= size || found == Some(offset) {
            return Ok(found);
        }
        if hand_over((offset, found.unwrap_or(size))) {
            self.find(offset, SeekTarget::Data)
        } else {
            Ok(Some(offset))
        }
    }

    /// Finds a hole. After the kernel has handed over the pages of the result, the search is repeated, and so on: the hole may have data.
    /// If the kernel does not, only the end is certain to be a hole.
    fn hole(&self, offset: u64, hand_over: &dyn Fn((u64, u64)) -> bool) -> Result<Option<u64>> {
        let (size, mut known, mut reach) = (self.size()?, (offset, offset), 0);
        loop {
            let Some(found) = self.find(offset, SeekTarget::Hole)? else { return Ok(None) };
            if found >= size || known.0 <= found && found < known.1 {
                return Ok(Some(found));
            }
            let end = self.find(found, SeekTarget::Data)?.unwrap_or(size);
            // If one hole had data, the next ones may have data, too.
            known = (found, end.max(found.saturating_add(reach)).min(size));
            reach = reach.saturating_mul(4).max(REACH);
            if !hand_over(known) {
                return Ok(Some(size));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_one_of_five_and_others_are_refused() {
        let known = [
            (0, Fallocate::Allocate { keep_size: false }),
            (KEEP_SIZE, Fallocate::Allocate { keep_size: true }),
            (PUNCH_HOLE | KEEP_SIZE, Fallocate::PunchHole),
            (ZERO_RANGE, Fallocate::ZeroRange { keep_size: false }),
            (ZERO_RANGE | KEEP_SIZE, Fallocate::ZeroRange { keep_size: true }),
        ];
        for mode in 0..0x200 {
            let wanted = known.iter().find(|(bits, _)| *bits == mode).map(|(_, meaning)| *meaning);
            assert_eq!(fallocate(mode), wanted.ok_or(Errno::EOPNOTSUPP), "mode {mode:#x}");
        }
    }
}
