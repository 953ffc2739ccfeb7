//! Discards the free space of a live mount: by our control, which returns error messages, and by `FITRIM`, which fstrim(8)
//! sends. On Linux that needs the right to administrate the system; here root and the mounter may do it.
//!
//! `FITRIM` (`_IOWR('X', 121, struct fstrim_range)`, linux/fs.h) carries three 64-bit numbers: start and length in bytes,
//! in the filesystem's own addresses, and the shortest piece. The second one returns the number of discarded bytes.

use std::io::{Read, Write};

use creamery_base::{Error, ErrorKind, Result};
use creamery_fs::Filesystem;
use creamery_fuse::{Errno, IoctlReply};

use crate::asker::Asker;
use crate::in_person;
use crate::why::BytesDone;

pub(crate) const FITRIM: u32 = 0xc018_5879;
/// Bytes of `struct fstrim_range`.
const RANGE_LEN: usize = 24;
/// Bytes of the longest answer.
const WORDS_MAX: u64 = 64 << 10;

/// The mount's end: an asker that proves its right gets the result.
pub(crate) fn answer_in_person(fs: &Filesystem, thread: u32, input: &[u8]) -> creamery_fuse::Result<()> {
    let min = input.get(in_person::NAME_FIELD..).and_then(|rest| rest.first_chunk()).ok_or(Errno::EINVAL)?;
    let mut asker = in_person::connect(&Asker::of(thread), input)?;
    let outcome =
        BytesDone::of(fs.trim((0, u64::MAX), u64::from_le_bytes(*min)).map(|trimmed| trimmed.bytes));
    // An asker that has left is ignored.
    let _ = serde_json::to_writer(&mut asker, &outcome).map(|()| asker.flush());
    Ok(())
}

/// The asker's end; `tell` sends the message. Returns the number of discarded bytes.
pub(crate) fn ask_in_person(mounter: u32, min: u64, tell: impl FnOnce(&[u8]) -> Result<()>) -> Result<u64> {
    let stream = in_person::ask(mounter, |name| {
        let mut message = [0; in_person::NAME_FIELD + size_of::<u64>()];
        message[..name.len()].copy_from_slice(name);
        message[in_person::NAME_FIELD..].copy_from_slice(&min.to_le_bytes());
        tell(&message)
    })?;
    let mut text = Vec::new();
    stream.take(WORDS_MAX).read_to_end(&mut text)?;
    let outcome: BytesDone = serde_json::from_slice(&text)
        .map_err(|error| Error::with_source(ErrorKind::Io, "reading the answer of the mount", error))?;
    outcome.into_result()
}

/// Answers a `FITRIM` of the thread `asker`.
pub(crate) fn answer(
    fs: &Filesystem,
    asker: u32,
    input: &[u8],
    output: &mut [u8],
) -> creamery_fuse::Result<IoctlReply> {
    let (Ok(range), RANGE_LEN..) = (<[u8; RANGE_LEN]>::try_from(input), output.len()) else {
        return Err(Errno::EINVAL);
    };
    if !may_trim(asker) {
        return Err(Errno::EPERM);
    }
    let number = |index: usize| {
        let bytes = range[index * 8..][..8].try_into().expect("eight of 24 bytes");
        u64::from_le_bytes(bytes)
    };
    let (start, len, min) = (number(0), number(1), number(2));
    // As on Linux; there is no space at the very last byte.
    if len < u64::from(fs.engine().sector_size()) || start == u64::MAX {
        return Err(Errno::EINVAL);
    }
    let trimmed = fs.trim((start, start.saturating_add(len)), min)?;
    output[..RANGE_LEN].copy_from_slice(&range);
    output[8..16].copy_from_slice(&trimmed.bytes.to_le_bytes());
    Ok(IoctlReply { len: RANGE_LEN, ..IoctlReply::default() })
}

/// Whether a thread that waits for an answer belongs to root or the mounter.
fn may_trim(thread: u32) -> bool {
    Asker::of(thread).administrates()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_is_nobodys() {
        assert!(!may_trim(0) && !may_trim(u32::MAX));
    }
}
