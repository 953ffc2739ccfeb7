//! The owner, the mode and the ACL of what takes the place of a file.

use std::ffi::{CStr, CString};
use std::os::fd::{AsRawFd, BorrowedFd};

use creamery_base::{Error, Result};
use rustix::fs::{
    Gid, Mode, Uid, XattrFlags, fchmod, fchown, fremovexattr, fsetxattr, fstat, getxattr, listxattr,
};
use rustix::io::Errno;

use crate::fs::CAPABILITIES;

/// The extended attribute that is the ACL of a file of the host.
pub(crate) const ACL: &CStr = c"system.posix_acl_access";
/// The one that what is made in a directory of the host gets.
pub(crate) const DEFAULT_ACL: &CStr = c"system.posix_acl_default";
/// Linux caps both a value and a list of extended attributes at this.
const XATTRS_MAX: usize = 64 << 10;
fn error(errno: Errno) -> Error {
    std::io::Error::from(errno).into()
}

/// What is copied over a file is no more public than that was, and as much its owner's, as with cp(1): for whom its ACL says, too. `old` is that
/// file, opened with `O_PATH`.
///
/// # Errors
/// The host's.
pub(super) fn keep_rights(file: BorrowedFd<'_>, old: BorrowedFd<'_>) -> Result<()> {
    let meta = fstat(old).map_err(error)?;
    let is_owned = give_owner(file, old)?;
    // One that its directory gave it; most have none.
    let _ = fremovexattr(file, ACL);
    // What the old group may, another one may not.
    let kept = if is_owned { 0o777 } else { 0o707 };
    fchmod(file, Mode::from_raw_mode(meta.st_mode & kept)).map_err(error)?;
    let mine = |name: &CStr| is_owned || name != ACL;
    for (name, value) in
        host_xattrs(&format!("/proc/self/fd/{}", old.as_raw_fd()))?.into_iter().filter(|(name, _)| mine(name))
    {
        // Where that is not to be had, what the mode calls the group's is the most that the ACL allows anybody.
        if fsetxattr(file, &name, &value, XattrFlags::empty()).is_err() && *name == *ACL {
            fchmod(file, Mode::from_raw_mode(meta.st_mode & 0o707)).map_err(error)?;
        }
    }
    Ok(())
}

/// Gives a file the owner and the group of another one. False where this user may not.
///
/// # Errors
/// The host's.
pub(super) fn give_owner(file: BorrowedFd<'_>, old: BorrowedFd<'_>) -> Result<bool> {
    let meta = fstat(old).map_err(error)?;
    owned(fchown(file, Some(Uid::from_raw(meta.st_uid)), Some(Gid::from_raw(meta.st_gid))))
}

/// The extended attributes of a file of the host, as far as they can be read, but for what a program may: that goes with it.
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

/// Whether a copy has the owner of its source. Only who may give files away does: the copy of another user is that user's, as with cp(1). So is one
/// of root in a container, where that owner is nobody.
pub(crate) fn owned(outcome: rustix::io::Result<()>) -> Result<bool> {
    match outcome {
        Err(Errno::PERM | Errno::INVAL) => Ok(false),
        outcome => outcome.map(|()| true).map_err(error),
    }
}
