//! The mounter, as a user of their own mount.

use creamery_base::Result;
use creamery_fs::Filesystem;
use creamery_fuse::Errno;

use crate::asker::Asker;
use crate::open::subvolume_root;
use crate::options::Options;
use crate::rights::{Judged, Refused, SEARCH, WRITE};

/// Why this user will make nothing in the root directory of a mount of `fs` that is for writing, and the ways out, in a sentence. None where
/// they may.
///
/// # Errors
/// No such subvolume; the root directory cannot be read.
pub fn why_mounter_makes_nothing(fs: &Filesystem, options: &Options) -> Result<Option<String>> {
    if options.transport.read_only() {
        return Ok(None);
    }
    let root = subvolume_root(fs, options)?;
    let judged = Judged::of(fs, options.owner, root).map_err(Refused::into_error)?;
    let this_thread = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    if judged.check_access(&Asker::of(this_thread), WRITE | SEARCH) != Err(Errno::EACCES) {
        return Ok(None);
    }
    let (uid, gid) = judged.owners();
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(Some(format!(
        "user {user} may not write to its root directory, which is {uid}:{gid}'s: mount it with -o fakeroot (new files are root's) or -o uid={user},gid={group} \
         (all files are shown as yours), or make it with mkfs --owner {user}:{group}"
    )))
}
