//! Words of bits: what open(2) is told, and chattr's flags. The latter reach us as the two pairs of ioctls that the
//! kernel translates its file attribute calls to.
//!
//! | ioctl | carries |
//! |---|---|
//! | `FS_IOC_GETFLAGS`, `FS_IOC_SETFLAGS` | a word of `FS_*_FL` bits |
//! | `FS_IOC_FSGETXATTR`, `FS_IOC_FSSETXATTR` | `struct fsxattr`, 28 bytes, its first word `FS_XFLAG_*` bits |

use creamery_fs::{Access, InodeFlags};
use creamery_fuse::WriteRequest;
use creamery_fuse::protocol::WriteFlags;

const O_ACCMODE: u32 = 0o3;
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;
/// Write behind the end.
const O_APPEND: u32 = 0o2000;
/// Cut the file to nothing while opening it.
pub(crate) const O_TRUNC: u32 = 0o1000;

pub(crate) const GET_FLAGS: u32 = 0x8008_6601;
pub(crate) const SET_FLAGS: u32 = 0x4008_6602;
pub(crate) const GET_XFLAGS: u32 = 0x801c_581f;
pub(crate) const SET_XFLAGS: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`.
pub(crate) const FSXATTR_LEN: usize = 28;

/// `FS_*_FL` bits beside ours.
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

/// `FS_XFLAG_*` bits beside ours.
const XFLAGS: [(u32, InodeFlags); 5] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
];

/// What a file opened with these flags may be used for.
pub(crate) const fn access(flags: u32) -> Access {
    match (flags & O_ACCMODE, flags & O_APPEND) {
        (O_RDONLY, _) => Access::Read,
        (_, 0) => Access::Write,
        _ => Access::Append,
    }
}

/// Whether a shared mapping of a file opened with these flags may be written to.
pub(crate) const fn maps(flags: u32) -> bool {
    flags & O_ACCMODE == O_RDWR
}

/// Whether a write appends. The kernel leaves out the flags of a file whose pages it writes back, which were changed by a mapping
/// and lie anywhere.
pub(crate) const fn appends(write: &WriteRequest) -> bool {
    write.flags & O_APPEND != 0 && !write.write_flags.contains(WriteFlags::CACHE)
}

fn to_word(table: &[(u32, InodeFlags)], flags: InodeFlags) -> u32 {
    table.iter().filter(|(_, flag)| flags.contains(*flag)).fold(0, |word, (bit, _)| word | bit)
}

/// Our flags with those of `table` as `word` has them; none when the word has a bit that we do not know.
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

pub(crate) fn to_flags_word(flags: InodeFlags) -> u32 {
    to_word(&FLAGS, flags)
}

pub(crate) fn to_xflags_word(flags: InodeFlags) -> u32 {
    to_word(&XFLAGS, flags)
}

pub(crate) fn from_flags_word(flags: InodeFlags, word: u32) -> Option<InodeFlags> {
    from_word(&FLAGS, flags, word)
}

pub(crate) fn from_xflags_word(flags: InodeFlags, word: u32) -> Option<InodeFlags> {
    from_word(&XFLAGS, flags, word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_lead_back_and_unknown_bits_are_refused() {
        let flags = InodeFlags::NODATACOW | InodeFlags::IMMUTABLE | InodeFlags::PREALLOC;
        assert_eq!(to_flags_word(flags), 0x80_0010);
        assert_eq!(from_flags_word(flags, 0x80_0010), Some(flags));
        assert_eq!(from_flags_word(flags, 0x20), Some(InodeFlags::APPEND | InodeFlags::PREALLOC));
        assert_eq!(from_flags_word(flags, 0x1), None);
        assert_eq!(from_xflags_word(flags, 0), Some(InodeFlags::NODATACOW | InodeFlags::PREALLOC));
    }
}
