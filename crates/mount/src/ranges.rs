//! Ranges of a file's data: what lseek(2), fallocate(2) and copy_file_range(2) ask.

use creamery_base::{Error, ErrorKind, Wait};
use creamery_fs::{Fallocate, InodeFlags, OpenFile};
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
        target.sync(true)?;
    }
    Ok(shared)
}

/// The next data, or hole, of a file.
pub(crate) fn seek(file: &OpenFile, may_be_mapped: bool, offset: u64, to: SeekTo) -> Result<u64> {
    if may_be_mapped {
        // What is a hole on disk may be full of data in the kernel's pages: there is none, but for the end.
        let size = file.stat(Wait::Yes)?.size;
        return match to {
            SeekTo::Data | SeekTo::Hole if offset >= size => Err(Errno::ENXIO),
            SeekTo::Data => Ok(offset),
            SeekTo::Hole => Ok(size),
            SeekTo::Start | SeekTo::End => Err(Errno::EINVAL),
        };
    }
    match to {
        SeekTo::Data => file.seek_data(offset).map_err(missing_is_end),
        SeekTo::Hole => file.seek_hole(offset).map_err(missing_is_end),
        SeekTo::Start | SeekTo::End => Err(Errno::EINVAL),
    }
}

fn missing_is_end(error: Error) -> Errno {
    if error.kind() == ErrorKind::NotFound { Errno::ENXIO } else { error.into() }
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
