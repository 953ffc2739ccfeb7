//! Returns the digest of a file with fs-verity, for `fsverity measure`: `FS_IOC_MEASURE_VERITY` (linux/fsverity.h).
//!
//! The message has two 16-bit numbers, the hash algorithm and the size of the buffer, and then the buffer. Linux tells FUSE the
//! size of the buffer.

use creamery_fs::OpenFile;
use creamery_fuse::{Errno, IoctlReply};

/// `_IOWR('f', 134, struct fsverity_digest)`.
pub(crate) const MEASURE: u32 = 0xc004_6686;
/// Bytes before the digest.
const HEAD: usize = 4;

/// Answers the control.
/// Errors: `ENODATA` for a file without fs-verity, `EOVERFLOW` for a buffer that is too small.
pub(crate) fn answer(file: &OpenFile, input: &[u8], output: &mut [u8]) -> creamery_fuse::Result<IoctlReply> {
    let room = input.get(2..HEAD).and_then(|room| room.try_into().ok()).map(u16::from_le_bytes);
    let room = usize::from(room.ok_or(Errno::EINVAL)?);
    let info = file.verity()?.ok_or(Errno::ENODATA)?;
    let digest = info.digest.as_bytes();
    let len = HEAD + digest.len();
    if room < digest.len() {
        return Err(Errno::EOVERFLOW);
    }
    let out = output.get_mut(..len).ok_or(Errno::EOVERFLOW)?;
    let size = u16::try_from(digest.len()).expect("a digest is short");
    out[..2].copy_from_slice(&u16::from(info.hash.to_disk()).to_le_bytes());
    out[2..HEAD].copy_from_slice(&size.to_le_bytes());
    out[HEAD..].copy_from_slice(digest);
    Ok(IoctlReply { result: 0, len })
}
