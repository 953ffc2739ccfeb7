//! Checks permissions as Linux does for its own Btrfs. For a FUSE server the kernel only checks what it knows: names, opening, reading.
//! It knows nothing about controls, so the server checks those.
//!
//! Ids are those that the mount shows (`uid=`, `gid=`). The kernel does not tell the server how a mount maps ids (`idmapped`), so
//! there the filesystem's own ids count.

use creamery_base::{Error, ErrorKind, InodeId, Wait};
use creamery_fs::{Attributes, Filesystem, InodeFlags};
use creamery_fuse::Errno;

use crate::asker::Asker;
use crate::options::Owner;

/// The holder may look up and change names in any directory.
const CAP_DAC_OVERRIDE: u32 = 1;
/// The holder has the rights of the owner of any file.
const CAP_FOWNER: u32 = 3;

pub(crate) const WRITE: u32 = 2;
pub(crate) const SEARCH: u32 = 1;

const ACCESS_ACL: &[u8] = b"system.posix_acl_access";
/// Bytes of the header of an ACL, which is its version; then entries of 8 bytes follow: tag, permissions, id.
const ACL_HEAD: usize = 4;
const ACL_ENTRY: usize = 8;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The reason of a refusal: a message, or an errno without a message.
#[derive(Debug)]
pub(crate) enum Refused {
    By(Errno),
    Because(Error),
}

impl From<Errno> for Refused {
    fn from(errno: Errno) -> Self {
        Self::By(errno)
    }
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Because(error)
    }
}

impl From<ErrorKind> for Refused {
    fn from(kind: ErrorKind) -> Self {
        Self::Because(kind.into())
    }
}

impl From<Refused> for Errno {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::By(errno) => errno,
            Refused::Because(error) => error.into(),
        }
    }
}

impl Refused {
    /// Converts the refusal to an error with a message.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Because(error) => error,
            Self::By(Errno::EACCES) => Error::new(ErrorKind::PermissionDenied, "the directory's permissions"),
            Self::By(Errno::EPERM) => ErrorKind::PermissionDenied.into(),
            Self::By(Errno::EEXIST) => ErrorKind::AlreadyExists.into(),
            Self::By(Errno::ENOENT) => ErrorKind::NotFound.into(),
            Self::By(Errno::ENOTDIR) => ErrorKind::NotADirectory.into(),
            Self::By(Errno::EROFS) => Error::new(ErrorKind::ReadOnly, "the mount"),
            Self::By(errno) => Error::new(ErrorKind::InvalidInput, errno.to_string()),
        }
    }
}

/// An inode with the attributes that decide permissions.
pub(crate) struct Judged {
    attributes: Attributes,
    uid: u32,
    gid: u32,
    acl: Option<Vec<u8>>,
    /// Whether the mount treats every asker as root.
    all_may: bool,
}

impl Judged {
    /// Errors: those of reading it.
    pub(crate) fn of(fs: &Filesystem, owner: Owner, id: InodeId) -> Result<Self, Refused> {
        let attributes = fs.stat(id, Wait::Yes)?;
        let acl = match fs.get_xattr(id, ACCESS_ACL, Wait::Yes) {
            Ok(acl) => Some(acl),
            Err(error) if matches!(error.kind(), ErrorKind::NoAttribute | ErrorKind::PermissionDenied) => {
                None
            }
            Err(error) => return Err(error.into()),
        };
        let (uid, gid) = (owner.uid.unwrap_or(attributes.uid), owner.gid.unwrap_or(attributes.gid));
        Ok(Self { attributes, uid, gid, acl, all_may: owner.is_fakeroot })
    }

    pub(crate) const fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Owner and group, as the mount shows them.
    pub(crate) const fn owners(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }

    /// Whether `asker` has the permissions `wanted` for a directory. Errors: `EACCES`; `EPERM` for writing to an immutable one.
    pub(crate) fn check_access(&self, asker: &Asker, wanted: u32) -> Result<(), Errno> {
        if wanted & WRITE != 0 && self.attributes.flags.contains(InodeFlags::IMMUTABLE) {
            return Err(Errno::EPERM); // before any other check
        }
        let uid = asker.fs_ids().map(|(uid, _)| uid);
        let who = Who { uid, is_in: &|gid| asker.is_in_group(gid) };
        if permissions(self.attributes.mode, (self.uid, self.gid), self.acl.as_deref(), &who) & wanted
            == wanted
            || asker.has(CAP_DAC_OVERRIDE)
            || self.all_may
        {
            return Ok(());
        }
        Err(Errno::EACCES)
    }

    /// Whether `asker` is the owner, or has the owner's rights. Errors: `EPERM`.
    pub(crate) fn check_owner(&self, asker: &Asker) -> Result<(), Errno> {
        let is_owner = asker.fs_ids().is_some_and(|(uid, _)| uid == self.uid);
        if is_owner || asker.has(CAP_FOWNER) || self.all_may { Ok(()) } else { Err(Errno::EPERM) }
    }
}

/// The ids of an asker that decide permissions.
struct Who<'a> {
    uid: Option<u32>,
    is_in: &'a dyn Fn(u32) -> bool,
}

/// The permissions of `who` for a file of these owners: the first class that matches, of owner, named users, groups and others.
fn permissions(mode: u32, (uid, gid): (u32, u32), acl: Option<&[u8]>, who: &Who<'_>) -> u32 {
    if who.uid == Some(uid) {
        return mode >> 6 & 7;
    }
    let Some(entries) = acl.and_then(|acl| acl.get(ACL_HEAD..)) else {
        return if (who.is_in)(gid) { mode >> 3 & 7 } else { mode & 7 };
    };
    let entries = || entries.chunks_exact(ACL_ENTRY).map(parse_entry);
    // With an ACL, the group bits of the mode are the mask.
    let mask = entries().find(|entry| entry.0 == MASK).map_or(7, |entry| entry.1);
    if let Some(named) = entries().find(|(tag, _, id)| *tag == USER && who.uid == Some(*id)) {
        return named.1 & mask;
    }
    let is_mine = |(tag, _, id): &(u16, u32, u32)| match *tag {
        GROUP_OBJ => (who.is_in)(gid),
        GROUP => (who.is_in)(*id),
        _ => false,
    };
    let mut groups = entries().filter(is_mine).map(|entry| entry.1).peekable();
    if groups.peek().is_none() {
        return entries().find(|entry| entry.0 == OTHER).map_or(mode & 7, |entry| entry.1);
    }
    // A group with all wanted permissions is enough. Only write and search are ever wanted together, and that case comes first.
    let all: Vec<u32> = groups.collect();
    let whole = all.iter().find(|found| *found & (WRITE | SEARCH) == WRITE | SEARCH);
    let best =
        whole.copied().unwrap_or_else(|| all.iter().copied().max_by_key(|found| found & SEARCH).unwrap_or(0));
    best & mask
}

fn parse_entry(entry: &[u8]) -> (u16, u32, u32) {
    let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
    (half(0), u32::from(half(2)), id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER_OBJ: u16 = 0x01;

    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = 2_u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in entries {
            out.extend([tag.to_le_bytes(), permissions.to_le_bytes()].concat());
            out.extend(id.to_le_bytes());
        }
        out
    }

    #[test]
    fn the_first_that_fits_says_what_one_may() {
        let is_in = |gid: u32| gid == 100 || gid == 200;
        let who = |uid| Who { uid: Some(uid), is_in: &is_in };
        let rows = [(1000, 0o700, (1000, 1), 7), (1000, 0o077, (1000, 100), 0), (1001, 0o750, (1, 100), 5)];
        for (uid, mode, owners, want) in rows {
            assert_eq!(permissions(mode, owners, None, &who(uid)), want, "{uid} {mode:o}");
        }
        assert_eq!(permissions(0o703, (1, 2), None, &who(7)), 3);
        let none = u32::MAX;
        let list = [
            (USER_OBJ, 7, none),
            (USER, 7, 7),
            (GROUP_OBJ, 4, none),
            (GROUP, 3, 200),
            (MASK, 5, none),
            (OTHER, 2, none),
        ];
        let list = acl(&list);
        let of = |uid, gid| permissions(0o752, (1, gid), Some(&list), &who(uid));
        assert_eq!(of(1, 2), 7, "the owner's own");
        assert_eq!(of(7, 2), 5, "a named user's, with the mask");
        assert_eq!(of(8, 100), 1, "of two groups the one that has more of it, with the mask");
        let few = acl(&[(USER_OBJ, 7, none), (GROUP_OBJ, 4, none), (OTHER, 2, none)]);
        assert_eq!(permissions(0o742, (1, 2), Some(&few), &who(8)), 2, "others");
    }
}
