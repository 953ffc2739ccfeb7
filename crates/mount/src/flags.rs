//! Flag words: those of open(2), and those of chattr(1). The latter arrive as the two pairs of ioctls that the
//! kernel translates its file attribute calls to.
//!
//! | ioctl | carries |
//! |---|---|
//! | `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS` | a word of `FS_*_FL` bits |
//! | `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR` | `struct fsxattr`, 28 bytes, its first word `FS_XFLAG_*` bits |

use creamery_base::{InodeId, Wait};
use creamery_fs::{Access, Filesystem, InodeFlags, SetAttributes};
use creamery_fuse::WriteRequest;
use creamery_fuse::protocol::WriteFlags;
use creamery_fuse::{Errno, IoctlReply};

const O_ACCMODE: u32 = 0o3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
/// Writes go to the end of the file.
const O_APPEND: u32 = 0o2000;
/// Bypasses the page cache. The number depends on the architecture.
const O_DIRECT: u32 = rustix::fs::OFlags::DIRECT.bits();
/// Reading does not move the access time.
const O_NOATIME: u32 = 0o1_000_000;
/// Written data is durable when write(2) returns. `O_SYNC` has this bit, too.
const O_DSYNC: u32 = 0o1_0000;
/// Truncates the file when it is opened.
pub(crate) const O_TRUNC: u32 = 0o1000;

const GET_FLAGS: u32 = 0x8008_6601;
const SET_FLAGS: u32 = 0x4008_6602;
const GET_XFLAGS: u32 = 0x801c_581f;
const SET_XFLAGS: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`.
const FSXATTR_LEN: usize = 28;

/// `FS_*_FL` bits, with our flags.
const FLAGS: [(u32, InodeFlags); 9] = [
    (0x4, InodeFlags::COMPRESS),
    (0x8, InodeFlags::SYNC),
    (0x10, InodeFlags::IMMUTABLE),
    (0x20, InodeFlags::APPEND),
    (0x40, InodeFlags::NODUMP),
    (0x80, InodeFlags::NOATIME),
    (0x400, InodeFlags::NOCOMPRESS),
    (0x1_0000, InodeFlags::DIRSYNC),
    (0x80_0000, InodeFlags::NODATACOW),
];

/// `FS_VERITY_FL`, which is read-only.
const VERITY: u32 = 0x10_0000;

/// `FS_XFLAG_*` bits, with our flags.
const XFLAGS: [(u32, InodeFlags); 5] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
];

/// The access that a file opened with these flags allows.
pub(crate) const fn access(flags: u32) -> Access {
    match (flags & O_ACCMODE, flags & O_APPEND) {
        (O_RDONLY, _) => Access::Read,
        (_, 0) => Access::Write,
        _ => Access::Append,
    }
}

/// Whether reads of a file opened with these flags leave its access time as it is.
pub(crate) const fn is_quiet(flags: u32) -> bool {
    flags & O_NOATIME != 0
}

/// Whether a shared mapping of a file opened with these flags may be written to.
pub(crate) const fn maps(flags: u32) -> bool {
    flags & O_ACCMODE == O_RDWR
}

/// Whether a write to a file opened with these flags must be durable when it returns.
pub(crate) const fn syncs(flags: u32) -> bool {
    flags & O_DSYNC != 0
}

/// Whether a write appends. When the kernel writes back pages of a mapping, the flags of the file do not apply: the pages
/// may lie anywhere.
pub(crate) const fn appends(write: &WriteRequest) -> bool {
    write.flags & O_APPEND != 0 && !write.write_flags.contains(WriteFlags::CACHE)
}

/// Whether a request goes through the kernel's page cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PagePath {
    /// The data is, or will be, in pages of the cache.
    Through,
    /// The data bypasses the cache.
    Around,
}

impl PagePath {
    /// The path of a request with this owner of locks. The kernel sets one, the caller's table of open files, in requests that bypass
    /// its cache (seen on Linux 6.18), and none in those for pages.
    pub(crate) const fn of(lock_owner: Option<u64>) -> Self {
        match lock_owner {
            Some(_) => Self::Around,
            None => Self::Through,
        }
    }
}

/// Whether a request of a file with these flags is a direct one (O_DIRECT).
pub(crate) fn is_direct(flags: u32, path: PagePath) -> bool {
    flags & O_DIRECT != 0 && path == PagePath::Around
}

/// Whether all I/O of a file that is opened with these flags bypasses the kernel's cache: it is for direct writes, and a file that cannot be
/// read cannot be mapped.
pub(crate) const fn is_around_cache(flags: u32) -> bool {
    flags & O_DIRECT != 0 && flags & O_ACCMODE == O_WRONLY
}

/// Whether a write must be durable before its answer. For a file or mount that was opened that way, the kernel asks for that itself, with an FSYNC
/// after the WRITE (Linux 6.18), if the write goes through its page cache. It does not know the flag of an inode,
/// and it does not ask if the write bypasses its cache and its caller does not wait. Data that it writes back for a mapping becomes durable with
/// the next sync.
pub(crate) fn is_durable(write: &WriteRequest, path: PagePath, marked: InodeFlags) -> bool {
    let asked = write.flags & O_DSYNC != 0 && path == PagePath::Around;
    (asked || marked.contains(InodeFlags::SYNC)) && !write.write_flags.contains(WriteFlags::CACHE)
}

/// Answers an ioctl of the inode `id`. Returns whether that changed its flags.
pub(crate) fn answer(
    fs: &Filesystem,
    id: InodeId,
    command: u32,
    input: &[u8],
    output: &mut [u8],
) -> Result<(IoctlReply, bool), Errno> {
    let now = fs.stat(id, Wait::Yes)?.flags;
    match asked(command, now, input, output)? {
        FlagsRequest::Told(reply) => Ok((reply, false)),
        FlagsRequest::Set(flags) => {
            fs.set_attributes(id, &SetAttributes { flags: Some(flags), ..SetAttributes::default() })?;
            Ok((IoctlReply::default(), true))
        }
    }
}

/// A request about an inode's flags.
enum FlagsRequest {
    /// Reads the flags.
    Told(IoctlReply),
    /// Sets the flags to these.
    Set(InodeFlags),
}

/// Answers an ioctl of an inode with the flags `now`. Errors: another ioctl; an argument of a wrong size; an unknown
/// flag.
fn asked(command: u32, now: InodeFlags, input: &[u8], output: &mut [u8]) -> Result<FlagsRequest, Errno> {
    let word = input.get(..4).and_then(|word| word.try_into().ok()).map(u32::from_le_bytes);
    let word = word.ok_or(Errno::EINVAL);
    let wanted = match command {
        GET_FLAGS => return put_word(output, told(now), 4).map(FlagsRequest::Told),
        GET_XFLAGS => return put_word(output, to_word(&XFLAGS, now), FSXATTR_LEN).map(FlagsRequest::Told),
        // A caller that changes other flags writes `VERITY` back as it read it.
        SET_FLAGS => from_word(&FLAGS, now, word? & !(told(now) & VERITY)),
        SET_XFLAGS => from_word(&XFLAGS, now, word?),
        _ => return Err(Errno::ENOTTY),
    };
    wanted.map(FlagsRequest::Set).ok_or(Errno::EOPNOTSUPP)
}

/// Puts a word at the front of `len` bytes of answer.
fn put_word(output: &mut [u8], word: u32, len: usize) -> Result<IoctlReply, Errno> {
    let out = output.get_mut(..len).ok_or(Errno::EINVAL)?;
    out.fill(0);
    out[..4].copy_from_slice(&word.to_le_bytes());
    Ok(IoctlReply { result: 0, len })
}

fn to_word(table: &[(u32, InodeFlags)], flags: InodeFlags) -> u32 {
    table.iter().filter(|(_, flag)| flags.contains(*flag)).fold(0, |word, (bit, _)| word | bit)
}

/// The word of `FS_*_FL` bits that the ioctl returns.
fn told(flags: InodeFlags) -> u32 {
    // If both flags for compression are stored, the one that has effect.
    let flags = if flags.contains(InodeFlags::NOCOMPRESS) { flags - InodeFlags::COMPRESS } else { flags };
    to_word(&FLAGS, flags) | if flags.contains(InodeFlags::VERITY) { VERITY } else { 0 }
}

/// The flags `flags` with those of `table` set as in `word`; `None` if `word` has an unknown bit.
fn from_word(table: &[(u32, InodeFlags)], flags: InodeFlags, word: u32) -> Option<InodeFlags> {
    let known = table.iter().fold(0, |known, (bit, _)| known | bit);
    if word & !known != 0 {
        return None;
    }
    Some(
        table
            .iter()
            .fold(flags, |flags, (bit, flag)| if word & bit != 0 { flags | *flag } else { flags - *flag }),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back_and_unknown_bits_are_refused() {
        let flags = InodeFlags::NODATACOW | InodeFlags::IMMUTABLE | InodeFlags::PREALLOC;
        assert_eq!(to_word(&FLAGS, flags), 0x80_0010);
        assert_eq!(from_word(&FLAGS, flags, 0x80_0010), Some(flags));
        assert_eq!(from_word(&FLAGS, flags, 0x20), Some(InodeFlags::APPEND | InodeFlags::PREALLOC));
        assert_eq!(from_word(&FLAGS, flags, 0x1), None);
        assert_eq!(told(flags | InodeFlags::VERITY), 0x90_0010);
        assert_eq!(told(InodeFlags::COMPRESS | InodeFlags::NOCOMPRESS), 0x400);
        assert_eq!(from_word(&XFLAGS, flags, 0), Some(InodeFlags::NODATACOW | InodeFlags::PREALLOC));
    }
}
