//! Ranges of a file's data: what lseek(2), fallocate(2) and copy_file_range(2) ask.

use creamery_base::{ErrorKind, Wait};
use creamery_fs::{Fallocate, InodeFlags, OpenFile, Want};
use creamery_fuse::{Errno, Result, SeekTo};

const KEEP_SIZE: u32 = 0x1;
const PUNCH_HOLE: u32 = 0x2;
const ZERO_RANGE: u32 = 0x10;

/// What the bits of fallocate(2)'s mode mean. Errors: what neither Btrfs nor FUSE has, such as collapsing a range.
pub(crate) const fn fallocate(mode: u32) -> Result<Fallocate> {
    let keep_size = mode & KEEP_SIZE != 0;
    match mode & !KEEP_SIZE {
        0 => Ok(Fallocate::Allocate { keep_size }),
        PUNCH_HOLE if keep_size => Ok(Fallocate::PunchHole),
        ZERO_RANGE => Ok(Fallocate::ZeroRange { keep_size }),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Shares what can be shared of the range that is to be copied; returns how much. Of what is said to be not supported the kernel
/// makes a copy.
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

/// Who looks for data or a hole, and what he has to do with.
pub(crate) struct Seek<'a> {
    pub(crate) file: &'a OpenFile,
    /// For a file of which mappings may have changed pages: has the kernel hand over those of a range; false when nobody can say
    /// that it did.
    pub(crate) hand_over: Option<&'a dyn Fn((u64, u64)) -> bool>,
    pub(crate) is_interrupted: &'a dyn Fn() -> bool,
}

/// What is handed over at once from the second time on.
const REACH: u64 = 1 << 20;

impl Seek<'_> {
    /// The next data, or hole, of a file.
    pub(crate) fn run(&self, offset: u64, to: SeekTo) -> Result<u64> {
        // As on Linux, a place before the file is its beginning.
        let offset = if i64::try_from(offset).is_ok() { offset } else { 0 };
        let want = match to {
            SeekTo::Data => Want::Data,
            SeekTo::Hole => Want::Hole,
            SeekTo::Start | SeekTo::End => return Err(Errno::EINVAL),
        };
        match (self.hand_over, want) {
            (None, want) => self.find(offset, want)?.ok_or(Errno::ENXIO),
            (Some(hand_over), Want::Data) => self.data(offset, hand_over)?.ok_or(Errno::ENXIO),
            (Some(hand_over), Want::Hole) => self.hole(offset, hand_over)?.ok_or(Errno::ENXIO),
        }
    }

    fn find(&self, offset: u64, want: Want) -> Result<Option<u64>> {
        match self.file.seek(offset, want, self.is_interrupted) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            found => Ok(Some(found?)),
        }
    }

    fn size(&self) -> Result<u64> {
        Ok(self.file.stat(Wait::Yes)?.size)
    }

    /// What is passed over on the way to the data is looked at again when the kernel has nothing of it; else all may be data.
    fn data(&self, offset: u64, hand_over: &dyn Fn((u64, u64)) -> bool) -> Result<Option<u64>> {
        let size = self.size()?;
        let found = self.find(offset, Want::Data)?;
        if offset >= size || found == Some(offset) {
            return Ok(found);
        }
        if hand_over((offset, found.unwrap_or(size))) {
            self.find(offset, Want::Data)
        } else {
            Ok(Some(offset))
        }
    }

    /// The hole that was found is looked at again when the kernel has nothing of it, and so on: it may have been full.
    /// Else only the end is sure to be one.
    fn hole(&self, offset: u64, hand_over: &dyn Fn((u64, u64)) -> bool) -> Result<Option<u64>> {
        let (size, mut known, mut reach) = (self.size()?, (offset, offset), 0);
        loop {
            let Some(found) = self.find(offset, Want::Hole)? else { return Ok(None) };
            if found >= size || known.0 <= found && found < known.1 {
                return Ok(Some(found));
            }
            let end = self.find(found, Want::Data)?.unwrap_or(size);
            // Where one hole was full others may be, too.
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
