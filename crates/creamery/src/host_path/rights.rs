//! The owner, the mode and the ACL of a file that replaces another.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd};

use creamery_base::{Error, Result};
use rustix::fs::{
    Gid, Mode, Uid, XattrFlags, fchmod, fchown, fremovexattr, fsetxattr, fstat, getxattr, listxattr,
};
use rustix::io::Errno;

use crate::fs::CAPABILITIES;

/// The extended attribute with the ACL of a file of the host.
pub(crate) const ACL: &CStr = c"system.posix_acl_access";
/// The extended attribute of a directory of the host with the ACL for new files in it.
pub(crate) const DEFAULT_ACL: &CStr = c"system.posix_acl_default";
/// Bytes; Linux limits both a value and a list of extended attributes to this.
const XATTRS_MAX: usize = 64 << 10;
fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

/// Makes a copy no more public than the file that it replaces, with that file's owner, as with cp(1); its ACL is kept, too. `old` is that
/// file, opened with `O_PATH`.
///
/// # Errors
/// The host's.
pub(super) fn keep_rights(file: BorrowedFd<'_>, old: BorrowedFd<'_>) -> Result<()> {
    let meta = fstat(old).map_err(error)?;
    let is_owned = give_owner(file, old)?;
    // An ACL from the directory's default ACL; most files have none.
    let _ = fremovexattr(file, ACL);
    // Rights of the old group do not pass to another group.
    let kept = if is_owned { 0o777 } else { 0o707 };
    fchmod(file, Mode::from_raw_mode(meta.st_mode & kept)).map_err(error)?;
    let mine = |name: &CStr| is_owned || name != ACL;
    for (name, value) in
        host_xattrs(&format!("/proc/self/fd/{}", old.as_raw_fd()))?.into_iter().filter(|(name, _)| mine(name))
    {
        // Without the ACL, the group would get the rights of its mask; so the group bits are cleared.
        if fsetxattr(file, &name, &value, XattrFlags::empty()).is_err() && *name == *ACL {
            fchmod(file, Mode::from_raw_mode(meta.st_mode & 0o707)).map_err(error)?;
        }
    }
    Ok(())
}

/// Gives a file the owner and the group of another one. False if this user may not.
///
/// # Errors
/// The host's.
pub(super) fn give_owner(file: BorrowedFd<'_>, old: BorrowedFd<'_>) -> Result<bool> {
    let meta = fstat(old).map_err(error)?;
    owned(fchown(file, Some(Uid::from_raw(meta.st_uid)), Some(Gid::from_raw(meta.st_gid))))
}

/// The readable extended attributes of a file of the host, without its capabilities, which a new content does not keep.
fn host_xattrs(path: &str) -> Result<Vec<(CString, Vec<u8>)>> {
    let mut buffer = vec![0; XATTRS_MAX];
    let len = listxattr(path, buffer.as_mut_slice()).unwrap_or(0);
    let names = buffer[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let names: Vec<CString> = names.map(|name| CString::new(name).expect("split at zeros")).collect();
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| name.to_bytes() != CAPABILITIES) {
        if let Ok(len) = getxattr(path, &name, buffer.as_mut_slice()) {
            found.push((name, buffer[..len].to_vec()));
        }
    }
    Ok(found)
}

/// Whether a copy has the owner of its source. That needs the right to give files away: the copy of another user belongs to that user, as
/// with cp(1). So does a copy of root in a container that does not know the owner.
pub(crate) fn owned(outcome: rustix::io::Result<()>) -> Result<bool> {
    match outcome {
        Err(Errno::PERM | Errno::INVAL) => Ok(false),
        outcome => outcome.map(|()| true).map_err(error),
    }
}
